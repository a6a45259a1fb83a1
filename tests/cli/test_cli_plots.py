"""`--plot` of `fit`, `curvature` and `sweep`: pictures of every kind, and what is refused before work starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_helpers import error_line, write_csv

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
TINY = "--units 2 --epochs 2"


@pytest.mark.parametrize("suffix", STARTS)
def test_pictures_are_of_the_kind_that_the_suffix_says(answer, model, suffix):
    report = answer(f"curvature {model} table.csv --plot nodes{suffix}")
    assert report["plot"] == f"nodes{suffix}"
    assert Path(f"nodes{suffix}").read_bytes().startswith(STARTS[suffix])


def test_fit_draws_its_training(answer, invoke, table):
    assert answer(f"fit {table} {TINY} --plot Curves.PNG")["plot"] == "Curves.PNG"
    assert Path("Curves.PNG").read_bytes().startswith(STARTS[".png"])
    result = invoke(f"fit {table} {TINY} --no-split --plot curves.svg")
    assert "curves.svg" in result.stdout
    assert "findfont" not in result.stderr


def test_sweep_draws_strengths_or_shares_of_nodes(answer, table, monkeypatch):
    drawn = []
    for name in ("strengths", "node_selection"):
        real = getattr(__import__("circurve.plots").plots, name)
        monkeypatch.setattr(f"circurve.plots.{name}", lambda fleet, n=name, f=real: drawn.append(n) or f(fleet))
    gates = "top_fraction:0.1,top_fraction:0.5:total"
    for more in ("--mu 0,0.1", f"--methods vanilla,gated --mu 0.1 --gates {gates}", f"--methods gated --gates {gates}"):
        assert answer(f"sweep {table} {TINY} --seeds 2 {more} --plot s.png")["plot"] == "s.png"
        assert Path("s.png").read_bytes().startswith(STARTS[".png"])
        Path("s.png").unlink()
    assert drawn == ["strengths", "node_selection", "strengths"]


@pytest.mark.parametrize("command", ["fit table.csv", "curvature model.safetensors table.csv", "sweep table.csv"])
@pytest.mark.parametrize(
    ("plot", "expected"),
    [
        ("a.gif", "--plot a.gif: unknown kind of file '.gif'; use one of .png, .svg, .pdf"),
        ("a", "--plot a: the name has no suffix; use one of .png, .svg, .pdf"),
        ("no/a.png", "no does not exist"),
        ("table.png", "--plot table.png: is a folder, not a file"),
        ("-", "--plot -: the name has no suffix"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_first(invoke, model, monkeypatch, command, plot, expected):
    Path("table.png").mkdir()
    monkeypatch.setattr("circurve.cli.training.train_fleet", lambda *_: pytest.fail("it trains"))
    assert expected in error_line(invoke(f"{command} --plot {plot}"))


def test_a_picture_needs_matplotlib(invoke, table, monkeypatch):
    monkeypatch.setattr("circurve.cli.files.find_spec", lambda name: None)
    line = error_line(invoke(f"fit {table} --plot a.png"))
    assert line == "--plot needs matplotlib: pip install 'circurve[plots]'"


def test_there_must_be_something_to_draw(invoke, table):
    assert "but --epochs 0 has no epoch" in error_line(invoke(f"fit {table} --epochs 0 --plot a.png"))
    line = error_line(invoke(f"sweep {table} --methods vanilla --plot a.png"))
    assert "add global or gated to --methods" in line


def test_a_picture_does_not_overwrite_the_model(invoke, table, rows):
    write_csv("rows.png", rows)
    assert "would overwrite a file that this command reads or writes" in error_line(
        invoke(f"fit {table} --out m.png --plot m.png")
    )


def test_a_picture_that_fails_hides_no_numbers(invoke, table, monkeypatch):
    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr("circurve.cli.fit.save_plot", fail)
    result = invoke(f"fit {table} {TINY} --out m.safetensors --plot a.png")
    assert result.exit_code == 1
    assert "circurve: error: no space left" in result.stderr
    assert "saved in" in result.stdout
    assert Path("m.safetensors").is_file()
