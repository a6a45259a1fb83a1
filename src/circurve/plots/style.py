"""One look for all pictures: sizes, colours and fonts, set on each figure and never in matplotlib's global settings."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import zip_longest

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect, Normal, Stroke

__all__ = ["Picture", "colour", "entitle", "grid_of_panels", "halo", "legend_above", "name_axes", "tidy", "two_rows"]

COLUMN, PAGE = 3.35, 6.9
"""Widths of a column and of a page of the paper, in inches."""

FONT, SMALL_FONT = 8.0, 7.0
LINE, HAIR = 1.3, 0.6

METHODS = {"vanilla": "#3b3b3b", "global": "#d55e00", "gated": "#0072b2"}
OTHERS = ("#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195")
"""The palette of Okabe and Ito: hues that stay apart for all common kinds of colour vision."""

QUANTITIES = {"total": "#882255", "local": "#009e73", "flow": "#e69f00"}
QUANTITIES |= {"mean_trace": "#009e73", "mean_ratio": "#56b4e9", "flow_weighted": "#0072b2"}
QUANTITIES |= {"geometric": "#cc79a7", "clipped": "#999933"}
SYMBOLS = {"total": r"$\hat{T}$", "local": r"$\hat{t}$", "flow": r"$\hat{F}^2$"}
SYMBOLS |= {
    name: rf"$\hat{{t}}$ ({name.replace('_', ' ')})"
    for name in ("mean_trace", "mean_ratio", "flow_weighted", "geometric", "clipped")
}
"""T^, t^ and F^2 as they are written in legends and on axes."""

INK, FAINT = "#222222", "#bdbdbd"


SHOWN_DPI, PIXEL_RATIO = 125, 2
"""In notebooks: pixels of the page for an inch, at which small type is readable, and pixels drawn for each of them."""


class Picture(Figure):
    """A figure that notebooks show as a picture, whether `%matplotlib inline` was called or not."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        width, height = (round(SHOWN_DPI * inches) for inches in self.get_size_inches())
        drawn = io.BytesIO()
        self.savefig(drawn, format="png", dpi=SHOWN_DPI * PIXEL_RATIO)
        return drawn.getvalue(), {"width": width, "height": height}


def colour(label: str, index: int = 0) -> str:
    """The colour of a method; a label that is none of the three takes one by its place among the others."""
    return METHODS.get(label, OTHERS[index % len(OTHERS)])


def grid_of_panels(count: int, height: float = 1.7) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, each `height` inches high: one is a column wide, more share a page's width."""
    columns = _columns(count)
    rows = -(-count // columns)
    figure = Picture(figsize=(COLUMN if count == 1 else PAGE, 0.6 + height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
    for ax in axes:
        tidy(ax)
    return figure, axes


def _columns(count: int) -> int:
    """Up to three side by side, four in a square, many in rows of four."""
    if count <= 3:
        return max(count, 1)
    return 2 if count == 4 else 3 if count <= 6 else 4


def tidy(ax: Axes) -> None:
    """Small type, thin lines, no box."""
    ax.tick_params(labelsize=SMALL_FONT, width=HAIR, length=2.5, color=INK, labelcolor=INK)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_linewidth(HAIR)
        spine.set_color(INK)


def entitle(ax: Axes, text: str) -> None:
    """The name of a panel."""
    ax.set_title(text, fontsize=FONT, color=INK, pad=4)


def name_axes(axes: Sequence[Axes], x: str, y: str) -> None:
    """Name the axes of a grid where a reader looks for it: below the lowest panel of a column, left of each row."""
    columns = _columns(len(axes))
    for i, ax in enumerate(axes):
        if i + columns >= len(axes):
            ax.set_xlabel(x, fontsize=FONT, color=INK)
        if i % columns == 0:
            ax.set_ylabel(y, fontsize=FONT, color=INK)


def legend_above(figure: Figure, handles: Sequence[Artist], columns: int | None = None) -> None:
    """One legend for all panels, above them."""
    figure.legend(
        handles=list(handles),
        loc="outside upper center",
        ncols=columns or len(handles),
        fontsize=SMALL_FONT,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.4,
    )


def two_rows(first: Sequence[Artist], second: Sequence[Artist]) -> list[Artist]:
    """Handles in the order in which a legend of max(len(first), len(second)) columns has them in two rows."""
    blank = Line2D([], [], linestyle="none", label=" ")
    return [handle for pair in zip_longest(first, second, fillvalue=blank) for handle in pair]


def halo(width: float = 2.0) -> list[AbstractPathEffect]:
    """A white rim that keeps a line or letter readable on any background."""
    return [Stroke(linewidth=width, foreground="white"), Normal()]
