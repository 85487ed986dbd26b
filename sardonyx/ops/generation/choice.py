"""The choice of one token for each row: the likeliest, or drawn among the likeliest."""

from __future__ import annotations

from sardonyx.base.dtypes import BOOL, FLOAT, INT32, INT64, UINT32
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.generation.decoders import See
from sardonyx.ops.onnx.gather import scatter_elements, top_k
from sardonyx.ops.onnx.normalisation import softmax_over
from sardonyx.tensor import scalar
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.language import Tensor, argmax, cast, compute, constant
from sardonyx.tensor.philox import draw, unit
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_call, make_reduce, reduced_indices


@dataclass(frozen=True, slots=True)
class Searched:
    """Sequences that grow, one of each prompt.

    Attributes:
        sequences: int32[batch, longest].
        done: Whether each has its end token, bool[batch].
    """

    sequences: Tensor
    done: Tensor

    @staticmethod
    def begin(prompt: Tensor, longest: Dim, padding: int) -> Searched:
        """The prompts alone, int32[batch, start]."""
        batch, start = prompt.shape

        def token(row: Dim, place: Dim) -> Scalar:
            there = scalar.size(place) < scalar.size(start)
            return scalar.select(there, scalar.load(prompt, (row, place)), padding)

        found = compute((batch, longest), token, INT32)
        return Searched(found, constant(False, BOOL, (batch,)))

    def newest(self, length: Dim) -> Tensor:
        """The tokens at place `length - 1`, int32[batch]."""
        at = length - 1
        return compute(self.done.shape, lambda row: scalar.load(self.sequences, (row, at)))

    def advance(self, tokens: Tensor, length: Dim, end: int, padding: int) -> Searched:
        """With one token more each, int64[batch]; the end and what follows it are padding."""

        def ends(row: Dim) -> Scalar:
            found = scalar.compare("eq", scalar.load(tokens, (row,)), end)
            return found | scalar.load(self.done, (row,))

        def token(row: Dim, place: Dim) -> Scalar:
            here = scalar.compare("eq", scalar.size(place), scalar.size(length))
            before = scalar.load(self.sequences, (row, place))
            given = scalar.cast(scalar.load(tokens, (row,)), INT32)
            return scalar.select(here, scalar.select(ends(row), padding, given), before)

        return Searched(compute(self.sequences.shape, token), compute(self.done.shape, ends))


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """How tokens are chosen.

    Attributes:
        key: Of random numbers, uint32[4]; None: the likeliest is taken.
        top: Only the likeliest tokens whose chances together reach this are drawn; from 1: any.
        filtered: The score of those that are not.
        least: So many are drawn from in any case.
    """

    key: Tensor | None = None
    top: float = 0.0
    filtered: float = 0.0
    least: int = 0

    @staticmethod
    def drawn(
        scope: Scope, seed: Tensor | None, top: float, filtered: float, least: int
    ) -> TokenChoice:
        """A choice by chance; a seed makes it the same in every run."""
        if seed is None:
            result = Result(UINT32, (4,))
            key: Tensor = host_call("random.key", [], [result], node=scope.name, seed=None)[0]
        else:
            start = cast(scalar_of(seed, "Sampling"), UINT32)

            def word(k: Dim) -> Scalar:
                first = scalar.compare("eq", scalar.size(k), 0)
                return scalar.select(first, scalar.load(start, ()), 0)

            key = compute((4,), word)
        return TokenChoice(key, top, filtered, least)

    def make(self, scores: Tensor, number: Dim, see: See) -> tuple[Tensor, Tensor]:
        """Tokens int64[rows], and the scores that they are chosen by.

        Args:
            scores: float[rows, vocabulary].
            number: That of the step.
            see: Gives what is outside.
        """
        if self.key is None:
            return argmax(scores, 1), constant(0.0, FLOAT, (scores.shape[0], 0))
        if self.top < 1.0:
            scores = self._likeliest(scores)
        chances = softmax_over(scores, (1,))
        below = _running(chances)
        return _drawn(below, _words(see(self.key), number)), scores

    def _likeliest(self, scores: Tensor) -> Tensor:
        """Scores, all but those of the likeliest tokens replaced."""
        rows, words = scores.shape
        best, places = top_k(scores, words, 1)
        (better,) = make_call(
            "scan", (softmax_over(best, (1,)),), ((best.shape, FLOAT),), kind="sum",
            exclusive=True, reverse=False,
        )  # fmt: skip

        def body(row: Dim, rank: Dim) -> Scalar:
            kept = scalar.load(better, (row, rank)) < self.top
            kept = kept | (scalar.size(rank) < self.least)
            return scalar.select(kept, scalar.load(best, (row, rank)), self.filtered)

        return scatter_elements(scores, places, compute(best.shape, body), axis=1)


def _running(chances: Tensor) -> Tensor:
    """Sums up to each element along the last axis."""
    (found,) = make_call(
        "scan", (chances,), ((chances.shape, FLOAT),), kind="sum", exclusive=False, reverse=False
    )
    return found


def _words(key: Tensor, number: Dim) -> Tensor:
    """The key of a step: its number is the highest word of the counter."""
    step = scalar.cast(scalar.size(number), UINT32)

    def word(k: Dim) -> Scalar:
        last = scalar.compare("eq", scalar.size(k), 3)
        return scalar.select(last, step, scalar.load(key, (k,)))

    return compute((4,), word)


def _drawn(below: Tensor, key: Tensor) -> Tensor:
    """Classes drawn by running sums of chances, int64[rows]."""
    rows, words = below.shape
    numbers = compute((rows,), lambda row: unit(draw(key, row)[:2], FLOAT))
    (row,), (over,) = indices((rows,)), reduced_indices((words,))
    total = scalar.load(below, (row, words - 1))
    limit = scalar.load(numbers, (row,)) * total
    passed = scalar.cast(scalar.load(below, (row, over)) <= limit, INT64)
    return make_reduce((rows,), (words,), "sum", passed, INT64)
