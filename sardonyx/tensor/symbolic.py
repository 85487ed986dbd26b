"""What is in small tensors before a run, as numbers and symbolic integers.

Shape arithmetic of exporters (Shape, Gather, Concat, Where, products ...) is evaluated from its
lowering: an element is a symbolic integer, or a float or bool that is a plain number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from sardonyx.base import integer, sizes
from sardonyx.base.conversion import rounded
from sardonyx.base.dtypes import BOOL, DOUBLE, DType
from sardonyx.base.sizes import Atom, Dim, Size
from sardonyx.base.substitution import rebuild
from sardonyx.tensor import scalar
from sardonyx.tensor.arithmetic import working_dtype
from sardonyx.tensor.checked import can_be_dropped
from sardonyx.tensor.operations import COMPARE
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import (
    Buffer,
    Contract,
    Map,
    Reduce,
    Tensor,
    complete,
    indices,
    reduced_indices,
)
from sardonyx.tensor.traverse import operands_of

#: Tensors of more elements are not looked into.
ELEMENTS_LIMIT = 64
#: Nor are reductions over more terms than this.
_TERMS_LIMIT = 256

#: Integers are `int` or `Size`; floats and bools only plain numbers.
Element = int | float | Size

#: None for an element that is not known.
Partial = tuple[Dim | None, ...]

_memo: WeakKeyDictionary[Tensor, Partial | None] = WeakKeyDictionary()


#: What was noted since a `forgetting` block began, with what was known before.
_journal: ContextVar[list[tuple[Tensor, Partial | None]] | None] = ContextVar(
    "journal", default=None
)


@contextmanager
def forgetting() -> Iterator[None]:
    """After the block, nothing is known of contents that was not known before.

    Symbols that are measured in one graph, or in the body of a branch or loop, mean nothing
    outside, where tensors that are made of sizes alone are the same objects.
    """
    noted: list[tuple[Tensor, Partial | None]] = []
    token = _journal.set(noted)
    try:
        yield
    finally:
        _journal.reset(token)
        for x, before in reversed(noted):
            if isinstance(x, Buffer):
                x.known = before
            else:
                _memo.pop(x, None)


class Unknown(Exception):
    """The value depends on what only a run knows."""


def elements_of(x: Tensor) -> tuple[Dim, ...] | None:
    """Row-major contents of a small tensor, or None if they are not known before a run."""
    return complete(partial_elements_of(x))


def partial_elements_of(x: Tensor) -> Partial | None:
    """Row-major contents of a small tensor as far as known; None if nothing at all is."""
    if 0 in x.shape:
        return ()
    if isinstance(x, Buffer):
        return x.known if x.known is not None or x.value is None else (x.value,)  # type: ignore[return-value]  # floats of scales are kept, too
    if x in _memo:
        return _memo[x]
    # Operands first: looked into one from inside the other, long chains exhaust Python's stack.
    stack = [(x, False)]
    while stack:
        made, is_ready = stack.pop()
        if made in _memo:
            continue
        if is_ready or not _is_small(made):
            remember(made, _found_in(made))
            continue
        stack.append((made, True))
        stack.extend((y, False) for y in operands_of(made) if _is_open(y))
    return _memo[x]


def _is_small(x: Tensor) -> bool:
    count = sizes.product(x.shape)
    return isinstance(count, int) and count <= ELEMENTS_LIMIT


def _is_open(x: Tensor) -> bool:
    """Whether contents may be found that were not looked for."""
    return not isinstance(x, Buffer) and x not in _memo and 0 not in x.shape and _is_small(x)


def _found_in(x: Tensor) -> Partial | None:
    if not _is_small(x):
        return None
    try:
        return _contents(x)
    except Unknown:
        return None


def remember(x: Tensor, elements: Partial | None) -> None:
    """Note the contents of a tensor, all or some, that are known from elsewhere."""
    noted = _journal.get()
    if noted is not None:
        noted.append((x, x.known if isinstance(x, Buffer) else None))
    if isinstance(x, Buffer):
        x.known = elements
    else:
        _memo[x] = elements


def _contents(x: Tensor) -> Partial | None:
    if isinstance(x, Map):
        read: Callable[[dict[Atom, Dim]], Element] = lambda at: _evaluate(x.body, at)  # noqa: E731 - one of two functions
    elif isinstance(x, Reduce):
        read = _reduction(x)
    elif isinstance(x, Contract):
        read = _contraction(x)
    else:
        raise Unknown
    found: list[Any] = []
    for at in _positions(x.shape, indices(x.shape)):
        try:
            found.append(read(at))
        except Unknown:
            found.append(None)
    return tuple(found) if not found or any(e is not None for e in found) else None


def _positions(shape: tuple[Dim, ...], variables: tuple[Dim, ...]) -> list[dict[Atom, Dim]]:
    """For every element, in row-major order, the values of the index variables."""
    if 0 in shape:  # beside an axis of any length
        return []
    ranges = []
    for extent in shape:
        if not isinstance(extent, int):
            raise Unknown
        ranges.append(range(extent))
    found: list[dict[Atom, Dim]] = []
    for at in itertools.product(*ranges):
        pairs = zip(variables, at, strict=True)
        found.append({v.terms[0][0][0]: i for v, i in pairs if isinstance(v, Size)})
    return found


def _terms(x: Reduce | Contract) -> list[dict[Atom, Dim]]:
    count = sizes.product(x.extents)
    if not isinstance(count, int) or count > _TERMS_LIMIT:
        raise Unknown
    return _positions(x.extents, reduced_indices(x.extents))


def _reduction(x: Reduce) -> Callable[[dict[Atom, Dim]], Element]:
    combine = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}.get(x.kind)
    terms = _terms(x)
    if combine is None or (not terms and x.kind in ("min", "max")):
        raise Unknown

    def read(at: dict[Atom, Dim]) -> Element:
        result: Element | None = None
        for term in terms:
            value = _evaluate(x.body, at | term)
            result = value if result is None else _binary(combine, result, value, x.dtype)
        return (1 if x.kind == "prod" else 0) if result is None else result

    return read


def _contraction(x: Contract) -> Callable[[dict[Atom, Dim]], Element]:
    terms = _terms(x)

    def read(at: dict[Atom, Dim]) -> Element:
        result: Element = 0
        for term in terms:
            both = at | term
            product = _binary("mul", _evaluate(x.left, both), _evaluate(x.right, both), x.dtype)
            result = _binary("add", result, product, x.dtype)
        return result

    return read


#: What numbers are not looked into.
_OPAQUE = frozenset(("bitcast", "real", "imag", "complex"))


def _evaluate(x: Scalar, at: Mapping[Atom, Dim]) -> Element:
    op = x.op
    if op in _OPAQUE or x.dtype.is_complex:
        raise Unknown
    if op == "constant":
        number: Element = x.payload
        return number
    if op == "size":
        return _dim(x.dim, at)
    if op == "load":
        return _load(x, at)
    if op == "select":
        chosen = _evaluate(x.arguments[0], at)
        return _evaluate(x.arguments[1 if chosen else 2], at)
    if op in ("and", "or") and x.dtype is BOOL:
        first = _evaluate(x.arguments[0], at)
        if bool(first) == (op == "and"):
            return _evaluate(x.arguments[1], at)
        if not can_be_dropped(x.arguments[1]):
            raise Unknown
        return first
    values = [_evaluate(a, at) for a in x.arguments]
    if op == "cast":
        return _cast(values[0], x.arguments[0].dtype, x.dtype)
    if op == "check_index":
        return _checked(values[0], _dim(x.dim, at))
    if op == "check_range":
        return _in_range(*values)
    if op in COMPARE:
        return _compare(op, values[0], values[1])
    if len(values) == 2:
        return _binary(op, values[0], values[1], x.dtype)
    return _unary(op, values[0], x.dtype)


def _dim(value: Dim, at: Mapping[Atom, Dim]) -> Dim:
    if isinstance(value, int):
        return value
    total = 0
    for monomial, coefficient in value.terms:  # mostly of index variables alone
        for atom in monomial:
            here = at.get(atom)
            if not isinstance(here, int):
                return _rebuilt(value, at)
            coefficient *= here
        total += coefficient
    return total


def _rebuilt(value: Dim, at: Mapping[Atom, Dim]) -> Dim:
    def replace(atom: Atom) -> Dim | None:
        if atom.kind == "index":
            return at.get(atom)
        if atom.kind == "opaque" and isinstance(atom.payload, Scalar):
            found = _evaluate(atom.payload, at)
            if isinstance(found, float):
                raise Unknown
            return found
        return None

    return rebuild(value, replace)


def _load(x: Scalar, at: Mapping[Atom, Dim]) -> Element:
    known = partial_elements_of(x.tensor)
    if known is None:
        raise Unknown
    position = 0
    for i, extent in zip(x.at, x.tensor.shape, strict=True):
        here = _dim(i, at)
        if not isinstance(here, int) or not isinstance(extent, int) or not 0 <= here < extent:
            raise Unknown
        position = position * extent + here
    found = known[position]
    if found is None:
        raise Unknown
    return found


def _cast(value: Element, source: DType, target: DType) -> Element:
    if isinstance(value, Size):
        if not target.is_integer:
            raise Unknown
        return value
    if target is BOOL:
        return bool(value)
    if target.is_narrow_float:
        raise Unknown
    if target.is_float:
        with np.errstate(all="ignore"):
            given = value if source.is_float else _wrapped(int(value), source)
            return float(rounded(np.asarray(given, source.numpy), target.numpy))
    if source.is_float:
        if not math.isfinite(value):
            raise Unknown
        low, high = _ends(target)
        return min(max(int(value), low), high)
    return _wrapped(int(value), target)


def _ends(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    return low, low + (1 << dtype.bits) - 1


def _wrapped(value: Dim, dtype: DType) -> Dim:
    if isinstance(value, int) and not isinstance(value, bool):
        kept = value & ((1 << dtype.bits) - 1)
        return kept - (1 << dtype.bits) if dtype.kind == "i" and kept >> (dtype.bits - 1) else kept
    return value


def _computed(function: Callable[..., object], dtype: DType, *operands: Element) -> float:
    """A float, unless a session's mode decides whether it, or an operand, is zero."""
    with np.errstate(all="ignore"):
        given = [np.float64(x) for x in operands]  # type: ignore[arg-type]  # none is symbolic
        result = np.asarray(function(*given))
        found = float(result.astype(working_dtype(dtype)).astype(dtype.numpy))
    smallest = np.finfo(np.float64 if dtype is DOUBLE else np.float32).tiny
    if any(0 < abs(x) < smallest for x in (*given, found)):
        raise Unknown
    return found


