"""Write docs/reproduction.md from the result records and figures in docs/reproduction.

python docs/make_reproduction.py
"""

from __future__ import annotations

from pathlib import Path

from circurve.reproduction.page import load_shelves, reproduction_page

DOCS = Path(__file__).parent
RESULTS = DOCS / "reproduction"


def main() -> None:
    """Write the page."""
    (DOCS / "reproduction.md").write_text(reproduction_page(load_shelves(RESULTS), RESULTS, RESULTS.name))


if __name__ == "__main__":
    main()
