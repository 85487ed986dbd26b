"""What a few noisy numbers say."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: The least probability with which an interval holds the median.
_COVERAGE = 0.9


def percentile(numbers: Sequence[float], share: float) -> float:
    """The least number that at least `share` of them do not exceed."""
    ordered = sorted(numbers)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(numbers: Sequence[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    ordered, half = sorted(numbers), len(numbers) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def interval(numbers: Sequence[float]) -> tuple[float, float]:
    """Bounds that hold the median with a probability of 0.9, however the numbers are distributed.

    The k-th smallest and k-th largest of n do so with probability 1 - 2 P(X < k), where X is the
    number of heads among n coins. Fewer than five numbers give their whole range, which holds it
    less often.
    """
    ordered, count = sorted(numbers), len(numbers)
    outside, dropped = 2 / 2**count, 0
    while True:
        outside += 2 * math.comb(count, dropped + 1) / 2**count
        if 1 - outside < _COVERAGE or 2 * (dropped + 1) >= count:
            break
        dropped += 1
    return ordered[dropped], ordered[-1 - dropped]
