"""What all tests of pictures need: a small curvature record, and a drawing that must not complain."""

from __future__ import annotations

import io
import warnings

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from circurve.curvature import Curvature, NodeRef


def render(figure: Figure) -> str:
    """The figure as SVG; any warning on the way is an error."""
    content = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def panels(figure: Figure) -> list[Axes]:
    """The axes that show data, without those of colour scales."""
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def curvature_record(flow_squared: object, local: object, depth: object | None = None) -> Curvature:
    """A record with T^ = F^2 t^; all units at depth 0, 1, 2.. unless given."""
    use, sharp = np.array(flow_squared, dtype=np.float64), np.array(local, dtype=np.float64)
    m = len(use)
    deep = np.arange(m, dtype=np.float64) if depth is None else np.array(depth, dtype=np.float64)
    return Curvature(
        flow=np.sqrt(use),
        flow_squared=use,
        local=sharp,
        local_mean_ratio=sharp,
        total=use * sharp,
        depth_min=deep,
        depth_max=deep,
        depth_mean=deep,
        layer=np.zeros(m),
        scope_size=np.ones(m),
        edges=np.full(m, 2.0),
        nodes=tuple(NodeRef(i, f"s{i}", 0) for i in range(m)),
        weight=1.0,
        impossible=0,
        mean_ratio=(),
    )
