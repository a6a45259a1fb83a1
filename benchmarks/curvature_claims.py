"""Two claims of the paper on trained circuits: where the trace concentrates, and that gating does not underfit.

    python benchmarks/curvature_claims.py --data-dir DEBD      # minutes on a GPU, hours on a CPU

Protocol `paper`: HCLT with 100 units, mini-batch EM, batch 200, step 0.1, no pseudocount, the last epoch's model.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import write_result

import circurve as cc
from circurve.curvature import concentration, reversals
from circurve.learning import Method

SHARES = (0.9, 0.99, 0.9999)


@dataclass(frozen=True)
class Study:
    """A data set with the methods compared on it."""

    data: str
    epochs: int
    methods: tuple[Method, ...]
    seeds: int


STUDIES = (
    Study("nltcs", 100, (cc.Vanilla(), cc.Gated(0.01)), 3),
    Study("plants", 100, (cc.Vanilla(), cc.Gated(0.01)), 3),
    Study("bbc", 300, (cc.Vanilla(), cc.Global(0.01), cc.Gated(1.0)), 3),
    Study("dna", 300, (cc.Vanilla(), cc.Global(0.01), cc.Gated(1.0)), 3),
)


def run(study: Study, data_dir: Path) -> list[dict[str, Any]]:
    """Train all methods and seeds in one fleet; measure the first seed of each method."""
    data = cc.load_dataset(study.data, data_dir=data_dir)
    circuit = cc.hclt(data.train, units=100)
    runs = [cc.Run(method, seed=seed) for method in study.methods for seed in range(study.seeds)]
    fleet = cc.fit_fleet(
        circuit, data.train, runs, valid=data.valid, test=data.test, epochs=study.epochs, select="last", track=False
    )
    rows = []
    for i, method in enumerate(study.methods):
        results = fleet[i * study.seeds : (i + 1) * study.seeds]
        best = [max(r.history, key=lambda record: record.valid_ll or float("-inf")) for r in results]
        rows.append(
            {
                "data": study.data,
                "epochs": study.epochs,
                "method": type(method).__name__.lower(),
                "mu": getattr(method, "mu", 0.0),
                "seeds": list(range(study.seeds)),
                "train_ll": [r.train_ll for r in results],
                "valid_ll": [r.valid_ll for r in results],
                "test_ll": [r.test_ll for r in results],
                "best_epoch": [record.epoch for record in best],
                "best_epoch_test_ll": [record.test_ll for record in best],
                "fleet_runs": len(runs),
                "fleet_seconds": results[0].seconds,
                "curvature_of_seed_0": measure(results[0].model, data.train),
            }
        )
    return rows


def measure(model: cc.Model, rows: Any) -> dict[str, Any]:
    """Concentration of T and of t, and how often they rank two nodes differently."""
    curv = cc.curvature(model, rows)
    found = reversals(curv)
    return {
        "trace": curv.trace,
        "sum_nodes": len(curv),
        "fraction_of_nodes_for": {
            by: {str(share): concentration(curv, by).fraction_for(share) for share in SHARES}
            for by in ("total", "local", "flow")
        },
        "gini": {by: concentration(curv, by).gini for by in ("total", "local", "flow")},
        "reversed_pairs": {"share": found.share, "disagree": found.disagree, "pairs": found.pairs, "tau": found.tau},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=[study.data for study in STUDIES])
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for study in STUDIES:
        if study.data in arguments.datasets:
            rows += run(study, arguments.data_dir)
            write_result("curvature_claims", rows, arguments.out)
            for row in rows[-len(study.methods) :]:
                fractions = row["curvature_of_seed_0"]["fraction_of_nodes_for"]
                print(row["data"], row["method"], row["mu"], [round(x, 3) for x in row["test_ll"]], fractions)


if __name__ == "__main__":
    main()
