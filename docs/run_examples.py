"""Run examples/*.py and the lines after >>> in README.md and docs, and write down what they print.

python docs/run_examples.py

`tests/test_examples.py` runs them too, and compares what they print with the text on the page.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

__all__ = ["PAGES", "SCRIPTS", "output_file", "page_with_output", "run_page", "run_scripts"]

ROOT = Path(__file__).parent.parent
SCRIPTS = tuple(sorted((ROOT / "examples").glob("*.py")))
PAGES = tuple(
    ROOT / name
    for name in (
        "README.md",
        "docs/questions.md",
        "docs/estimators.md",
        "docs/howto/files.md",
        "docs/howto/many-machines.md",
    )
)

FAILED = re.compile(r"\w*(Error|Warning)\b")
"""How the output of a statement that is meant to fail begins."""

WIDTH = "100"
"""Characters in a line, for data frames, whatever the terminal has."""


def output_file(script: Path) -> Path:
    """Where the output of a script is kept."""
    return script.parent / "output" / f"{script.stem}.txt"


RUN = """
import contextlib, io, json, runpy, sys
printed = {}
for script in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(script, run_name="__main__")
    printed[script] = output.getvalue()
print(json.dumps(printed))
"""
"""One process for all scripts: most of a script's time is that of importing torch."""


def run_scripts(folder: Path) -> dict[Path, str]:
    """What each script prints when it runs in a folder, on a CPU."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", RUN, *map(str, SCRIPTS)]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"an example failed:\n{done.stderr}")
    return {Path(script): printed for script, printed in json.loads(done.stdout).items()}


def run_page(text: str) -> list[tuple[doctest.Example, str]]:
    """Every statement after >>> on a page, and what it prints; all of them share their names."""
    names: dict[str, Any] = {"__name__": "page"}
    with mock.patch.dict(os.environ, COLUMNS=WIDTH):
        return [(example, _output(example, names)) for example in _examples(text)]


def page_with_output(text: str) -> str:
    """The page with what its statements print in place of what stood there."""
    printed = iter([output for _, output in run_page(text)])
    return "".join(
        piece if isinstance(piece, str) else _with_prompts(piece.source) + next(printed) for piece in _pieces(text)
    )


def _pieces(text: str) -> list[str | doctest.Example]:
    """The text between statements, and the statements. A line of ``` ends the output of the last one."""
    guarded = text.replace("\n```\n", "\n\n```\n")  # doctest takes all up to an empty line for output
    pieces = doctest.DocTestParser().parse(guarded)
    return [_unguarded(piece) if isinstance(piece, str) else piece for piece in pieces]


def _unguarded(text: str) -> str:
    return text.replace("\n\n```\n", "\n```\n").removeprefix("\n" if text.startswith("\n```\n") else "")


def _examples(text: str) -> Iterator[doctest.Example]:
    return (piece for piece in _pieces(text) if isinstance(piece, doctest.Example))


def _with_prompts(source: str) -> str:
    first, *more = source.splitlines()
    return "".join(f"{line}\n" for line in (f">>> {first}", *(f"... {line}" for line in more)))


def _output(example: doctest.Example, names: dict[str, Any]) -> str:
    found = io.StringIO()
    with contextlib.redirect_stdout(found), contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(compile(example.source, "<page>", "single"), names)
        except Exception as error:
            if not FAILED.match(example.want):
                raise
            print(f"{type(error).__name__}: {error}")
    return found.getvalue()


def main() -> None:
    """Write all outputs."""
    for script, printed in run_scripts(ROOT).items():
        output_file(script).write_text(printed)
        print(f"wrote {output_file(script).relative_to(ROOT)}")
    for page in PAGES:
        page.write_text(page_with_output(page.read_text()))
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
