"""`circurve reproduce` as a user types it, on a data set of a few rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import error_line, strict_json
from numpy.typing import NDArray
from typer.testing import Result

import circurve.learning
from circurve.cli.reproduce import parse_seeds
from circurve.errors import OptionError
from circurve.reproduction.records import read_records

Invoke = Callable[[str], Result]
TINY = "--units 3 --epochs 2 --seeds 2 --mu 0.1 --device cpu"


@pytest.fixture
def npz(folder: Path, rows: NDArray[np.int64]) -> str:
    np.savez("mine.npz", train=rows[:60], valid=rows[60:80], test=rows[80:])
    return "mine.npz"


def test_a_table_is_printed_and_written_in_all_formats(invoke: Invoke, npz: str) -> None:
    result = invoke(f"reproduce table-b --datasets {npz} --out out {TINY}")
    assert result.exit_code == 0, result.output
    assert "Table B: test log-likelihood by data set" in result.stdout
    assert "mine" in result.stdout
    assert result.stderr == ""
    assert len(read_records("out/records.jsonl")) == 6
    for ending in ("md", "csv", "tex", "json"):
        assert Path(f"out/table-b.{ending}").stat().st_size > 0
    with open("out/table-b.csv") as file:
        values = list(csv.DictReader(file))
    assert [row["label"] for row in values] == ["vanilla", "global", "gated"]
    scores = [r["final"]["test_ll"] for r in read_records("out/records.jsonl") if r["label"] == "gated"]
    assert float(values[2]["mean"]) == pytest.approx(np.mean(scores))


def test_advice_names_no_option_that_the_command_lacks(invoke: Invoke, folder: Path) -> None:
    np.savetxt("far.csv", 1e6 + np.random.default_rng(0).normal(size=(60, 2)), delimiter=",", header="a,b", comments="")
    problem = "around 1e+06, more digits than float32 can store: subtract a constant from the column"
    for call, advice in (
        ("reproduce fig-6 --out made --datasets", ""),
        ("fit --out m.safetensors", ", or use --precision float64"),
    ):
        result = invoke(f"{call} far.csv --units 2 --epochs 1")
        assert result.exit_code == 0
        assert result.stderr.splitlines()[0].endswith(problem + advice)


def test_a_folder_with_records_wants_resume_and_then_trains_nothing(
    invoke: Invoke, npz: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = f"reproduce table-b --datasets {npz} --out out {TINY}"
    first = invoke(call)
    line = error_line(invoke(call))
    assert line == "out holds 6 runs of table-b: add --resume to continue them, or name another folder with --out"
    line = error_line(invoke(call.replace("table-b", "table-c")))
    assert "name another folder with --out, or add --resume to keep them and add to them" in line
    monkeypatch.setattr(circurve.learning, "fit_fleet", None)
    again = invoke(f"{call} --resume")
    assert again.exit_code == 0
    assert again.stdout == first.stdout


@pytest.mark.parametrize(("text", "seeds"), [("3", (0, 1, 2)), ("0,4", (0, 4)), ("3,", (3,)), ("4,4", (4,))])
def test_seeds_are_a_number_of_them_or_a_list(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "00", "x", "", ",", "-1", "1,-1", "1,,2"])
def test_other_texts_are_no_seeds(text: str) -> None:
    with pytest.raises(OptionError, match="--seeds must be"):
        parse_seeds(text)


def test_resuming_with_more_seeds_trains_only_the_new_ones(invoke: Invoke, npz: str) -> None:
    call = f"reproduce table-b --datasets {npz} --out out {TINY}"
    assert invoke(call).exit_code == 0
    before = read_records("out/records.jsonl")
    assert invoke(call.replace("--seeds 2", "--seeds 0,1,4") + " --resume").exit_code == 0
    after = read_records("out/records.jsonl")
    assert after[:6] == before
    assert [record["seed"] for record in after[6:]] == [4, 4, 4]


def test_several_targets_share_their_runs(invoke: Invoke, npz: str) -> None:
    result = invoke(f"reproduce table-c table-b --datasets {npz} --out out {TINY}")
    assert result.exit_code == 0, result.output
    assert len(read_records("out/records.jsonl")) == 3 * 6


def test_a_figure_is_drawn_and_captioned(invoke: Invoke, npz: str) -> None:
    result = invoke(f"reproduce fig-1 --datasets {npz} --out out {TINY}")
    assert result.exit_code == 0, result.output
    assert "The paper concludes" in " ".join(result.stdout.split())
    assert Path("out/fig-1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in Path("out/fig-1.svg").read_text()
    about = strict_json(Path("out/fig-1.json").read_text())
    assert about["data"]["panels"]["mine"]
    assert any("Seeds: 0, 1" in note for note in about["notes"])


def test_json_is_one_document(invoke: Invoke, npz: str) -> None:
    result = invoke(f"reproduce table-b --datasets {npz} --out out {TINY} --json")
    assert result.exit_code == 0, result.output
    document = strict_json(result.stdout)
    assert document["tables"]["table-b"]["values"][0]["dataset"] == "mine"
    assert document["files"] == [f"out/table-b.{ending}" for ending in ("md", "csv", "tex", "json")]


def test_a_single_table_is_split_and_a_folder_of_sets_is_found_by_name(
    invoke: Invoke, table: str, rows: NDArray[np.int64]
) -> None:
    Path("sets/mine").mkdir(parents=True)
    for split, part in (("train", rows[:60]), ("valid", rows[60:80]), ("test", rows[80:])):
        np.savetxt(f"sets/mine/mine.{split}.data", part, fmt="%d", delimiter=",")
    assert invoke(f"reproduce table-b --datasets {table} --out one {TINY}").exit_code == 0
    assert invoke(f"reproduce table-b --data-dir sets --out two {TINY}").exit_code == 0
    assert invoke(f"reproduce table-b --datasets sets/mine --out three {TINY}").exit_code == 0
    names = [{r["dataset"] for r in read_records(f"{out}/records.jsonl")} for out in ("one", "two", "three")]
    assert names == [{"table"}, {"mine"}, {"mine"}]
    assert read_records("two/records.jsonl")[0]["id"] == read_records("three/records.jsonl")[0]["id"]


def test_quick_without_data_takes_the_embedded_set(invoke: Invoke) -> None:
    result = invoke("reproduce table-b --quick --units 2 --epochs 1 --seeds 1 --mu 0.1 --device cpu --out out")
    assert result.exit_code == 0, result.output
    assert {r["dataset"] for r in read_records("out/records.jsonl")} == {"digits"}


def test_studies_are_trained_by_their_own_protocol(invoke: Invoke, npz: str) -> None:
    words = f"study-weights study-stopping --quick --datasets {npz} --out out {TINY} --json"
    found = strict_json(invoke(f"reproduce {words}").stdout)
    assert found["protocol"] == "fair"
    assert set(found["tables"]) == {"study-weights", "study-stopping"}
    lines = Path("out/records.jsonl").read_text().splitlines()
    assert {json.loads(line)["settings"]["leaves"] for line in lines} == {"shared"}


def test_protocol_best_chooses_the_epoch(invoke: Invoke, npz: str) -> None:
    result = invoke(f"reproduce table-b --protocol best --quick --datasets {npz} --out out {TINY}")
    assert result.exit_code == 0, result.output
    record = read_records("out/records.jsonl")[0]
    assert record["protocol"] == "best"
    assert record["settings"]["step"] == "cosine:0.2:0.005"
    assert "best epoch by validation" in " ".join(result.stdout.split())


def test_ctrl_c_says_how_to_go_on(invoke: Invoke, npz: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = circurve.learning.fit_fleet
    calls: list[int] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fit(*arguments, **options)

    monkeypatch.setattr(circurve.learning, "fit_fleet", interrupted)
    result = invoke(f"reproduce table-c --datasets {npz} --out out {TINY}")
    assert result.exit_code == 130
    assert result.stderr == "circurve: interrupted; 3 runs are recorded in out; to continue, add --resume\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("reproduce table-z", "no table or figure 'table-z'; there are table-a, table-b"),
        ("reproduce table-b --seeds 0", "--seeds must be a number of seeds (5) or a list of seeds (0,3,4), not '0'"),
        ("reproduce table-b --seeds x", "--seeds must be a number of seeds (5) or a list of seeds (0,3,4), not 'x'"),
        ("reproduce table-b --mu x", "--mu must be a number"),
        ("reproduce table-b --gate nosuch", "--gate must be one of"),
        ("reproduce table-b --datasets a,,b", "--datasets has a gap between its commas: 'a,,b'"),
        ("reproduce table-b --epochs 0", "epochs must be"),
        ("reproduce table-b --datasets nosuch --data-dir .", "no data set 'nosuch' in ."),
        ("reproduce table-b --data-dir nowhere", "--data-dir nowhere: no such folder"),
        ("reproduce table-b --protocol mine", "mine"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(invoke: Invoke, words: str, message: str) -> None:
    assert message in error_line(invoke(words))


def test_data_that_cannot_be_had_is_found_out_before_training(
    invoke: Invoke, npz: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circurve.learning, "fit_fleet", None)
    line = error_line(invoke(f"reproduce table-b --datasets {npz},other.npz --out out {TINY}"))
    assert not Path("out").exists()
    assert "other.npz" in line


def test_an_out_that_is_a_file_is_refused(invoke: Invoke, npz: str) -> None:
    assert "is a file, not a folder" in error_line(invoke(f"reproduce table-b --datasets {npz} --out {npz}"))


@pytest.mark.parametrize("field", ["fleet", "environment", "final"])
def test_records_that_lack_something_are_named(invoke: Invoke, npz: str, field: str) -> None:
    words = f"reproduce table-b --datasets {npz} --out out {TINY}"
    assert invoke(words).exit_code == 0
    path = Path("out/records.jsonl")
    lines = path.read_text().splitlines()
    damaged = {name: value for name, value in json.loads(lines[1]).items() if name != field}
    path.write_text("\n".join([lines[0], json.dumps(damaged), *lines[2:]]) + "\n")
    line = error_line(invoke(f"{words} --resume"))
    assert f"records.jsonl: line 2 is an incomplete result record: '{field}' is missing" in line


def test_the_leaderboard_is_one_call_and_resumes(invoke: Invoke, npz: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = f"reproduce leaderboard --datasets {npz} --out out --quick --epochs 2 --units 2 --device cpu"
    first = invoke(call)
    assert first.exit_code == 0, first.output
    assert "Leaderboard: test log-likelihood by data set" in first.stdout
    records = read_records("out/leaderboard.jsonl")
    assert [(record["dataset"], record["seed"]) for record in records] == [("mine", 0)]
    assert records[0]["recipe"]["units"] == [2]
    assert "add --resume" in error_line(invoke(call))
    monkeypatch.setattr("circurve.reproduction.leaderboard.train_units", None)
    again = invoke(f"{call} --resume")
    assert again.stdout == first.stdout
    assert strict_json(invoke(f"{call} --resume --json").stdout)["protocol"] == "record"
    assert "has its own protocol" in error_line(invoke(f"{call} --protocol best"))
    assert "protocol record is only for leaderboard" in error_line(
        invoke(f"reproduce table-b --protocol record {TINY}")
    )
