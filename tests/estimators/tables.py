"""Small tables that the tests of estimators train on."""

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris

FAST = {"n_units": 4, "n_estimators": 2, "max_epochs": 10, "random_state": 0}
"""Parameters for tests that are not about quality."""


def iris() -> tuple[np.ndarray, np.ndarray]:
    return load_iris(return_X_y=True)


def with_holes(x: np.ndarray, share: float = 0.3, seed: int = 0) -> np.ndarray:
    holes = np.random.default_rng(seed).random(x.shape) < share
    return np.where(holes, np.nan, x)


def people(rows: int = 200) -> pd.DataFrame:
    """Text, numbers, booleans; the income depends on the city."""
    random = np.random.default_rng(0)
    city = random.choice(["Lima", "Oslo", "Rome"], rows)
    return pd.DataFrame(
        {
            "city": city,
            "income": random.normal(30 + 20 * (city == "Oslo"), 3),
            "married": random.random(rows) < np.where(city == "Rome", 0.9, 0.2),
        }
    )
