"""Help, completion and errors about wrong options come before anything slow is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from inspect import signature

import pytest

from circurve.cli.commands.reproduction import TABLES
from circurve.cli.program import COMMANDS, DATA_COMMANDS
from circurve.learning.gates import GATES
from circurve.names import PLAIN_GATES
from circurve.reproduction import outputs

SLOW = ("torch", "pandas", "polars", "pyarrow", "sklearn", "matplotlib", "scipy", "narwhals")

PROGRAM = f"""
import sys
from circurve.__main__ import main
try:
    main()
finally:
    print(sorted(set(sys.modules) & {set(SLOW)!r}), file=sys.stderr)
"""


def run(*words: str, **environment: str) -> tuple[int, str, str]:
    """The exit code, the output, and the last line of errors: the slow packages that were imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (("--help",), 0, "ask them questions"),
        ((), 2, "ask them questions"),
        (("--version",), 0, "circurve"),
        (("fit", "--help"), 0, "--checkpoint"),
        (("reproduce", "--help"), 0, "study-weights"),
        (("data", "download", "--help"), 0, "CIRCURVE_CACHE"),
        (("fit", "table.csv", "--unit", "3"), 2, ""),
        (("fit", "table.csv", "--structure", "tree"), 2, ""),
        (("evaluate",), 2, ""),
        (("nonsense",), 2, ""),
    ],
)
def test_a_command_that_only_shows_text_imports_nothing_slow(words, code, printed):
    ended, output, imported = run(*words)
    assert (ended, imported) == (code, "[]")
    assert printed in output


def test_completion_imports_nothing_slow():
    words = {"COMP_WORDS": "circurve fit table.csv --structure h", "COMP_CWORD": "4"}
    assert run(_CIRCURVE_COMPLETE="complete_bash", **words) == (0, "hclt\nhmm\n", "[]")


def test_a_command_that_works_imports_torch():
    """The list of modules is read where something is imported."""
    ended, _, imported = run("info", "no-such-model")
    assert (ended, "torch" in imported) == (2, True)


@pytest.mark.parametrize("command", [*COMMANDS, *DATA_COMMANDS], ids=lambda command: command.module + command.name)
def test_the_function_of_a_command_takes_its_record(command):
    function = getattr(import_module(command.module), command.function)
    (parameter,) = signature(function).parameters.values()
    assert parameter.annotation == command.record.__name__


def test_names_in_the_help_are_those_of_the_library():
    assert tuple(outputs.TABLES) == TABLES
    assert (outputs.FIGURE_NAMES[0], outputs.FIGURE_NAMES[-1]) == ("fig-1", "fig-7")
    assert (outputs.ALL, outputs.ALL_STUDIES, outputs.LEADERBOARD) == ("all", "studies", "leaderboard")
    assert tuple(GATES) == PLAIN_GATES
