"""BifurcationDetector: what of predicted tokens holds, and where a source goes on from there."""

from __future__ import annotations

from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    cast,
    compute,
    concat,
    equal,
    reshape,
    slice_axis,
    where,
)
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

DOMAIN = "com.microsoft"
_DETECTOR = "BifurcationDetector"


@op(_DETECTOR, 1, domain=DOMAIN)
def bifurcation_detector(
    source: Tensor,
    current: Tensor,
    previous: Tensor,
    predicted: Tensor | None = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
) -> tuple[Tensor, Tensor]:
    """Tokens with the predicted ones that hold, and where their last n-gram ends in the source.

    Predicted tokens, one more than the source has from `previous` on, hold as far as they are the
    source's; so does the first one that is not. The place is -1 unless one n-gram of the allowed
    sizes is in the source exactly once.
    """
    if not 1 <= min_ngram_size <= max_ngram_size:
        what = "The sizes of n-grams are at least one, and the least is at most the largest"
        got = f"{min_ngram_size} to {max_ngram_size}"
        raise InvalidGraph(message(_DETECTOR, what, got=got))
    given = (source, "src_tokens"), (current, "cur_tokens"), (predicted, "pred_tokens")
    for x, name in given:
        if x is not None and x.rank != 1:
            what = f"{name} must have one axis"
            raise InvalidGraph(message(_DETECTOR, what, got=str(list(x.shape))))
    place = reshape(scalar_of(previous, _DETECTOR), (1,))
    if predicted is not None:
        current = concat([current, _holding(source, predicted, place)], 0)
    found = _end_of_match(source, current, min_ngram_size, max_ngram_size)
    return current, reshape(found, previous.shape)


def _holding(source: Tensor, predicted: Tensor, place: Tensor) -> Tensor:
    """The predicted tokens up to the first that differs from the source, with it."""
    (length,), count = source.shape, predicted.shape[0]
    (begin,) = contents(place, "prev_suffix_match_idx", 0, length)
    rest = length - begin
    assume_equal(count, rest + 1, _DETECTOR, "pred_tokens must be one more than the rest")
    (at,) = reduced_indices((rest,))
    same = scalar.compare("eq", scalar.load(predicted, (at,)), scalar.load(source, (begin + at,)))
    first = scalar.select(same, scalar.size(rest), scalar.size(at))
    kept = make_reduce((1,), (rest,), "min", first, INT64)
    # Nothing to compare gives the largest number.
    least = compute(
        (1,), lambda k: scalar.binary("min", scalar.load(kept, (k,)), scalar.size(rest))
    )
    (differs,) = contents(least, "The number of tokens that hold", 0, rest)
    return slice_axis(predicted, 0, 0, differs + 1)


def _end_of_match(source: Tensor, tokens: Tensor, least: int, most: int) -> Tensor:
    """Where the one match of the longest end of `tokens` ends, or -1: int64[1].

    If an n-gram is there once, so is the longest end that is there at all.
    """
    length, count = source.shape[0], tokens.shape[0]
    (place,), (back,) = indices((length,)), reduced_indices((most,))
    behind, last = place - back, count - 1
    mine = last - back

    # Where one of them is outside, what the other loads does not count.
    there = (scalar.size(behind) >= 0) & (scalar.size(mine) >= 0)
    same = scalar.compare("eq", scalar.load(source, (behind,)), scalar.load(tokens, (mine,)))
    stops = scalar.select(scalar.select(there, same, False), scalar.size(most), scalar.size(back))
    lengths = make_reduce((length,), (most,), "min", stops, INT64)
    best = lengths.max(0, keepdims=True)
    longest = equal(lengths, best)
    once = equal(cast(longest, INT64).sum(0, keepdims=True), 1) & (best >= least)
    end = compute(
        (length,),
        lambda k: scalar.select(scalar.load(longest, (k,)), scalar.size(k + 1), -1),
    )
    return where(once, end.max(0, keepdims=True), -1)
