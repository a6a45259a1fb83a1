"""The lines under every table and figure: what to run, on which data, seeds, hardware and versions it ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from circurve.experiments.spec import Study

__all__ = ["choice_note", "describe", "provenance"]

Record = dict[str, Any]


def provenance(records: Sequence[Record]) -> list[str]:
    """Everything that is needed to run it again, from the records themselves."""
    hashes = {record["dataset"]: record["environment"]["data_hash"] for record in records}
    lines = [
        f"Seeds: {', '.join(str(seed) for seed in sorted({record['seed'] for record in records}))}.",
        f"Data (SHA-256): {', '.join(f'{name} {digest[:12]}' for name, digest in hashes.items())}.",
        f"Training time: {sum(record['seconds'] for record in records):,.0f} s for {len(records):,} runs.",
    ]
    return [*describe(*(record["environment"] for record in records)), *lines]


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
    return (
        "Of several strengths mu (and pseudocounts or gates) the one with the best mean validation log-likelihood over "
        f"seeds{epoch} is taken, for each data set and method on its own; test rows play no part."
    )


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _software(environment: Record) -> str:
    commit = f" ({environment['commit']})" if environment["commit"] else ""
    return f"circurve {environment['version']}{commit}, torch {environment['torch']}, Python {environment['python']}"
