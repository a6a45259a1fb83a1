"""`--checkpoint`: killed in any way, the same command again ends with the same model, bit by bit."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from cli_helpers import error_line, strict_json
from killed import FAULTS, run
from safetensors import safe_open

import circurve as cc

pytestmark = pytest.mark.linux

FIT = [
    "fit",
    "table.csv",
    "--units",
    "3",
    "--epochs",
    "8",
    "--batch-size",
    "20",
    "--device",
    "cpu",
    "--out",
    "m.safetensors",
]
CHECKPOINT = ["--checkpoint", "runs", "--checkpoint-every", "1 epoch"]
CODES = {"SIGKILL": -signal.SIGKILL, "SIGTERM": 143, "SIGHUP": 129, "SIGINT": 130, "full disk": 1, "out of memory": 1}


def content(path: str) -> tuple[dict[str, str], dict[str, bytes]]:
    """Metadata and tensors of a file, whatever their order."""
    with safe_open(path, framework="np") as file:
        return file.metadata(), {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


@pytest.fixture
def undisturbed(invoke, table, folder) -> bytes:
    """The model file of the command without checkpoints."""
    assert invoke(" ".join(FIT)).exit_code == 0
    content = Path("m.safetensors").read_bytes()
    Path("m.safetensors").unlink()
    return content


def leftovers() -> list[Path]:
    return list(Path().rglob(".circurve-*"))


@pytest.mark.parametrize("where", ["write", "step"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_nothing_but_time(fault, where, undisturbed, folder):
    if (fault, where) == ("full disk", "step"):
        pytest.skip("a step writes nothing")
    code = run(folder, [*FIT, *CHECKPOINT], fault, 4, where)
    if (fault, where) == ("out of memory", "write"):
        assert code == 0  # no checkpoint in this epoch, and training continues
        assert "no checkpoint after epoch 4" in Path("stderr.txt").read_text()
    else:
        assert code == CODES[fault]
        newest = max(Path("runs").glob("epoch-*"))
        assert newest.name in ("epoch-000003.safetensors", "epoch-000004.safetensors")
    if fault in ("SIGTERM", "SIGHUP", "SIGINT"):
        assert "the model trained so far is saved in m.safetensors; run the same command again to continue" in said()
        assert cc.load("m.safetensors").circuit.variables == 5
    assert run(folder, [*FIT, *CHECKPOINT]) == 0
    Path("undisturbed.safetensors").write_bytes(undisturbed)
    assert content("m.safetensors") == content("undisturbed.safetensors")
    assert not leftovers()


def said() -> str:
    return " ".join(Path("stderr.txt").read_text().split())


def test_a_model_that_cannot_be_written_is_kept_elsewhere(invoke, table, folder, monkeypatch):
    from circurve.cli import saving

    save, elsewhere = saving.save_model, folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(elsewhere))

    def full(path, *rest):
        if path.name == "m.safetensors" and path.parent == Path():
            raise cc.FileAccessError("cannot write m.safetensors: No space left on device")
        save(path, *rest)

    monkeypatch.setattr(saving, "save_model", full)
    result = invoke("fit table.csv --units 3 --epochs 2 --json --out m.safetensors")
    assert result.exit_code == 1
    (kept,) = elsewhere.rglob("*.safetensors")
    assert result.stderr == (
        f"circurve: error: cannot write m.safetensors: No space left on device; the trained model is saved in {kept}\n"
    )
    assert strict_json(result.stdout)["out"] is None
    assert cc.load(kept).circuit.variables == 5


def test_sweeps_ensembles_and_a_choice_of_units_continue(answer, table):
    tiny = "--epochs 3 --batch-size 20 --device cpu"
    for words in (
        f"sweep {table} --units 2 --methods vanilla,gated --mu 0.1 --seeds 2 --out-dir models {tiny}",
        f"fit {table} --units 2,3 {tiny}",
        f"fit {table} --ensemble 2 --units 2 {tiny}",
    ):
        folder = f"runs{len(words)}"
        first, again = (answer(f"{words} --checkpoint {folder}") for _ in range(2))
        names = ("train_ll", "valid_ll", "runs", "ensemble")
        assert [first.get(name) for name in names] == [again.get(name) for name in names]


def test_another_command_in_the_same_folder_is_refused(invoke, table):
    assert invoke(f"fit {table} --units 3 --epochs 2 --checkpoint runs").exit_code == 0
    line = error_line(invoke(f"fit {table} --units 3 --epochs 3 --checkpoint runs --out m"))
    assert line == (
        "--checkpoint runs belongs to another training (epochs: was 2, is 3): name another folder, or delete this one"
    )
    line = error_line(invoke(f"fit {table} --checkpoint-every soon --out m"))
    assert line.startswith("--checkpoint-every must be a time or a number of epochs, such as '5min'")


def test_an_interrupted_run_leaves_a_finished_model_alone(undisturbed, folder):
    Path("m.safetensors").write_bytes(undisturbed)
    words = [*FIT, "--checkpoint", "runs", "--checkpoint-every", "1 epoch"]
    assert run(folder, words, "SIGINT", 3, "step") == 130
    assert "saved in m.interrupted.safetensors, because m.safetensors exists (--overwrite replaces it)" in said()
    assert Path("m.safetensors").read_bytes() == undisturbed
    assert cc.load("m.interrupted.safetensors").circuit.variables == 5


def test_overwrite_replaces_it(undisturbed, folder):
    Path("m.safetensors").write_bytes(undisturbed)
    assert run(folder, [*FIT, *CHECKPOINT, "--overwrite"], "SIGINT", 3, "step") == 130
    assert "saved in m.safetensors" in said()
    assert Path("m.safetensors").read_bytes() != undisturbed
    assert not Path("m.interrupted.safetensors").exists()


def test_a_longer_interrupted_run_replaces_a_shorter_one(undisturbed, folder):
    for moment, replaced in ((2, True), (5, True), (3, False)):
        runs = ["--checkpoint", f"runs{moment}", "--checkpoint-every", "1 epoch"]
        before = Path("m.safetensors").read_bytes() if moment > 2 else b""
        assert run(folder, [*FIT, *runs], "SIGINT", moment, "step") == 130
        assert (Path("m.safetensors").read_bytes() != before) == replaced
        assert Path("m.interrupted.safetensors").exists() == (not replaced)
