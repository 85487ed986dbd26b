"""Operators and methods of tensors: NumPy's spelling of the functions in `language`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from sardonyx.base.dtypes import DType
from sardonyx.base.sizes import Dim

if TYPE_CHECKING:
    from sardonyx.tensor.scalar import Scalar
    from sardonyx.tensor.tensor import Tensor

Axes = int | Iterable[int] | None


def _binary(op: str, a: object, b: object) -> Tensor:
    from sardonyx.tensor import elementwise

    return elementwise.binary(op, a, b)


def _compare(op: str, a: object, b: object) -> Tensor:
    from sardonyx.tensor import elementwise

    return elementwise.compare(op, a, b)


def _unary(op: str, x: object) -> Tensor:
    from sardonyx.tensor import elementwise

    return elementwise.unary(op, cast("Tensor", x))


def _reduce(kind: str, x: object, axis: Axes, keepdims: bool) -> Tensor:
    from sardonyx.tensor import reduction

    return reduction.reduce(kind, cast("Tensor", x), axis, keepdims)


class Operators:
    """Arithmetic of tensors. `==` stays identity; element by element it is `language.equal`."""

    __slots__ = ()

    def __add__(self, other: object) -> Tensor:
        return _binary("add", self, other)

    def __radd__(self, other: object) -> Tensor:
        return _binary("add", other, self)

    def __sub__(self, other: object) -> Tensor:
        return _binary("sub", self, other)

    def __rsub__(self, other: object) -> Tensor:
        return _binary("sub", other, self)

    def __mul__(self, other: object) -> Tensor:
        return _binary("mul", self, other)

    def __rmul__(self, other: object) -> Tensor:
        return _binary("mul", other, self)

    def __truediv__(self, other: object) -> Tensor:
        return _binary("div", self, other)

    def __rtruediv__(self, other: object) -> Tensor:
        return _binary("div", other, self)

    def __and__(self, other: object) -> Tensor:
        return _binary("and", self, other)

    def __or__(self, other: object) -> Tensor:
        return _binary("or", self, other)

    def __xor__(self, other: object) -> Tensor:
        return _binary("xor", self, other)

    def __invert__(self) -> Tensor:
        return _unary("not", self)

    def __neg__(self) -> Tensor:
        return _unary("neg", self)

    def __abs__(self) -> Tensor:
        return _unary("abs", self)

    def __lt__(self, other: object) -> Tensor:
        return _compare("lt", self, other)

    def __le__(self, other: object) -> Tensor:
        return _compare("le", self, other)

    def __gt__(self, other: object) -> Tensor:
        return _compare("gt", self, other)

    def __ge__(self, other: object) -> Tensor:
        return _compare("ge", self, other)

    def __matmul__(self, other: Tensor) -> Tensor:
        from sardonyx.tensor import reduction

        return reduction.matmul(cast("Tensor", self), other)

    def __getitem__(self, at: Dim | Scalar | tuple[Dim | Scalar, ...]) -> Scalar:
        from sardonyx.tensor import elementwise

        where = at if isinstance(at, tuple) else (at,)
        return elementwise.element(cast("Tensor", self), where)

    def at(self, *at: Dim | Scalar) -> Scalar:
        """The element at these indices; those that are read from tensors are checked."""
        from sardonyx.tensor import elementwise

        return elementwise.element(cast("Tensor", self), at)

    def cast(self, dtype: DType) -> Tensor:
        """Converted to another element type."""
        from sardonyx.tensor import elementwise

        return elementwise.cast(cast("Tensor", self), dtype)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Sum over axes, all by default."""
        return _reduce("sum", self, axis, keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Product over axes, all by default."""
        return _reduce("prod", self, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Largest over axes, all by default."""
        return _reduce("max", self, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Smallest over axes, all by default."""
        return _reduce("min", self, axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Mean over axes, all by default; of integers, truncated."""
        from sardonyx.tensor import reduction

        return reduction.mean(cast("Tensor", self), axis, keepdims)

    def reshape(self, *shape: Dim) -> Tensor:
        """The same elements in row-major order under another shape."""
        from sardonyx.tensor import reshaping

        return reshaping.reshape(cast("Tensor", self), shape)

    def transpose(self, *order: int) -> Tensor:
        """Axes in another order, by default reversed."""
        from sardonyx.tensor import views

        return views.transpose(cast("Tensor", self), order or None)
