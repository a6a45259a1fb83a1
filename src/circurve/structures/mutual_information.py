"""Mutual information of every pair of columns: counts by matrix products, in bounded memory.

Each kind of data is a pair of functions. `features` turns a chunk of rows and a block of columns into a matrix; the
products of two such matrices, summed over the rows, are all that `information` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.budget import Need
from circurve.data import Stream, as_source
from circurve.data.infer import families_of
from circurve.data.scan import CHUNK, MAX_STATES, Columns, row_chunks, scan_columns
from circurve.data.stream import sample_rows, say_stream
from circurve.errors import OptionError
from circurve.inputs import Family
from circurve.structures.arguments import Families, as_families, check_count
from circurve.structures.columns import Codes, discretize, discretize_lazily
from circurve.structures.correlation import centre_and_scale, correlation
from circurve.structures.tree_rows import ROW_WEIGHT_BYTES, TreeRows, weighted_rows
from circurve.words import counted

__all__ = ["BLOCK_WIDTH", "InformationBlocks", "mutual_information"]

Array = NDArray[np.float64]
BlockInformation = Callable[[slice, slice], Array]
"""Mutual information (A, B) of two blocks of columns."""

BLOCK_WIDTH = 2048
"""A block of columns has at most this many features, so its table of products at most the square of it."""

SCATTER_CELLS = 144
"""From this many cells for a pair of columns, counting value by value beats the product of indicators."""

BLOCK_COPIES, FEATURE_COPIES, WEIGHTED_COPIES = 8, 3, 12
"""How many arrays of a block's size, and of a chunk's (in float32; of rows with weights), are in memory at a time."""

MAX_PASSES = 10
"""Passes over a stream of blocks for a tree: with up to 4096 binary columns, that is."""

SAMPLE_BYTES = 1 << 28
"""Bytes of the rows that are used instead of a whole stream, if it has more columns."""

CANCELLATION_SHARE = 1e-4
"""A variance below this share of the second moment has lost digits to the mean; the pair is then taken by itself."""


def mutual_information(
    data: object,
    families: Families | Family | None = None,
    pseudocount: float = 1.0,
    bins: int = 8,
    missing: int | None = None,
    memory_budget: int | None = None,
) -> Array:  # (N, V) -> (V, V)
    """Mutual information I(u; v), in nats, of all pairs of columns; symmetric, not negative, 0 on the diagonal.

    A pair is judged by the n rows in which both values are present. It is smoothed by `pseudocount` (a) samples in
    which the two are independent:

        p_ij = (n_ij + a p_i p_j) / (n + a),    I = sum_ij p_ij log(p_ij / (p_i p_j)),

    which keeps the marginals p_i = n_i / n, so a constant column shares nothing with any other, and a pair seen in
    few rows is trusted less. Columns of continuous families only: the same a samples shrink the correlation,
    I = -log(1 - r^2) / 2 with r = rho n / (n + a), as if each pair were jointly Gaussian. Discrete and continuous
    columns together: the continuous ones (and whole numbers above 255) are cut into `bins` bins at their quantiles.

    `families` None infers them from the data. NaN marks a missing value, and so does the number `missing`. With row
    weights w (`Examples`), n and the other counts are sums of w in float64; without them, counts are exact. A row of
    weight 2 counts as two rows, one of weight 0 is left out. The a samples have weight 1, or sum w^2 / sum w if that is
    less.

    Cost O(N (sum of states)^2) by matrix products, or O(N V^2) where columns have many states; memory beyond the
    result: a few hundred MB at most, and 2 N V bytes of codes unless all columns are binary or all are continuous.
    If more memory is needed than `memory_budget` in bytes, or than is free, it is refused before it is allocated.
    """
    blocks = InformationBlocks.of(data, families, pseudocount, bins, missing)
    blocks.need(whole=True).left(memory_budget)
    result = np.zeros((blocks.variables, blocks.variables))
    for a, b, part in blocks:
        result[a, b], result[b, a] = part, part.T
    np.fill_diagonal(result, 0)
    return result


@dataclass(frozen=True)
class InformationBlocks:
    """The matrix of `mutual_information` block by block, each computed when it is asked for.

    Iteration gives (a, b, part): two blocks of columns, b the same as a or a later one, and the part (A, B) of the
    matrix. Each pair of blocks comes once, so all that is held at a time is one part.
    """

    columns: tuple[slice, ...]
    information: BlockInformation
    features: int
    """The number of features of the widest block."""

    rows: int
    weighed: bool = False
    """The table has weights."""

    @classmethod
    def of(
        cls, data: object, families: Families | Family | None, pseudocount: float, bins: int, missing: int | None
    ) -> InformationBlocks:
        """The options are those of `mutual_information`."""
        if not isinstance(pseudocount, int | float) or not 0 <= pseudocount < np.inf:
            raise OptionError(f"pseudocount must be a finite number >= 0, not {pseudocount!r}")
        if check_count("bins", bins, at_least=2) > MAX_STATES:
            raise OptionError(f"bins must be at most {MAX_STATES}, not {bins!r}")
        rows = _rows(data, missing)
        matrix = rows.matrix
        columns = scan_columns(matrix)
        chosen = families_of(columns) if families is None else as_families(families, matrix.shape[1])
        discrete = [family.discrete for family in chosen]
        if not any(discrete):
            return cls._of(rows, [3] * len(chosen), _gaussian(rows, columns, pseudocount))
        if all(discrete) and columns.binary.all():
            return cls._of(rows, [2] * len(chosen), _binary(rows, columns, pseudocount))
        if isinstance(matrix, Stream):
            codes = discretize_lazily(matrix, columns, discrete, bins)
        else:
            codes = discretize(matrix, columns, discrete, bins, rows.weights)
        return cls._of(rows, [int(s) for s in codes.states], _categorical(codes, rows.weights, pseudocount))

    @classmethod
    def _of(cls, rows: TreeRows, widths: Sequence[int], information: BlockInformation) -> InformationBlocks:
        columns = _cut(widths)
        return cls(columns, information, max(sum(widths[block]) for block in columns), len(rows.matrix), rows.weighed)

    def need(self, whole: bool = False) -> Need:
        """What a block takes, with its temporaries; `whole`: and the matrix."""
        copies = WEIGHTED_COPIES if self.weighed else FEATURE_COPIES
        parts = {"blocks": BLOCK_COPIES * 8 * self.features**2 + copies * 4 * min(CHUNK, self.rows * self.features)}
        if self.weighed:
            parts["row weights"] = ROW_WEIGHT_BYTES * self.rows
        if whole:
            parts["the matrix"] = 8 * self.variables**2
        cure = "use fewer columns, or chow_liu_tree, which needs no matrix" if whole else "use fewer columns"
        return Need("mutual information", parts, cure)

    @property
    def variables(self) -> int:
        """V."""
        return int(self.columns[-1].stop)

    def __iter__(self) -> Iterator[tuple[slice, slice, Array]]:
        for a, b in combinations_with_replacement(self.columns, 2):
            part = self.information(a, b)
            if a == b:
                part = (part + part.T) / 2  # equal up to rounding; make it exact
            yield a, b, np.maximum(part, 0, out=part)


def _rows(data: object, missing: int | None) -> TreeRows:
    """The data in memory, with their weights; or a stream, which is read in each pass over a pair of blocks.

    Where many passes would be needed, and single rows cannot be read, evenly spaced rows are used instead of all rows.
    """
    source = as_source(data, missing)
    if not isinstance(source, Stream):
        return weighted_rows(np.asarray(source), source.weights)
    blocks = -(-2 * source.shape[1] // BLOCK_WIDTH)
    if source.reader.access == "rows" or blocks * (blocks + 1) // 2 <= MAX_PASSES:
        say_stream(source, f"tree from all {counted(len(source), 'row')}")
        return TreeRows(source)
    rows = min(len(source), max(1, SAMPLE_BYTES // source.row_bytes))
    say_stream(
        source,
        f"tree from {rows:,} of {len(source):,} rows, evenly spaced: there are too many columns to read all rows",
    )
    return TreeRows(np.concatenate([np.asarray(part) for part in sample_rows(source, rows)]))


def _cut(widths: Sequence[int]) -> tuple[slice, ...]:
    """Blocks of columns whose feature `widths` add up to at most BLOCK_WIDTH."""
    starts, used = [0], 0
    for v, width in enumerate(widths):
        if used and used + width > BLOCK_WIDTH:
            starts.append(v)
            used = 0
        used += width
    return tuple(slice(a, b) for a, b in zip(starts, [*starts[1:], len(widths)], strict=True))


Features = Callable[[slice, slice], np.ndarray]
"""The features (n, F) of some rows and a block of columns."""


def _products(features: Features, rows: int, a: slice, b: slice, width: int, weights: Array | None = None) -> Array:
    """The sum over rows of w features(a)^T features(b), of at most `width` columns each; w is 1 without weights.

    A chunk's product is taken in the features' precision, or in float64 with weights (N,); the sum is in float64.
    Indicators in float32 stay exact: a chunk has fewer than 2^24 rows.
    """
    total: Array = np.zeros(())
    for chunk in row_chunks(rows, width if weights is None else 2 * width):  # float64 takes twice the memory
        left = torch.from_numpy(features(chunk, a))  # (n, A)
        right = left if a == b else torch.from_numpy(features(chunk, b))  # (n, B)
        if weights is not None:
            right = right.double()
            left = left * torch.from_numpy(weights[chunk]).unsqueeze(-1)
        total = total + (left.T @ right).numpy()
    return total


def _positive(n: Array) -> Array:
    """A divisor: n, or 1 where it is 0, as are then the counts that it divides."""
    return np.where(n > 0, n, 1.0)


def _binary(rows: TreeRows, columns: Columns, pseudocount: float) -> BlockInformation:
    """Zeros and ones: n_11 from the ones, the other cells from the marginals of the rows where both are present."""
    matrix = rows.matrix
    has_missing = bool(columns.missing.any())

    def features(chunk: slice, block: slice) -> np.ndarray:  # ones | present; (n, A + A), or (n, A + 1) if complete
        part = matrix[chunk, block].astype(np.float32)
        if not has_missing:
            return np.concatenate([part, np.ones_like(part[:, :1])], axis=1)
        present = ~np.isnan(part)
        return np.concatenate([np.where(present, part, np.float32(0)), present], axis=1, dtype=np.float32)

    def information(a: slice, b: slice) -> Array:
        i, j = a.stop - a.start, b.stop - b.start
        counts = _products(features, len(matrix), a, b, 2 * max(i, j), rows.weights)
        n = counts[i:, j:]  # (A, B) or (1, 1), as all that depends on it
        seen = _positive(n)
        p, q = counts[:i, j:] / seen, counts[i:, :j] / seen  # P(u=1), P(v=1)
        both = (counts[:i, :j] + pseudocount * p * q) / _positive(n + pseudocount)
        cells = _entr(both) + _entropy(p - both) + _entropy(q - both) + _entropy(1 - p - q + both)
        return np.where(n > 0, _entr(p) + _entropy(1 - p) + _entr(q) + _entropy(1 - q) - cells, 0.0)

    return information


def _entr(p: Array) -> Array:
    """-p log p, which is 0 for p = 0."""
    from scipy.special import entr  # noqa: PLC0415 - slow to import

    return np.asarray(entr(p))


def _entropy(p: Array) -> Array:
    """-p log p of a difference of probabilities, which rounding may have left below zero."""
    return _entr(np.maximum(p, 0))


def _gaussian(rows: TreeRows, columns: Columns, pseudocount: float) -> BlockInformation:
    """Continuous columns: correlations over the rows where both are present.

    Columns are centred at their median and divided by their spread first. Neither feels an outlier, so one whose
    partner is missing costs the pair no digits, and the mean is less than a standard deviation away from the centre:
    moments lose digits only where the rows of a pair are unlike the rest of the column, and such pairs are few.
    """
    matrix, weights = rows.matrix, rows.weights
    centre, scale = centre_and_scale(columns)
    alone = 0 if weights is not None else 1  # n of a single row; the variance tells that of a row with a weight

    def features(chunk: slice, block: slice) -> np.ndarray:  # z | z^2 | present; (n, 3 A)
        z = (matrix[chunk, block] - centre[block]) / scale[block]
        present = ~np.isnan(z)
        z = np.where(present, z, 0.0)
        return np.concatenate([z, z * z, present], axis=1)

    def information(a: slice, b: slice) -> Array:
        i, j = a.stop - a.start, b.stop - b.start
        moments = _products(features, len(matrix), a, b, 3 * max(i, j), weights)
        n = moments[2 * i :, 2 * j :].copy()
        moments /= np.tile(_positive(n), (3, 3))
        mean_u, mean_v = moments[:i, 2 * j :], moments[2 * i :, :j]
        square_u, square_v = moments[i : 2 * i, 2 * j :], moments[2 * i :, j : 2 * j]
        variance_u, variance_v = square_u - mean_u**2, square_v - mean_v**2
        varied = (variance_u > 0) & (variance_v > 0) & (n > alone)
        spread = np.sqrt(np.where(varied, variance_u, 1.0)) * np.sqrt(np.where(varied, variance_v, 1.0))
        rho = np.clip((moments[:i, :j] - mean_u * mean_v) / spread, -1, 1) * varied
        cancelled = (variance_u < CANCELLATION_SHARE * square_u) | (variance_v < CANCELLATION_SHARE * square_v)
        for u, v in np.argwhere(cancelled & (n > alone)):
            rho[u, v] = correlation(matrix[:, a.start + u], matrix[:, b.start + v], weights)
        shrunk = rho * (n / _positive(n + pseudocount))
        return np.asarray(-0.5 * np.log1p(-np.minimum(shrunk**2, 1 - 1e-12)))

    return information


def _categorical(codes: Codes, weights: Array | None, pseudocount: float) -> BlockInformation:
    """Whole-number codes: the table of counts of all pairs of states, then sums over the states of each pair."""

    def features(rows: slice, block: slice) -> np.ndarray:  # (n, states of the block)
        return _indicators(codes.values[rows, block], codes.states[block])

    def information(a: slice, b: slice) -> Array:
        left, right = codes.states[a], codes.states[b]
        if left.mean() * right.mean() < SCATTER_CELLS:
            width = int(max(left.sum(), right.sum()))
            counts = _products(features, len(codes.values), a, b, width, weights)
        else:
            counts = _scatter_counts(codes, a, b, weights)
        return _table_information(counts, left, right, pseudocount)

    return information


def _indicators(values: NDArray[np.int16], states: NDArray[np.int64]) -> np.ndarray:  # (n, A) -> (n, sum of states)
    """1 where a variable has the state, one column for each state; a missing value has a row of zeros."""
    result = np.zeros((len(values), int(states.sum()) + 1), dtype=np.float32)
    np.put_along_axis(result, _places(values, states), 1.0, axis=1)
    return result[:, :-1]


def _places(values: NDArray[np.int16], states: NDArray[np.int64]) -> NDArray[np.int64]:  # (n, A) -> (n, A)
    """The column that `_indicators` has for each value; an extra one at the end takes what is missing."""
    return np.where(values == states, states.sum(), values + (np.cumsum(states) - states))


def _scatter_counts(codes: Codes, a: slice, b: slice, weights: Array | None = None) -> Array:
    """The counts that the product of indicators gives, computed by adding up one cell for each row and pair: O(N A
    B). Whole numbers, or sums of weights (N,) in float64."""
    states = codes.states[b]
    width = int(states.sum())
    kind = np.int64 if weights is None else np.float64
    tables = [np.zeros((int(s) + 1, width + 1), dtype=kind) for s in codes.states[a]]
    for rows in row_chunks(len(codes.values), len(states)):
        right = _places(codes.values[rows, b], states)
        each = None if weights is None else np.repeat(weights[rows], len(states))
        for table, left in zip(tables, codes.values[rows, a].T, strict=True):
            cells = (left[:, None].astype(np.int64) * (width + 1) + right).ravel()
            table.reshape(-1)[:] += np.bincount(cells, each, minlength=table.size)
    return np.concatenate([table[:-1, :-1] for table in tables]).astype(np.float64)


def _table_information(
    counts: Array, left: NDArray[np.int64], right: NDArray[np.int64], pseudocount: float
) -> Array:  # (states of A, states of B) -> (A, B)
    """I(u; v) = H(u) + H(v) - H(u, v) of the smoothed table of each pair, `left` and `right` counting the states."""
    rows, cols = np.cumsum(left) - left, np.cumsum(right) - right
    p = np.add.reduceat(counts, cols, axis=1)  # (states of A, B): u = i while v is present
    q = np.add.reduceat(counts, rows, axis=0)  # (A, states of B)
    n = np.add.reduceat(p, rows, axis=0)  # (A, B)
    seen = _positive(n)
    p /= np.repeat(seen, left, axis=0)
    q /= np.repeat(seen, right, axis=1)
    joint = pseudocount * np.repeat(p, right, axis=1) * np.repeat(q, left, axis=0)
    joint += counts
    joint /= np.repeat(np.repeat(_positive(n + pseudocount), left, axis=0), right, axis=1)
    both = np.add.reduceat(np.add.reduceat(_entr(joint), cols, axis=1), rows, axis=0)
    information = np.add.reduceat(_entr(p), rows, axis=0) + np.add.reduceat(_entr(q), cols, axis=1) - both
    return np.asarray(np.where(n > 0, information, 0.0))
