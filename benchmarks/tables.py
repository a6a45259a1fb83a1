"""Small tables with holes: filling them in, classes, densities, compared with scikit-learn's estimators.

Circuits run with their default parameters. What the peers leave open is chosen for each seed by validation on the
training rows alone. 30 % of all values are missing, in training and test rows alike, for filling and for classes.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from common import RESULTS, write_result
from sklearn import __version__ as sklearn_version
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine, make_swiss_roll
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import circurve as cc

MISSING = 0.3
TEST_SHARE = 0.3


@dataclass(frozen=True)
class Task:
    """A table: numbers, which columns are categories (coded 0, 1, ...), classes, and types for circuits."""

    x: np.ndarray  # (N, V)
    y: np.ndarray | None = None
    categories: tuple[int, ...] = ()
    types: Any = None

    @property
    def numbers(self) -> list[int]:
        return [v for v in range(self.x.shape[1]) if v not in self.categories]


def mixed(rows: int = 600) -> Task:
    """Two hidden causes behind three numbers, a count and two categories; made once, for all seeds."""
    random = np.random.default_rng(0)
    y, hidden = random.integers(0, 3, rows), random.integers(0, 2, rows)
    a = random.normal(y + 2 * hidden, 0.8)
    b = random.normal(a * (1 - 2 * hidden), 0.5)
    four = (y + hidden + random.integers(0, 3, rows)) % 4
    two = random.binomial(1, 0.2 + 0.5 * (y == four))
    count = random.poisson(1 + 2 * hidden + y)
    c = random.normal(b**2 / 4 + two, 0.4)
    x = np.column_stack([a, b, four, two, count, c])
    return Task(x, y, (2, 3), {"x2": "categorical", "x3": "bernoulli", "x4": "poisson"})


def of(load: Callable[[], Any], classes: bool = True, types: Any = None) -> Task:
    data = load()
    return Task(data.data.astype(float), data.target if classes else None, types=types)


def digits(rows: int = 600) -> Task:
    """The first rows, as counts from 0 to 16."""
    whole = of(load_digits, types=[cc.Binomial(16)] * 64)
    return replace(whole, x=whole.x[:rows], y=whole.y[:rows])


IMPUTATION: Mapping[str, Callable[[], Task]] = {
    "iris": lambda: of(load_iris),
    "wine": lambda: of(load_wine),
    "breast cancer": lambda: of(load_breast_cancer),
    "diabetes": lambda: of(load_diabetes, classes=False),
    "mixed": mixed,
}
CLASSIFICATION: Mapping[str, Callable[[], Task]] = {
    "iris": lambda: of(load_iris),
    "wine": lambda: of(load_wine),
    "breast cancer": lambda: of(load_breast_cancer),
    "digits": digits,
    "mixed": mixed,
}
DENSITY: Mapping[str, Callable[[], Task]] = {
    "iris": lambda: of(load_iris),
    "wine": lambda: of(load_wine),
    "breast cancer": lambda: of(load_breast_cancer),
    "diabetes": lambda: of(load_diabetes, classes=False),
    "swiss roll": lambda: Task(make_swiss_roll(1500, noise=0.3, random_state=0)[0]),
}


@dataclass(frozen=True)
class Split:
    """Training and test rows of one seed; what is missing is NaN in `train` and `test`."""

    seed: int
    train: np.ndarray
    test: np.ndarray
    complete: np.ndarray  # the test rows without holes
    y_train: np.ndarray | None
    y_test: np.ndarray | None


def split(task: Task, seed: int, missing: float) -> Split:
    numbers = np.arange(len(task.x))
    a, b = train_test_split(numbers, test_size=TEST_SHARE, random_state=seed, stratify=task.y)
    holes = np.random.default_rng(seed).random(task.x.shape) < missing
    x = np.where(holes, np.nan, task.x)
    labels = (None, None) if task.y is None else (task.y[a], task.y[b])
    return Split(seed, x[a], x[b], task.x[b], *labels)


Filler = Callable[[Task, Split], np.ndarray]
"""The test rows with all holes filled."""


def circuit_imputer(task: Task, part: Split) -> np.ndarray:
    """The mean of a number, the most probable category."""
    imputer = cc.CircuitImputer(types=task.types, random_state=part.seed).fit(part.train)
    filled = imputer.transform(part.test)
    if task.categories:
        modes = imputer.set_params(strategy="mode").transform(part.test)
        filled[:, task.categories] = modes[:, task.categories]
    return filled


def constant(task: Task, part: Split) -> np.ndarray:
    """The mean of a number, the most frequent category."""
    mean = SimpleImputer().fit(part.train).transform(part.test)
    often = SimpleImputer(strategy="most_frequent").fit(part.train).transform(part.test)
    mean[:, task.categories] = often[:, task.categories]
    return mean


def by_peer(make: Callable[[int], Any]) -> Filler:
    """A peer on standardised numbers and one indicator for each category; the largest indicator wins."""

    def fill(task: Task, part: Split) -> np.ndarray:
        scaler = StandardScaler().fit(part.train[:, task.numbers])
        states = [int(task.x[:, v].max()) + 1 for v in task.categories]

        def spread(x: np.ndarray) -> np.ndarray:
            blocks = [scaler.transform(x[:, task.numbers])]
            for v, count in zip(task.categories, states, strict=True):
                known = ~np.isnan(x[:, [v]])
                blocks.append(np.where(known, x[:, [v]] == np.arange(count), np.nan))
            return np.hstack(blocks)

        found = make(part.seed).fit(spread(part.train)).transform(spread(part.test))
        filled, at = part.test.copy(), len(task.numbers)
        filled[:, task.numbers] = scaler.inverse_transform(found[:, :at])
        for v, count in zip(task.categories, states, strict=True):
            filled[:, v] = found[:, at : at + count].argmax(1)
            at += count
        return np.where(np.isnan(part.test), filled, part.test)

    return fill


def chosen(candidates: Mapping[str, Callable[[int], Any]]) -> Filler:
    """The candidate that best fills another tenth of the training values, which it does not see."""

    def fill(task: Task, part: Split) -> np.ndarray:
        random = np.random.default_rng(part.seed + 1000)
        hidden = (random.random(part.train.shape) < 0.1) & ~np.isnan(part.train)
        rows = np.where(hidden, np.nan, part.train)
        trial = Split(part.seed, rows, rows, part.train, None, None)
        errors = {
            name: sum(imputation_errors(task, by_peer(make)(task, trial), part.train, hidden).values())
            for name, make in candidates.items()
        }
        return by_peer(candidates[min(errors, key=errors.__getitem__)])(task, part)

    return fill


def iterative(**options: Any) -> Callable[[int], Any]:
    return lambda seed: IterativeImputer(max_iter=20, random_state=seed, **options)


NEIGHBOURS = {f"{count}": lambda _, count=count: KNNImputer(n_neighbors=count) for count in (3, 5, 10, 20, 40)}
ITERATIVE = {
    "BayesianRidge": iterative(),
    "BayesianRidge, bounded": iterative(min_value=-4, max_value=4),
    "Ridge": iterative(estimator=Ridge(alpha=30.0), min_value=-4, max_value=4),
    "five columns": iterative(n_nearest_features=5, min_value=-4, max_value=4),
}
"""Bounds in units of the columns' spread."""

