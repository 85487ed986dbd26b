"""Models and features of ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operator_fuzz.draw import STRING, Array, Draw, is_float
from tests.operator_fuzz.instance import Instance, Still, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.oracle import Use, reference

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
F32 = np.dtype(np.float32)


def _table(draw: Draw, dtype: Any, columns: int | None = None) -> tuple[Still, int]:
    """Rows of features."""
    columns = draw.integer(1, 5) if columns is None else columns
    return Still(draw.values([draw.size(1, 5), columns], dtype)), columns


def _numbers(draw: Draw, count: int, low: float = -2, high: float = 2) -> list[float]:
    return [draw.number(low, high) for _ in range(count)]


@makes("Binarizer", domain=ML, exact=True)
def binarized(draw: Draw) -> Instance:
    return Instance(
        [_table(draw, draw.type_of("T"))[0]], {"threshold": draw.maybe(draw.number(-1, 1))}
    )


@reference("Binarizer", domain=ML)
def binarize(use: Use, x: Array) -> Array:
    return (x > use.attributes["threshold"]).astype(x.dtype)


@makes("Scaler", domain=ML)
def scaled(draw: Draw) -> Instance:
    x, columns = _table(draw, draw.type_of("T"))
    count = draw.pick([1, columns])
    return Instance([x], {"offset": _numbers(draw, count), "scale": _numbers(draw, count)})


@reference("Scaler", domain=ML)
def scale(use: Use, x: Array) -> Array:
    return (x.astype(np.float64) - use.attributes["offset"]) * use.attributes["scale"]


@makes("Normalizer", domain=ML, factor=16)
def normalised(draw: Draw) -> Instance:
    x, _ = _table(draw, draw.type_of("T"))
    array = np.abs(x.array) + np.ones((), x.array.dtype)
    return Instance(
        [Still(array.astype(x.array.dtype))], {"norm": draw.maybe(draw.pick(["MAX", "L1", "L2"]))}
    )


@reference("Normalizer", domain=ML)
def normalise(use: Use, x: Array) -> Array:
    x = x.astype(np.float64)
    norms = {"MAX": np.max(x, 1), "L1": np.sum(np.abs(x), 1), "L2": np.sqrt(np.sum(x * x, 1))}
    return x / norms[use.attributes["norm"]][:, None]


@makes("Imputer", domain=ML, exact=True)
def imputed(draw: Draw) -> Instance:
    dtype = draw.type_of("T")
    x, columns = _table(draw, dtype)
    count = draw.pick([1, columns])
    if is_float(dtype):
        missing = draw.pick([float("nan"), 1.0])
        array = x.array.copy()
        array[draw.contents.random(array.shape) < 0.3] = missing
        return Instance(
            [Still(array)],
            {"imputed_value_floats": _numbers(draw, count), "replaced_value_float": missing},
        )
    values = [draw.integer(-9, 9) for _ in range(count)]
    return Instance([x], {"imputed_value_int64s": values, "replaced_value_int64": 1})


@reference("Imputer", domain=ML)
def impute(use: Use, x: Array) -> Array:
    if is_float(x.dtype):
        missing, values = (
            use.attributes["replaced_value_float"],
            use.attributes["imputed_value_floats"],
        )
        return np.where(np.isnan(x) if np.isnan(missing) else x == missing, np.array(values), x)
    values = np.array(use.attributes["imputed_value_int64s"], x.dtype)
    return np.where(x == use.attributes["replaced_value_int64"], values, x)


@makes("FeatureVectorizer", domain=ML, exact=True)
def joined(draw: Draw) -> Instance:
    rows = draw.size(1, 4)
    widths = [draw.integer(1, 3) for _ in range(draw.integer(1, 3))]
    dtype = draw.type_of("T1")
    return Instance(
        [Still(draw.values([rows, w], dtype)) for w in widths], {"inputdimensions": widths}
    )


@reference("FeatureVectorizer", domain=ML)
def join(use: Use, *arrays: Array) -> Array:
    return np.concatenate([a.astype(np.float64) for a in arrays], 1)


@makes("ArrayFeatureExtractor", domain=ML, exact=True)
def extracted(draw: Draw) -> Instance:
    x, columns = _table(draw, draw.type_of("T"))
    places = draw.contents.integers(0, columns, draw.integer(1, 4)).astype(INT64)
    return Instance([x, places])


@reference("ArrayFeatureExtractor", domain=ML)
def extract(use: Use, x: Array, places: Array) -> Array:
    return np.take(x, places.reshape(-1), -1)


_POST = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


@makes("LinearRegressor", domain=ML, factor=16, absolute=8)
def regressed(draw: Draw) -> Instance:
    x, columns = _table(draw, draw.type_of("T"))
    targets = draw.integer(1, 3)
    attributes = {
        "coefficients": _numbers(draw, targets * columns),
        "targets": targets,
        "intercepts": draw.maybe(_numbers(draw, targets)),
    }
    return Instance([x], attributes)


@reference("LinearRegressor", domain=ML)
def regress(use: Use, x: Array) -> Array:
    g = use.attributes
    weights = np.array(g["coefficients"], np.float64).reshape(g["targets"], -1)
    return x.astype(np.float64) @ weights.T + np.array(g.get("intercepts", 0.0))


def _labels(draw: Draw, count: int, ints: str = "classlabels_ints") -> tuple[dict[str, Any], Any]:
    if draw.chance(0.5):
        return {ints: [3 * k + 1 for k in range(count)]}, INT64
    return {"classlabels_strings": [f"c{k}" for k in range(count)]}, STRING


@makes("LinearClassifier", domain=ML, factor=16, absolute=8)
def classified(draw: Draw) -> Instance:
    x, columns = _table(draw, draw.type_of("T1"))
    classes = draw.integer(2, 4)
    labels, kind = _labels(draw, classes)
    # Halves, thirds and so on keep the scores of two classes apart.
    weights = [draw.number(-2, 2) + k / 3 for k in range(classes) for _ in range(columns)]
    attributes = {
        **labels,
        "coefficients": weights,
        "intercepts": [0.1 * k for k in range(classes)],
        "post_transform": draw.maybe(draw.pick(_POST[:3])),
    }
    return Instance([x], attributes, [kind, F32])


@reference("LinearClassifier", domain=ML)
def classify(use: Use, x: Array) -> Any:
    g = use.attributes
    strings = [n.decode() for n in g.get("classlabels_strings", ())]
    labels = np.array(strings, object) if strings else np.array(g["classlabels_ints"], np.int64)
    scores = x.astype(np.float64) @ np.array(g["coefficients"]).reshape(len(labels), -1).T
    scores = scores + np.array(g["intercepts"])
    return labels[np.argmax(scores, 1)], _posted(scores, g["post_transform"])


def _posted(scores: Array, kind: str) -> Array:
    if kind == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    if kind == "SOFTMAX":
        e = np.exp(scores - scores.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)
    return scores


def _kernel(draw: Draw) -> dict[str, Any]:
    kind = draw.pick(["LINEAR", "POLY", "RBF", "SIGMOID"])
    return {"kernel_type": kind, "kernel_params": [0.25, 0.5, 2.0]}


@makes("SVMRegressor", domain=ML, factor=24, absolute=16)
def supported(draw: Draw) -> Instance:
    x, columns = _table(draw, draw.type_of("T"))
    count = draw.integer(1, 4)
    attributes = {
        **_kernel(draw),
        "coefficients": _numbers(draw, count),
        "n_supports": count,
        "support_vectors": _numbers(draw, count * columns, -1, 1),
        "rho": [0.5],
    }
    return Instance([x], attributes)


def _kernels(g: Any, x: Array, vectors: Array) -> Array:
    gamma, coef0, degree = g["kernel_params"]
    products = x @ vectors.T
    if g["kernel_type"] == "POLY":
        return (gamma * products + coef0) ** degree
    if g["kernel_type"] == "SIGMOID":
        return np.tanh(gamma * products + coef0)
    if g["kernel_type"] == "RBF":
        return np.exp(-gamma * np.square(x[:, None] - vectors[None]).sum(2))
    return products


@reference("SVMRegressor", domain=ML)
def support(use: Use, x: Array) -> Array:
    g = use.attributes
    vectors = np.array(g["support_vectors"]).reshape(g["n_supports"], -1)
    found = _kernels(g, x.astype(np.float64), vectors) @ np.array(g["coefficients"]) + g["rho"][0]
    return found[:, None]


@makes("ZipMap", domain=ML, exact=True, own=True)
def zipped(draw: Draw) -> Instance:
    classes = draw.integer(1, 4)
    labels = (
        {"classlabels_int64s": [3 * k for k in range(classes)]}
        if draw.chance(0.5)
        else {"classlabels_strings": [f"c{k}" for k in range(classes)]}
    )
    return Instance([_table(draw, F32, classes)[0]], labels, ["object"])


@reference("ZipMap", domain=ML)
def zip_map(use: Use, x: Array) -> Any:
    names = use.attributes.get("classlabels_int64s") or [
        n.decode() for n in use.attributes["classlabels_strings"]
    ]
    return ([dict(zip(names, map(float, row), strict=True)) for row in x],)
