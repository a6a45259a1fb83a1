"""Sizes of blocks and tiles: what a program of a kernel does, as measured on an H200."""

from __future__ import annotations

__all__ = [
    "AT_ONCE",
    "BUSY_SHARE",
    "FUSED",
    "PROGRAMS",
    "SMALL_TILE",
    "TILE",
    "count_blocks",
    "cut",
    "flow_blocks",
    "part_size",
    "parts",
    "power",
    "sum_blocks",
]

FUSED = 128
"""Layers with at most this many units and children run in one kernel."""

AT_ONCE = 6
"""Up to this many factors of an element are read at once."""

TILE, SMALL_TILE = 32, 16
"""Samples in a tile, and in the smaller tile for little work or much waiting for memory, where more programs help."""

PROGRAMS = 264
"""Two for each multiprocessor of a large GPU: fewer leave some of them idle."""

LEAST_PART = 256
"""The smallest number of samples for a separate program when sums over samples are divided into parts."""

BUSY_SHARE = 0.5
"""From BUSY_SHARE x PROGRAMS tiles on, a layer is bound by its work and not by waiting. (Measured.)"""


def parts(size: int, part: int) -> int:
    """How many parts of that size it takes."""
    return -(-size // part)


def power(size: int, least: int = 16) -> int:
    """The power of two at or above `size`; a product of matrices needs at least 16."""
    return max(least, 1 << (size - 1).bit_length())


def sum_blocks(units: int, children: int) -> tuple[int, int, int, int]:
    """Blocks of units, of children and of samples for W E, and the warps; as measured."""
    if children <= FUSED:
        return min(64, power(units)), 16, 64, 4
    return min(64, power(units)), 32, 128, 8


def flow_blocks(children: int, units: int) -> tuple[int, int, int, int]:
    """Blocks of children, of units and of samples for W^T A, and the warps; as measured."""
    if units <= FUSED:
        return min(128, power(children)), 16, 32, 4
    return min(128, power(children)), 32, 64, 4


def count_blocks(units: int, children: int, many: bool) -> tuple[int, int, int, int]:
    """Blocks of units, of children and of samples for A E^T, and the warps; `many` programs or few. As measured."""
    return min(64, power(units)), min(128 if many else 64, power(children)), 32, 4


def cut(samples: int, programs: int) -> tuple[int, int]:
    """Into how many parts to cut the samples so that all multiprocessors have work, and the size of a part."""
    wanted = max(1, min(PROGRAMS // max(1, programs), parts(samples, LEAST_PART)))
    return wanted, part_size(samples, wanted)


def part_size(samples: int, count: int) -> int:
    """The size of one part, a multiple of 64, if the samples are divided into this many parts."""
    return parts(parts(samples, count), 64) * 64
