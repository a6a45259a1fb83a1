"""Anomalies: find improbable rows, and the cells that make them improbable.

Fifteen measurements in the breast cancer data are corrupted on purpose: one cell of a row gets the value of another
row. Each value is ordinary by itself; only its combination with the rest of the row is not.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

import circurve as cc

columns = [f"mean {name}" for name in ("radius", "texture", "perimeter", "area", "smoothness", "compactness")]
cells = load_breast_cancer(as_frame=True).data[columns]
clean, table = cells.iloc[:400], cells.iloc[400:].reset_index(drop=True)

random = np.random.default_rng(0)
broken = np.sort(random.choice(len(table), 15, replace=False))
blamed = random.choice(["mean radius", "mean perimeter", "mean area"], 15)  # these three depend on each other
for row, name in zip(broken, blamed, strict=True):
    far = (table[name] - table.loc[row, name]).abs().nlargest(60).index  # a value that is not close to the true one
    table.loc[row, name] = cells.iloc[400 + random.choice(far)][name]

# Learn what is normal; 1 % of the training rows lie below the threshold.
detector = cc.OutlierDetector(contamination=0.01, random_state=0).fit(clean)
found = np.flatnonzero(detector.predict(table) == -1)
both = np.intersect1d(found, broken)
print(f"{len(table)} rows, {len(broken)} of them with a broken cell.")
print(f"{len(found)} rows are improbable, {len(both)} of the broken ones among them.")

truth = np.isin(np.arange(len(table)), broken)
forest = IsolationForest(random_state=0).fit(clean)
for name, judge in (("circuit", detector), ("isolation forest", forest)):
    print(f"area under the ROC curve, {name}: {roc_auc_score(truth, -judge.decision_function(table)):.2f}")

# Which cell makes the row improbable? p(cell | all other cells of its row), the least probable first.
reasons = detector.model_.explain(table.iloc[broken])
print("\nThe first broken row, cell by cell:")
print(reasons[reasons["row"] == 0].drop(columns="row").round(3).to_string(index=False))

worst = reasons.groupby("row").first()["column"].to_numpy()
print(f"\nThe cell that was changed is the most improbable one in {(worst == blamed).sum()} of {len(broken)} rows.")

# A remedy: leave the cell out and ask the model what it should be.
row, name = broken[0], blamed[0]
repaired = detector.model_.impute(table.iloc[[row]].assign(**{name: np.nan}))
print(f"\n{name}: recorded {table.loc[row, name]:.1f}, expected {repaired[name].iloc[0]:.1f}, ", end="")
print(f"truly {cells.iloc[400 + row][name]:.1f}")
