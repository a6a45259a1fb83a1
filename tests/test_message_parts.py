"""Messages name arguments as parts, which Python and the command line spell each in their own way."""

from __future__ import annotations

import pickle

import pytest

from circurve.cli.failures import Options, report
from circurve.data.convert import about
from circurve.errors import Argument, DataError, FileAccessError

COMMAND = {"missing": "--missing", "types": "--types", "header": "--header"}
OPTIONS = Options({**COMMAND, "data_dir": "--data-dir"}, COMMAND)


@pytest.mark.parametrize(
    ("argument", "python", "command_line"),
    [
        (Argument("missing", -1), "missing=-1", "--missing -1"),
        (Argument("data_dir"), "data_dir", "--data-dir"),
        (Argument("header", True), "header=True", "--header"),
        (Argument("types", {"a b": "drop"}), "types={'a b': 'drop'}", "--types a b=drop"),
        (Argument("labels"), "labels", "labels"),
        (Argument("labels", 3, "or pass "), "or pass labels=3", ""),
        (Argument("missing", -1, "or pass "), "or pass missing=-1", "or pass --missing -1"),
        (Argument("data_dir", "DEBD", "or pass "), "or pass data_dir='DEBD'", ""),
    ],
)
def test_an_argument_is_spelled_as_it_is_typed(argument, python, command_line, capsys):
    error = DataError("say ", argument)
    assert str(error) == f"say {python}"
    report(error, OPTIONS, debug=False)
    assert capsys.readouterr().err == f"circurve: error: {f'say {command_line}'.strip()}\n"


def test_parts_outlive_a_prefix():
    with pytest.raises(DataError, match=r"^rows\.csv: say missing=-1$") as caught, about("rows.csv"):
        raise DataError("say ", Argument("missing", -1))
    assert caught.value.parts == ("rows.csv: ", "say ", Argument("missing", -1))


def test_errors_of_several_parts_are_pickled_with_their_text():
    error = FileAccessError("cannot write; say ", Argument("data_dir", "DEBD"))
    assert str(pickle.loads(pickle.dumps(error))) == "cannot write; say data_dir='DEBD'"
