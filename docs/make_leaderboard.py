"""Write docs/leaderboard.md from the result records and the figure in docs/leaderboard.

circurve reproduce leaderboard --data-dir FOLDER --out docs/leaderboard
python docs/make_leaderboard.py
"""

from __future__ import annotations

from pathlib import Path

from circurve.reproduction.leaderboard_report import leaderboard_page

DOCS = Path(__file__).parent
RESULTS = DOCS / "leaderboard"
REMARK = """Up to eight other trainings used the same GPU at the same time; alone, a seed takes less time. Seeds 0 and 2
of bbc are older than the other records: their members had the two pseudocounts that were best for single circuits, and
joint training replaced the members before it, where it now adds to them."""


def main() -> None:
    """Write the page."""
    (DOCS / "leaderboard.md").write_text(leaderboard_page(RESULTS, RESULTS.name, REMARK))


if __name__ == "__main__":
    main()
