"""What the operators that generate text share: the model they run, and the loop over steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import errors
from sardonyx.base.dtypes import INT32
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.regions import Outside, Repeated, seen_inside
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.generation.decoders import (
    Decoder,
    See,
    check_prompt,
)
from sardonyx.ops.generation.encoded import EncodedDecoder
from sardonyx.tensor import scalar
from sardonyx.tensor.assumptions import collect
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
    cast,
    constant,
    not_equal,
    reshape,
)
from sardonyx.tensor.region import Body
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

DOMAIN = "com.microsoft"
GPT, T5, WHISPER = range(3)


@dataclass(frozen=True, slots=True)
class Model:
    """Attributes that say what generates: see the schemas of the operators."""

    where: str
    scope: Scope
    decoder: Graph
    first: Graph | None
    encoder: Graph | None
    kind: int
    padding: int
    start: int
    vocabulary: int

    def decode(
        self, given: Tensor, prompt: Tensor | None, mask: Tensor | None, longest: Dim, copies: Dim
    ) -> Decoder:
        """What gives logits.

        Args:
            given: The operator's first input.
            prompt: What a decoder after an encoder begins with, if not with its start token.
            mask: What of the first input counts.
            longest: How long sequences may get.
            copies: How many there are of each prompt.
        """
        if self.kind not in (GPT, T5, WHISPER):
            what = "Its attribute model_type is not known"
            raise errors.NotImplemented(
                message(self.where, what, expected="0, 1 or 2", got=str(self.kind))
            )
        first = self.first if self.first is not None else self.decoder
        facts = self.scope, self.where, self.decoder, first
        if self.kind == GPT:
            check_prompt(self.where, given, mask)
            counted = cast(not_equal(given, self.padding), INT32)
            return Decoder(*facts, given, counted, mask, copies, longest, self.vocabulary)
        if self.encoder is None:
            raise InvalidGraph(message(self.where, "Its attribute 'encoder' is missing"))
        if prompt is None:
            if self.start < 0:
                what = "Its attribute decoder_start_token_id is missing"
                raise InvalidGraph(message(self.where, what))
            prompt = constant(self.start, INT32, (given.shape[0], 1))
        check_prompt(self.where, prompt, None)
        if mask is not None:
            counted = mask
        elif self.kind == T5:
            check_prompt(self.where, given, None)
            counted = _after_padding(given, self.padding)
        else:
            counted = constant(1, INT32, (given.shape[0], given.shape[-1]))
        return EncodedDecoder(
            *facts,
            prompt,
            None,
            None,
            copies,
            longest,
            self.vocabulary,
            self.encoder,
            given,
            counted,
        )


def _after_padding(tokens: Tensor, padding: int) -> Tensor:
    """0 for padding before the first other token, else 1: the end may be the same token."""
    row, place = indices(tokens.shape)
    (over,) = reduced_indices((tokens.shape[1],))
    real = scalar.compare("ne", scalar.load(tokens, (row, over)), padding)
    upto = real & (scalar.size(over) <= scalar.size(place))
    return make_reduce(tokens.shape, (tokens.shape[1],), "max", scalar.cast(upto, INT32), INT32)


def number_of(x: Tensor | None, what: str, low: int) -> Dim:
    """The one number of an input, as a size; `what` names it in errors."""
    if x is None:
        raise InvalidGraph(message(what, "The input is missing"))
    found: Dim
    (found,) = contents(reshape(scalar_of(x, what), (1,)), what, low)
    if isinstance(found, int) and found < low:
        text = "The number is too small"
        raise InvalidGraph(message(what, text, expected=f"at least {low}", got=str(found)))
    return found


def unless(x: Tensor | None, useless: float) -> Tensor | None:
    """An input, unless it is known to be this number, which changes nothing."""
    known = None if x is None else elements_of(x)
    if x is not None and known is None and isinstance(x.scalar_value, (int, float)):
        known = (int(x.scalar_value),) if x.scalar_value == int(x.scalar_value) else None
    return None if known is not None and known[0] == useless else x


def longest_of(where: str, max_length: Tensor, decoder_start: Dim) -> Dim:
    """How long sequences may get; more than what they begin with."""
    longest = number_of(max_length, f"{where}: max_length", 1)
    what = "max_length must be more than the prompt's length"
    assume_at_most(decoder_start + 1, longest, where, what)
    return longest


def see_from(outside: Outside | None) -> See:
    """How what is outside is seen: as itself in the first step, in the loop through buffers."""
    return (lambda x: x) if outside is None else (lambda x: seen_inside(x, outside))


def repeat(
    scope: Scope,
    initial: Sequence[Tensor],
    step: Callable[[Sequence[Tensor], Dim, Outside], tuple[Body, list[Tensor]]],
    trips: Dim,
    going: Tensor,
) -> tuple[Tensor, ...]:
    """A loop whose body is that of a decoder, and what is made of its outputs.

    Args:
        scope: What surrounds the node.
        initial: What is carried, as it is before.
        step: Given what is carried, the number of the iteration, and buffers for what is outside:
            the decoder's body, and whether to go on, what is carried, slices of other results.
        trips: How many iterations there are at most.
        going: Whether there is one.
    """

    def make_body(inputs: Sequence[Tensor], outside: Outside) -> Body:
        with collect() as assumed:
            body, outputs = step(inputs, repeated.counter, outside)
        body.outputs = outputs
        body.assumptions = {**body.assumptions, **assumed}
        return body

    repeated = Repeated(scope, make_body, initial, [])
    repeated.settle([], 1)
    return repeated.region(trips, going, True, [], ())
