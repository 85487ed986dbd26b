"""Decoders that generate text: what their subgraphs read and give, by onnxruntime's conventions.

A decoder's inputs are known by how their names begin, as onnxruntime asks for them: `input_ids`,
`position_ids`, `attention_mask`, `encoder_attention_mask`, `encoder_hidden_states`, `past...`, and,
where caches have room for the longest sequence, `past_sequence_length`, `beam_width` and
`cache_indirection`. What is cached follows the logits among the outputs, in the order of the
inputs. Rows of one batch stand side by side: `copies` of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from sardonyx.base import errors, integer
from sardonyx.base.dtypes import FLOAT, INT32, INT64, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value
from sardonyx.ops.contrib.masked import ordered, reads_ordered_keys
from sardonyx.ops.core.regions import Outside, seen_inside
from sardonyx.ops.core.scope import Scope
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    cast,
    compute,
    concat,
    constant,
    not_equal,
    slice_axis,
    unsqueeze,
    where,
)
from sardonyx.tensor.region import Body
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

#: How the names of inputs begin; the first that fits counts.
_ROLES = (
    "past_sequence_length", "beam_width", "cache_indirection", "past_key_cross", "past_value_cross",
    "past", "encoder_attention_mask", "encoder_hidden_states", "decoder_input_ids", "input_ids",
    "position_ids", "attention_mask",
)  # fmt: skip

#: Gives a tensor of the outside as a body sees it.
See = Callable[[Tensor], Tensor]


def role_of(value: Value) -> str:
    """What an input of a decoder is for.

    Raises:
        NotImplemented: It is none that onnxruntime names.
    """
    for role in _ROLES:
        if value.name.startswith(role):
            return "cross" if role.endswith("_cross") else role
    what = f"A decoder's input is named {value.name!r}, which says nothing"
    raise errors.NotImplemented(message("decoder", what, expected=", ".join(_ROLES)))


def needs_first_decoder(decoder: Graph, encoder: Graph | None) -> bool:
    """Whether the first step runs the decoder too, so that it is lowered twice.

    An encoder of the older form gives the first logits itself.
    """
    if encoder is None:
        return True
    crosses = sum(role_of(v) == "cross" for v in decoder.inputs)
    return len(encoder.outputs) <= crosses + 1


def spread(x: Tensor, axis: int, copies: Dim) -> Tensor:
    """Every element along an axis so many times, side by side."""
    if copies == 1:
        return x
    shape = (*x.shape[:axis], x.shape[axis] * copies, *x.shape[axis + 1 :])

    def body(*at: Dim) -> Scalar:
        row = integer.floordiv(at[axis], copies)
        return scalar.load(x, (*at[:axis], row, *at[axis + 1 :]))

    return compute(shape, body)


@dataclass(frozen=True, slots=True)
class DecoderStep:
    """Where generation is, at a step after the first.

    Attributes:
        tokens: The newest, int32[rows].
        sequences: All, int32[rows, longest].
        length: How many tokens there are with the newest.
        number: How many steps came before, without the first.
        caches: What the step before gave besides logits.
        outside: Buffers that stand for tensors of the outside.
    """

    tokens: Tensor
    sequences: Tensor
    length: Dim
    number: Dim
    caches: Sequence[Tensor]
    outside: Outside

    def see(self, x: Tensor) -> Tensor:
        """A tensor of the outside, as the loop's body reads it."""
        return seen_inside(x, self.outside)


