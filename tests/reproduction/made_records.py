"""Records made by hand, for tables and claims without any training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from circurve.data.debd import COLLECTION
from circurve.learning import Method
from circurve.reproduction import Study
from circurve.reproduction.plan import describe_settings
from circurve.reproduction.spec import Setting, describe_setting
from circurve.reproduction.study_data import CHANGES, TEST_NOISE

Record = dict[str, Any]
Scores = dict[str, float]
Rule = Callable[[str, float, Method, int], Scores]
"""(data set, fraction, method, seed) -> scores that differ from the usual ones."""

ROWS = 10_000


def made_record(study: Study, dataset: str, fraction: float, setting: Setting, seed: int, scores: Scores) -> Record:
    """A record as the runner writes it; `best_test_ll` and `best_valid_ll` are those of the best epoch."""
    protocol = study.protocol
    final: Record = {"epoch": 3, "train_ll": -9.0, "valid_ll": -10.0, "test_ll": -10.0, "dof": 0.1, "sharpness": 100.0}
    final |= {key: value for key, value in scores.items() if key in final}
    best = final | {"epoch": 2, "valid_ll": scores.get("best_valid_ll", final["valid_ll"])}
    best["test_ll"] = scores.get("best_test_ll", final["test_ll"])
    shares = {"total": scores.get("total_share", 0.05), "local": scores.get("local_share", 0.7)}
    rows = max(1, round(ROWS * fraction))
    return {
        "id": f"{dataset} {fraction} {describe_setting(setting)} {seed}",
        "study": study.name,
        "dataset": dataset,
        "fraction": fraction,
        "seed": seed,
        "label": "",
        "method": describe_setting(setting),
        "protocol": protocol.name,
        "choose_epoch": protocol.choose_epoch,
        "settings": {**describe_settings(study, protocol.epochs_for(rows)), "rows": rows},
        "final": final,
        "best": best,
        "history": {"train_ll": [-9.0], "valid_ll": [-10.0], "test_ll": [-10.0], "sharpness": [100.0]},
        **({} if study.probe is None else {"probe": made_probe(best, seed)}),
        "curvature": {
            **{by: {"fractions": dict.fromkeys(("0.9", "0.99", "0.9999"), share)} for by, share in shares.items()},
            "depth": [0.4, 0.3, 0.2, 0.1],
        },
        "seconds": 1.5,
        "environment": {
            **{"command": "circurve reproduce", "version": "1.0", "commit": "abc", "hardware": "a machine"},
            **{"torch": "2.0", "python": "3.11", "data_hash": f"{dataset:0<64}", "debd": dataset in COLLECTION},
        },
    }


def made_probe(best: Record, seed: int) -> Record:
    """What is measured on models: noise costs 0.5, a mixture of four gains 0.25."""
    names = [*CHANGES, *(f"test noise {share:g}" for share in TEST_NOISE)]
    mixed = {"number": seed, "members": 4, "valid_ll": best["valid_ll"] + 0.25, "test_ll": best["test_ll"] + 0.25}
    return {"scores": dict.fromkeys(names, best["test_ll"] - 0.5), "ensemble": mixed}


def made_records(study: Study, rule: Rule) -> list[Record]:
    """One record for each run of a study, under its first label, with the scores of the rule."""
    records = []
    for dataset in study.datasets:
        for fraction in study.fractions:
            for setting in study.settings:
                for seed in study.seeds:
                    scores = rule(dataset, fraction, setting.method, seed)
                    record = made_record(study, dataset, fraction, setting, seed, scores)
                    records.append({**record, "label": setting.label})
    return records
