"""How often numbers occur, and the ranges that follow from it."""

from __future__ import annotations

import numpy as np

from sardonyx.quantization.arithmetic import Array

#: What an empty bin gets of the others' counts, so that a logarithm of it exists.
_TRACE = 1e-4


class Histogram:
    """Counts of numbers between known bounds.

    Attributes:
        counts: How many numbers fell into each bin.
        edges: Where bins begin and end, one more than there are bins.
        lowest: The lowest number.
        highest: The highest number.
        dtype: The type of the numbers.
        is_of_sizes: Whether numbers were counted without their signs.
    """

    def __init__(self, low: Array, high: Array, bins: int, is_of_sizes: bool = False) -> None:
        self.dtype = np.asarray(low).dtype
        self.lowest, self.highest = float(low), float(high)
        self.is_of_sizes = is_of_sizes
        self._reach = max(abs(self.lowest), abs(self.highest))
        if not np.isfinite(self._reach):
            self._reach = 0.0
        start = 0.0 if is_of_sizes else -self._reach
        self.counts = np.zeros(bins, np.int64)
        self.edges = np.linspace(start, self._reach or 1.0, bins + 1).astype(self.dtype)

    def add(self, numbers: Array) -> None:
        """Count numbers; NaN is not counted.

        What lies outside the bounds, by a rounding error of another run, counts as the bound.
        """
        if not self._reach:
            return
        found = np.abs(numbers) if self.is_of_sizes else numbers
        bounds = (0.0 if self.is_of_sizes else -self._reach, self._reach)
        self.counts += np.histogram(np.clip(found, *bounds), self.counts.size, bounds)[0]


def percentiles(histogram: Histogram, percentile: float) -> tuple[float, float]:
    """The range of a percentage of the numbers, the rest being cut on both sides alike."""
    total = histogram.counts.sum()
    if not total:
        return histogram.lowest, histogram.highest
    shares = np.cumsum(histogram.counts / total)
    edges = histogram.edges
    if histogram.is_of_sizes:
        last = int(np.searchsorted(shares, percentile / 100))
        high = float(edges[min(last, edges.size - 1)])
        return -high, high
    cut = (100 - percentile) / 200
    first, last = (int(np.searchsorted(shares, share)) for share in (cut, 1 - cut))
    return float(edges[first]), float(edges[min(last, edges.size - 1)])


def entropy_range(histogram: Histogram, levels: int) -> tuple[float, float]:
    """The symmetric range whose numbers lose least when they are rounded to so many levels.

    After Migacz, "8-bit inference with TensorRT" (GTC 2017): for each range, what lies outside is
    moved to its ends; the divergence of that from what remains when bins are merged is smallest.
    """
    counts = histogram.counts
    middle, half = counts.size // 2, levels // 2
    best, found = np.inf, (histogram.lowest, histogram.highest)
    if not counts.any():
        return found
    below = np.concatenate([[0], np.cumsum(counts)])
    for reach in range(half, middle + 1):
        start, stop = middle - reach, min(middle + reach + 1, counts.size)
        inside = counts[start:stop]
        clipped = inside.copy()
        clipped[0] += below[start]
        clipped[-1] += below[-1] - below[stop]
        divergence = _divergence(clipped, _merged(inside, clipped != 0, levels))
        if divergence < best:
            best = divergence
            found = float(histogram.edges[start]), float(histogram.edges[stop])
    return found


def _merged(counts: Array, is_used: Array, levels: int) -> Array:
    """Counts after bins were merged to so many, spread evenly over those that were used."""
    width = counts.size // levels
    level = np.minimum(np.arange(counts.size) // width, levels - 1)
    sums = np.bincount(level, counts, levels)
    # The bins behind the last whole level are counted to it, but get nothing back.
    is_used = is_used & (np.arange(counts.size) < levels * width)
    used = np.bincount(level, is_used, levels)
    shares = np.divide(sums, used, out=np.zeros(levels), where=used > 0)
    return np.where(is_used, shares[level], 0.0)


def _divergence(p: Array, q: Array) -> float:
    """Kullback and Leibler's divergence of counts, after empty bins got a trace."""
    first, second = _smoothed(p.astype(np.float64)), _smoothed(q)
    if first is None or second is None:
        return float(np.inf)
    first, second = first / first.sum(), second / second.sum()
    return float(np.sum(first * np.log(first / second)))


def _smoothed(counts: Array) -> Array | None:
    is_empty = counts == 0
    empty, used = int(is_empty.sum()), int((~is_empty).sum())
    if not used:
        return None
    taken = _TRACE * empty / used
    if taken >= 1:
        return None
    return np.where(is_empty, _TRACE, counts - taken)


def mean_and_deviation(histogram: Histogram, power: float = 1.0) -> tuple[float, float]:
    """Mean and standard deviation of the numbers, raised to a power with their signs kept."""
    middles = (histogram.edges[:-1].astype(np.float64) + histogram.edges[1:]) / 2
    values = np.sign(middles) * np.abs(middles) ** power
    total = histogram.counts.sum()
    if not total:
        return 0.0, 0.0
    shares = histogram.counts / total
    mean = float(np.sum(shares * values))
    return mean, float(np.sqrt(max(np.sum(shares * values**2) - mean**2, 0.0)))
