"""Which token comes next: the best one, or one drawn by its probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, RuntimeException, message
from sardonyx.runtime.storage import Array


@dataclass(frozen=True, slots=True)
class Choosing:
    """How tokens are chosen from scores.

    Attributes:
        temperature: Scores are divided by it; 0 takes the best token.
        top_k: How many of the best tokens may be drawn; 0 for all.
        top_p: The least sum of probabilities of the best tokens that may be drawn.
        repetition_penalty: What scores of tokens that were there are divided by (multiplied with,
            if negative); see CTRL (Keskar et al. 2019), section 4.1.
        seed: Of the generator; None for another one each time.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    _random: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, self.temperature >= 0, "0 or more")
        is_count = isinstance(self.top_k, int) and self.top_k >= 0
        _check("top_k", self.top_k, is_count, "a whole number, 0 or more")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "more than 0, at most 1")
        penalty = self.repetition_penalty
        _check("repetition_penalty", penalty, penalty > 0, "more than 0")
        object.__setattr__(self, "_random", np.random.default_rng(self.seed))

    def choose(self, scores: Array, seen: Sequence[Sequence[int]]) -> list[int]:
        """One token for each row.

        Args:
            scores: float32[batch, vocabulary].
            seen: The tokens of each row so far.

        Raises:
            RuntimeException: A row has no score that is a number.
        """
        best = scores.max(1)
        wrong = np.flatnonzero(~np.isfinite(best))
        if wrong.size:
            what = f"The scores of sequence {wrong[0]} have {best[wrong[0]]} as their largest"
            raise RuntimeException(message("generate", what, do="Look at the model's logits"))
        return [self._one(row, tokens) for row, tokens in zip(scores, seen, strict=True)]

    def _one(self, row: Array, seen: Sequence[int]) -> int:
        if self.repetition_penalty != 1:
            there = np.unique(np.asarray(seen, np.int64))
            there = there[(there >= 0) & (there < row.size)]
            old, row = row[there], row.copy()
            penalty = np.float32(self.repetition_penalty)
            row[there] = np.where(old > 0, old / penalty, old * penalty)
        if self.temperature == 0:
            return int(row.argmax())
        order = np.argsort(-row, kind="stable")
        if self.top_k:
            order = order[: self.top_k]
        scaled = row[order].astype(np.float64) / self.temperature
        sums = np.cumsum(np.exp(scaled - scaled[0]))
        if self.top_p < 1:
            # The fewest best tokens whose probabilities reach top_p (Holtzman et al. 2019).
            sums = sums[: int(np.searchsorted(sums, self.top_p * sums[-1])) + 1]
        drawn = self._random.random() * sums[-1]
        return int(order[min(int(np.searchsorted(sums, drawn, "right")), sums.size - 1)])


def _check(name: str, value: Any, is_right: bool, expected: str) -> None:
    if not is_right:
        what = f"The option {name} does not fit"
        raise InvalidArgument(message("generate", what, expected=expected, got=repr(value)))
