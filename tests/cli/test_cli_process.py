"""The program as a process of its own: its streams, a terminal, a real Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import strict_json
from killed import on_terminal

import circurve as cc

PROGRAM = (sys.executable, "-m", "circurve")
PATIENCE = 300
LONG = ("--units", "3", "--epochs", "1000000", "--out", "m.safetensors")


@contextmanager
def started(*words: str, **streams: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that heeds signals even where those who started the tests ignore them; killed if it is left running."""
    with subprocess.Popen(["env", "--default-signal=INT,HUP,TERM", *words], **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def test_streams_are_kept_apart_where_there_is_no_terminal(table):
    words = ["fit", table, "--units", "3", "--epochs", "3", "--json", "--out", "m.safetensors"]
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stderr == ""
    assert strict_json(done.stdout)["epochs"] == 3


def test_an_error_ends_the_process_with_its_code(folder):
    done = subprocess.run([*PROGRAM, "fit", "digit"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("circurve: error: unknown data set 'digit'")
    assert done.stderr.count("\n") == 1


@pytest.mark.linux
@pytest.mark.parametrize("words", ["data list --json", "fit --help", "data info TABLE"])
def test_a_reader_that_is_gone_ends_every_command_silently_with_one_code(table, words):
    reading, writing = os.pipe()
    os.close(reading)
    given = words.replace("TABLE", str(table)).split()
    done = subprocess.run(
        [*PROGRAM, *given], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.linux
@pytest.mark.parametrize("words", ["--version", "data list", "data info TABLE", "data info TABLE --json"])
def test_output_without_space_is_an_error(table, words):
    given = words.replace("TABLE", str(table)).split()
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, *given], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "circurve: error: output cannot be written: No space left on device\n"


@pytest.mark.linux
@pytest.mark.parametrize(
    "words", ["statistics MODEL TABLE --out", "impute MODEL TABLE --out", "evaluate MODEL TABLE --scores"]
)
def test_a_full_disk_is_one_error_and_no_bad_use(invoke, model, table, monkeypatch, words):
    """Code 1: nothing that was typed is wrong."""
    monkeypatch.setattr("circurve.whole_files.open", lambda *_: open("/dev/full", "wb"), raising=False)  # noqa: SIM115
    result = invoke(f"{words.replace('MODEL', model).replace('TABLE', str(table))} out.csv")
    assert (result.exit_code, result.stderr) == (1, "circurve: error: cannot write out.csv: No space left on device\n")
    assert not list(Path().glob(".circurve-*"))


@pytest.mark.linux
def test_progress_on_a_terminal_and_ctrl_c(table):
    import pty

    ours, theirs = pty.openpty()
    with started(*PROGRAM, "fit", table, *LONG, "--json", stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = _read_until(ours, "train -")  # the first epoch is done
        process.send_signal(signal.SIGINT)
        shown += _read_until(ours, "saved in")
        assert process.stdout is not None
        report = strict_json(process.stdout.read())
        assert process.wait(PATIENCE) == 130
    os.close(ours)
    assert "5 columns; 80 training, 10 validation, 10 test rows" in shown
    assert report["stopped"] == "interrupted"
    assert cc.load("m.safetensors").circuit.variables == 5


@pytest.mark.linux
def test_to_be_ended_by_the_system_keeps_what_was_learned(table):
    import pty

    ours, theirs = pty.openpty()
    with on_terminal(theirs, "fit", table, *LONG) as process:
        _read_until(ours, "train -")
        os.kill(process.pid, signal.SIGTERM)
        _read_until(ours, "saved in")
    assert process.exitcode == 143
    os.close(theirs)
    os.close(ours)
    assert cc.load("m.safetensors").circuit.variables == 5


@pytest.mark.linux
def test_a_terminal_that_is_closed_keeps_what_was_learned(table):
    """Its end is SIGHUP, and whatever is printed afterwards goes nowhere."""
    import pty

    ours, theirs = pty.openpty()
    with started(*PROGRAM, "fit", table, *LONG, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        _read_until(ours, "train -")
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE) == 129
    assert cc.load("m.safetensors").circuit.variables == 5


@pytest.mark.linux
def test_nohup_goes_on_without_a_terminal(table):
    """A signal that is ignored at the start stays ignored: training ends at Ctrl-C and not before."""
    import pty

    ours, theirs = pty.openpty()
    with on_terminal(theirs, "fit", table, *LONG, ignored=[signal.SIGHUP]) as process:
        _read_until(ours, "train -")
        os.kill(process.pid, signal.SIGHUP)
        _read_until(ours, "train -")
        os.kill(process.pid, signal.SIGINT)
        _read_until(ours, "saved in")
    assert process.exitcode == 130
    os.close(theirs)
    os.close(ours)


@pytest.mark.linux
@pytest.mark.parametrize("module", ["numpy", "torch._C"])  # before and after the words of the command are read
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(folder, module):
    words = [sys.executable, "-X", "importtime", "-m", "circurve", "fit", "digits"]
    with started(*words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if module in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(PATIENCE) == 130
    assert "Traceback" not in rest
    assert "circurve: interrupted\n" in rest


def test_numbers_come_out_where_only_ascii_does(table):
    words = ["sweep", table, "--units", "2", "--epochs", "1", "--seeds", "2", "--methods", "vanilla"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*PROGRAM, *words], capture_output=True, timeout=PATIENCE, check=True, env=ascii_only)
    assert b"vanilla" in done.stdout


def _read_until(terminal: int, text: str) -> str:
    shown, deadline = "", time.monotonic() + PATIENCE
    while text not in shown and time.monotonic() < deadline:
        try:
            shown += os.read(terminal, 4096).decode(errors="replace")
        except OSError:  # the other end is closed
            break
    assert text in shown
    return shown
