"""A table with holes: text, dates, true and false, and numbers, a fifth of all cells missing.

Learn one model of the whole table from the rows as they are, fill the holes, and draw several fillings to see how much
the answer to a question depends on what was missing.
"""

import numpy as np
import pandas as pd

import circurve as cc

# Customers of a shop, made up so that the columns depend on each other.
random = np.random.default_rng(0)
rows = 800
city = random.choice(["Oslo", "Rome", "Lima"], rows, p=[0.3, 0.5, 0.2])
member = random.random(rows) < np.where(city == "Rome", 0.7, 0.2)
days = random.integers(0, 1500, rows)
orders = random.poisson(2 + days / 150 + 4 * member)
spent = 20 * orders * np.where(city == "Oslo", 2.0, 1.0) + random.normal(0, 25, rows)
complete = pd.DataFrame(
    {
        "city": city,
        "member": member,
        "joined": pd.Timestamp("2024-12-31") - pd.to_timedelta(days, unit="D"),
        "orders": orders,
        "spent": spent.round(2),
    }
)
holes = random.random(complete.shape) < 0.2
customers = complete.mask(holes)
print(f"{holes.sum()} of {holes.size} cells are missing. The first rows:")
print(customers.head(4).to_string())

# What each column is taken for, and why. `types={"orders": "gaussian"}` would override it.
schema = cc.infer_schema(customers)
print(f"\n{schema}")

# A hidden Chow-Liu tree, trained by EM on the rows as they are: holes are summed out, no row is thrown away.
circuit = cc.hclt(customers, units=16, schema=schema)
model = cc.fit(circuit, customers, epochs=60, seed=0, init="prototypes", valid=False, progress=False).model

filled = model.impute(customers)  # expected numbers and dates, most probable categories; what is known stays
print("\nThe same rows, filled:")
print(filled.head(4).round(1).to_string())


# Compare with the true values, and with filling in the mean or the most frequent value of a column.
def error(name: str, guess: pd.Series) -> float:
    """The root mean square error of numbers, the share of wrong categories."""
    at = holes[:, complete.columns.get_loc(name)]
    truth, guess = complete[name][at], guess[at]
    if name in ("city", "member"):
        return float((truth != guess).mean())
    return float(np.sqrt(((truth - guess) ** 2).mean()))


simple = {name: customers[name].mode()[0] for name in ("city", "member")}
simple |= {name: customers[name].mean() for name in ("orders", "spent")}
print(f"\n{'column':8}{'error of the model':>20}{'of mean or mode':>18}")
for name, value in simple.items():
    constant = pd.Series([value] * rows)
    print(f"{name:8}{error(name, filled[name]):20.2f}{error(name, constant):18.2f}")

# Multiple imputation: draw the holes 20 times, ask the same question of each table, look at the spread.
draws = model.impute(customers, how="sample", draws=20, seed=0)
means = [draw.loc[draw["city"] == "Oslo", "spent"].mean() for draw in draws]
known = customers.loc[customers["city"] == "Oslo", "spent"].mean()
truth = complete.loc[complete["city"] == "Oslo", "spent"].mean()
print(f"\nMean spending in Oslo: {np.mean(means):.0f} over 20 fillings (standard deviation {np.std(means):.1f}),")
print(f"{known:.0f} from complete cells alone, {truth:.0f} in truth.")
