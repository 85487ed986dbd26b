"""Decoders that generate text after an encoder: what their subgraphs read and give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from sardonyx.base import errors
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.generation.decoders import Decoder, DecoderStep, See, as_declared, role_of, spread
from sardonyx.tensor.language import Tensor, pad, slice_axis, unsqueeze


@dataclass(slots=True)
class EncodedDecoder(Decoder):
    """A decoder after an encoder, like T5 and Whisper.

    The encoder gives, in the older form, the logits of the prompt and its hidden states, then the
    caches of the decoder's tokens, then those of its own; in the newer form only the latter.

    Attributes:
        encoder: Its graph.
        source: What it reads: int32[batch, source], or features.
        source_mask: What of it counts: int32[batch, source].
    """

    encoder: Graph
    source: Tensor
    source_mask: Tensor
    _hidden: Tensor | None = field(default=None, init=False)
    _crosses: Sequence[Tensor] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.cache_axis, self.size_axes = 0, (1, 3)

    def begin(self) -> tuple[Tensor, list[Tensor]]:
        """See `Decoder.begin`."""
        inputs = []
        for number, value in enumerate(self.encoder.inputs):
            if number == 0:
                x = self.source
            elif value.name.startswith("decoder_input_ids"):
                x = self.prompt
            elif "mask" in value.name:
                x = self.source_mask
            else:
                what = f"The encoder's input {value.name!r} is not known"
                raise errors.NotImplemented(message(self.where, what))
            inputs.append(as_declared(value, x))
        outputs = self.scope.inline(self.encoder, inputs)
        roles = [role_of(v) for v in self.decoder.inputs]
        own, crosses = roles.count("past"), roles.count("cross")
        split = len(outputs) - crosses
        self._crosses = outputs[split:]
        if split == own + 2:
            self._hidden = outputs[1]
            caches = [self._padded(x) for x in outputs[2:split]]
            return self.last(outputs[0]), self._spread_caches(caches)
        if split > 1:
            what = "The encoder's outputs do not fit the decoder's inputs"
            expected = f"{own + crosses + 2}, or {crosses}"
            raise InvalidGraph(message(self.where, what, expected=expected, got=str(len(outputs))))
        self._hidden = outputs[0] if split else None
        return Decoder.begin(self)

    def crosses(self) -> Sequence[Tensor]:
        """See `Decoder.crosses`."""
        return self._crosses

    def read(self, role: str, rows: Dim, copies: Dim, before: Dim, new: Dim, see: See) -> Tensor:
        """See `Decoder.read`."""
        if role == "encoder_attention_mask":
            return spread(see(self.source_mask), 0, copies)
        if role == "encoder_hidden_states":
            if self._hidden is None:
                raise InvalidGraph(message(self.where, "The encoder gives no hidden states"))
            return spread(see(self._hidden), 0, copies)
        return Decoder.read(self, role, rows, copies, before, new, see)

    def _read_tokens(self, step: DecoderStep) -> Tensor:
        """The newest token, or all of them where the graph does not say that it reads one."""
        value = next(v for v in self.decoder.inputs if role_of(v) == "input_ids")
        shape = value.declared.shape if value.declared else None
        if shape is not None and len(shape) > 1 and shape[1] == 1 or self.has_fixed_caches:
            return unsqueeze(step.tokens, (1,))
        return slice_axis(step.sequences, 1, 0, step.length)

    def _padded(self, cache: Tensor) -> Tensor:
        if not self.has_fixed_caches:
            return cache
        rest = self.longest - cache.shape[2]
        return pad(cache, (0, 0, 0, 0), (0, 0, rest, 0), "constant", 0.0)
