"""Recurrent networks with 8-bit weights: DynamicQuantizeLSTM (onnxruntime's contributed operators).

The input as a whole, and the state of all sequences at every step, are quantised by their own range
as DynamicQuantizeLinear does it. Their products with the weights are those of integers; everything
else is computed in float.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.ops.core.regions import Outside, seen_inside
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.onnx.matrix_misc import matmul_integers
from sardonyx.ops.onnx.quantise import dynamic_quantize_linear
from sardonyx.ops.onnx.recurrence import Activation, NamedFunctions, Network
from sardonyx.ops.onnx.recurrent import long_short_term
from sardonyx.tensor.language import Tensor, assume_shape, cast, reshape, slice_axis, transpose

_NAME = "DynamicQuantizeLSTM"


@dataclass(frozen=True, slots=True)
class WeightCodes:
    """Weights of all directions as codes.

    Attributes:
        codes: (directions, depth, gates * hidden), 8 bits.
        scale: [directions], or [directions, gates * hidden].
        zero: The same of codes.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor

    def check(self) -> None:
        """Take scales and zero points as having one of the shapes that fit.

        Raises:
            InvalidGraph: They have not, or the codes have not 8 bits.
        """
        if self.codes.dtype not in (dtypes.INT8, dtypes.UINT8):
            what = "Weights are codes of 8 bits"
            raise InvalidGraph(
                message(_NAME, what, expected="int8, uint8", got=str(self.codes.dtype))
            )
        whole = (self.codes.shape[0], self.codes.shape[2])
        for what, x in (("A scale", self.scale), ("A zero point", self.zero)):
            assume_shape(x.shape, whole[: max(1, x.rank)], _NAME, what)
        if self.zero.dtype is not self.codes.dtype:
            what = "Codes and their zero points differ in type"
            raise InvalidGraph(message(_NAME, what, got=str(self.zero.dtype)))

    def of(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, scale and zero point of one direction."""
        parts = (slice_axis(x, 0, number, number + 1) for x in (self.codes, self.scale, self.zero))
        codes, scale, zero = (reshape(x, x.shape[1:]) for x in parts)
        return codes, scale, zero


def _product(x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """The product of a float matrix that is quantised first, and of codes."""
    own, own_scale, own_zero = dynamic_quantize_linear(x)
    total = matmul_integers(own, codes, own_zero, zero, _NAME)
    return cast(total, dtypes.FLOAT) * (scale * own_scale)


@dataclass(slots=True)
class QuantisedNetwork(Network):
    """A network whose weights are codes; `weights` and `recurrent` have the axes that ONNX's have.

    Attributes:
        own: The weights of the input.
        fed_back: The weights of the state.
    """

    own: WeightCodes
    fed_back: WeightCodes

    def input_product(self, number: int) -> Tensor:
        """What the input gives to all gates of a direction: [length, batch, gates * hidden]."""
        length, batch, width = self.x.shape
        rows = reshape(self.x, (length * batch, width))
        product = _product(rows, *self.own.of(number))
        return reshape(product, (length, batch, product.shape[-1]))

    def state_product(self, number: int, outside: Outside) -> Activation:
        """What gives all gates of a direction for a state [batch, hidden]."""
        codes, scale, zero = (seen_inside(x, outside) for x in self.fed_back.of(number))
        return lambda state: _product(state, codes, scale, zero)


@op(_NAME, 1, domain="com.microsoft")
def dynamic_quantize_lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    w_scale: Tensor | None = None,
    w_zero: Tensor | None = None,
    r_scale: Tensor | None = None,
    r_zero: Tensor | None = None,
    *,
    scope: Scope,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Tensor, ...]:
    """An LSTM with weights [directions, input, 4 * hidden] and [directions, hidden, 4 * hidden]."""
    for name, codes in (("W", w), ("R", r)):
        if codes.rank != 3:
            got = str(list(codes.shape))
            raise InvalidGraph(message(name, "The number of axes is wrong", expected="3", got=got))
    if w_scale is None or w_zero is None or r_scale is None or r_zero is None:
        raise InvalidGraph(message(_NAME, "A scale or zero point of the weights is missing"))
    own, fed_back = WeightCodes(w, w_scale, w_zero), WeightCodes(r, r_scale, r_zero)
    own.check()
    fed_back.check()
    n = QuantisedNetwork(
        scope, x, transpose(w, (0, 2, 1)), transpose(r, (0, 2, 1)), b, sequence_lens,
        [initial_h, initial_c], direction, 0, 4, hidden_size, clip, own, fed_back,
    )  # fmt: skip
    given = NamedFunctions(activations, activation_alpha, activation_beta)
    return long_short_term(n, p, given, bool(input_forget))
