"""Messages, docstrings and pages use plain words: no archaic or stilted phrases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ARCHAIC = (
    *("albeit", "amongst", "anew", "ere", "hence", "hereby", "herein", "hitherto", "lest", "notwithstanding", "nought"),
    *("shall", "thence", "thereby", "therein", "thereof", "thus", "unto", "upon", "whence", "whereas", "whereby"),
    *("wherein", "whereof", "whilst", "withal"),
)
STILTED = (
    *("a word from", "all but", "as it were", "at fault", "be it", "beside", "breaks off", "by heart", "fares"),
    *("gives way", "goes by", "held against", "if need be", "is had", "lies within", "now and then"),
    *("nothing but", "once more", "say nothing", "says nothing", "share out", "shared out", "shares out", "so many"),
    *("so much", "such as have", "the like", "to blame", "wants", "where that is", "without a word"),
)
BANNED = re.compile(rf"\b({'|'.join((*ARCHAIC, *STILTED))})\b", re.IGNORECASE)

UNCLOSED = re.compile(r"(- )?(\*{3}[^*]+\*{2}|\*{2}[^*]+\*)(?!\*)")

FOLDERS = ("src", "docs", "examples", "benchmarks", "stress", ".github", "web/src")
SUFFIXES = (".py", ".md", ".yml", ".js", ".html", ".css")
GENERATED = ("docs/_build", "docs/reproduction/", "docs/leaderboard/", "src/circurve/report/assets", "results/")


def pages() -> list[Path]:
    """The files that people read, without bundles and result files."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return [
        *ROOT.glob("*.md"),
        *(path for path in sorted(found) if not any(part in path.as_posix() for part in GENERATED)),
    ]


def phrases(text: str) -> list[str]:
    """The banned phrases of a text, also those that a line break or the quotes of two string literals divide."""
    joined = re.sub(r'"\n\s*f?"|\s*\n\s*((#|//)\s)?', " ", text)
    return [" ".join(found[1].split()) for found in BANNED.finditer(re.sub(r"\s+", " ", joined))]


def unclosed(text: str) -> list[str]:
    """Lines of Markdown that begin with more or fewer asterisks than their emphasis ends with."""
    return [line for line in text.splitlines() if UNCLOSED.match(line)]


def test_no_page_has_a_banned_phrase() -> None:
    wrong = {
        path.relative_to(ROOT).as_posix(): found for path in pages() if (found := phrases(path.read_text("utf-8")))
    }
    assert not wrong, "say it in plain words (CONTRIBUTING.md, Habits)"


def test_many_pages_are_read() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in pages()}
    assert {"README.md", "docs/tour.md", "src/circurve/errors.py", "web/src/rows.js", "web/src/page.html"} <= names
    assert len(names) > 300


@pytest.mark.parametrize(
    "text",
    [
        "It is made anew.",
        "--mu says nothing",
        '"of so "\n    f"many rows"',
        "# nothing\n# but rounding",
        "// so\n// many",
        "Hence",
    ],
)
def test_a_banned_phrase_is_found(text: str) -> None:
    assert phrases(text)


@pytest.mark.parametrize("text", ["many rows", "the stylish", "`besides`", "upwards", "where the"])
def test_plain_words_pass(text: str) -> None:
    assert not phrases(text)


def test_emphasis_is_closed_on_every_page() -> None:
    wrong = {
        path.name: found for path in pages() if path.suffix == ".md" and (found := unclosed(path.read_text("utf-8")))
    }
    assert not wrong


@pytest.mark.parametrize("text", ["***Ask.** Any", "**Fill in.* Known", "- ***a** b"])
def test_unclosed_emphasis_is_found(text: str) -> None:
    assert unclosed(text)
    assert not unclosed(text.replace("***", "**").replace("in.* ", "in.** "))
