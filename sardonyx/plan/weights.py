"""What weights in codes are made of: `scale * (code - zero)`, at whatever level of a graph."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import dtypes, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom
from sardonyx.plan.axes import dims_of
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Contract, Map, Tensor, reduced_indices
from sardonyx.tensor.traverse import loads_of

_BITS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Weights:
    """A factor `scale * (code - zero)`.

    Attributes:
        code: Of type uint8.
        bits: How many of it count.
        scale, zero: Of type float32.
    """

    code: Scalar
    bits: int
    scale: Scalar
    zero: Scalar


def weights_of(factor: Scalar, inside: Atom | None = None) -> Weights | None:
    """The parts of a factor; None if it is not made so.

    Args:
        factor: A float expression.
        inside: What nothing but the code may depend on.
    """
    factor = without_casts(factor)
    if factor.op != "mul":
        return None
    for value, scale in (factor.arguments, factor.arguments[::-1]):
        found = None if depends(scale, inside) else _centred(without_casts(value))
        if found is None or depends(found[1], inside):
            continue
        code, zero = found[0], scalar.cast(found[1], dtypes.FLOAT)
        bits = code.dtype.bits
        if code.dtype.kind == "i":
            half = 1 << (bits - 1)
            code, zero = scalar.cast(code, dtypes.INT32) + half, _moved(zero, float(half))
        return Weights(
            scalar.cast(code, dtypes.UINT8), bits, scalar.cast(scale, dtypes.FLOAT), zero
        )
    return None


def _centred(value: Scalar) -> tuple[Scalar, Scalar] | None:
    """Code and zero point of a difference, in floats or in whole numbers."""
    zero = scalar.constant(0.0, dtypes.FLOAT)
    if value.op == "cast" and value.arguments[0].op == "sub":
        value = value.arguments[0]
    if value.op == "sub":
        value, zero = value.arguments
    while value.op == "cast" and not _is_code(value):
        value = value.arguments[0]
    return (value, zero) if _is_code(value) else None


def _moved(zero: Scalar, by: float) -> Scalar:
    if zero.op == "constant":
        return scalar.constant(zero.payload + by, dtypes.FLOAT)
    return zero + by


def _is_code(x: Scalar) -> bool:
    return x.dtype.is_integer and x.dtype.bits in _BITS


def without_casts(x: Scalar) -> Scalar:
    """An expression in floats, without what only makes it wider."""
    while x.op == "cast" and x.dtype is dtypes.FLOAT and x.arguments[0].dtype.is_float:
        x = x.arguments[0]
    return x


def depends(x: Scalar, atom: Atom | None) -> bool:
    """Whether an expression uses a variable."""
    return any(atom in sizes.atoms_of(dim) for dim in dims_of(x))


def packs(product: Contract, weights: Tensor, is_view: Callable[[Scalar], bool]) -> bool:
    """Whether a contraction is of a matrix, read as it is, and of weights, perhaps through views.

    `is_view`: whether an expression only picks elements.
    """
    left = without_casts(product.left)
    if left.op != "load":
        return False
    atoms = [sizes.as_atom(i) for i in left.at if i != 0]
    summed = set(sizes.variables(reduced_indices(product.extents)))
    plain = all(a is not None and a.kind == "index" for a in atoms)
    if not plain or len(set(atoms)) != len(atoms) or not summed <= set(atoms):
        return False
    sources = [x.tensor for x in loads_of(product.right)]
    while sources:
        source = sources.pop()
        if source is weights:
            return True
        if isinstance(source, Map) and is_view(source.body):
            sources += [x.tensor for x in loads_of(source.body)]
    return False
