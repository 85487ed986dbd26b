"""The state of a beam search: what is followed, what has ended, and the choice between both.

Of each prompt the best `beams` sequences are followed. From one step to the next the `2 beams` best
continuations are looked at: those with the end token, if among the first `beams`, are kept as
ended, the best others are followed. The score of what has ended is the sum of the logarithms of
its tokens' chances, divided by a power of its length.
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import integer
from sardonyx.base.dtypes import BOOL, FLOAT, INT32, INT64
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.onnx.gather import top_k
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, cast, compute, concat, constant, reshape
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

_NONE = float("-inf")  # the score of what is not there
_UNLIKELY = -1e9  # of all beams but the first before the first step: they are copies of it


@dataclass(frozen=True, slots=True)
class Beams:
    """A state, all of it carried by the loop.

    Attributes:
        sequences: What is followed, int32[rows, longest]; rows are batch times beams.
        scores: Sums of logarithms, float[rows].
        ended: int32[batch, beams, longest], the best first.
        ended_scores: float[batch, beams], -inf where there is none.
        counts: How many have ended, int64[batch].
        done: Whether nothing can become better, bool[batch].
    """

    sequences: Tensor
    scores: Tensor
    ended: Tensor
    ended_scores: Tensor
    counts: Tensor
    done: Tensor

    def tensors(self) -> list[Tensor]:
        """All, in the order of the fields."""
        return [
            self.sequences, self.scores, self.ended, self.ended_scores, self.counts, self.done,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class BeamPolicy:
    """How a beam search decides.

    Attributes:
        beams: How many sequences of each prompt are followed.
        end: The token that ends one.
        padding: What follows it.
        penalty: The power of lengths, float[].
        stops_early: Whether a prompt is done as soon as `beams` sequences have ended.
    """

    beams: Dim
    end: int
    padding: int
    penalty: Tensor
    stops_early: bool


def begin(prompt: Tensor, longest: Dim, policy: BeamPolicy) -> Beams:
    """The state before the first step; prompt: int32[batch, start]."""
    (batch, start), beams = prompt.shape, policy.beams
    rows = batch * beams

    def token(row: Dim, place: Dim) -> Scalar:
        there = scalar.size(place) < scalar.size(start)
        given = scalar.load(prompt, (integer.floordiv(row, beams), place))
        return scalar.select(there, given, policy.padding)

    def score(row: Dim) -> Scalar:
        first = scalar.compare("eq", scalar.size(integer.modulo(row, beams)), 0)
        return scalar.select(first, scalar.constant(0.0, FLOAT), _UNLIKELY)

    return Beams(
        compute((rows, longest), token, INT32),
        compute((rows,), score),
        constant(policy.padding, INT32, (batch, beams, longest)),
        constant(_NONE, FLOAT, (batch, beams)),
        constant(0, INT64, (batch,)),
        constant(False, BOOL, (batch,)),
    )


def advance(state: Beams, totals: Tensor, length: Dim, policy: BeamPolicy) -> tuple[Beams, Tensor]:
    """The state with one token more, and which row each row goes on from, int64[rows].

    Args:
        state: The state before.
        totals: Scores of all continuations, float[rows, vocabulary].
        length: How many tokens there are before.
        policy: How to decide.
    """
    (rows, words), beams = totals.shape, policy.beams
    batch = state.done.shape[0]
    looked_at = beams * 2
    flat = reshape(totals, (batch, beams * words))
    best, places = top_k(flat, looked_at, 1)

    def word(b: Dim, k: Dim) -> Scalar:
        return scalar.binary("rem", scalar.load(places, (b, k)), scalar.size(words))

    def beam(b: Dim, k: Dim) -> Scalar:
        return scalar.binary("div", scalar.load(places, (b, k)), scalar.size(words))

    tokens, origins = (compute((batch, looked_at), body) for body in (word, beam))
    done = state.done
    chosen = _not_ended(tokens, policy)

    def of_row(x: Tensor, padding: float) -> Callable[[Dim], Scalar]:
        def body(row: Dim) -> Scalar:
            b = integer.floordiv(row, beams)
            k = scalar.load(chosen, (b, integer.modulo(row, beams)))
            found = scalar.load(x, (b, scalar.as_index(k, looked_at)))
            return scalar.select(scalar.load(done, (b,)), scalar.lift(padding, x.dtype), found)

        return body

    token = compute((rows,), of_row(tokens, policy.padding))
    score = compute((rows,), of_row(best, 0.0))
    origin = compute((rows,), of_row(origins, 0))

    def source(row: Dim) -> Scalar:
        first = integer.floordiv(row, beams) * beams
        return scalar.load(origin, (row,)) + scalar.size(first)

    sources = compute((rows,), source)

    def extended(row: Dim, place: Dim) -> Scalar:
        newest = scalar.compare("eq", scalar.size(place), scalar.size(length))
        at = scalar.as_index(scalar.load(sources, (row,)), rows)
        before = scalar.load(state.sequences, (at, place))
        return scalar.select(newest, scalar.cast(scalar.load(token, (row,)), INT32), before)

    def ends(b: Dim, k: Dim) -> Scalar:
        found = scalar.compare("eq", scalar.load(tokens, (b, k)), policy.end)
        return found & ~scalar.load(done, (b,))

    ended = _with(state, origins, best, compute((batch, beams), ends), length, policy)
    return _judged(
        Beams(compute(state.sequences.shape, extended), score, *ended, done), best, length, policy
    ), sources


def newest_tokens(state: Beams, length: Dim) -> Tensor:
    """The token at place `length - 1` of every sequence that is followed, int32[rows]."""
    at = length - 1
    return compute((state.sequences.shape[0],), lambda row: scalar.load(state.sequences, (row, at)))


def finish(state: Beams, longest: Dim, policy: BeamPolicy) -> tuple[Tensor, Tensor]:
    """What has ended and what reached the longest length, the best first.

    Returns:
        int32[batch, beams, longest], float[batch, beams].
    """
    batch, beams = state.ended_scores.shape
    own = compute((batch, beams), lambda b, k: scalar.size(k))
    scores = reshape(state.scores, (batch, beams))
    going = compute((batch, beams), lambda b, k: ~scalar.load(state.done, (b,)))
    ended, ended_scores, _ = _with(state, own, scores, going, longest, policy)
    return ended, ended_scores


def _not_ended(tokens: Tensor, policy: BeamPolicy) -> Tensor:
    """The places of the first `beams` continuations without the end token, int64[batch, beams]."""
    batch, looked_at = tokens.shape
    going = compute(
        tokens.shape,
        lambda b, k: scalar.compare("ne", scalar.load(tokens, (b, k)), policy.end),
    )
    b, k = indices(tokens.shape)
    (over,) = reduced_indices((looked_at,))
    earlier = (scalar.size(over) < scalar.size(k)) & scalar.load(going, (b, over))
    ranks = make_reduce(tokens.shape, (looked_at,), "sum", scalar.cast(earlier, INT64), INT64)
    shape = batch, policy.beams
    b, beam = indices(shape)
    here = scalar.compare("eq", scalar.load(ranks, (b, over)), scalar.size(beam))
    place = scalar.select(here & scalar.load(going, (b, over)), scalar.size(over), 0)
    return make_reduce(shape, (looked_at,), "max", place, INT64)


def _with(
    state: Beams, origins: Tensor, sums: Tensor, valid: Tensor, length: Dim, policy: BeamPolicy
) -> tuple[Tensor, Tensor, Tensor]:
    """What has ended with more, the best first: sequences, scores, how many.

    Args:
        state: What there was.
        origins: For each that may be added, which beam it is, int64[batch, beams or more].
        sums: Its sum of logarithms.
        valid: Whether it is added, bool[batch, beams].
        length: Its number of tokens.
        policy: How many are kept.
    """
    batch, beams = state.ended_scores.shape
    power = _power(length, policy)

    def score(b: Dim, k: Dim) -> Scalar:
        value = scalar.load(sums, (b, k)) / scalar.load(power, ())
        return scalar.select(scalar.load(valid, (b, k)), value, _NONE)

    candidates = concat([state.ended_scores, compute((batch, beams), score)], 1)
    scores, order = top_k(candidates, beams, 1)

    def token(b: Dim, k: Dim, place: Dim) -> Scalar:
        which = scalar.load(order, (b, k))
        old = scalar.as_index(scalar.binary("min", which, scalar.size(beams - 1)), beams)
        new = scalar.binary("max", which - scalar.size(beams), 0)
        beam = scalar.load(origins, (b, scalar.as_index(new, beams)))
        row = b * beams + scalar.as_index(beam, beams)
        there = scalar.size(place) < scalar.size(length)
        given = scalar.load(state.sequences, (row, place))
        added = scalar.select(there, given, policy.padding)
        return scalar.select(
            which < scalar.size(beams), scalar.load(state.ended, (b, old, place)), added
        )

    ended = compute(state.ended.shape, token)
    count = state.counts + cast(valid, INT64).sum(1)
    return (
        ended,
        scores,
        compute(
            (batch,), lambda b: scalar.binary("min", scalar.load(count, (b,)), scalar.size(beams))
        ),
    )


def _judged(state: Beams, best: Tensor, length: Dim, policy: BeamPolicy) -> Beams:
    """With `done` as it is after a step."""
    beams = policy.beams
    power = _power(length, policy)

    def body(b: Dim) -> Scalar:
        full = scalar.load(state.counts, (b,)) >= scalar.size(beams)
        if not policy.stops_early:
            hope = scalar.load(best, (b, 0)) / scalar.load(power, ())
            full = full & ~(scalar.load(state.ended_scores, (b, beams - 1)) < hope)
        return full | scalar.load(state.done, (b,))

    done = compute(state.done.shape, body)
    return Beams(state.sequences, state.scores, state.ended, state.ended_scores, state.counts, done)


def _power(length: Dim, policy: BeamPolicy) -> Tensor:
    """How much sums of sequences of a length are divided by."""
    base = scalar.cast(scalar.size(length), FLOAT)
    return compute((), lambda: scalar.binary("pow", base, scalar.load(policy.penalty, ())))


def any_going(done: Tensor) -> Tensor:
    """Whether there is a prompt that is not done, bool[]."""
    return ~cast(cast(done, INT64).min(0), BOOL)
