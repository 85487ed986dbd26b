"""The names that say how a model is quantised; values as onnxruntime has them."""

from __future__ import annotations

from enum import Enum
from typing import Self

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidArgument, message


class _Named(Enum):
    """Prints as its bare name, and is found by it."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_string(cls, text: str) -> Self:
        """The member of that name.

        Raises:
            InvalidArgument: There is none.
        """
        try:
            return cls[text]
        except KeyError:
            names = ", ".join(cls.__members__)
            what = f"There is no such {cls.__name__}"
            raise InvalidArgument(message(cls.__name__, what, expected=names, got=text)) from None


class QuantizationMode(_Named):
    """Whether scales of activations are found in each run or beforehand."""

    IntegerOps = 0
    QLinearOps = 1


class QuantFormat(_Named):
    """Operators on codes, or floats between QuantizeLinear and DequantizeLinear."""

    QOperator = 0
    QDQ = 1


class CalibrationMethod(_Named):
    """How the range of a tensor is made of what calibration has seen."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


class QuantType(_Named):
    """Element type of codes."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    @property
    def tensor_type(self) -> int:
        """ONNX's number of the element type."""
        return self.dtype.onnx_id

    @property
    def dtype(self) -> DType:
        """The element type."""
        return _DTYPES[self]


_DTYPES = {
    QuantType.QInt8: dtypes.INT8,
    QuantType.QUInt8: dtypes.UINT8,
    QuantType.QFLOAT8E4M3FN: dtypes.FLOAT8E4M3FN,
    QuantType.QInt16: dtypes.INT16,
    QuantType.QUInt16: dtypes.UINT16,
    QuantType.QInt4: dtypes.INT4,
    QuantType.QUInt4: dtypes.UINT4,
}
#: Types that ONNX's QuantizeLinear has had since version 21 only.
NEWER_TYPES = frozenset((QuantType.QInt16, QuantType.QUInt16, QuantType.QInt4, QuantType.QUInt4))