FILLERS: Mapping[str, Filler] = {
    "CircuitImputer": circuit_imputer,
    "IterativeImputer": chosen(ITERATIVE),
    "KNNImputer": chosen(NEIGHBOURS),
    "mean": constant,
}


def imputation_errors(task: Task, filled: np.ndarray, truth: np.ndarray, holes: np.ndarray) -> dict[str, float]:
    """RMSE of numbers in units of their columns' spread; the share of wrong categories."""
    numbers, categories = task.numbers, list(task.categories)
    spread = np.nanstd(task.x[:, numbers], axis=0)
    difference = ((filled - truth)[:, numbers] / np.where(spread > 0, spread, 1))[holes[:, numbers]]
    errors = {"rmse": float(np.sqrt(np.mean(difference**2)))}
    if categories:
        wrong = (filled != truth)[:, categories][holes[:, categories]]
        errors["error_rate"] = float(wrong.mean())
    return errors


def hist_boosting(part: Split) -> Any:
    grid = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31]}
    return GridSearchCV(HistGradientBoostingClassifier(random_state=part.seed), grid, cv=3, scoring="neg_log_loss")


def imputed_regression(part: Split) -> Any:
    steps = [StandardScaler(), IterativeImputer(max_iter=5, random_state=part.seed, n_nearest_features=20)]
    filled = make_pipeline(*steps, LogisticRegression(max_iter=2000))
    grid = {"logisticregression__C": [0.01, 0.1, 1.0, 10.0]}
    return GridSearchCV(filled, grid, cv=3, scoring="neg_log_loss")


