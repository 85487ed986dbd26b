"""Operators of your own: see docs/own_operators.md."""

from sardonyx.ops.core.user_defined import Output, function, lowering, remove
from sardonyx.tensor import language
from sardonyx.tensor.tensor import Tensor

__all__ = ["Output", "Tensor", "function", "language", "lowering", "remove"]