@dataclass(slots=True)
class Decoder:
    """A decoder without an encoder, like GPT-2; the base of the others.

    Attributes:
        scope: What lowers the graphs.
        where: The operator, for errors.
        decoder: The graph of every step but the first.
        first: That of the first, a copy if the model has none of its own.
        prompt: What sequences begin with, int32[batch, start].
        counted: Which tokens of the prompt have positions, int32[batch, start]; None: all.
        mask: Which of them are attended to; None: those.
        copies: How many rows there are for each of the batch.
        longest: How long sequences may get.
        vocabulary: How many logits count; 0: all.
        cache_axis: Which axis of a cache is that of the rows.
        size_axes: Which are those of heads, and of their size.
    """

    scope: Scope
    where: str
    decoder: Graph
    first: Graph
    prompt: Tensor
    counted: Tensor | None
    mask: Tensor | None
    copies: Dim
    longest: Dim
    vocabulary: int
    cache_axis: int = field(default=1, init=False)
    size_axes: tuple[int, int] = field(default=(2, 4), init=False)

    @property
    def batch(self) -> Dim:
        """How many prompts there are."""
        return self.prompt.shape[0]

    @property
    def rows(self) -> Dim:
        """How many sequences are generated at once."""
        return self.batch * self.copies

    def begin(self) -> tuple[Tensor, list[Tensor]]:
        """Logits after the prompt, float[batch, vocabulary], and what is cached, for all rows."""
        start = self.prompt.shape[1]
        caches = [self._empty(v, self.batch) for v in self.first.inputs if role_of(v) == "past"]
        inputs = self._inputs(self.first, self.prompt, self.batch, 1, 0, start, caches, lambda x: x)
        outputs = self.scope.inline(self.first, inputs)
        found = outputs[1 : 1 + len(caches)]
        given = [v for v in self.decoder.inputs if role_of(v) == "past"]
        if self.cache_axis:
            # The prompt's operators keep keys in another order than those of one token read.
            pairs = zip(given, found, strict=False)
            found = [ordered(x) if reads_ordered_keys(v) else x for v, x in pairs]
        return self.last(outputs[0]), self._spread_caches(found)

    def go_on(self, step: DecoderStep) -> tuple[Body, Tensor, list[Tensor]]:
        """The body of one step, its logits, and what it caches."""
        inputs = self._inputs(
            self.decoder, self._read_tokens(step), self.rows, self.copies,
            step.length - 1, 1, step.caches, step.see,
        )  # fmt: skip
        body = self.scope.body(self.decoder, inputs, step.outside)
        caches = body.outputs[1 : 1 + len(step.caches)]
        if len(caches) < len(step.caches):
            what = "The decoder has fewer outputs than caches among its inputs"
            raise InvalidGraph(message(self.where, what, expected=str(len(step.caches) + 1)))
        return body, self.last(body.outputs[0]), caches

    def last(self, logits: Tensor) -> Tensor:
        """The logits after the last token of (rows, tokens, vocabulary)."""
        if logits.rank != 3:
            what = "The logits need three axes"
            raise InvalidGraph(message(self.where, what, got=str(list(logits.shape))))
        end = logits.shape[1] - 1
        shape = (logits.shape[0], logits.shape[2])
        found = compute(shape, lambda row, word: scalar.load(logits, (row, end, word)), FLOAT)
        return slice_axis(found, 1, 0, self.vocabulary) if self.vocabulary > 0 else found

    # What the graphs read

    def _read_tokens(self, step: DecoderStep) -> Tensor:
        return unsqueeze(step.tokens, (1,))

    def _inputs(
        self, graph: Graph, tokens: Tensor, rows: Dim, copies: Dim, before: Dim, new: Dim,
        caches: Sequence[Tensor], see: See,
    ) -> list[Tensor]:  # fmt: skip
        """What a graph reads.

        Args:
            graph: The graph.
            tokens: The new ones, int32[rows, new].
            rows: How many there are.
            copies: How many of them belong to one prompt.
            before: How many tokens are cached.
            new: How many there are for each row.
            caches: In the order of the graph's inputs.
            see: Gives what is outside.
        """
        left, crosses = iter(caches), iter(self.crosses())
        found: list[Tensor] = []
        for value in graph.inputs:
            role = role_of(value)
            if role == "past":
                found.append(next(left))
                continue
            if role == "cross":
                x = spread(see(next(crosses)), 0, copies)
            elif role == "input_ids":
                x = tokens
            elif role == "past_sequence_length":
                x = compute((1,), lambda _: scalar.size(before), INT32)
            elif role == "beam_width":
                x = compute((1,), lambda _: scalar.size(copies), INT32)
            elif role == "cache_indirection":
                # Caches are put in the order of their beams instead.
                shape = (integer.floordiv(rows, copies), copies, self.longest)
                x = compute(shape, lambda b, beam, place: scalar.size(beam), INT32)
            else:
                x = self.read(role, rows, copies, before, new, see)
            found.append(as_declared(value, x))
        return found

    def crosses(self) -> Sequence[Tensor]:
        """What of an encoder is cached, for the batch."""
        return ()

    def read(self, role: str, rows: Dim, copies: Dim, before: Dim, new: Dim, see: See) -> Tensor:
        """An input that decoders of this form have alone."""
        counted = see(self._or_ones(self.counted))
        if role == "position_ids":
            return self._positions(counted, rows, copies, before, new)
        if role == "attention_mask":
            mask = counted if self.mask is None else see(self.mask)
            return self.mask_so_far(mask, rows, copies, before + new)
        raise InvalidGraph(message(self.where, f"A decoder without encoder has no input {role}"))

    def _or_ones(self, x: Tensor | None) -> Tensor:
        return constant(1, INT32, self.prompt.shape) if x is None else x

    def mask_so_far(self, mask: Tensor, rows: Dim, copies: Dim, length: Dim) -> Tensor:
        """The prompt's mask, and ones for all that was generated."""
        start = self.prompt.shape[1]
        if length == start:
            return mask
        ones = constant(1, INT32, (rows, length - start))
        return concat([spread(mask, 0, copies), ones], 1)

    def _positions(self, mask: Tensor, rows: Dim, copies: Dim, before: Dim, new: Dim) -> Tensor:
        """The number of each token among those of its row that count; 0 for those that do not."""
        start = self.prompt.shape[1]
        here = scalar.cast
        if before == 0:
            row, token = indices((rows, new))
            (over,) = reduced_indices((start,))
            earlier = scalar.size(over) <= scalar.size(token)
            one = here(scalar.load(mask, (row, over)), INT64)
            body = scalar.select(earlier, one, 0)
            upto = make_reduce((rows, new), (start,), "sum", body, INT64)
            return where(not_equal(mask, 0), upto - 1, 0)
        total = cast(mask, INT64).sum(1)
        past = before - start

        def body_of(row: Dim, _: Dim) -> Scalar:
            return scalar.load(total, (integer.floordiv(row, copies),)) + scalar.size(past)

        return compute((rows, 1), body_of)

    # Caches

    def _empty(self, value: Value, rows: Dim) -> Tensor:
        """A cache without tokens, or with room for all of them."""
        shape = list(_declared_shape(value))
        place = next(
            k for k in range(len(shape)) if k not in self.size_axes and k > self.cache_axis
        )
        shape[self.cache_axis] = rows
        shape[place] = self.longest if self.has_fixed_caches else 0
        if self.cache_axis:
            shape[0] = 2
        for axis in self.size_axes:
            if not isinstance(shape[axis], int):
                what = f"The size of axis {axis} of {value.name!r} must be declared as a number"
                raise errors.NotImplemented(message(self.where, what, got=str(shape[axis])))
        return constant(0, _dtype(value, FLOAT), tuple(shape))

    @property
    def has_fixed_caches(self) -> bool:
        """Whether caches have room for the longest sequence."""
        return any(role_of(v) == "past_sequence_length" for v in self.decoder.inputs)

    def _spread_caches(self, caches: Sequence[Tensor]) -> list[Tensor]:
        return [spread(x, self.cache_axis, self.copies) for x in caches]


def _declared_shape(value: Value) -> tuple[Dim, ...]:
    shape = value.declared.shape if value.declared else None
    if shape is None:
        what = f"The shape of the decoder's input {value.name!r} is not declared"
        raise InvalidGraph(message("decoder", what))
    return tuple(shape)


def _dtype(value: Value, default: DType) -> DType:
    declared = value.declared.dtype if value.declared else None
    return declared or default


def as_declared(value: Value, x: Tensor) -> Tensor:
    """What a graph reads, in the type that it declares."""
    return cast(x, _dtype(value, x.dtype))


def check_prompt(where_: str, prompt: Tensor, mask: Tensor | None) -> None:
    """Refuse prompts, and masks of them, of other shapes than (batch, tokens)."""
    if prompt.rank != 2:
        what = "The prompt needs two axes"
        raise InvalidGraph(message(where_, what, got=str(list(prompt.shape))))
    if mask is None:
        return
    if mask.rank != 2:
        what = "The attention mask needs two axes"
        raise InvalidGraph(message(where_, what, got=str(list(mask.shape))))
    for a, b in zip(mask.shape, prompt.shape, strict=True):
        assume_equal(a, b, where_, "The attention mask has another shape than the prompt")
