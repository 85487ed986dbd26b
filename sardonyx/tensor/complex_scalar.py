"""Arithmetic of complex numbers, written out in their parts.

A complex element is one value to everything that moves it. What computes with it takes it apart
with `real` and `imaginary` and puts the result together with `combine`.
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import message
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar


def part_type(dtype: DType) -> DType:
    """The type of the parts of a complex type."""
    return dtypes.FLOAT if dtype is dtypes.COMPLEX64 else dtypes.DOUBLE


def real(z: Scalar) -> Scalar:
    """The real part."""
    return _part(z, "real", 0)


def imaginary(z: Scalar) -> Scalar:
    """The imaginary part."""
    return _part(z, "imag", 1)


def _part(z: Scalar, op: str, number: int) -> Scalar:
    if z.op == "complex":
        return z.arguments[number]
    part = part_type(z.dtype)
    if z.op == "constant":
        return scalar.constant(getattr(z.payload, op), part)
    return scalar.make_node(op, part, (z,))


def combine(re: Scalar, im: Scalar) -> Scalar:
    """The complex number of two parts, floats or doubles."""
    dtype = dtypes.COMPLEX64 if re.dtype is dtypes.FLOAT else dtypes.COMPLEX128
    if re.op == im.op == "constant":
        return scalar.constant(complex(re.payload, im.payload), dtype)
    return scalar.make_node("complex", dtype, (re, im))


def cast(x: Scalar, dtype: DType) -> Scalar:
    """A number of any type as a complex one.

    Raises:
        NotImplemented: From complex numbers to others.
    """
    if dtype.kind != "c":
        raise errors.NotImplemented(message("cast", f"From {x.dtype} to {dtype}"))
    part = part_type(dtype)
    if x.dtype.kind == "c":
        return combine(scalar.cast(real(x), part), scalar.cast(imaginary(x), part))
    return combine(scalar.cast(x, part), scalar.constant(0.0, part))


def unary(op: str, z: Scalar) -> Scalar:
    """`neg`; no other is defined.

    Raises:
        NotImplemented: Another operation.
    """
    if op != "neg":
        raise _undefined(op, z.dtype)
    return combine(-real(z), -imaginary(z))


def binary(op: str, x: Scalar, y: Scalar) -> Scalar:
    """`add`, `sub` or `mul`.

    Raises:
        NotImplemented: Another operation.
    """
    if op not in _BINARY:
        raise _undefined(op, x.dtype)
    return combine(*_BINARY[op](real(x), imaginary(x), real(y), imaginary(y)))


_Parts = Callable[[Scalar, Scalar, Scalar, Scalar], tuple[Scalar, Scalar]]
_BINARY: dict[str, _Parts] = {
    "add": lambda a, b, c, d: (a + c, b + d),
    "sub": lambda a, b, c, d: (a - c, b - d),
    "mul": lambda a, b, c, d: (a * c - b * d, a * d + b * c),
}


def compare(op: str, x: Scalar, y: Scalar) -> Scalar:
    """`eq` or `ne`: complex numbers have no order.

    Raises:
        NotImplemented: Another comparison.
    """
    if op not in ("eq", "ne"):
        raise _undefined(op, x.dtype)
    parts = [scalar.compare(op, f(x), f(y)) for f in (real, imaginary)]
    return scalar.binary("and" if op == "eq" else "or", *parts)


def _undefined(op: str, dtype: DType) -> Exception:
    return errors.NotImplemented(message("expression", f"The operation {op} of {dtype}"))
