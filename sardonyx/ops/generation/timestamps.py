"""Whisper's rules for timestamps among the tokens of a transcript."""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.base.dtypes import INT64
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, compute, exp, log, slice_axis
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

#: What a token gets that must not come: the lowest number of a float.
LOWEST = -3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class TimestampTokens:
    """Tokens of Whisper that its rules name; -1: there is none.

    Attributes:
        end: The end of the text; all text is below.
        begin: The first timestamp; all after it are timestamps.
        without_timestamps: Says that there are none.
        start_of_lm: Begins a language model's text.
        tasks: Start of a transcript, and its tasks: not after the first timestamp.
    """

    end: int
    begin: int
    without_timestamps: int
    start_of_lm: int
    tasks: tuple[int, ...]


def by_timestamps(
    scores: Tensor, sequences: Tensor, length: Dim, tokens: TimestampTokens
) -> Tensor:
    """Timestamps come in pairs, never decrease, and go before text that is less likely.

    Args:
        scores: float[rows, vocabulary].
        sequences: int32[rows, longest].
        length: How many tokens of them there are.
        tokens: Which are which.
    """
    rows = sequences.shape[0]
    first, last = _stamps(sequences, length, tokens.begin)
    newest = length - 1
    before = integer.maximum(length - 2, 0)

    def token(row: Dim, place: Dim) -> Scalar:
        return scalar.cast(scalar.load(sequences, (row, place)), INT64)

    def later(row: Dim) -> Scalar:
        return scalar.load(first, (row,)) < scalar.size(newest)

    def limit(row: Dim) -> Scalar:
        """The lowest timestamp that may come."""
        place = scalar.load(last, (row,))
        at = scalar.as_index(scalar.binary("max", place, 0), sequences.shape[1])
        # One that waits for its pair may come again.
        alone = (place >= scalar.size(newest)) & later(row) & (token(row, before) < tokens.begin)
        found = token(row, at) + scalar.select(alone, scalar.constant(0, INT64), 1)
        return scalar.select(place < 0, scalar.constant(0, INT64), found)

    lowest = compute((rows,), limit)

    def ruled(row: Dim, word_at: Dim) -> Scalar:
        word = scalar.size(word_at)
        is_stamp = word >= tokens.begin
        stamped = token(row, newest) >= tokens.begin
        paired = ~later(row) | (token(row, before) >= tokens.begin)
        refused = (word >= tokens.begin) & (word < scalar.load(lowest, (row,)))
        refused = (
            refused | (stamped & paired & is_stamp) | (stamped & ~paired & (word < tokens.end))
        )
        for number in (tokens.without_timestamps, tokens.start_of_lm):
            refused = refused | scalar.compare("eq", word, number)
        for number in tokens.tasks:
            refused = refused | (scalar.compare("eq", word, number) & later(row))
        return scalar.select(refused, LOWEST, scalar.load(scores, (row, word_at)))

    allowed = compute(scores.shape, ruled)
    text = slice_axis(allowed, 1, 0, tokens.begin).max(1, keepdims=True)
    stamps = slice_axis(allowed, 1, tokens.begin, None)
    most = stamps.max(1, keepdims=True)
    likely = log(exp(stamps - most).sum(1, keepdims=True)) + most > text

    def chosen(row: Dim, word: Dim) -> Scalar:
        refused = scalar.load(likely, (row, 0)) & (scalar.size(word) < tokens.begin)
        return scalar.select(refused, LOWEST, scalar.load(allowed, (row, word)))

    return compute(scores.shape, chosen)


def _stamps(sequences: Tensor, length: Dim, begin: int) -> tuple[Tensor, Tensor]:
    """Places of each row's first timestamp, or of its newest token; of its last one, or -1."""
    rows, longest = sequences.shape
    (row,), (over,) = indices((rows,)), reduced_indices((longest,))
    there = scalar.size(over) < scalar.size(length)
    stamp = there & (scalar.cast(scalar.load(sequences, (row, over)), INT64) >= begin)
    newest = scalar.size(length - 1)
    found = scalar.select(stamp, scalar.size(over), newest)
    first = make_reduce((rows,), (longest,), "min", found, INT64)
    number = scalar.select(stamp, scalar.size(over), scalar.constant(-1, INT64))
    return first, make_reduce((rows,), (longest,), "max", number, INT64)
