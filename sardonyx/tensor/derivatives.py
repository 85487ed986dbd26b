"""Derivatives of scalar expressions by the elements that they load."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from sardonyx.base import errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import message
from sardonyx.base.records import dataclass
from sardonyx.tensor import scalar
from sardonyx.tensor.operations import COMPARE
from sardonyx.tensor.scalar import Scalar, binary, compare, constant, select, unary
from sardonyx.tensor.tensor import Tensor

#: Given an operation's result and its operands: the factor for each operand, None for 0.
Rule = Callable[..., tuple[Scalar | None, ...]]


def _one(x: Scalar) -> Scalar:
    return constant(1.0, x.dtype)


def _square(x: Scalar) -> Scalar:
    return x * x


def _root(x: Scalar) -> Scalar:
    return unary("sqrt", x)


def _sign(x: Scalar) -> Scalar:
    return unary("sign", x)


#: The derivative of y = f(x), given y and x; None where it is 0 wherever it exists.
_UNARY: dict[str, Callable[[Scalar, Scalar], Scalar] | None] = {
    "neg": lambda y, x: constant(-1.0, x.dtype),
    "abs": lambda y, x: _sign(x),
    "sign": None, "floor": None, "ceil": None, "round": None, "trunc": None,
    "sqrt": lambda y, x: 0.5 / y,
    "rsqrt": lambda y, x: _square(y) * y * -0.5,
    "reciprocal": lambda y, x: -_square(y),
    "exp": lambda y, x: y,
    "exp2": lambda y, x: y * math.log(2),
    "expm1": lambda y, x: y + 1.0,
    "log": lambda y, x: 1.0 / x,
    "log2": lambda y, x: (1 / math.log(2)) / x,
    "log1p": lambda y, x: 1.0 / (x + 1.0),
    "sin": lambda y, x: unary("cos", x),
    "cos": lambda y, x: -unary("sin", x),
    "tan": lambda y, x: _square(y) + 1.0,
    "asin": lambda y, x: 1.0 / _root(1.0 - _square(x)),
    "acos": lambda y, x: -1.0 / _root(1.0 - _square(x)),
    "atan": lambda y, x: 1.0 / (_square(x) + 1.0),
    "sinh": lambda y, x: unary("cosh", x),
    "cosh": lambda y, x: unary("sinh", x),
    "tanh": lambda y, x: 1.0 - _square(y),
    "asinh": lambda y, x: 1.0 / _root(_square(x) + 1.0),
    "acosh": lambda y, x: 1.0 / _root(_square(x) - 1.0),
    "atanh": lambda y, x: 1.0 / (1.0 - _square(x)),
    "erf": lambda y, x: unary("exp", -_square(x)) * (2 / math.sqrt(math.pi)),
    "sigmoid": lambda y, x: y * (1.0 - y),
}  # fmt: skip


def _extreme(op: str) -> Rule:
    def rule(y: Scalar, a: Scalar, b: Scalar) -> tuple[Scalar | None, ...]:
        # Where both are equal, two variables share; at a constant bound nothing moves (Relu at 0).
        tie = 0.0 if "constant" in (a.op, b.op) else 0.5
        shared = select(compare("eq", a, b), constant(tie, a.dtype), 0.0)
        first = "gt" if op == "max" else "lt"
        return tuple(
            select(compare(first, one, other), constant(1.0, a.dtype), shared)
            for one, other in ((a, b), (b, a))
        )

    return rule


def _power(y: Scalar, a: Scalar, b: Scalar) -> tuple[Scalar | None, ...]:
    by_base = b * binary("pow", a, b - 1.0)
    by_exponent = select(a > 0.0, y * unary("log", a), 0.0)
    return by_base, by_exponent


def _arc(y: Scalar, a: Scalar, b: Scalar) -> tuple[Scalar | None, ...]:
    radius = _square(a) + _square(b)
    return b / radius, -a / radius


_BINARY: dict[str, Rule] = {
    "add": lambda y, a, b: (_one(a), _one(b)),
    "sub": lambda y, a, b: (_one(a), constant(-1.0, b.dtype)),
    "mul": lambda y, a, b: (b, a),
    "div": lambda y, a, b: (1.0 / b, -y / b),
    "rem": lambda y, a, b: (_one(a), -unary("trunc", a / b)),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "pow": _power,
    "atan2": _arc,
    "copysign": lambda y, a, b: (_sign(y) * _sign(a), None),
}


@dataclass(frozen=True, slots=True)
class _Part:
    """`value` where `condition` holds, else 0: kept apart, because 0 * infinity is no 0."""

    value: Scalar
    condition: Scalar | None = None

    def times(self, factor: Scalar) -> _Part:
        return _Part(times(self.value, factor), self.condition)

    def where(self, condition: Scalar) -> _Part:
        if condition.op == "constant":
            return self if condition.payload else _Part(constant(0.0, self.value.dtype))
        both = condition if self.condition is None else self.condition & condition
        return _Part(self.value, both)

    def cast(self, dtype: DType) -> _Part:
        return _Part(scalar.cast(self.value, dtype), self.condition)

    def whole(self) -> Scalar:
        return self.value if self.condition is None else select(self.condition, self.value, 0.0)


def times(a: Scalar, b: Scalar) -> Scalar:
    """The product, without a factor that is 1."""
    if is_one(a):
        return b
    return a if is_one(b) else a * b


def is_one(x: Scalar) -> bool:
    """Whether it is the constant 1."""
    return x.op == "constant" and x.payload == 1.0


def size_of(body: Scalar) -> int:
    """How many different operations an expression consists of."""
    return len(_inner_first(body))


def partials(body: Scalar, wanted: Callable[[Tensor], bool]) -> dict[Scalar, Scalar]:
    """The derivative of an expression by each load of a wanted tensor, of that load's type.

    What is used as an index, compared, or rounded to an integer does not count: it moves in steps.

    Raises:
        NotImplemented: An operation has no derivative.
    """
    order = [x for x in _inner_first(body) if x.dtype.is_float]
    moving: set[Scalar] = set()
    for x in order:
        if wanted(x.tensor) if x.op == "load" else any(a in moving for a in x.arguments):
            moving.add(x)
    parts: dict[Scalar, list[_Part]] = {body: [_Part(constant(1.0, body.dtype))]}
    found: dict[Scalar, Scalar] = {}
    for x in reversed(order):
        given = parts.pop(x, None)
        if given is None or x not in moving:
            continue
        part = given[0] if len(given) == 1 else _Part(_sum(p.whole() for p in given))
        if x.op == "load":
            found[x] = part.whole()
            continue
        for argument, piece in zip(x.arguments, _passed_on(x, part, moving), strict=True):
            if piece is not None:
                parts.setdefault(argument, []).append(piece)
    return found


def _passed_on(x: Scalar, part: _Part, moving: set[Scalar]) -> list[_Part | None]:
    """What of the derivative by a result is passed on to each operand."""
    arguments = x.arguments
    if x.op == "cast":
        return [part.cast(arguments[0].dtype) if arguments[0] in moving else None]
    if x.op == "select":
        condition, a, b = arguments
        pieces = (None, part.where(condition), part.where(~condition))
        return [p if o in moving else None for p, o in zip(pieces, arguments, strict=True)]
    factors: tuple[Scalar | None, ...]
    if x.op in _UNARY:
        rule = _UNARY[x.op]
        factors = (None if rule is None else rule(x, arguments[0]),)
    elif x.op in _BINARY:
        factors = _BINARY[x.op](x, *arguments)
    else:
        what = f"There is no derivative of the operation {x.op}"
        raise errors.NotImplemented(message("Gradient", what))
    return [
        None if factor is None or operand not in moving else part.times(factor)
        for factor, operand in zip(factors, arguments, strict=True)
    ]


def _sum(values: Iterable[Scalar]) -> Scalar:
    first, *rest = values
    for value in rest:
        first = first + value
    return first


def _inner_first(body: Scalar) -> list[Scalar]:
    """All parts of an expression but those inside indices, operands before what uses them."""
    found: dict[Scalar, None] = {}
    stack = [(body, False)]
    while stack:
        x, expanded = stack.pop()
        if x in found:
            continue
        if expanded or not x.arguments or x.op in COMPARE:
            found[x] = None
            continue
        stack.append((x, True))
        stack.extend((a, False) for a in x.arguments)
    return list(found)