def _checked(value: Element, extent: Dim) -> Dim:
    if isinstance(value, float):
        raise Unknown
    last = extent - 1
    if integer.is_nonnegative(value) and integer.is_nonnegative(last - value):
        return value
    if integer.is_nonnegative(-1 - value) and integer.is_nonnegative(value + extent):
        return value + extent
    raise Unknown


def _in_range(value: Element, low: Element, high: Element) -> Dim:
    if isinstance(value, float) or isinstance(low, float) or isinstance(high, float):
        raise Unknown
    if integer.is_nonnegative(value - low) and integer.is_nonnegative(high - value):
        return value
    raise Unknown


def _compare(op: str, a: Element, b: Element) -> bool:
    if isinstance(a, Size) or isinstance(b, Size):
        if isinstance(a, float) or isinstance(b, float):
            raise Unknown
        known = scalar.decide(op, a, b)
        if known is None:
            raise Unknown
        return known
    return bool(_COMPARE[op](a, b))


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_FLOAT_BINARY: dict[str, Callable[[float, float], object]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
}
_FLOAT_UNARY: dict[str, Callable[[float], object]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "exp": np.exp,
    "log": np.log,
}


def _binary(op: str, a: Element, b: Element, dtype: DType) -> Element:
    if dtype is BOOL:
        if op in ("and", "or", "xor") and isinstance(a, int) and isinstance(b, int):
            return bool({"and": a & b, "or": a | b, "xor": a ^ b}[op])
        raise Unknown
    if dtype.is_float:
        if op not in _FLOAT_BINARY:
            raise Unknown
        return _computed(_FLOAT_BINARY[op], dtype, a, b)
    if isinstance(a, float) or isinstance(b, float):
        raise Unknown
    if op in scalar.SYMBOLIC:
        return _wrapped(scalar.SYMBOLIC[op](a, b), dtype)
    if isinstance(a, int) and isinstance(b, int):
        return _integer_binary(op, a, b, dtype)
    if op in ("div", "rem") and integer.is_nonnegative(a) and integer.is_nonnegative(b) and b != 0:
        return integer.floordiv(a, b) if op == "div" else integer.modulo(a, b)
    raise Unknown


def _integer_binary(op: str, a: int, b: int, dtype: DType) -> int:
    if op in ("div", "rem"):
        if b == 0:
            raise Unknown
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return int(_wrapped(quotient, dtype) if op == "div" else a - b * quotient)
    if op in ("and", "or", "xor"):
        return {"and": a & b, "or": a | b, "xor": a ^ b}[op]
    raise Unknown


def _unary(op: str, a: Element, dtype: DType) -> Element:
    if dtype is BOOL:
        if op == "not":
            return not a
        raise Unknown
    if dtype.is_float:
        if op not in _FLOAT_UNARY:
            raise Unknown
        return _computed(_FLOAT_UNARY[op], dtype, a)
    if isinstance(a, float):
        raise Unknown
    if op == "neg":
        return _wrapped(-a, dtype)
    if op == "abs":
        return _wrapped(integer.maximum(a, -a), dtype)
    if op == "sign" and isinstance(a, int):
        return (a > 0) - (a < 0)
    raise Unknown
