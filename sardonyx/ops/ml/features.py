"""Preparing features: Scaler, Normalizer, Imputer, Binarizer, encoders (ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.base import dtypes, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Array, Constant
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.generation.generate import constant_tensor
from sardonyx.ops.ml.common import ML, numbers, pick_labels, real
from sardonyx.ops.onnx.gather import top_k
from sardonyx.tensor import language as t
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor, make_call

#: Inputs may be strings.
_STRINGS = ("strings",)


def _per_feature(values: Sequence[float], dtype: DType, x: Tensor, where: str, what: str) -> Tensor:
    """One number for all features, or one for each: broadcasts along the last axis."""
    if len(values) != 1:
        size: Dim = x.shape[-1] if x.shape else 1
        t.assume_equal(size, len(values), where, f"The length of {what} is not that of a row")
    return numbers(values, dtype)


@op("Scaler", 1, domain=ML)
def scaler(x: Tensor, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Tensor:
    """(x - offset) * scale."""
    y = real(x)
    if offset:
        y = y - _per_feature(offset, y.dtype, x, "Scaler", "offset")
    if scale:
        y = y * _per_feature(scale, y.dtype, x, "Scaler", "scale")
    return t.broadcast_to(y, x.shape).cast(dtypes.FLOAT)


@op("Normalizer", 1, domain=ML)
def normalizer(x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Rows divided by their maximum, by the sum of absolute values, or by their length.

    Where the divisor is 0 rows stay. The maximum is that of the values, not of their sizes, as the
    standard's formula X / max(X) says.
    """
    y = real(x)
    axis = 0 if x.rank == 1 else 1
    if norm == "MAX":
        divisor = y.max(axis, keepdims=True)
    elif norm == "L1":
        divisor = t.absolute(y).sum(axis, keepdims=True)
    elif norm == "L2":
        divisor = t.sqrt((y * y).sum(axis, keepdims=True))
    else:
        raise InvalidGraph(
            message("Normalizer", "There is no such norm", expected="MAX, L1 or L2", got=norm)
        )
    return t.where(t.equal(divisor, 0), y, y / divisor).cast(dtypes.FLOAT)


@op("Binarizer", 1, domain=ML)
def binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    """1 where above the threshold, else 0, in the input's type."""
    return (real(x) > threshold).cast(x.dtype)


