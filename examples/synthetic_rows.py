"""Synthetic rows: draw tables from a model, with and without conditions, and see how close they are to the real one."""

import numpy as np
import pandas as pd
from sklearn.datasets import load_iris

import circurve as cc

iris = load_iris(as_frame=True)
flowers = iris.data.rename(columns=lambda name: name.removesuffix(" (cm)"))
flowers["species"] = iris.target_names[iris.target]

# A density of all columns together: a mixture of four hidden Chow-Liu trees that stop by held-out rows.
density = cc.DensityEstimator(random_state=0).fit(flowers)
model = density.model_  # all questions are asked of the model

drawn = model.sample(5, seed=0)
print("Five new flowers:")
print(drawn.round(1).to_string())

# Evidence is {column: value}; (low, high) is an interval, None an open end.
print("\nThree setosas with petals of at least 1.6 cm:")
print(model.sample(3, given={"species": "setosa", "petal length": (1.6, None)}, seed=0).round(1).to_string())

# Marginals: the mean and the standard deviation of each column, the shares of the species.
synthetic = model.sample(10_000, seed=1)
numbers = list(flowers.columns[:4])
summary = pd.DataFrame(
    {
        "real mean": flowers[numbers].mean(),
        "synthetic mean": synthetic[numbers].mean(),
        "real sd": flowers[numbers].std(),
        "synthetic sd": synthetic[numbers].std(),
    }
)
print("\nMarginals of 150 real and 10,000 synthetic flowers:")
print(summary.round(2).to_string())
shares = pd.DataFrame(
    {"real": flowers["species"].value_counts(True), "synthetic": synthetic["species"].value_counts(True)}
)
print(shares.sort_index().round(2).to_string())

# Dependence: correlations over all flowers and within a species, where they are weaker and harder to learn.
pairs = [("sepal length", "sepal width"), ("sepal length", "petal length"), ("petal length", "petal width")]
print("\nCorrelations, real and synthetic, of all flowers and of virginica:")
for a, b in pairs:
    found = []
    for table in (flowers, synthetic):
        of_virginica = table[table["species"] == "virginica"]
        found += [table[a].corr(table[b]), of_virginica[a].corr(of_virginica[b])]
    whole, part, whole_drawn, part_drawn = found
    print(f"{a + ', ' + b:30}{whole:6.2f}{whole_drawn:7.2f}{part:9.2f}{part_drawn:7.2f}")

# Are synthetic rows copies of real ones? Distances to the nearest real flower say no.
real = flowers[numbers].to_numpy()
nearest = [np.sort(np.linalg.norm(real - row, axis=1))[0] for row in synthetic[numbers].to_numpy()[:1000]]
among = [np.sort(np.linalg.norm(real - row, axis=1))[1] for row in real]
print(f"\nMedian distance to the nearest real flower: {np.median(nearest):.2f} cm from a synthetic one,")
print(f"{np.median(among):.2f} cm from another real one.")
