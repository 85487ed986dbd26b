"""Errors of elementwise operators in units of the last place (ulp), over a sweep of all floats.

A sweep takes every n-th float of a type in the order of its bits, so that each binade gets its
share. References are computed in longdouble from the operand as it is; parameters are float32, as
attributes are.

Some operators are formulas to the standard whose steps are tensors of the input's type, such as
Gelu's 1 + Erf(x / sqrt(2)). Where a step's rounding is made larger by what follows, the largest
such step is the unit, not the result; `Row.why` says which, and both figures are in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import sardonyx

Wide = np.ndarray[Any, np.dtype[np.longdouble]]
Reference = Callable[..., Wide]
L = np.longdouble
TYPES = {"float": np.dtype(np.float32), "float16": np.dtype(np.float16)}
#: Elements of one run.
CHUNK = 1 << 18


@dataclass(frozen=True)
class Row:
    """An operator with attributes.

    Attributes:
        op_type: The operator.
        reference: The exact result.
        attributes: Of the node.
        domain: Of the operator.
        allowed: Given the operands, the value whose last place is the unit, if not the result.
        why: The formula's step that is the unit then.
        operands: How many.
    """

    op_type: str
    reference: Reference
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    allowed: Reference | None = None
    why: str = ""
    operands: int = 1

    def __str__(self) -> str:
        shown = ", ".join(f"{k}={v}" for k, v in self.attributes.items())
        name = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"{name}({shown})" if shown else name


def _vectorised(function: Callable[[float], float]) -> Reference:
    compute = np.frompyfunc(function, 1, 1)
    return lambda x: compute(x.astype(np.float64)).astype(np.float64).astype(L)


_erf, _erfc = _vectorised(math.erf), _vectorised(math.erfc)


def _sigmoid(x: Wide) -> Wide:
    e = np.exp(-abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _softplus(x: Wide) -> Wide:
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


def _celu(x: Wide, alpha: float) -> Wide:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _mish(x: Wide) -> Wide:
    # tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2), with e = exp(x)
    n = np.exp(np.minimum(x, 40))
    n = n * (n + 2)
    return x * np.where(x > 40, 1, n / (n + 2))


_ROOT = L(2) ** L(0.5)
_TANH_SCALE = np.sqrt(2 / L(np.pi))


def _gelu(x: Wide) -> Wide:
    return 0.5 * x * _erfc(-x / _ROOT)


def _inner(x: Wide) -> Wide:
    return _TANH_SCALE * (x + L(0.044715) * x**3)


def _fast_gelu(x: Wide) -> Wide:
    return x * _sigmoid(2 * _inner(x))


def _swish(alpha: float) -> Reference:
    return lambda x: x * _sigmoid(L(np.float32(alpha)) * x)


def _exponent(inner: Callable[[Wide], Wide], result: Reference) -> Reference:
    """Rounding what `sigmoid` gets changes the result by this factor more."""

    def allowed(x: Wide) -> Wide:
        z = inner(x)
        return np.maximum(abs(result(x)) * (1 + abs(z) * _sigmoid(-z)), _subnormal(x))

    return allowed


def _subnormal(x: Wide) -> Wide:
    """Numbers whose last place is `x` times the smallest float32, to which a factor is rounded."""
    return abs(x) * L(2) ** -126


_HALF = "x / 2, of which 1 + Erf(...) or 1 + Tanh(...) takes a part"
_ARGUMENT = "the argument of Sigmoid, a tensor to the standard: exp makes its rounding larger"
_FACTOR = "the other factor, a tensor to the standard, where that is subnormal"
_TERM = "alpha * x, a tensor to the standard, where beta is taken from it"
MS = "com.microsoft"
A2, A17 = L(np.float32(0.2)), 1.702

ROWS = (
    Row("Abs", np.abs),
    Row("Acos", np.arccos),
    Row("Acosh", np.arccosh),
    Row("Asin", np.arcsin),
    Row("Asinh", np.arcsinh),
    Row("Atan", np.arctan),
    Row("Atanh", np.arctanh),
    Row("Ceil", np.ceil),
    Row("Celu", lambda x: _celu(x, 1)),
    Row("Celu", lambda x: _celu(x, 3), {"alpha": 3.0}),
    Row("Cos", np.cos),
    Row("Cosh", np.cosh),
    Row("Elu", lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x)),
    Row("Erf", _erf),
    Row("Exp", np.exp),
    Row("Floor", np.floor),
    Row("Gelu", _gelu, allowed=lambda x: x / 2, why=_HALF),
    Row("Gelu", _fast_gelu, {"approximate": "tanh"}, allowed=lambda x: x / 2, why=_HALF),
    Row("HardSigmoid", lambda x: np.clip(A2 * x + 0.5, 0, 1),
        allowed=lambda x: np.where(abs(x) < 5, A2 * x, 0), why=_TERM),
    Row("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    Row("LeakyRelu", lambda x: np.where(x < 0, A2 * x, x), {"alpha": 0.2}),
    Row("Log", np.log),
    Row("Mish", _mish, allowed=_subnormal, why=_FACTOR),
    Row("Neg", np.negative),
    Row("Reciprocal", lambda x: 1 / x),
    Row("Relu", lambda x: np.maximum(x, 0)),
    Row("Round", np.rint),
    Row("Selu", lambda x: L(np.float32(1.0507009873554805)) * np.where(
        x > 0, x, L(np.float32(1.6732632423543772)) * np.expm1(np.minimum(x, 0)))),
    Row("Shrink", lambda x: np.where(x < -0.5, x + A2, np.where(x > 0.5, x - A2, 0)),
        {"bias": 0.2}),
    Row("Sigmoid", _sigmoid),
    Row("Sign", np.sign),
    Row("Sin", np.sin),
    Row("Sinh", np.sinh),
    Row("Softplus", _softplus),
    Row("Softsign", lambda x: x / (1 + abs(x))),
    Row("Sqrt", np.sqrt),
    Row("Swish", _swish(1), allowed=_subnormal, why=_FACTOR),
    Row("Swish", _swish(1.5), {"alpha": 1.5},
        allowed=_exponent(lambda x: 1.5 * x, _swish(1.5)), why=_ARGUMENT),
    Row("Tan", np.tan),
    Row("Tanh", np.tanh),
    Row("ThresholdedRelu", lambda x: np.where(x > 1, x, 0)),
    Row("Gelu", _gelu, domain=MS, allowed=lambda x: x / 2, why=_HALF),
    Row("FastGelu", _fast_gelu, domain=MS, allowed=lambda x: x / 2, why=_HALF),
    Row("QuickGelu", _swish(A17), {"alpha": A17}, MS,
        allowed=_exponent(lambda x: L(np.float32(A17)) * x, _swish(A17)), why=_ARGUMENT),
    Row("Add", np.add, operands=2),
    Row("Sub", np.subtract, operands=2),
    Row("Mul", np.multiply, operands=2),
    Row("Div", np.divide, operands=2),
    Row("Mod", np.fmod, {"fmod": 1}, operands=2),
    Row("Pow", np.power, operands=2),
    Row("PRelu", lambda x, s: np.where(x < 0, x * s, x), operands=2),
    Row("SwiGLU", lambda a, b: _swish(1)(a) * b, operands=2,
        allowed=lambda a, b: _subnormal(np.maximum(abs(a), 1) * b), why=_FACTOR),
)  # fmt: skip


@dataclass
class Worst:
    """The largest errors found, in float32 and in float16.

    Attributes:
        ulp: In units of the result.
        where: The operands of that.
        allowed: In units that the standard's formula allows.
    """

    ulp: float = 0.0
    where: tuple[float, ...] = ()
    allowed: float = 0.0


def session_of(row: Row, type_name: str) -> sardonyx.InferenceSession:
    """A model of the operator on any number of elements."""
    kind = TensorProto.DataType.Value(type_name.upper())
    names = [f"x{k}" for k in range(row.operands)]
    node = helper.make_node(row.op_type, names, ["y"], domain=row.domain, **row.attributes)
    inputs = [helper.make_tensor_value_info(n, kind, ["n"]) for n in names]
    output = helper.make_tensor_value_info("y", kind, ["n"])
    imports = [helper.make_opsetid("", 28), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=imports, ir_version=13)
    return sardonyx.InferenceSession(model.SerializeToString())


def sweep(row: Row, type_name: str, step: int) -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
    """Operands: every `step`-th float; for two operands, each with another one drawn at random."""
    dtype = TYPES[type_name]
    bits = np.dtype(f"u{dtype.itemsize}")
    random = np.random.default_rng(5)
    count = (1 << (8 * dtype.itemsize)) // step
    for start in range(0, count, CHUNK):
        codes = np.arange(start, min(start + CHUNK, count), dtype=np.uint64) * np.uint64(step)
        x = codes.astype(bits).view(dtype)
        x = x[~np.isnan(x)]
        if not x.size:
            continue
        if row.operands == 1:
            yield (x,)
            continue
        any_other = random.integers(0, 1 << (8 * dtype.itemsize), x.size, dtype=bits).view(dtype)
        near = random.uniform(-30, 30, x.size).astype(dtype)
        yield x, np.where(np.isnan(any_other) | (random.random(x.size) < 0.5), near, any_other)


def errors(
    found: np.ndarray[Any, Any], exact: Wide, unit: Wide, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Distances in units of the last place of `unit`; 0 where both are the same, or no number."""
    with np.errstate(all="ignore"):
        near = np.abs(unit).astype(dtype)
        place = np.spacing(np.minimum(near, np.finfo(dtype).max)).astype(L)
        place = np.maximum(place, L(np.finfo(dtype).smallest_subnormal))
        error = np.abs(found.astype(L) - exact) / place
        same = (found == exact.astype(dtype)) | (np.isnan(found) & np.isnan(exact))
    return np.where(same, 0, np.where(np.isnan(error), np.inf, error)).astype(np.float64)


def measure(row: Row, type_name: str, step: int) -> Worst:
    """The largest errors over a sweep."""
    session, dtype, worst = session_of(row, type_name), TYPES[type_name], Worst()
    for operands in sweep(row, type_name, step):
        (found,) = session.run(None, {f"x{k}": x for k, x in enumerate(operands)})
        with np.errstate(all="ignore"):
            wide = [x.astype(L) for x in operands]
            exact = np.asarray(row.reference(*wide), L)
            unit = exact if row.allowed is None else np.maximum(
                abs(exact), abs(np.asarray(row.allowed(*wide), L))
            )  # fmt: skip
        error = errors(found, exact, exact, dtype)
        at = int(np.argmax(error))
        if error[at] > worst.ulp:
            worst.ulp, worst.where = float(error[at]), tuple(float(x[at]) for x in operands)
        worst.allowed = max(worst.allowed, float(errors(found, exact, unit, dtype).max()))
    return worst