@op("Imputer", 1, domain=ML)
def imputer(
    x: Tensor,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Tensor:
    """One value, such as NaN, replaced by another one, which may differ from feature to feature."""
    values: Sequence[Any] = imputed_value_floats if x.dtype.is_float else imputed_value_int64s
    replaced = replaced_value_float if x.dtype.is_float else replaced_value_int64
    if not values:
        name = "imputed_value_floats" if x.dtype.is_float else "imputed_value_int64s"
        raise InvalidGraph(message("Imputer", f"{name} is missing for an input of {x.dtype}"))
    fill = _per_feature(values, x.dtype, x, "Imputer", "the imputed values")
    found = t.not_equal(x, x) if replaced != replaced else t.equal(x, _rounded(replaced, x.dtype))
    return t.where(found, t.broadcast_to(fill, x.shape), x)


def _rounded(value: float, dtype: DType) -> float:
    return float(dtype.numpy.type(value)) if dtype.is_float else value


@op("ArrayFeatureExtractor", 1, domain=ML, flags=_STRINGS)
def array_feature_extractor(x: Tensor, positions: Tensor) -> Tensor:
    """Elements of the last axis at these positions; a vector gives a matrix of one row."""
    if not x.shape:
        raise InvalidGraph(message("ArrayFeatureExtractor", "The input has no axes"))
    flat = positions.reshape(sizes.product(positions.shape))
    extent = x.shape[-1]
    shape = (*x.shape[:-1], flat.shape[0]) if x.rank > 1 else (1, flat.shape[0])

    def body(*at: Dim) -> Scalar:
        chosen = row_in(scalar.load(flat, (at[-1],)), "Y", extent)
        return scalar.load(x, (*at[: x.rank - 1], chosen))

    return t.compute(shape, body)


@op("FeatureVectorizer", 1, domain=ML)
def feature_vectorizer(*parts: Tensor, inputdimensions: Sequence[int] = ()) -> Tensor:
    """Features of all inputs side by side as floats; each has the length that is asked for."""
    if not parts or (inputdimensions and len(inputdimensions) != len(parts)):
        raise InvalidGraph(
            message("FeatureVectorizer", "inputdimensions must have an entry for each input",
                    expected=str(max(1, len(parts))), got=str(len(inputdimensions)))
        )  # fmt: skip
    found = []
    for number, part in enumerate(parts):
        x = part.reshape(1, part.shape[0]) if part.rank == 1 else part
        if x.rank != 2:
            what = f"Input {number} must have one axis or two"
            raise InvalidGraph(message("FeatureVectorizer", what, got=str(list(x.shape))))
        if inputdimensions:
            x = _of_width(x, inputdimensions[number])
        found.append(x.cast(dtypes.FLOAT))
    return t.concat(found, 1)


def _of_width(x: Tensor, width: int) -> Tensor:
    if width < 0:
        raise InvalidGraph(message("FeatureVectorizer", f"{width} is no number of features"))
    if x.shape[1] == width:
        return x
    return t.slice_axis(t.pad(x, [0, 0], [0, width]), 1, 0, width)


# -- encoders -----------------------------------------------------------------------------------


@op("OneHotEncoder", 1, domain=ML, flags=_STRINGS)
def one_hot_encoder(
    x: Tensor,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    zeros: int = 1,
) -> Tensor:
    """A new last axis with 1 at the category's position; unknown ones give 0, or an error."""
    if bool(cats_int64s) == bool(cats_strings):
        what = "Either cats_int64s or cats_strings must hold the categories"
        raise InvalidGraph(message("OneHotEncoder", what))
    if cats_strings or x.dtype is dtypes.STRING:
        if x.dtype is not dtypes.STRING or not cats_strings:
            raise InvalidGraph(message("OneHotEncoder", f"The categories do not fit {x.dtype}"))
        keys = _strings(cats_strings)
    else:
        x, keys = x.cast(dtypes.INT64), np.asarray(cats_int64s, np.int64)
    count = len(keys)
    if zeros:
        categories = _constant(keys)
        return t.compute(
            (*x.shape, count),
            lambda *at: scalar.compare(
                "eq", scalar.load(x, at[:-1]), scalar.load(categories, (at[-1],))
            ),
            dtypes.FLOAT,
        )
    place = positions_of_keys(x, keys)

    def body(*at: Dim) -> Scalar:
        found = scalar.load(place, at[:-1])
        missing = found < 0
        checked = scalar.check_index(scalar.select(missing, scalar.size(count), found), count)
        return scalar.compare("eq", checked, scalar.size(at[-1]))

    return t.compute((*x.shape, count), body, dtypes.FLOAT)


def _strings(values: Sequence[str]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _constant(array: Array) -> Tensor:
    return constant_tensor(
        Constant.from_array(array, dtypes.STRING if array.dtype == object else None)
    )


def positions_of_keys(x: Tensor, keys: Array) -> Tensor:
    """Where each element of `x` stands among keys; -1 where it does not.

    Of equal keys the last one counts. NaN is equal to NaN.

    Args:
        x: Integers, floats or strings, as the keys are.
        keys: The keys, along one axis.
    """
    if x.dtype is dtypes.STRING:
        # Only a plan knows the codes of strings: they are sorted before the first run.
        last_places = {key: place for place, key in enumerate(keys.tolist())}
        texts = _constant(_strings(list(last_places)))
        of_texts = numbers(list(last_places.values()), dtypes.INT64)
        if not last_places:
            return _found(x, texts, of_texts)
        table, ranks = top_k(texts, len(last_places), 0, largest=0)
        return _found(x, table, pick_labels(of_texts, ranks))
    wide = np.dtype(np.float64 if keys.dtype.kind == "f" else np.int64)
    order = np.argsort(keys, kind="stable")  # NaN comes last
    ordered = keys[order].astype(wide)
    following = ordered[1:]
    same = (ordered[:-1] == following) | ((ordered[:-1] != ordered[:-1]) & (following != following))
    last = np.append(~same, True)[: len(ordered)]
    asked = x.cast(dtypes.DOUBLE if wide.kind == "f" else dtypes.INT64)
    return _found(asked, _constant(ordered[last]), _constant(order[last].astype(np.int64)))


def _found(x: Tensor, table: Tensor, place: Tensor) -> Tensor:
    flat = x.reshape(sizes.product(x.shape))
    (found,) = make_call("find_key", (flat, table, place), ((flat.shape, dtypes.INT64),))
    return found.reshape(*x.shape)


def _default(array: Array) -> Any:
    if array.dtype == object:
        return "_Unused"
    return -0.0 if array.dtype.kind == "f" else -1


@op("LabelEncoder", 1, domain=ML, flags=_STRINGS)
def label_encoder_1(
    x: Tensor,
    *,
    classes_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Tensor:
    """Strings to their positions in a list, or positions to strings."""
    names = _strings(classes_strings)
    numbers_of = np.arange(len(names), dtype=np.int64)
    if x.dtype is dtypes.STRING:
        return _encoded(x, names, numbers_of, default_int64)
    return _encoded(x, numbers_of, names, default_string)


@op("CategoryMapper", 1, domain=ML, flags=_STRINGS)
def category_mapper(
    x: Tensor,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Tensor:
    """Strings to integers, or integers to strings, by two lists of equal length."""
    names, places = _strings(cats_strings), np.asarray(cats_int64s, np.int64)
    if x.dtype is dtypes.STRING:
        return _encoded(x, names, places, default_int64)
    return _encoded(x, places, names, default_string)


@op("LabelEncoder", 2, domain=ML, flags=_STRINGS)
def label_encoder_2(
    x: Tensor,
    *,
    keys_int64s: Sequence[int] = (),
    keys_floats: Sequence[float] = (),
    keys_strings: Sequence[str] = (),
    values_int64s: Sequence[int] = (),
    values_floats: Sequence[float] = (),
    values_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_float: float = -0.0,
    default_string: str = "_Unused",
) -> Tensor:
    """Each element replaced by the value that belongs to it as a key, or by a default."""
    keys = _one_of("keys", keys_int64s, keys_floats, keys_strings, None)
    values = _one_of("values", values_int64s, values_floats, values_strings, None)
    defaults = {"i": default_int64, "f": default_float, "O": default_string}
    return _encoded(x, keys, values, defaults[values.dtype.kind])


@op("LabelEncoder", 4, domain=ML, flags=_STRINGS)
def label_encoder_4(
    x: Tensor,
    *,
    keys_int64s: Sequence[int] = (),
    keys_floats: Sequence[float] = (),
    keys_strings: Sequence[str] = (),
    keys_tensor: Constant | None = None,
    values_int64s: Sequence[int] = (),
    values_floats: Sequence[float] = (),
    values_strings: Sequence[str] = (),
    values_tensor: Constant | None = None,
    default_int64: int = -1,
    default_float: float = -0.0,
    default_string: str = "_Unused",
    default_tensor: Constant | None = None,
) -> Tensor:
    """As before; keys, values and the default may be tensors."""
    keys = _one_of("keys", keys_int64s, keys_floats, keys_strings, keys_tensor)
    values = _one_of("values", values_int64s, values_floats, values_strings, values_tensor)
    default: Any
    if values_tensor is None:
        default = {"i": default_int64, "f": default_float, "O": default_string}[values.dtype.kind]
    elif default_tensor is None:
        default = _default(values)
    else:
        given = default_tensor.array()
        if given.size != 1 or given.dtype != values.dtype:
            what = "default_tensor must hold one element of the values' type"
            raise InvalidGraph(
                message("LabelEncoder", what, expected=str(values.dtype), got=repr(default_tensor))
            )
        default = given.reshape(-1)[0]
    return _encoded(x, keys, values, default)


def _one_of(
    name: str,
    integers: Sequence[int],
    floats: Sequence[float],
    strings: Sequence[str],
    tensor: Constant | None,
) -> Array:
    found: list[Array] = []
    if integers:
        found.append(np.asarray(integers, np.int64))
    if floats:
        found.append(np.asarray(floats, np.float32))
    if strings:
        found.append(_strings(strings))
    if tensor is not None:
        found.append(tensor.array().reshape(-1))
    if len(found) != 1:
        what = f"Exactly one of the attributes {name}_* must be given"
        raise InvalidGraph(message("LabelEncoder", what, got=str(len(found))))
    return found[0]


def _encoded(x: Tensor, keys: Array, values: Array, default: Any) -> Tensor:
    if len(keys) != len(values):
        raise InvalidGraph(
            message("keys", "There must be a value for each key",
                    expected=f"{len(keys)} values", got=str(len(values)))
        )  # fmt: skip
    key_type = dtypes.STRING if keys.dtype == object else dtypes.from_numpy(keys.dtype)
    if key_type is not x.dtype:
        raise InvalidGraph(
            message("keys", "The keys are not of the input's type",
                    expected=str(x.dtype), got=str(key_type))
        )  # fmt: skip
    place = positions_of_keys(x, keys)
    count = len(values)
    # The default stands behind the values.
    every = np.empty(count + 1, values.dtype)
    every[:count], every[count] = values, default
    table = _constant(every)

    def body(*at: Dim) -> Scalar:
        found = scalar.load(place, at)
        missing = found < 0
        chosen = scalar.select(missing, scalar.size(count), found)
        return scalar.load(table, (scalar.as_index(chosen, count + 1),))

    return t.compute(x.shape, body, table.dtype)
