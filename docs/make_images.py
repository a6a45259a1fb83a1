"""Make the README's picture: use against sharpness of every sum node of a trained circuit.

python docs/make_images.py        # needs matplotlib
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

import circurve as cc

mpl.use("Agg")
import matplotlib.pyplot as plt

IMAGES = Path(__file__).parent / "images"


def main() -> None:
    """Train on the embedded digits and draw."""
    data = cc.load_dataset("digits")
    circuit = cc.hclt(data.train, units=32)
    model = cc.fit(circuit, data.train, valid=data.valid, epochs=50, seed=0).model
    curv = cc.curvature(model, data.train)
    used = curv.total > 0
    use = np.log10(curv.flow_squared[used])
    sharp, share = np.log10(curv.local[used]), np.log10(curv.total[used])

    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    bounds = (use.min() - 0.5, use.max() + 0.7)
    dots = axes.scatter(use, sharp, c=share, s=9, cmap="viridis", linewidths=0)
    figure.colorbar(dots, label="what it adds to the trace, log10 of mean T")
    axes.set(
        xlabel="how much the node is used, log10 of mean F²",
        ylabel="how sharp its own mixture is, log10 of mean t",
        xlim=bounds,
        ylim=(sharp.min() - 0.5, sharp.max() + 0.5),
        title="T = F² · t: where a circuit's sharpness sits",
    )
    axes.title.set_fontsize(11)
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / "decomposition.png", dpi=130)
    by_use, by_sharpness = np.corrcoef(share, use)[0, 1], np.corrcoef(share, sharp)[0, 1]
    print(f"{len(curv)} sum nodes; correlation of log T with log F^2 {by_use:.2f}, with log t {by_sharpness:.2f}")


if __name__ == "__main__":
    main()
