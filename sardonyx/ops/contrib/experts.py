"""Mixtures of experts of onnxruntime's own domain: MoE, and QMoE with weights of few bits.

Each token goes through the experts that the router likes best. Their weights are found by index, so
that only those of chosen experts are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sardonyx.base import errors, integer, sizes
from sardonyx.base.dtypes import INT32, UINT8, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.blocks import packed_code
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.gather import top_k
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_equal,
    assume_shape,
    cast,
    clip,
    compute,
    contract,
    exp,
    maximum,
    minimum,
    reshape,
    sigmoid,
    slice_axis,
    tanh,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"

#: (expert, row, column) -> the weight, in the type that is computed in.
Weight = Callable[[Dim, Dim, Dim], Scalar]


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """One layer of all experts.

    Attributes:
        experts: How many there are.
        rows: Its width.
        columns: The width of what it takes.
        weight: Finds a weight.
        bias: (experts, rows).
    """

    experts: Dim
    rows: Dim
    columns: Dim
    weight: Weight
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Mixture:
    """What both operators have in common, as their attributes say.

    Attributes:
        where: The operator.
        count: How many experts a token goes through.
        normalised: Whether their shares are made to add up to 1.
        activation: Its name.
        fusion: How the halves of SwiGLU lie: in two layers (0), alternating (1), or one after the
            other (2).
        alpha: Factor inside the sigmoid of SwiGLU.
        beta: Summand of its second half.
        limit: Bound of both halves.
    """

    where: str
    count: int
    normalised: bool
    activation: str
    fusion: int
    alpha: float
    beta: float
    limit: float | None

    def run(
        self,
        x: Tensor,
        router: Tensor,
        shares: Tensor | None,
        first: ExpertLayer,
        second: ExpertLayer,
        third: ExpertLayer | None,
    ) -> Tensor:
        """The shared outputs of the chosen experts, of the shape of `x`.

        Args:
            x: (..., hidden).
            router: (tokens, experts), of which the largest are chosen.
            shares: (tokens, experts), how much each counts; by the softmax of `router` if None.
            first: hidden -> inner.
            second: inner -> hidden.
            third: hidden -> inner, multiplied with the activated first one.
        """
        wide = accumulator(x.dtype)
        tokens = sizes.product(x.shape[:-1])
        assume_equal(router.shape[0], tokens, self.where, "The rows of the router's tensor")
        self._check(x.shape[-1], router.shape[1], first, second, third)
        flat = cast(reshape(x, (tokens, x.shape[-1])), wide)
        scores = cast(router, wide)
        _, chosen = top_k(scores, self.count, 1)
        parts = self._shares(scores, None if shares is None else cast(shares, wide), chosen)

        def taken(t: Dim, j: Dim, k: Dim) -> Scalar:
            return scalar.load(flat, (t, k))

        inner = self._layer(first, tokens, chosen, taken, wide)
        other = None if third is None else self._layer(third, tokens, chosen, taken, wide)
        active = self._activated(inner, other)
        outputs = self._layer(
            second, tokens, chosen, lambda t, j, k: scalar.load(active, (t, j, k)), wide
        )
        weighted = outputs * reshape(parts, (tokens, self.count, 1))
        return cast(reshape(weighted.sum(1), x.shape), x.dtype)

    def _check(
        self,
        hidden: Dim,
        experts: Dim,
        first: ExpertLayer,
        second: ExpertLayer,
        third: ExpertLayer | None,
    ) -> None:
        """Take the layers as having an expert for each column of the router's tensor."""
        for layer in (first, second, *([] if third is None else [third])):
            assume_equal(layer.experts, experts, self.where, "The numbers of experts differ")
            if layer is not second:
                assume_equal(layer.columns, hidden, self.where, "A layer's width is wrong")
                assume_equal(layer.rows, first.rows, self.where, "The layers' widths differ")

    def _shares(self, scores: Tensor, given: Tensor | None, chosen: Tensor) -> Tensor:
        """How much each chosen expert counts: (tokens, count)."""
        experts = scores.shape[1]
        if given is None:
            e = exp(scores - scores.max(1, keepdims=True))
            every = e / e.sum(1, keepdims=True)
        else:
            assume_shape(given.shape, scores.shape, self.where, "router_weights")
            every = given

        def body(t: Dim, j: Dim) -> Scalar:
            expert = scalar.as_index(scalar.load(chosen, (t, j)), experts)
            return scalar.load(every, (t, expert))

        parts = compute(chosen.shape, body)
        return parts / parts.sum(1, keepdims=True) if self.normalised else parts

    def _layer(
        self,
        layer: ExpertLayer,
        tokens: Dim,
        chosen: Tensor,
        taken: Callable[[Dim, Dim, Dim], Scalar],
        wide: DType,
    ) -> Tensor:
        """(tokens, count, rows): what a layer of the chosen experts gives."""

        def expert(t: Dim, j: Dim) -> Dim:
            return scalar.as_index(scalar.load(chosen, (t, j)), layer.experts)

        def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
            t, j, n = at
            return taken(t, j, over[0]), layer.weight(expert(t, j), n, over[0])

        result = contract((tokens, self.count, layer.rows), (layer.columns,), body)
        bias = layer.bias
        if bias is None:
            return result
        return compute(
            result.shape,
            lambda t, j, n: (
                scalar.load(result, (t, j, n))
                + scalar.cast(scalar.load(bias, (expert(t, j), n)), wide)
            ),
        )

    def _activated(self, inner: Tensor, other: Tensor | None) -> Tensor:
        """What goes into the second layer."""
        if self.activation != "swiglu":
            active = _activate(self.where, inner, self.activation)
            return active if other is None else active * other
        gate, linear = self._halves(inner, other)
        if self.limit is not None:
            gate, linear = minimum(gate, self.limit), clip(linear, -self.limit, self.limit)
        return gate * sigmoid(gate * self.alpha) * (linear + self.beta)

    def _halves(self, inner: Tensor, other: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.fusion == 0:
            if other is None:
                what = "SwiGLU that is not fused needs a third layer"
                raise InvalidGraph(message(self.where, what))
            return inner, other
        if self.fusion not in (1, 2) or other is not None:
            what = f"There is no swiglu_fusion {self.fusion} with these layers"
            raise InvalidGraph(message(self.where, what))
        width = inner.shape[2] // 2
        if self.fusion == 2:
            end = width * 2
            return slice_axis(inner, 2, 0, width), slice_axis(inner, 2, width, end)
        shape = (*inner.shape[:2], width)

        def half(offset: int) -> Tensor:
            return compute(shape, lambda t, j, n: scalar.load(inner, (t, j, n * 2 + offset)))

        return half(0), half(1)


def _activate(where: str, x: Tensor, name: str) -> Tensor:
    if name == "relu":
        return maximum(x, 0.0)
    if name == "silu":
        return x * sigmoid(x)
    if name == "gelu":  # by its approximation with tanh, as onnxruntime has it
        return x * 0.5 * (tanh((x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)) + 1.0)
    if name == "identity":
        return x
    expected = "relu, gelu, silu, swiglu or identity"
    raise InvalidGraph(message(where, "Bad activation_type", expected=expected, got=name))


# -- MoE --------------------------------------------------------------------------------------


def _plain(where: str, weights: Tensor, bias: Tensor | None, wide: DType) -> ExpertLayer:
    """A layer of weights (experts, rows, columns)."""
    if weights.rank != 3:
        what = "Weights of experts must have three axes"
        raise InvalidGraph(message(where, what, got=str(list(weights.shape))))
    experts, rows, columns = weights.shape
    if bias is not None:
        assume_shape(bias.shape, (experts, rows), where, "A bias")
    return ExpertLayer(
        experts, rows, columns, lambda e, n, k: scalar.cast(scalar.load(weights, (e, n, k)), wide),
        bias,
    )  # fmt: skip


@op("MoE", 1, domain=DOMAIN)
def moe(
    x: Tensor,
    router: Tensor,
    fc1: Tensor,
    fc1_bias: Tensor | None = None,
    fc2: Tensor | None = None,
    fc2_bias: Tensor | None = None,
    fc3: Tensor | None = None,
    fc3_bias: Tensor | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
) -> Tensor:
    """Tokens through the k experts that the router likes best."""
    where = "MoE"
    if use_sparse_mixer:
        raise errors.NotImplemented(message(where, "use_sparse_mixer is not supported"))
    if fc2 is None:
        raise InvalidGraph(message(where, "The second layer is missing"))
    wide = accumulator(x.dtype)
    mixture = Mixture(
        where, k, bool(normalize_routing_weights), activation_type, swiglu_fusion,
        activation_alpha, activation_beta, swiglu_limit,
    )  # fmt: skip
    third = None if fc3 is None else _plain(where, fc3, fc3_bias, wide)
    first, second = _plain(where, fc1, fc1_bias, wide), _plain(where, fc2, fc2_bias, wide)
    return mixture.run(x, router, None, first, second, third)


# -- QMoE -------------------------------------------------------------------------------------


def _packed(
    weights: Tensor,
    scales: Tensor | None,
    bias: Tensor | None,
    zeros: Tensor | None,
    bits: int,
    block: int,
    wide: DType,
) -> ExpertLayer:
    """A layer of codes (experts, rows, bytes), with a scale for each row or block."""
    where = "QMoE"
    if weights.rank != 3 or weights.dtype is not UINT8 or scales is None or bits not in (2, 4, 8):
        what = f"Weights of {bits} bits need bytes along three axes, and scales"
        raise InvalidGraph(message(where, what, got=f"{weights.dtype}{list(weights.shape)}"))
    experts, rows, count = weights.shape
    columns = count * (8 // bits)
    blocks = integer.ceildiv(columns, block) if block else 1
    wanted = (experts, rows, blocks) if scales.rank == 3 else (experts, rows)
    assume_shape(scales.shape, wanted, where, "A tensor of scales")
    if bias is not None:
        assume_shape(bias.shape, (experts, rows), where, "A bias")

    if zeros is not None:
        each = (experts, rows) if zeros.rank == 2 else (experts, rows, blocks)
        packed = integer.ceildiv(each[-1] * bits, 8)
        assume_shape(zeros.shape, (*each[:-1], packed), where, "A tensor of zero points")

    def zero(e: Dim, n: Dim, part: Dim) -> Scalar:
        if zeros is None:
            return scalar.constant(1 << (bits - 1), INT32)
        if zeros.rank == 2:
            found = packed_code(lambda b: scalar.load(zeros, (e, b)), n, bits, zeros.shape[1])
        else:
            found = packed_code(lambda b: scalar.load(zeros, (e, n, b)), part, bits, zeros.shape[2])
        return scalar.cast(found, INT32)

    def weight(e: Dim, n: Dim, k: Dim) -> Scalar:
        part = integer.floordiv(k, block) if block else 0
        code = packed_code(lambda b: scalar.load(weights, (e, n, b)), k, bits, count)
        scale = scalar.load(scales, (e, n, part) if scales.rank == 3 else (e, n))
        value = scalar.cast(code, INT32) - zero(e, n, part)
        return scalar.cast(value, wide) * scalar.cast(scale, wide)

    return ExpertLayer(experts, rows, columns, weight, bias)


@op("QMoE", 1, domain=DOMAIN)
def q_moe(
    x: Tensor,
    router: Tensor,
    fc1: Tensor,
    fc1_scales: Tensor | None = None,
    fc1_bias: Tensor | None = None,
    fc2: Tensor | None = None,
    fc2_scales: Tensor | None = None,
    fc2_bias: Tensor | None = None,
    fc3: Tensor | None = None,
    fc3_scales: Tensor | None = None,
    fc3_bias: Tensor | None = None,
    fc1_zeros: Tensor | None = None,
    fc2_zeros: Tensor | None = None,
    fc3_zeros: Tensor | None = None,
    router_weights: Tensor | None = None,
    fc1_global_scale: Tensor | None = None,
    fc2_global_scale: Tensor | None = None,
    fc1_act_scale: Tensor | None = None,
    fc2_act_scale: Tensor | None = None,
    fc1_act_block_scale: Tensor | None = None,
    fc2_act_block_scale: Tensor | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int = 0,
    fc2_expert_weight_bits: int = 0,
    fc3_expert_weight_bits: int = 0,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = 0,
) -> Tensor:
    """As MoE, with weights of few bits; `accuracy_level` allows less accuracy, none is lost."""
    where = "QMoE"
    if use_sparse_mixer or quant_type != "int" or weights_prepacked > 0:
        what = "Only integers as they are stored, and no sparse mixer, are supported"
        raise errors.NotImplemented(message(where, what, got=f"quant_type {quant_type}"))
    scales = (
        fc1_global_scale, fc2_global_scale, fc1_act_scale, fc2_act_scale, fc1_act_block_scale,
        fc2_act_block_scale,
    )  # fmt: skip
    if any(scale is not None for scale in scales):
        what = "Scales of whole layers and of what goes into them belong to weights of floats"
        raise errors.NotImplemented(message(where, what))
    if fc2 is None:
        raise InvalidGraph(message(where, "The second layer is missing"))
    wide = accumulator(x.dtype)
    mixture = Mixture(
        where, k, bool(normalize_routing_weights), activation_type, swiglu_fusion,
        activation_alpha, activation_beta, swiglu_limit,
    )  # fmt: skip

    def layer(
        codes: Tensor, scales: Tensor | None, bias: Tensor | None, zeros: Tensor | None, bits: int
    ) -> ExpertLayer:
        return _packed(codes, scales, bias, zeros, bits or expert_weight_bits, block_size, wide)

    first = layer(fc1, fc1_scales, fc1_bias, fc1_zeros, fc1_expert_weight_bits)
    second = layer(fc2, fc2_scales, fc2_bias, fc2_zeros, fc2_expert_weight_bits)
    third = None
    if fc3 is not None:
        third = layer(fc3, fc3_scales, fc3_bias, fc3_zeros, fc3_expert_weight_bits)
    return mixture.run(x, router, router_weights, first, second, third)
