"""What a `Curvature` says: ranking reversals, concentration, depth profile and attenuation.

Pure functions of the record's vectors, all (M,) over the sum units; nothing of size M x M is ever built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from circurve.curvature.record import By, Curvature, NodeRef, Vector
from circurve.errors import OptionError

__all__ = [
    "Attenuation",
    "Concentration",
    "DepthProfile",
    "Reversal",
    "Reversals",
    "attenuation",
    "concentration",
    "depth_profile",
    "rank_by",
    "reversals",
]

ROUNDING = 1e-12  # of a cumulative sum in float64
MEASURED = 1e-6  # of means that were measured in float32


@dataclass(frozen=True)
class Reversal:
    """Two sum units with T^_i > T^_j though t^_i < t^_j: the sharper one adds less to the trace."""

    i: NodeRef
    """The unit that is used more."""

    j: NodeRef
    """The unit that is sharper."""

    i_index: int
    """The number of unit i in the order of `Curvature.nodes`."""

    j_index: int
    local_ratio: float
    """t^_j / t^_i > 1: how many times sharper j is."""

    usage_ratio: float
    """(T^_i / t^_i) / (T^_j / t^_j): how many times more i is used; infinite where j is not used at all."""

    def __str__(self) -> str:
        used = "unused" if math.isinf(self.usage_ratio) else f"{self.usage_ratio:,.4g} times less used"
        return f"{_label(self.i)} outranks {_label(self.j)}: {self.local_ratio:,.4g} times sharper, {used}"


@dataclass(frozen=True)
class Reversals:
    """How far the ranking by T^ (share of the trace) and the one by t^ (own sharpness) disagree."""

    pairs: int
    """All M (M - 1) / 2 pairs of sum units."""

    tied: int
    """The pairs with equal T^ or equal t^: they have no order to disagree about."""

    disagree: int
    """The pairs that T^ and t^ order differently."""

    share: float
    """disagree / pairs."""

    tau: float
    """Kendall's tau-b of T^ and t^; 0 where one of them is the same for all units."""

    extreme: tuple[Reversal, ...]
    """The reversed pairs with the largest `usage_ratio`, the largest first."""

    def __str__(self) -> str:
        lines = [
            f"ordered differently {self.disagree:,} of {self.pairs:,} pairs ({self.share:.2%}) by T and by t",
            f"Kendall's tau       {self.tau:.4f}",
        ]
        return "\n".join(lines + [f"reversal            {pair}" for pair in self.extreme[:3]])