def class_scores(fitted: Any, part: Split) -> dict[str, float]:
    proba = fitted.predict_proba(part.test)
    own = proba[np.arange(len(proba)), np.searchsorted(fitted.classes_, part.y_test)]
    accuracy = float((fitted.classes_[proba.argmax(1)] == part.y_test).mean())
    return {"accuracy": accuracy, "log_loss": float(-np.log(own.clip(1e-15)).mean())}


def classifiers(task: Task, part: Split) -> dict[str, Any]:
    return {
        "CircuitClassifier": cc.CircuitClassifier(types=task.types, random_state=part.seed),
        "HistGradientBoosting": hist_boosting(part),
        "IterativeImputer, LogisticRegression": imputed_regression(part),
    }


def mixture_search(part: Split) -> Any:
    grid = {
        "n_components": [1, 2, 3, 5, 8, 12],
        "covariance_type": ["full", "diag"],
        "reg_covar": [1e-6, 1e-2, 1e-1],
    }
    return GridSearchCV(GaussianMixture(random_state=part.seed), grid, cv=5)


def summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Mean and standard error over the seeds, and all values."""
    return {
        name: {
            "mean": float(np.mean([run[name] for run in runs])),
            "stderr": float(np.std([run[name] for run in runs], ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0,
            "values": [run[name] for run in runs],
        }
        for name in runs[0]
    }


def timed(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    start = time.perf_counter()
    scores = work()
    return {**scores, "seconds": time.perf_counter() - start}


def run_imputation(task: Task, part: Split) -> Iterator[tuple[str, dict[str, float]]]:
    holes = np.isnan(part.test)
    for name, fill in FILLERS.items():
        yield name, timed(lambda fill=fill: imputation_errors(task, fill(task, part), part.complete, holes))


def run_classification(task: Task, part: Split) -> Iterator[tuple[str, dict[str, float]]]:
    for name, model in classifiers(task, part).items():
        yield name, timed(lambda model=model: class_scores(model.fit(part.train, part.y_train), part))


def run_density(task: Task, part: Split) -> Iterator[tuple[str, dict[str, float]]]:
    """Mean log-likelihood of test rows, in nats, of standardised columns."""
    scaler = StandardScaler().fit(part.train)
    train, test = scaler.transform(part.train), scaler.transform(part.test)
    models = {"DensityEstimator": cc.DensityEstimator(random_state=part.seed), "GaussianMixture": mixture_search(part)}
    for name, model in models.items():
        yield name, timed(lambda model=model: {"log_likelihood": float(model.fit(train).score(test))})


PARTS: Mapping[str, tuple[Mapping[str, Callable[[], Task]], Callable[..., Any], float]] = {
    "imputation": (IMPUTATION, run_imputation, MISSING),
    "classification": (CLASSIFICATION, run_classification, MISSING),
    "density": (DENSITY, run_density, 0.0),
}


def keep(part: str, table: str, scores: dict[str, Any], setting: dict[str, Any]) -> None:
    """Add the scores of a table to the part's result file; those of other tables stay."""
    path = RESULTS / f"tables_{part}.json"
    before = json.loads(path.read_text())["results"]["tables"] if path.exists() else {}
    write_result(path.stem, {**setting, "tables": {**before, table: scores}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--tables", default="", help="only these, of each part; all by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore")  # peers that did not converge, values not seen in training
    for name in arguments.parts.split(","):
        tasks, run, missing = PARTS[name]
        setting = {"sklearn": sklearn_version, "missing": missing, "test_share": TEST_SHARE, "seeds": arguments.seeds}
        for table in [table for table in tasks if not arguments.tables or table in arguments.tables.split(",")]:
            task, runs = tasks[table](), {}
            for seed in range(arguments.seeds):
                for method, scores in run(task, split(task, seed, missing)):
                    runs.setdefault(method, []).append(scores)
            found = {method: summary(scores) for method, scores in runs.items()}
            keep(name, table, found, setting)
            for method, scores in found.items():
                print(name, table, method, {key: round(value["mean"], 3) for key, value in scores.items()}, flush=True)


if __name__ == "__main__":
    main()
