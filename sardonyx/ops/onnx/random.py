"""Random operators: tensors drawn element by element from a key that is new each time.

The host gives the key (host/random.py); everything else is tensor language (tensor/philox.py). The
standard leaves generators open: what is drawn is none of NumPy's or onnxruntime's sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import BOOL, DOUBLE, FLOAT, INT32, INT64, UINT32, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import CONSUMED_INPUTS, op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.core.scope import Scope
from sardonyx.tensor import scalar
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    cast,
    compute,
    constant,
    exp,
    where,
)
from sardonyx.tensor.philox import Words, draw, normal, unit
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import Shape, indices, make_call, make_reduce, reduced_indices

#: Types of numbers that are drawn from a continuous distribution.
_FLOATS = (dtypes.FLOAT16, dtypes.BFLOAT16, FLOAT, DOUBLE)


def _drawn(
    shape: Shape, scope: Scope, seed: float | None, body: Callable[[Words], Scalar]
) -> Tensor:
    """The tensor whose elements are `body` of random words, other ones for each."""
    result = Result(UINT32, (4,))
    (key,) = host_call("random.key", [], [result], node=scope.name, seed=seed)

    def element(*at: Dim) -> Scalar:
        number: Dim = 0
        for i, extent in zip(at, shape, strict=True):
            number = number * extent + i
        return body(draw(key, number))

    return compute(shape, element)


def _uniform(shape: Shape, scope: Scope, seed: float | None, dtype: DType) -> Tensor:
    """Numbers of [0, 1), in float or double."""
    wide = accumulator(dtype)
    return _drawn(shape, scope, seed, lambda words: unit(words[:2], wide))


def _float_type(where_: str, number: int | None, like: Tensor | None = None) -> DType:
    found = (
        like.dtype if number is None and like is not None else dtypes.BY_ONNX_ID.get(number or 1)
    )
    if found not in _FLOATS:
        what = "Numbers of this type cannot be drawn"
        expected = ", ".join(map(str, _FLOATS))
        raise InvalidGraph(message(where_, what, expected=expected, got=str(found or number)))
    return found


# -- uniform ----------------------------------------------------------------------------------


def _between(
    shape: Shape, scope: Scope, seed: float | None, dtype: DType, low: float, high: float
) -> Tensor:
    """Numbers of [low, high), or `low` if that is empty."""
    if not low <= high:
        what = f"The bounds {low} and {high} are in the wrong order"
        raise InvalidGraph(message("RandomUniform", what))
    drawn = cast(_uniform(shape, scope, seed, dtype) * (high - low) + low, dtype)
    # Rounding reaches the upper bound, which is not part of it.
    ends = np.array([low, high], dtype.numpy)
    last = max(float(np.nextafter(ends[1], ends[0])), float(ends[0]))
    return where(drawn < last, drawn, last)


@op("RandomUniform", 1, 22)
def random_uniform_1(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    scope: Scope,
) -> Tensor:
    """Numbers drawn evenly from [low, high)."""
    found = _float_type("RandomUniform", dtype)
    return _between(tuple(shape), scope, seed, found, low, high)


@op("RandomUniformLike", 1, 22)
def random_uniform_like_1(
    x: Tensor,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    scope: Scope,
) -> Tensor:
    """Numbers drawn evenly from [low, high), as many as there are elements."""
    found = _float_type("RandomUniformLike", dtype, x)
    return _between(x.shape, scope, seed, found, low, high)


# -- normal -----------------------------------------------------------------------------------


def _around(
    shape: Shape, scope: Scope, seed: float | None, dtype: DType, mean: float, scale: float
) -> Tensor:
    wide = accumulator(dtype)
    drawn = _drawn(shape, scope, seed, lambda words: normal(words, wide))
    return cast(drawn * scale + mean, dtype)


@op("RandomNormal", 1, 22)
def random_normal_1(
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    scope: Scope,
) -> Tensor:
    """Numbers of the normal distribution with this mean and standard deviation."""
    found = _float_type("RandomNormal", dtype)
    return _around(tuple(shape), scope, seed, found, mean, scale)


@op("RandomNormalLike", 1, 22)
def random_normal_like_1(
    x: Tensor,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    scope: Scope,
) -> Tensor:
    """Numbers of the normal distribution, as many as there are elements."""
    found = _float_type("RandomNormalLike", dtype, x)
    return _around(x.shape, scope, seed, found, mean, scale)


# -- choices ----------------------------------------------------------------------------------


@op("Bernoulli", 15, 22)
def bernoulli_15(
    x: Tensor, *, dtype: int | None = None, seed: float | None = None, scope: Scope
) -> Tensor:
    """1 with the probability that an element says, else 0."""
    found = x.dtype if dtype is None else dtypes.BY_ONNX_ID.get(dtype)
    if found is None or found.is_code or not x.dtype.is_float:
        what = f"Choices by {x.dtype} cannot be given as the type {dtype}"
        raise InvalidGraph(message("Bernoulli", what))
    chances = cast(x, accumulator(x.dtype))
    return cast(_uniform(x.shape, scope, seed, x.dtype) < chances, found)


@op("Multinomial", 7, 22)
def multinomial_7(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, scope: Scope
) -> Tensor:
    """Classes, (batch, samples), drawn by unnormalised logarithms of chances, (batch, classes)."""
    target = dtypes.BY_ONNX_ID.get(dtype)
    if target not in (INT32, INT64) or x.rank != 2 or sample_size < 1:
        what = f"There are no {sample_size} samples of type {dtype} of {x.dtype}{list(x.shape)}"
        raise InvalidGraph(message("Multinomial", what))
    batch, classes = x.shape
    wide = cast(x, DOUBLE)
    chances = exp(wide - wide.max(1, keepdims=True))
    (below,) = make_call(
        "scan", (chances,), ((x.shape, DOUBLE),), kind="sum", exclusive=False, reverse=False
    )
    drawn = _uniform((batch, sample_size), scope, seed, DOUBLE)

    def passed(row: Dim, sample: Dim, kind: Dim) -> Scalar:
        # No class with a chance of 0 is ever chosen: u < 1, so that u * total < total.
        total = scalar.load(below, (row, classes - 1))
        limit = scalar.load(drawn, (row, sample)) * total
        return scalar.cast(scalar.load(below, (row, kind)) <= limit, target)

    shape = (batch, sample_size)
    (row, sample), (kind,) = indices(shape), reduced_indices((classes,))
    return make_reduce(shape, (classes,), "sum", passed(row, sample, kind), target)


# -- dropout ----------------------------------------------------------------------------------


@op("Dropout", 1, 6, removed=CONSUMED_INPUTS)
def dropout_1(
    x: Tensor,
    *,
    consumed_inputs: Sequence[int] = (),
    is_test: int = 0,
    ratio: float = 0.5,
    scope: Scope,
) -> tuple[Tensor, Tensor]:
    """The same in a test, else as later in training. The mask has the type of the data."""
    if is_test:
        return dropout_7(x)
    training = constant(True, BOOL)
    result, kept = dropout_12(x, constant(ratio, FLOAT), training, scope=scope)
    return result, cast(kept, x.dtype)


@op("Dropout", 7)
def dropout_7(x: Tensor, *, ratio: float = 0.5) -> tuple[Tensor, Tensor]:
    """The same: nothing is dropped when a model is run. The mask has the type of the data."""
    return x, constant(1.0, x.dtype, x.shape)


@op("Dropout", 10)
def dropout_10(x: Tensor, *, ratio: float = 0.5) -> tuple[Tensor, Tensor]:
    """As before, with a mask of bools."""
    return x, constant(True, BOOL, x.shape)


@op("Dropout", 12, 13, 22)
def dropout_12(
    x: Tensor,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
    *,
    seed: int | None = None,
    scope: Scope,
) -> tuple[Tensor, Tensor]:
    """In training each element is kept with the chance 1 - ratio, and scaled by its inverse."""
    known = (False,) if training is None else elements_of(training)
    if known is not None and not known[0]:
        return x, constant(True, BOOL, x.shape)
    wide = accumulator(x.dtype)
    chance = constant(0.5, wide) if ratio is None else cast(scalar_of(ratio, "Dropout"), wide)
    kept = _uniform(x.shape, scope, seed, x.dtype) >= chance
    scaled = cast(cast(x, wide) * (1.0 / (1.0 - chance)), x.dtype)
    result = where(kept, scaled, 0.0)
    if known is None:
        active = cast(scalar_of(training, "Dropout"), BOOL)  # type: ignore[arg-type]  # or it were known
        return where(active, result, x), kept | ~active
    return result, kept
