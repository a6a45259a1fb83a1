"""One Markdown page about a reproduction: which claims hold, all tables, all figures; nothing typed in by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from circurve.experiments.claim_list import check_claims
from circurve.experiments.findings import PAPER_AUTHORS, PAPER_TITLE, both_structures, opening, study_lines
from circurve.experiments.outputs import FIGURE_NAMES, TABLES, Shelf
from circurve.experiments.records import Record
from circurve.experiments.spec import PROTOCOLS
from circurve.experiments.table import as_markdown

__all__ = ["folded", "load_shelves", "reproduction_page"]

INTRODUCTION = f"""# Reproduction

The tables and figures of *{PAPER_TITLE}* by {PAPER_AUTHORS},
computed again, with what goes beyond them. This page is made from the result records beside it by
`python docs/make_reproduction.py`; every verdict and every number is computed from them.
"""


def load_shelves(folder: Path) -> dict[str, Shelf]:
    """FOLDER/PROTOCOL for every protocol, each made by `circurve reproduce --out`; those not there are left out."""
    shelves = {protocol: Shelf.load(folder / protocol) for protocol in PROTOCOLS}
    return {protocol: shelf for protocol, shelf in shelves.items() if shelf.records}


def reproduction_page(shelves: Mapping[str, Shelf], folder: Path, link: str) -> str:
    """The page; figures lie in `folder`/PROTOCOL, and `link` is how the page refers to that folder."""
    parts = [INTRODUCTION, opening(check_claims(shelves), shelves), both_structures(shelves), _studies(shelves)]
    for protocol, shelf in shelves.items():
        parts.append(f"## Protocol {protocol}")
        for report in filter(None, (shelf.report(table) for table in TABLES)):
            parts += [as_markdown(replace(report, notes=()), level=3), folded(report.notes)]
        parts += [_figure(folder / protocol, f"{link}/{protocol}", name) for name in FIGURE_NAMES]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _studies(shelves: Mapping[str, Shelf]) -> str:
    """Where curvature helps after fair tuning: a line for each study; nothing where none was run."""
    lines = study_lines(shelves)
    if not lines:
        return ""
    title = "## Where curvature helps after fair tuning"
    about = "Against tuned plain EM (or, for rules that stop it, its last epoch), over data sets and cases:"
    return "\n\n".join([title, about, "\n".join(f"- {line.text()}" for line in lines.values())])


def folded(notes: Sequence[str]) -> str:
    """How numbers came about, there for those who ask."""
    lines = "\n".join(f"- {note}" for note in notes)
    return f"<details><summary>How these numbers came about</summary>\n\n{lines}\n\n</details>"


def _figure(folder: Path, link: str, name: str) -> str:
    """A figure with its caption, findings and origin; nothing where it was not drawn."""
    path = folder / f"{name}.json"
    if not path.exists():
        return ""
    about: Record = json.loads(path.read_text())
    found = "\n".join(f"- {line}" for line in about["findings"])
    picture = f"![{about['title']}]({link}/{name}.svg)" if (folder / f"{name}.svg").exists() else ""
    parts = [f"### {name}: {about['title']}", picture, about["reading"], found, folded(about["notes"])]
    return "\n\n".join(part for part in parts if part)
