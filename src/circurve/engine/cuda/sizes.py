"""Sizes of blocks and tiles: what a program of a kernel does, as measured on an H200."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AT_ONCE",
    "BUSY_SHARE",
    "FUSED",
    "PROGRAMS",
    "SMALL_TILE",
    "TILE",
    "WIDE_TILE",
    "Blocks",
    "count_blocks",
    "cut",
    "element_blocks",
    "flow_blocks",
    "is_wide",
    "part_size",
    "parts",
    "power",
    "sum_blocks",
    "wide_count_blocks",
    "wide_flow_blocks",
    "wide_sum_blocks",
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

WIDE, WIDE_TILE = 256, 128
"""The kernels of wide layers take layers of at least WIDE units and children, both multiples of WIDE_TILE, and that
many samples at a time."""

MAX_CHILDREN, MAX_ELEMENTS = 1024, 8192
"""Elements of a sample that a program reads only once, and times samples: two programs of 8 warps then have registers
for them."""


@dataclass(frozen=True)
class Blocks:
    """What a program of a kernel of wide layers computes, and how."""

    units: int
    children: int
    samples: int
    warps: int
    stages: int
    """Blocks that are loaded ahead."""

    def options(self) -> dict[str, int]:
        """By the names that the kernels give them."""
        sizes = {"BK": self.units, "BC": self.children, "BN": self.samples}
        return {**sizes, "num_warps": self.warps, "num_stages": self.stages}


def parts(size: int, part: int) -> int:
    """How many parts of that size it takes."""
    return -(-size // part)


def power(size: int, least: int = 16) -> int:
    """The power of two at or above `size`; a product of matrices needs at least 16."""
    return max(least, 1 << (size - 1).bit_length())


def element_blocks(children: int, samples: int) -> tuple[int, int, int]:
    """Blocks of children and of samples for E, and the warps; all children at once if registers hold them."""
    block = power(children)
    if block <= FUSED:
        return block, SMALL_TILE, 4
    if block <= MAX_CHILDREN:
        return block, min(samples, MAX_ELEMENTS // block), 8
    return FUSED, SMALL_TILE, 4


def is_wide(units: int, children: int) -> bool:
    """True if the kernels of wide layers can compute layers of this shape."""
    return all(size >= WIDE and size % WIDE_TILE == 0 for size in (units, children))


def wide_sum_blocks(units: int) -> Blocks:
    """For W E of a wide layer; as measured."""
    if units % 256 == 0:
        return Blocks(256, 32, WIDE_TILE, warps=8, stages=4)
    return Blocks(128, 32, WIDE_TILE, warps=4, stages=3)


def wide_flow_blocks() -> Blocks:
    """For W^T A of a wide layer; as measured."""
    return Blocks(32, 128, WIDE_TILE, warps=4, stages=3)


def wide_count_blocks(children: int) -> Blocks:
    """For A E^T of a wide layer; as measured."""
    if children % 256 == 0:
        return Blocks(128, 256, 32, warps=8, stages=4)
    return Blocks(128, 128, 32, warps=4, stages=4)


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
