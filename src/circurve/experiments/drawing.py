"""Figures as files: PNG and SVG of the same drawing."""

from __future__ import annotations

import io
from collections.abc import Mapping

from matplotlib import pyplot, rc_context
from matplotlib.figure import Figure

__all__ = ["figure_files"]

DPI = 160


def figure_files(figure: Figure, metadata: Mapping[str, str]) -> dict[str, bytes]:
    """The picture as PNG and as SVG, by file name ending, with title and caption inside; the figure is closed."""
    facts: dict[str, dict[str, str | None]] = {"png": {**metadata}, "svg": {**metadata, "Date": None}}  # no clock
    files = {}
    for kind, inside in facts.items():
        content = io.BytesIO()
        with rc_context({"svg.hashsalt": "circurve"}):  # the same names of parts every time
            figure.savefig(content, format=kind, dpi=DPI, bbox_inches="tight", metadata=inside)
        files[kind] = content.getvalue()
    pyplot.close(figure)
    return files
