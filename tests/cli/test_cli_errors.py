"""Every mistake is one line on standard error and an exit code; a traceback only for those who ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_helpers import error_line, write_csv

from circurve.errors import WorkerError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--units 0", "--units must be a whole number from 1 to 1000000, not 0"),
        ("--units 99999999999999999999999", "--units must be a whole number from 1 to 1000000, not 9999"),
        ("--units 1000000 --out m", "parameters do not fit into the memory of this machine"),
        ("--units many", "--units"),
        ("--epochs -1", "--epochs must be a whole number >= 0, not -1"),
        ("--seed -1", "seed must be a whole number >= 0, not -1"),
        ("--batch-size half", "--batch-size must be a whole number or 'full', not 'half'"),
        ("--batch-size 0", "--batch-size must be a whole number >= 1, not 0"),
        ("--step-size 3", "--step-size must be above 0 and at most 1, not '3'"),
        ("--step-size nan", "--step-size must be above 0 and at most 1, not 'nan'"),
        ("--step-size cosine:0.1", "KIND:START:END"),
        ("--step-size sine:0.1:0.2", "cosine, linear, exponential"),
        ("--step-size exponential:0.1:0", "not '0' in 'exponential:0.1:0'"),
        ("--pseudocount -1", "pseudocount must be a number from 0 to 1e+18, not -1.0"),
        ("--pseudocount 1e39", "pseudocount must be a number from 0 to 1e+18, not 1e+39"),
        ("--patience 0", "patience must be a whole number >= 1, not 0"),
        ("--tolerance -1", "tolerance must be a finite number >= 0, not -1.0"),
        ("--structure tree", "'tree' is not one of 'hclt', 'chow_liu', 'hmm', 'rat', 'mixture', 'factorized'"),
        ("--method newton", "'newton' is not one of"),
        ("--select worst", "'worst' is not one of 'best', 'last'"),
        ("--init kmeans", "'kmeans' is not one of 'random', 'prototypes'"),
        ("--precision float16", "'float16' is not one of 'float32', 'float64'"),
        ("--device tpu", "device must be 'auto', 'cpu', 'cuda' or a torch device, not 'tpu'"),
        ("--split 0.8,0.3", "--split must be shares for train, valid and test that add up to 1, not '0.8,0.3'"),
        ("--split 0.8,x", "not '0.8,x'"),
        ("--split 0,1", "not '0,1'"),
        ("--split 0.8,0.2 --no-split", "--split and --no-split cannot be combined"),
        ("--split 0.8,0.2 --valid table.csv", "--split cannot be combined with --valid or --test"),
        ("--no-split --patience 2", "need validation rows"),
        ("--no-split --select best", "need validation rows"),
        ("--bogus", "No such option: --bogus"),
        ("--valid nowhere.csv", "nowhere.csv: no such file"),
        ("--valid narrow.csv", "narrow.csv: data has 3 columns, the circuit has 5 variables"),
        ("--valid swapped.csv", "swapped.csv: no column 'x' in the training data; there are 'a', 'b', 'c', 'd', 'e'"),
        ("--valid parts.npz", "parts.npz: expected one table"),
    ],
)
def test_wrong_options_of_fit(invoke, table, rows, options, expected):
    write_csv("narrow.csv", rows[:, :3])
    write_csv("swapped.csv", rows, "x,a,c,d,e")
    np.savez("parts.npz", train=rows, valid=rows)
    assert expected in error_line(invoke(f"fit {table} {options}"))


def test_a_circuit_that_free_memory_does_not_hold_is_refused(invoke, table, monkeypatch):
    """Free memory is asked for in one place, which knows every system and the limits of containers."""
    monkeypatch.setattr("circurve.cli.models.available_memory", lambda: 1000)
    line = error_line(invoke(f"fit {table} --units 3 --out m"))
    assert "parameters do not fit into the memory of this machine" in line


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("digit", "unknown data set 'digit' (did you mean digits?)"),
        ("nltcs --data-dir sets", "no data set 'nltcs' in sets; found there: tiny; without --data-dir it is"),
        ("tiny_", "unknown data set 'tiny_'"),
        ("tin --data-dir sets", "no data set 'tin' in sets (did you mean tiny?)"),
        ("tiny --data-dir nowhere", "--data-dir nowhere: no such folder"),
        ("nowhere.csv", "nowhere.csv: no such file"),
        ("words.csv", "words.csv:2: column 2 ('b') is numeric, but has the text 'x'; correct it"),
        ("late.csv", "late.csv:1: column 2 is numeric, but has the text 'x'; correct it"),
        ("ragged.csv", "ragged.csv:2: expected 2 fields, found 3"),
        ("empty.csv", "empty.csv: the file is empty"),
        ("damaged.npy", "damaged.npy: not a .npy file of numbers, or damaged"),
        ("table.xls", "table.xls: unknown kind of file '.xls'"),
        ("short.csv", "2 rows are too few"),
        ("huge.csv", "huge.csv: column 3 ('a'), line 9: value 1e+30 does not fit Gaussian"),
        ("parts.npz --split 0.5,0.5", "--split and --no-split are for a file with one table; parts already has parts"),
    ],
)
def test_data_that_cannot_be_used(invoke, folder, rows, data, expected):
    Path("sets").mkdir()
    for split in ("train", "valid", "test"):
        write_csv(f"sets/tiny.{split}.data", rows)
    texts = {
        "words": "a,b\n1,x\n2,3\n",
        "late": "1,x\n1,2\n",
        "ragged": "1,2\n1,2,3\n",
        "empty": "",
        "short": "1,2\n2,1\n",
    }
    for name, text in texts.items():
        Path(f"{name}.csv").write_text(text)
    write_csv("huge.csv", np.where(np.arange(100) == 37, 1e30, np.linspace(0, 1, 100)).reshape(20, 5), "c,b,a,d,e")
    Path("damaged.npy").write_text("damaged")
    Path("table.xls").write_text("1")
    np.savez("parts.npz", train=rows, valid=rows)
    assert expected in error_line(invoke(f"fit {data}"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("model.safetensors narrow.csv", "narrow.csv: data has 3 columns, the circuit has 5 variables"),
        ("model.safetensors turned.csv", "turned.csv: no column 'x' in the training data; there are 'a', 'b'"),
        ("model.safetensors parts.npz --split test", "--split test: parts has only train, valid"),
        ("model.safetensors table.csv --split some", "'some' is not one of"),
        ("model.safetensors table.csv --device tpu", "device must be"),
        ("nowhere.safetensors table.csv", "cannot read nowhere.safetensors: No such file or directory"),
        ("table.csv table.csv", "table.csv: not a safetensors file"),
        (". table.csv", "it is a folder"),
        ("model.safetensors", "Missing argument 'DATASET|FILE'"),
    ],
)
def test_wrong_arguments_of_evaluate(invoke, model, rows, arguments, expected):
    write_csv("narrow.csv", rows[:, :3])
    write_csv("turned.csv", rows[:, ::-1], "e,d,c,b,x")
    np.savez("parts.npz", train=rows, valid=rows)
    assert expected in error_line(invoke(f"evaluate {arguments}"))


def test_unknown_commands_are_refused_with_a_guess(invoke):
    assert "Did you mean 'evaluate'?" in error_line(invoke("evaluat"))
    assert "No such command 'lost'" in error_line(invoke("data lost"))
    assert "No such option" in error_line(invoke("--lost"))


def test_a_signal_does_not_hide_the_loss_of_a_worker(invoke, table, monkeypatch, capfd):
    """torchrun ends the workers that are left with SIGTERM, which may come while one of them handles the loss."""

    def explode(*_, **__):
        try:
            raise WorkerError("worker 0 of 2 lost the connection")
        except WorkerError:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("circurve.cli.fit.train", explode)
    assert invoke(f"fit {table} --epochs 1").exit_code == 1
    assert capfd.readouterr().err == "circurve: error: worker 0 of 2 lost the connection\n"


def test_an_unexpected_error_is_a_failure_of_one_line(invoke, table, monkeypatch):
    def explode(*_):
        raise RuntimeError("first\n  second")

    monkeypatch.setattr("circurve.cli.fit.train", explode)
    assert error_line(invoke(f"fit {table} --out m"), code=1) == "RuntimeError: first second (--debug shows where)"


@pytest.mark.parametrize("arguments", ["--debug fit nowhere.csv", "fit nowhere.csv --debug"])
def test_debug_shows_the_traceback_and_keeps_the_code(invoke, arguments):
    result = invoke(arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("circurve: error: nowhere.csv: no such file\n")


@pytest.mark.parametrize(
    "words",
    [
        "fit tiny --data-dir sets --out sets/tiny.valid.data",
        "fit sets --out sets/tiny.train.data",
        "sweep tiny --data-dir sets --csv sets/tiny.test.data",
        "curvature model.safetensors tiny --data-dir sets --csv sets/tiny.test.data",
    ],
)
def test_no_file_of_a_data_set_is_overwritten(invoke, model, rows, words):
    Path("sets").mkdir()
    for split in ("train", "valid", "test"):
        write_csv(f"sets/tiny.{split}.data", rows)
    before = {path: path.read_bytes() for path in Path("sets").iterdir()}
    assert "would overwrite a file that this command reads or writes" in error_line(invoke(words))
    assert before == {path: path.read_bytes() for path in Path("sets").iterdir()}


def test_commands_name_a_column_that_the_model_does_not_know(invoke, model, rows):
    write_csv("turned.csv", rows[:, ::-1], "e,d,c,b,aa")
    line = error_line(invoke(f"curvature {model} turned.csv"))
    assert "turned.csv: no column 'aa' in the training data; do you mean 'a'?" in line
