"""The lines under every table and figure: what to run, on which data, seeds, hardware and versions it ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from circurve.experiments.records import is_failed
from circurve.experiments.spec import Setting, Study
from circurve.learning import Gated, Vanilla
from circurve.learning.gates import gate_name

__all__ = ["choice_note", "describe", "grid_notes", "provenance"]

Record = dict[str, Any]


def provenance(records: Sequence[Record]) -> list[str]:
    """Everything that is needed to run it again, from the records themselves."""
    hashes = {record["dataset"]: record["environment"]["data_hash"] for record in records}
    lines = [
        f"Seeds: {', '.join(str(seed) for seed in sorted({record['seed'] for record in records}))}.",
        f"Data (SHA-256): {', '.join(f'{name} {digest[:12]}' for name, digest in hashes.items())}.",
        f"Training time: {sum(record['seconds'] for record in records):,.0f} s for {len(records):,} runs.",
    ]
    return [*failed_note(records), *describe(*(record["environment"] for record in records)), *lines]


def failed_note(records: Sequence[Record]) -> list[str]:
    """How many runs failed in training, and which; nothing where none did."""
    failed = [record for record in records if is_failed(record)]
    if not failed:
        return []
    return [
        f"{len(failed):,} of {len(records):,} runs failed in training and are left out: "
        f"{'; '.join(_failed_run(record) for record in failed)}."
    ]


def _failed_run(record: Record) -> str:
    """`dna, gated with mu 0.1, seed 3, in epoch 12: Sum 'root': a parameter is not finite`."""
    mu, share = record["method"]["mu"], record["fraction"]
    strength = "" if mu is None else f" with mu {mu:g}" if isinstance(mu, int | float) else f" with mu {mu}"
    rows = "" if share == 1 else f" {share:.0%}"
    failure = record["failure"]
    where = f"{record['dataset']}{rows}, {record['label']}{strength}, seed {record['seed']}"
    return f"{where}, in epoch {failure['epoch']}: {failure['reason']}"


def describe(*environments: Record) -> list[str]:
    """Command, hardware and software, each different one once."""
    lines = [
        ("Command", _each(f"`{e['command']}`" for e in environments if e["command"])),
        ("Hardware", _each(e["hardware"] for e in environments)),
        ("Software", _each(_software(e) for e in environments)),
    ]
    return [f"{name}: {text}." for name, text in lines if text]


def choice_note(study: Study) -> str:
    """How mu and whatever else competes was chosen."""
    epoch = "" if study.protocol.choose_epoch == "last" else " at each run's best epoch"
    starts = "starts, " if len(study.starts) > 1 else ""
    return (
        f"Of several strengths mu (and {starts}pseudocounts or gates) the one with the best mean validation "
        f"log-likelihood over seeds{epoch} is taken, for each data set and method on its own; test rows play no part."
    )


def grid_notes(study: Study) -> list[str]:
    """What validation chose from, for each method with a choice."""
    found: dict[str, list[str]] = {}
    for label in study.labels:
        settings = [setting for setting in study.settings if setting.label == label]
        if len(settings) > 1:
            found.setdefault(_grid(settings), []).append(label)
    return [f"{', '.join(labels)}: {grid}." for grid, labels in found.items()]


def _grid(settings: Sequence[Setting]) -> str:
    """`mu of 0.01, 0.1, from a random or prototypes start`; a start or gate that all of them have is left out."""
    methods = [setting.method for setting in settings]
    values = dict.fromkeys(m.pseudocount if isinstance(m, Vanilla) else m.mu for m in methods)
    gates = dict.fromkeys(gate_name(m.gate) for m in methods if isinstance(m, Gated))
    starts = dict.fromkeys(setting.init for setting in settings)
    text = f"{'pseudocounts' if isinstance(methods[0], Vanilla) else 'mu'} of {', '.join(f'{v:g}' for v in values)}"
    text += f", gated by {' or '.join(gates)}" if len(gates) > 1 else ""
    return text + (f", from a {' or '.join(starts)} start" if len(starts) > 1 else "")


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _software(environment: Record) -> str:
    commit = f" ({environment['commit']})" if environment["commit"] else ""
    return f"circurve {environment['version']}{commit}, torch {environment['torch']}, Python {environment['python']}"
