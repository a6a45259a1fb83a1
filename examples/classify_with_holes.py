"""Classification under missing values: a circuit compared with the usual pipeline of imputation and a classifier.

A circuit has no step that fills holes: it knows p(class | whatever is observed), for every pattern of missing values.
"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import circurve as cc

wine = load_wine(as_frame=True)
x, y = wine.data, wine.target_names[wine.target]
train, test, y_train, y_test = train_test_split(x, y, test_size=0.5, random_state=0, stratify=y)

# One circuit for each cultivar, and Bayes' rule. Defaults are fine: held-out rows decide when to stop.
classifier = cc.CircuitClassifier(random_state=0).fit(train, y_train)
pipeline = make_pipeline(StandardScaler(), SimpleImputer(), LogisticRegression(max_iter=1000)).fit(train, y_train)

# Both were trained on complete rows; now more and more of the test rows' cells are lost.
print("accuracy on test rows, by the share of cells that are missing")
print(f"{'missing':>8}{'circuit':>9}{'pipeline':>10}")
for share in (0.0, 0.2, 0.4, 0.6, 0.8):
    scores = []
    for seed in range(10):  # ten patterns of holes
        holes = np.random.default_rng(seed).random(test.shape) < share
        scores.append([estimator.score(test.mask(holes), y_test) for estimator in (classifier, pipeline)])
    circuit, usual = np.mean(scores, axis=0)
    print(f"{share:8.1f}{circuit:9.2f}{usual:10.2f}")

# A row that loses its values one after the other: with nothing observed, the shares of the classes remain.
row = test.iloc[[0]].copy()
print(f"\np(class | what is known) of a wine of {y_test[0]}")
print(f"{'known':>8}" + "".join(f"{name:>10}" for name in classifier.classes_))
for known in (13, 4, 2, 1, 0):
    row.iloc[0, known:] = np.nan
    print(f"{known:8}" + "".join(f"{p:10.2f}" for p in classifier.predict_proba(row)[0]))
print(f"{'shares':>8}" + "".join(f"{p:10.2f}" for p in classifier.class_prior_))

# It is a scikit-learn estimator: it can be trained on rows with holes, cloned, searched over, put into pipelines.
holes = np.random.default_rng(0).random(train.shape) < 0.4
classifier.fit(train.mask(holes), y_train)
print(f"\ntrained with 40 % missing as well, tested on complete rows: {classifier.score(test, y_test):.2f}")
