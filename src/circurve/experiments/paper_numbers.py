"""The numbers that the paper prints, to stand beside ours. Source: its tables, named by their labels."""

from __future__ import annotations

from circurve.experiments.summary import Spread

__all__ = [
    "CLEAR",
    "CLOSE",
    "FRACTIONS",
    "IMPROVEMENTS",
    "KEPT",
    "LARGE",
    "SMALL",
    "TEST_LL",
    "paper_test_ll",
]

IMPROVEMENTS = {
    0.01: (7.12, 8.81, 23.04),
    0.05: (2.19, 5.79, 15.32),
    0.1: (0.27, 2.73, 10.42),
    0.5: (-0.48, 0.21, 5.55),
    1.0: (-0.31, 0.06, 4.04),
}
"""Share of the training data -> improvement of test NLL, DoF and sharpness in percent, global over vanilla, mean over
20 data sets and 5 runs (tab:mean_improvements)."""

TEST_LL = {
    "accidents": ((-26.64, 0.02), (-29.79, 0.13), (-26.55, 0.01)),
    "ad": ((-18.4, 0.09), (-20.36, 0.05), (-18.1, 0.04)),
    "baudio": ((-39.62, 0.02), (-42.45, 0.02), (-39.62, 0.01)),
    "bbc": ((-269.58, 0.41), (-256.4, 0.1), (-260.07, 0.26)),
    "bnetflix": ((-56.22, 0.02), (-59.67, 0.02), (-56.21, 0.02)),
    "book": ((-34.34, 0.04), (-36.35, 0.03), (-34.16, 0.01)),
    "c20ng": ((-151.99, 0.13), (-157.64, 0.05), (-152.22, 0.13)),
    "cr52": ((-99.09, 1.15), (-102.23, 1.45), (-97.99, 0.7)),
    "cwebkb": ((-154.71, 0.33), (-157.3, 0.02), (-152.9, 0.15)),
    "dna": ((-87.78, 0.24), (-81.33, 0.0), (-81.28, 0.08)),
    "jester": ((-52.82, 0.03), (-55.74, 0.05), (-52.82, 0.03)),
    "kdd": ((-2.22, 0.01), (-2.36, 0.0), (-2.22, 0.0)),
    "kosarek": ((-10.59, 0.01), (-11.08, 0.04), (-10.59, 0.02)),
    "msnbc": ((-6.12, 0.01), (-6.47, 0.01), (-6.08, 0.0)),
    "msweb": ((-9.73, 0.01), (-10.4, 0.02), (-9.73, 0.01)),
    "nltcs": ((-6.0, 0.0), (-6.48, 0.0), (-6.0, 0.0)),
    "plants": ((-12.68, 0.03), (-15.99, 0.02), (-12.67, 0.01)),
    "pumsb_star": ((-22.78, 0.06), (-28.29, 0.06), (-22.75, 0.04)),
    "tmovie": ((-42.16, 0.03), (-48.84, 0.04), (-42.21, 0.06)),
    "tretail": ((-10.84, 0.01), (-10.98, 0.01), (-10.85, 0.01)),
}
"""Data set -> mean and standard deviation over 5 seeds of vanilla, global, gated (tab:debd_test_ll)."""

FRACTIONS = {
    "accidents": ((-28.59, -29.83, -28.64), (-27.13, -29.84, -27.12), (-26.63, -29.69, -26.64)),
    "ad": ((-28.55, -29.64, -28.86), (-20.51, -22.07, -20.47), (-18.3, -20.37, -18.22)),
    "baudio": ((-41.13, -42.46, -41.16), (-39.99, -42.4, -40.01), (-39.63, -42.45, -39.63)),
    "bbc": ((-379.3, -281.33, -377.54), (-312.26, -262.64, -309.58), (-269.69, -256.43, -269.39)),
    "bnetflix": ((-59.06, -59.87, -59.24), (-56.85, -59.83, -56.95), (-56.22, -59.67, -56.21)),
    "book": ((-37.91, -37.48, -37.45), (-35.44, -36.75, -35.29), (-34.37, -36.31, -34.23)),
    "c20ng": ((-162.01, -160.21, -161.97), (-154.92, -158.67, -154.94), (-151.97, -157.6, -152.04)),
    "cr52": ((-107.98, -103.75, -106.04), (-102.79, -102.07, -101.0), (-99.35, -102.15, -100.26)),
    "cwebkb": ((-204.8, -164.74, -202.88), (-171.74, -159.32, -170.11), (-154.78, -157.34, -154.89)),
    "dna": ((-93.73, -82.61, -93.44), (-90.35, -81.76, -90.07), (-87.7, -81.35, -87.11)),
    "jester": ((-57.38, -55.65, -57.43), (-54.05, -55.9, -54.26), (-52.82, -55.81, -52.88)),
    "kdd": ((-2.22, -2.37, -2.21), (-2.22, -2.36, -2.21), (-2.23, -2.37, -2.22)),
    "kosarek": ((-10.83, -11.11, -10.79), (-10.64, -11.06, -10.67), (-10.59, -11.09, -10.59)),
    "msnbc": ((-6.1, -6.46, -6.08), (-6.11, -6.47, -6.08), (-6.12, -6.46, -6.08)),
    "msweb": ((-10.0, -10.45, -9.97), (-9.82, -10.39, -9.81), (-9.72, -10.4, -9.74)),
    "nltcs": ((-6.09, -6.5, -6.1), (-6.02, -6.47, -6.02), (-6.0, -6.48, -6.0)),
    "plants": ((-12.97, -15.9, -12.96), (-12.77, -15.97, -12.77), (-12.67, -15.98, -12.66)),
    "pumsb_star": ((-23.82, -28.75, -23.65), (-22.79, -28.35, -22.77), (-22.79, -28.35, -22.78)),
    "tmovie": ((-51.23, -50.51, -50.89), (-44.55, -49.57, -44.58), (-42.17, -48.84, -42.11)),
    "tretail": ((-11.31, -11.03, -11.27), (-10.96, -11.0, -10.98), (-10.84, -10.98, -10.85)),
}
"""Data set -> (vanilla, global, best gated) at 25, 50 and 100 % of the training data (tab:summary)."""

LARGE, SMALL = ("nltcs", "plants", "baudio"), ("dna", "bbc")
"""Of the data sets that claims are judged on, those with many training rows and those with few."""

KEPT, CLEAR, CLOSE = 0.05, 0.5, 0.1
"""Nats: no loss to speak of, a clear gain, near the paper."""

LABELS = ("vanilla", "global", "gated")
SHARES = (0.25, 0.5, 1.0)


def paper_test_ll(dataset: str, label: str, fraction: float | None = None) -> Spread | None:
    """The paper's test log-likelihood; `fraction` None is the table of full data, else that of data fractions."""
    if label not in LABELS:
        return None
    column = LABELS.index(label)
    if fraction is None:
        return Spread(*TEST_LL[dataset][column], 5) if dataset in TEST_LL else None
    if dataset not in FRACTIONS or fraction not in SHARES:
        return None
    return Spread(FRACTIONS[dataset][SHARES.index(fraction)][column])
