"""What is done to the scores of the next token before one is chosen, by onnxruntime's schemas."""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.base.dtypes import FLOAT, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.generation.decoders import See
from sardonyx.ops.generation.timestamps import LOWEST, TimestampTokens, by_timestamps
from sardonyx.ops.onnx.gather import scatter_elements
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, assume_equal, cast, compute, equal, where
from sardonyx.tensor.scalar import Scalar


@dataclass(frozen=True, slots=True)
class Rules:
    """What changes scores.

    Attributes:
        where: The operator, for errors.
        end_token: Ends a sequence.
        repetition: Divides positive scores of tokens that were there, and multiplies others.
        ngram: No run of so many tokens comes twice; 0: any may.
        vocabulary: Which tokens may come, int32[vocabulary].
        first_vocabulary: Which may come first, int32[batch, vocabulary].
        least_length: No end before so many tokens.
        temperature: Divides scores.
        presence: What is subtracted, float[batch, vocabulary].
        timestamps: Whisper's rules, if it asks for them.
    """

    where: str
    end_token: int
    repetition: Tensor | None = None
    ngram: int = 0
    vocabulary: Tensor | None = None
    first_vocabulary: Tensor | None = None
    least_length: Tensor | None = None
    temperature: Tensor | None = None
    presence: Tensor | None = None
    timestamps: TimestampTokens | None = None

    def apply(
        self, scores: Tensor, sequences: Tensor, length: Dim, copies: Dim, see: See, *, first: bool
    ) -> Tensor:
        """Scores of the next token, float[rows, vocabulary], changed.

        Args:
            scores: As the decoder gives them.
            sequences: int32[rows, longest].
            length: How many tokens of them there are.
            copies: How many rows belong to one prompt.
            see: Gives what is outside.
            first: Whether the token is the first after the prompt.
        """
        if self.repetition is not None:
            penalty = scalar_of(see(self.repetition), self.where)
            scores = _repeated_less(scores, sequences, length, cast(penalty, FLOAT))
        if self.ngram > 0:
            scores = _without_ngrams(scores, sequences, length, self.ngram)
        if self.vocabulary is not None:
            scores = self._allowed(scores, see(self.vocabulary), None)
        if first and self.first_vocabulary is not None:
            scores = self._allowed(scores, see(self.first_vocabulary), copies)
        if self.least_length is not None:
            least = cast(scalar_of(see(self.least_length), self.where), INT64)
            scores = _without_end(scores, self.end_token, length, least)
        if self.temperature is not None:
            scores = scores / cast(scalar_of(see(self.temperature), self.where), FLOAT)
        if self.presence is not None:
            scores = scores - self._of_rows(scores, see(self.presence), copies)
        if self.timestamps is not None:
            scores = by_timestamps(scores, sequences, length, self.timestamps)
        return scores

    def _allowed(self, scores: Tensor, mask: Tensor, copies: Dim | None) -> Tensor:
        if copies is not None:
            mask = self._of_rows(scores, mask, copies)
        else:
            if mask.rank != 1:
                what = "vocab_mask needs one axis"
                raise InvalidGraph(message(self.where, what, got=str(list(mask.shape))))
            assume_equal(mask.shape[0], scores.shape[1], self.where, "vocab_mask has another size")
        return where(equal(cast(mask, INT64), 0), LOWEST, scores)

    def _of_rows(self, scores: Tensor, mask: Tensor, copies: Dim) -> Tensor:
        """A tensor (batch, vocabulary) for all rows."""
        if mask.rank != 2:
            what = "A mask of the batch's words needs two axes"
            raise InvalidGraph(message(self.where, what, got=str(list(mask.shape))))
        wanted = mask.shape[0] * copies, mask.shape[1]
        for a, b in zip(wanted, scores.shape, strict=True):
            assume_equal(a, b, self.where, "A mask of the batch's words has another shape")

        def body(row: Dim, word: Dim) -> Scalar:
            return scalar.load(mask, (integer.floordiv(row, copies), word))

        return compute(scores.shape, body)


def _without_end(scores: Tensor, end: int, length: Dim, least: Tensor) -> Tensor:
    early = scalar.size(length) < scalar.load(least, ())

    def body(row: Dim, word: Dim) -> Scalar:
        here = scalar.compare("eq", scalar.size(word), end)
        return scalar.select(here & early, LOWEST, scalar.load(scores, (row, word)))

    return compute(scores.shape, body)


def _repeated_less(scores: Tensor, sequences: Tensor, length: Dim, penalty: Tensor) -> Tensor:
    """Scores of tokens that were there are made worse: positive ones smaller."""
    factor = scalar.load(penalty, ())

    def token(row: Dim, place: Dim) -> Scalar:
        # Places that hold none yet name the first token again.
        there = scalar.size(place) < scalar.size(length)
        given = scalar.select(there, *(scalar.load(sequences, (row, p)) for p in (place, 0)))
        return scalar.check_range(given, "input_ids", 0, scores.shape[1] - 1)

    def changed(row: Dim, place: Dim) -> Scalar:
        word = scalar.as_index(token(row, place), scores.shape[1])
        score = scalar.load(scores, (row, word))
        return scalar.select(score < 0.0, score * factor, score / factor)

    places, updates = compute(sequences.shape, token), compute(sequences.shape, changed)
    return scatter_elements(scores, places, updates, axis=1)


def _without_ngrams(scores: Tensor, sequences: Tensor, length: Dim, ngram: int) -> Tensor:
    """No token that would end a run of tokens which was there before."""
    rows, longest = sequences.shape
    begins = longest + (1 - ngram)
    shape = rows, integer.maximum(begins, 0)

    def token(row: Dim, begin: Dim) -> Scalar:
        given = scalar.load(sequences, (row, begin + (ngram - 1)))
        there = scalar.size(begin + (ngram - 1)) < scalar.size(length)
        used = scalar.select(there, given, scalar.load(sequences, (row, 0)))
        return scalar.check_range(used, "input_ids", 0, scores.shape[1] - 1)

    def score(row: Dim, begin: Dim) -> Scalar:
        hit = scalar.size(begin + (ngram - 1)) < scalar.size(length)
        for k in range(ngram - 1):
            newest = integer.maximum(length + (1 - ngram + k), 0)
            last = scalar.load(sequences, (row, newest))
            before = scalar.load(sequences, (row, begin + k))
            hit = hit & scalar.compare("eq", before, last)
        return scalar.select(hit, scalar.constant(LOWEST, FLOAT), float("inf"))

    places, updates = compute(shape, token), compute(shape, score)
    return scatter_elements(scores, places, updates, axis=1, reduction="min")
