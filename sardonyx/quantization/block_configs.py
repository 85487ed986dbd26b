"""Arguments of weight-only quantisation, kept together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.quantization.enums import QuantFormat


class WeightOnlyQuantConfig:
    """What kinds of weight-only quantisation have in common.

    Args:
        algorithm: Its name.
        quant_format: An operator on codes, or DequantizeLinear before MatMul.
        op_types_to_quantize: Operators; MatMul alone by default.
        quant_axes: Axis along which blocks lie, by operator.
        customized_weight_config: Not supported.
    """

    def __init__(
        self,
        algorithm: str,
        quant_format: QuantFormat,
        op_types_to_quantize: Iterable[str] | None = None,
        quant_axes: Iterable[tuple[str, int]] | None = None,
        customized_weight_config: dict[str, Any] | None = None,
    ) -> None:
        if customized_weight_config:
            what = "A configuration for each node is not supported"
            raise errors.NotImplemented(
                message(algorithm, what, do="Quantise in several steps, with nodes_to_include")
            )
        self.algorithm = algorithm
        self.quant_format = quant_format
        self.op_types_to_quantize = set(op_types_to_quantize or ("MatMul",))
        self.quant_axes = dict(quant_axes) if quant_axes else {"MatMul": 0, "Gather": 1}
        self.customized_weight_config = customized_weight_config


class DefaultWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Blocks that are rounded to the nearest code.

    Args:
        block_size: Elements in a block; a power of two, 16 at least.
        is_symmetric: Whether zero is the middle code.
        accuracy_level: The attribute of MatMulNBits; 4 lets activations be rounded to 8 bits.
        quant_format: An operator on codes, or DequantizeLinear before MatMul.
        op_types_to_quantize: MatMul, Gather or both.
        quant_axes: Axis along which blocks lie, by operator.
        bits: 2, 4 or 8.
        channel_wised_quantize: One block for each column; only with QDQ.

    Raises:
        InvalidArgument: An argument is out of range, or the two do not go together.
    """

    def __init__(
        self,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
        quant_axes: Iterable[tuple[str, int]] | None = None,
        bits: int = 4,
        channel_wised_quantize: bool = False,
    ) -> None:
        super().__init__("DEFAULT", quant_format, op_types_to_quantize, quant_axes)
        self.block_size = block_size
        self.is_symmetric = is_symmetric
        self.accuracy_level = accuracy_level
        self.bits = bits
        self.channel_wised_quantize = channel_wised_quantize
        self._check()

    def _check(self) -> None:
        size, level = self.block_size, self.accuracy_level
        for what, is_right, expected, got in (
            ("bits", self.bits in (2, 4, 8), "2, 4 or 8", self.bits),
            ("block_size", _is_block(size), "a power of two from 16 on", size),
            ("accuracy_level", level in (None, 0, 1, 2, 3, 4), "0 to 4", level),
        ):
            if not is_right:
                text = f"{what} is out of range"
                raise InvalidArgument(message("blocks", text, expected=expected, got=repr(got)))
        unknown = self.op_types_to_quantize - {"MatMul", "Gather"}
        if unknown:
            what = f"{', '.join(sorted(unknown))} has no blocks of weights"
            raise InvalidArgument(message("blocks", what, expected="MatMul or Gather"))
        if self.channel_wised_quantize and self.quant_format is QuantFormat.QOperator:
            what = "MatMulNBits has blocks of a power of two, no whole columns"
            raise InvalidArgument(
                message("channel_wised_quantize", what, do="Take QuantFormat.QDQ")
            )


class RTNWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Rounding to nearest, with onnxruntime's arguments for it."""

    def __init__(
        self,
        ratios: dict[str, float] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
        customized_weight_config: dict[str, Any] | None = None,
    ) -> None:
        if ratios:
            what = "Clipping of single weights is not supported"
            raise errors.NotImplemented(message("RTN", what, do="Leave `ratios` out"))
        super().__init__("RTN", quant_format, op_types_to_quantize, None, customized_weight_config)


def _is_block(size: object) -> bool:
    return isinstance(size, int) and size >= 16 and not size & (size - 1)