@dataclass(frozen=True, eq=False)
class Concentration:
    """Which share of a quantity the largest units hold: a curve of M + 1 points from (0, 0) to (1, 1)."""

    by: By
    curve_nodes: Vector = field(repr=False)
    """k / M, the fraction of the units, k = 0..M."""

    curve_share: Vector = field(repr=False)
    """The share of the whole that the k largest units hold."""

    gini: float
    """0 when all units hold the same, 1 - 1/M when one holds everything."""

    def fraction_for(self, share: float) -> float:
        """The smallest fraction of the units that holds `share` of the whole (to rounding, 1e-12); 0 of no units."""
        if not 0 < share <= 1:
            raise OptionError(f"share must be above 0 and at most 1, not {share!r}")
        point = np.searchsorted(self.curve_share, share * (1 - ROUNDING))
        return float(self.curve_nodes[min(int(point), len(self.curve_nodes) - 1)])

    def __str__(self) -> str:
        held = [f"{share:.4g} % by {self.fraction_for(share / 100):.2%}" for share in (90, 99, 99.99)]
        lines = [
            f"concentration       {self.by} of {len(self.curve_nodes) - 1:,} sum nodes",
            f"held                {', '.join(held)}",
            f"Gini                {self.gini:.4f}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class DepthProfile:
    """A quantity by partitions of the sum depth; each vector has one entry for each partition, shallow first."""

    by: By
    depth_low: Vector
    """The partition holds depths in [low, high); the last one, and a partition of one depth, its upper end too."""

    depth_high: Vector
    units: NDArray[np.int64]
    """The number of sum units in each partition."""

    sums: Vector
    means: Vector
    """sums / units, 0 for an empty partition."""

    share: Vector
    """sums / the whole; adds up to 1."""

    def __str__(self) -> str:
        lines = [f"{'depth':<16}{'units':>10}{'mean ' + self.by:>14}{'share':>9}"]
        for low, high, units, mean, share in zip(
            self.depth_low, self.depth_high, self.units, self.means, self.share, strict=True
        ):
            depth = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
            lines.append(f"{depth:<16}{units:>10,}{mean:>14.4g}{share:>9.2%}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Attenuation:
    """The bound T_n <= rho^(2 d_Sigma(n)) t_n against the measured means; vectors (M,) in the order of the units."""

    rho: float
    """The bound's responsibility: as given, or the smallest for which it holds for all units below the root."""

    slope: float
    """Least-squares slope of log(T^/t^) on depth: minus the nats of squared use lost per sum edge. Taken over the
    units with T^ > 0; NaN when these have one depth only."""

    depth: Vector = field(repr=False)
    """d_Sigma: the fewest sum edges above the unit (`depth_min`)."""

    implied_rho: Vector = field(repr=False)
    """(T^/t^)^(1 / (2 d)): the rho that makes the bound tight for this unit; NaN at depth 0."""

    bound: Vector = field(repr=False)
    """rho^(2 d) t^."""

    total: Vector = field(repr=False)
    """T^."""

    tightness: Vector = field(repr=False)
    """T^ / bound: 1 where the bound is tight, more than 1 where it fails, 0 where T^ = 0."""

    def __str__(self) -> str:
        below = self.depth > 0
        tight = np.median(self.tightness[below]) if below.any() else math.nan
        fails = int((self.tightness > 1 + MEASURED).sum())
        holds = "holds for all units" if not fails else f"fails for {fails:,} of {len(self.total):,} units"
        lines = [
            f"bound               rho = {self.rho:.4g}, {holds}",
            f"tightness           median {tight:.3g} below depth 0",
            f"squared use         {-self.slope:.3g} nats lost per sum edge",
        ]
        return "\n".join(lines)


def rank_by(curv: Curvature, by: By) -> NDArray[np.int64]:
    """Unit numbers from the largest to the smallest T^ ("total"), t^ ("local") or F^2 ("flow"); ties stay in order."""
    return curv.rank_by(by)


def reversals(curv: Curvature, most: int = 10) -> Reversals:
    """Count the pairs that T^ and t^ order differently, and give the `most` extreme of them.

    Per sample T_i > T_j iff t_i / t_j > (F_j / F_i)^2 (the paper's proposition on ranking reversals). For means the
    same holds with the effective squared flow T^/t^, so every reversed pair has usage_ratio > local_ratio > 1.

    With P pairs, X of them tied in T^, Y in t^ and B in both, the C pairs in the same order and the D in a different
    one satisfy C + D = P - X - Y + B and, by the definition of tau-b, C - D = tau sqrt((P - X) (P - Y)). Therefore
    D = (P - X - Y + B - tau sqrt((P - X) (P - Y))) / 2, which rounds to the exact integer while P < 1e14.

    Costs O(M log M) for the counts and O(M log^2 M + most M) for the extreme pairs, which are exact; O(M) memory.
    """
    from scipy.stats import kendalltau  # noqa: PLC0415 - slow to import

    if most < 0:
        raise OptionError(f"most must be 0 or more, not {most!r}")
    total, local = curv.total, curv.local
    pairs = len(total) * (len(total) - 1) // 2
    order = np.lexsort((total, local))
    by_total, by_local = _tied_pairs(np.sort(total)), _tied_pairs(local[order])
    tied = by_total + by_local - _tied_pairs(local[order], total[order])
    tau = 0.0
    if by_total < pairs and by_local < pairs:
        with np.errstate(all="ignore"):  # from the p-value, which is not used
            tau = float(kendalltau(total, local).statistic)
    surplus = round(tau * math.sqrt(pairs - by_total) * math.sqrt(pairs - by_local))
    disagree = (pairs - tied - surplus) // 2
    extreme = _extreme_pairs(curv, most) if disagree and most else ()
    return Reversals(pairs, tied, disagree, disagree / max(pairs, 1), tau, extreme)


def _tied_pairs(*columns: Vector) -> int:
    """How many pairs are equal in all columns, if equal rows are adjacent: the sum of m (m - 1) / 2 over groups."""
    differs = np.any([column[1:] != column[:-1] for column in columns], axis=0)  # from the one before
    sizes = np.diff(np.flatnonzero(np.concatenate([[True], differs, [True]])))
    return int((sizes * (sizes - 1) // 2).sum())


def _log_usage(curv: Curvature) -> Vector:
    """log(T^/t^): minus infinity for unused units, T^ = 0."""
    log_usage = np.full(len(curv.total), -np.inf)
    used = curv.total > 0
    with np.errstate(divide="ignore"):  # T^ > 0 = t^ is no mean of F^2 t; it counts as used without bound
        log_usage[used] = np.log(curv.total[used]) - np.log(curv.local[used])
    return log_usage


def _extreme_pairs(curv: Curvature, most: int) -> tuple[Reversal, ...]:
    """The `most` reversed pairs with the largest usage ratio; of equals the one with the largest local ratio.

    A unit i that occurs among the best k pairs is among the best k units by its own best pair (else k pairs would be
    better), so it is enough to look at all partners j of k units.
    """
    log_usage = _log_usage(curv)
    least = _least_used_partner(curv, log_usage)
    reversible = np.flatnonzero(least < np.inf)
    best = log_usage[reversible] - least[reversible]
    found: list[tuple[float, Reversal]] = []
    for i in reversible[np.lexsort((-log_usage[reversible], -best))[:most]]:
        partners = np.flatnonzero((curv.total < curv.total[i]) & (curv.local > curv.local[i]))
        least_used = partners[np.lexsort((-curv.local[partners], log_usage[partners]))[:most]]
        found += [(float(log_usage[i] - log_usage[j]), _reversal(curv, int(i), int(j))) for j in least_used]
    found.sort(key=lambda pair: (-pair[0], -pair[1].local_ratio))
    return tuple(pair for _, pair in found[:most])


def _least_used_partner(curv: Curvature, log_usage: Vector) -> Vector:
    """For each unit i the smallest log(T^_j/t^_j) of all j with T^_j < T^_i and t^_j > t^_i; infinity if there is none.

    Sorted by T^ (equals by t^), each such j comes before i. Blocks of 2, 4, 8.. neighbours are split in halves, and
    each unit of the right half takes the running minimum over the sharper units of the left half. Every pair is split
    in exactly one block, so O(M log^2 M) in all.
    """
    units = len(log_usage)
    size = 1 << max(units - 1, 0).bit_length()
    order = np.lexsort((curv.local, curv.total))
    usage = np.full(size, np.inf)
    usage[:units] = log_usage[order]
    place = np.arange(size)  # from the sharpest down; of equals the later one first, as equals are no partners
    place[np.lexsort((-np.arange(units), -curv.local[order]))] = np.arange(units)
    least = np.full(size, np.inf)
    half = 1
    while half < size:
        sharpest_first = place.reshape(-1, 2 * half).argsort(axis=1)
        left = usage.reshape(-1, 2 * half).copy()
        left[:, half:] = np.inf
        running = np.minimum.accumulate(np.take_along_axis(left, sharpest_first, axis=1), axis=1)
        np.put_along_axis(left, sharpest_first, running, axis=1)
        right = least.reshape(-1, 2 * half)[:, half:]
        np.minimum(right, left[:, half:], out=right)
        half *= 2
    result = np.empty(units)
    result[order] = least[:units]
    return result


def _reversal(curv: Curvature, i: int, j: int) -> Reversal:
    with np.errstate(divide="ignore", over="ignore"):
        local_ratio = float(curv.local[j] / curv.local[i])
        usage_ratio = float(curv.total[i] / curv.total[j] * local_ratio)
    return Reversal(curv.nodes[i], curv.nodes[j], i, j, local_ratio, usage_ratio)


def _label(ref: NodeRef) -> str:
    return f"{ref.name}[{ref.unit}]"


def _shares(values: Vector) -> Vector:
    """values / their sum; equal shares where all are zero, so that shares always add up to 1."""
    whole = values.sum()
    return values / whole if whole > 0 else np.full(len(values), 1 / max(len(values), 1))


def concentration(curv: Curvature, by: By) -> Concentration:
    """The cumulative share of T^, t^ or F^2 over the units from the largest down, and its Gini coefficient.

    gini = sum_ij abs(x_i - x_j) / (2 M sum_i x_i) = 2 A - 1, where A is the area under the curve by the trapezoid rule.
    Where the quantity is zero everywhere all units count as holding the same. O(M log M).
    """
    shares = _shares(np.sort(curv.by(by))[::-1])
    units = len(shares)
    nodes = np.arange(units + 1) / max(units, 1)
    share = np.concatenate([[0.0], np.cumsum(shares)])
    share /= share[-1] if units else 1.0
    area = float((share[1:] + share[:-1]).sum()) / (2 * units) if units else 0.5
    return Concentration(by, nodes, share, min(max(2 * area - 1, 0.0), 1.0))


def depth_profile(curv: Curvature, by: By, bins: int = 10) -> DepthProfile:
    """T^, t^ or F^2 by partitions of the flow-weighted mean sum depth, each spanning the same range of depths.

    Where all depths are whole numbers and at most `bins` different ones occur, each of them is a partition; a single
    depth always is one. Units that no path from the root reaches have no depth and are left out. Where the quantity is
    zero everywhere, each unit counts as holding the same share. O(M log M).
    """
    if bins < 1:
        raise OptionError(f"bins must be at least 1, not {bins!r}")
    reached = np.isfinite(curv.depth_mean)
    depth, values = curv.depth_mean[reached], curv.by(by)[reached]
    whole = np.unique(np.round(depth))
    if len(whole) <= bins and np.all(np.abs(depth - np.round(depth)) < MEASURED):
        low = high = whole
        number = np.searchsorted(whole, np.round(depth))
    else:
        bins = bins if depth.max() > depth.min() else 1
        edges = np.linspace(depth.min(), depth.max(), bins + 1)
        low, high = edges[:-1], edges[1:]
        number = np.minimum(np.searchsorted(edges, depth, side="right") - 1, bins - 1)
    units = np.bincount(number, minlength=len(low)).astype(np.int64)
    sums: Vector = np.bincount(number, weights=values, minlength=len(low)).astype(np.float64)
    share: Vector = np.bincount(number, weights=_shares(values), minlength=len(low)).astype(np.float64)
    return DepthProfile(by, low, high, units, sums, sums / np.maximum(units, 1), share)


def attenuation(curv: Curvature, rho: float | None = None) -> Attenuation:
    """Compare the attenuation bound T_n <= rho^(2 d_Sigma(n)) t_n with the measured T^.

    The paper's corollary is about trees and one sample: if every responsibility on the path to n is at most rho,
    then F_n <= rho^d. Here T^ and t^ are means over samples, and on a DAG d is the shortest path's and flows of several
    paths add up, so the bound may fail for a given rho. Without one, rho = max over units with d > 0 of
    (T^/t^)^(1 / (2 d)): the smallest for which it holds, tight for at least one unit (0 if no unit there is used). That
    is at most 1, since p_r is linear in p_n and so F_n <= 1; rounding is kept from exceeding it. O(M).
    """
    if rho is not None and not 0 < rho <= 1:
        raise OptionError(f"rho must be above 0 and at most 1, not {rho!r}")
    depth, log_usage, used = curv.depth_min, _log_usage(curv), curv.total > 0
    below = (depth > 0) & np.isfinite(depth)
    implied = np.full(len(depth), np.nan)
    with np.errstate(over="ignore"):
        implied[below] = np.exp(log_usage[below] / (2 * depth[below]))
    if rho is None:
        rho = min(float(implied[below].max(initial=0.0)), 1.0)
    bound = rho ** (2 * depth) * curv.local
    tightness = np.zeros(len(depth))
    log_rho = math.log(rho) if rho > 0 else 0.0  # rho = 0: all used units are at depth 0
    with np.errstate(over="ignore"):
        tightness[used] = np.exp(log_usage[used] - 2 * depth[used] * log_rho)
    known = np.isfinite(log_usage) & np.isfinite(depth)
    slope = _slope(depth[known], log_usage[known])
    return Attenuation(rho, slope, depth, implied, bound, curv.total, tightness)


def _slope(x: Vector, y: Vector) -> float:
    """sum (x - mean x) (y - mean y) / sum (x - mean x)^2; NaN for fewer than two different x."""
    if len(np.unique(x)) < 2:
        return math.nan
    offset = x - x.mean()
    return float(offset @ (y - y.mean()) / (offset @ offset))
