"""Preparing features: operators of ai.onnx.ml against NumPy, by the standard's formulas."""

import numpy as np
import pytest
from onnx import numpy_helper

from sardonyx.base.errors import InvalidGraph
from tests.support.ml import assert_same, run_ml

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 4)).astype(np.float32)
X[1] = 0
WHOLE = RNG.integers(-5, 6, (5, 4))
TYPES = [np.float32, np.float64, np.int64, np.int32]
OFFSET, SCALE = [0.5, -1.0, 2.0, 0.25], [2.0, 0.5, 1.0, -3.0]


def values(dtype):
    return X.astype(dtype) if np.dtype(dtype).kind == "f" else WHOLE.astype(dtype)


def f32(values):
    return np.asarray(values).astype(np.float32)


@pytest.mark.parametrize("dtype", TYPES)
def test_scaler(dtype):
    x = values(dtype)
    each = run_ml("Scaler", [x], offset=OFFSET, scale=SCALE)[0]
    assert_same(each, f32((x - np.array(OFFSET)) * np.array(SCALE)))
    assert_same(run_ml("Scaler", [x], offset=[0.5], scale=[2.0])[0], f32((x - 0.5) * 2))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("norm", "divisor"),
    [
        ("MAX", lambda x: x.max(1, keepdims=True)),
        ("L1", lambda x: np.abs(x).sum(1, keepdims=True)),
        ("L2", lambda x: np.sqrt((x.astype(np.float64) ** 2).sum(1, keepdims=True))),
    ],
)
def test_normalizer(dtype, norm, divisor):
    x = values(dtype)
    by = divisor(x).astype(np.float64)
    want = np.where(by == 0, x, x / np.where(by == 0, 1, by))
    assert_same(run_ml("Normalizer", [x], norm=norm)[0], f32(want))


@pytest.mark.parametrize("dtype", TYPES)
def test_binarizer(dtype):
    x = values(dtype)
    assert_same(run_ml("Binarizer", [x], threshold=0.5)[0], (x > 0.5).astype(dtype))


IMPUTED = [
    (np.float32, np.nan, [1.5]),
    (np.float32, np.nan, [1.0, 2.0, 3.0, 4.0]),
    (np.float64, -1.0, [7.0]),
    (np.float32, 0.1, [7.0]),
    (np.int64, 3, [7, 8, 9, 10]),
]


@pytest.mark.parametrize(("dtype", "replaced", "fill"), IMPUTED)
def test_imputer(dtype, replaced, fill):
    x = values(dtype).copy()
    x[0, 1] = x[3, 3] = x[2, 0] = replaced
    found = np.isnan(x) if replaced != replaced else x == np.dtype(dtype).type(replaced)
    names = ("float", "floats") if x.dtype.kind == "f" else ("int64", "int64s")
    attributes = {f"replaced_value_{names[0]}": replaced, f"imputed_value_{names[1]}": fill}
    want = np.where(found, np.broadcast_to(np.array(fill, dtype), x.shape), x)
    assert_same(run_ml("Imputer", [x], **attributes)[0], want)


@pytest.mark.parametrize("x", [X, X[0], WHOLE, X[:, :, None].repeat(4, 2)])
def test_array_feature_extractor(x):
    at = np.array([[2, 0, 2]])
    want = x[..., at[0]]
    want = want[None] if x.ndim == 1 else want
    assert_same(run_ml("ArrayFeatureExtractor", [x, at])[0], want)


def test_feature_vectorizer():
    for dtype in (np.float32, np.int32, np.float64):
        parts = [x.astype(dtype) for x in (WHOLE, 2 * WHOLE, WHOLE[:, :1])]
        got = run_ml("FeatureVectorizer", parts, inputdimensions=[3, 4, 2])[0]
        zeros = np.zeros((5, 1))
        assert_same(got, f32(np.concatenate([WHOLE[:, :3], 2 * WHOLE, WHOLE[:, :1], zeros], 1)))
    assert_same(run_ml("FeatureVectorizer", [X[0]], inputdimensions=[4])[0], X[:1])
    # "An ordered collection of tensors, all with the same element type."
    with pytest.raises(Exception, match="Expected float, got int32"):
        run_ml("FeatureVectorizer", [X, WHOLE.astype(np.int32)], inputdimensions=[3, 4])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_one_hot_encoder(dtype, shape):
    x = np.array([1, 3, 5, 3, 7, 1]).reshape(shape).astype(dtype)
    want = f32(x[..., None] == np.array([3, 1, 5]))
    assert_same(run_ml("OneHotEncoder", [x], cats_int64s=[3, 1, 5])[0], want)


def test_one_hot_encoder_of_unknown_categories():
    known = np.array([3, 5, 3])
    got = run_ml("OneHotEncoder", [known], cats_int64s=[3, 5], zeros=0)[0]
    assert_same(got, f32([[1, 0], [0, 1], [1, 0]]))
    with pytest.raises(Exception, match="[Ii]ndex"):
        run_ml("OneHotEncoder", [np.array([3, 4])], cats_int64s=[3, 5], zeros=0)


KEYS = [7, -2, 40, 7, 1 << 40]
ENCODED = [
    (2, {"keys_int64s": KEYS, "values_int64s": [1, 2, 3, 4, 5]}, np.int64, np.int64, -1),
    (2, {"keys_int64s": KEYS, "values_floats": [1.5, 2, 3, 4, 5], "default_float": 9.0},
     np.int64, np.float32, 9.0),
    (2, {"keys_floats": [7.0, -2.0, 0.5, np.nan, 0.0], "values_int64s": [1, 2, 3, 4, 5]},
     np.float32, np.int64, -1),
    (4, {"keys_tensor": np.array(KEYS[:4], np.int16), "values_tensor": np.array([1, 2, 3, 4.5]),
         "default_tensor": np.array([8.0])}, np.int16, np.float64, 8.0),
    (4, {"keys_tensor": np.array([7.0, -2.0]), "values_tensor": np.array([1, 2], np.int32)},
     np.float64, np.int32, -1),
]  # fmt: skip


@pytest.mark.parametrize(("version", "attributes", "key_type", "value_type", "default"), ENCODED)
def test_label_encoder(version, attributes, key_type, value_type, default):
    keys = next(v for k, v in attributes.items() if k.startswith("keys"))
    values = next(v for k, v in attributes.items() if k.startswith("values"))
    x = np.array([[7, 40], [-2, 3], [0, -99]]).astype(key_type)
    if x.dtype.kind == "f":
        x[2] = [np.nan, -0.0]
    else:
        x[2, 1] = keys[-1]
    known = {
        ("nan" if k != k else k): v for k, v in zip(np.asarray(keys, key_type), values, strict=True)
    }
    want = [known.get("nan" if e != e else e, default) for e in x.reshape(-1)]
    tensors = {
        k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
        for k, v in attributes.items()
    }
    got = run_ml("LabelEncoder", [x], version, **tensors)[0]
    assert_same(got, np.array(want, value_type).reshape(x.shape))


TEXTS = np.array([["cat", "dog"], ["", "owl"], ["dog", "ox"]], object)
NUMBERS = np.array([[3, 5], [-1, 9], [5, 4]])
TEXT_KEYS = {"keys_strings": ["dog", "cat", "dog", ""]}
TEXT_CASES = [
    ("LabelEncoder", 1, TEXTS, {"classes_strings": ["owl", "dog"]},
     [[-1, 1], [-1, 0], [1, -1]]),
    ("LabelEncoder", 1, np.array([1, 0, 7]), {"classes_strings": ["owl", "dog"]},
     ["dog", "owl", "_Unused"]),
    ("LabelEncoder", 2, TEXTS, {**TEXT_KEYS, "values_int64s": [1, 2, 3, 4], "default_int64": 7},
     [[2, 3], [4, 7], [3, 7]]),
    ("LabelEncoder", 4, TEXTS, {**TEXT_KEYS, "values_strings": ["a", "b", "c", "d"]},
     [["b", "c"], ["d", "_Unused"], ["c", "_Unused"]]),
    ("LabelEncoder", 2, NUMBERS, {"keys_int64s": [9, 5], "values_strings": ["x", "y"],
                                  "default_string": "?"}, [["?", "y"], ["?", "x"], ["y", "?"]]),
    ("CategoryMapper", 1, TEXTS, {"cats_strings": ["dog", "ox"], "cats_int64s": [5, 6]},
     [[-1, 5], [-1, -1], [5, 6]]),
    ("CategoryMapper", 1, NUMBERS, {"cats_strings": ["dog", "ox"], "cats_int64s": [5, 9]},
     [["_Unused", "dog"], ["_Unused", "ox"], ["dog", "_Unused"]]),
    ("ArrayFeatureExtractor", 1, TEXTS, None, [["dog"], ["owl"], ["ox"]]),
    ("OneHotEncoder", 1, TEXTS[:, 0], {"cats_strings": ["", "dog"]}, [[0, 0], [1, 0], [0, 1]]),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "version", "x", "attributes", "want"), TEXT_CASES)
def test_strings(op_type, version, x, attributes, want):
    inputs = [x] if attributes is not None else [x, np.array([1])]
    got = run_ml(op_type, inputs, version, **(attributes or {}))[0]
    assert got.tolist() == want


BAD = [
    ("Scaler", {"offset": [1.0, 2.0]}, "length of offset"),
    ("Normalizer", {"norm": "L3"}, "MAX, L1 or L2"),
    ("Imputer", {"imputed_value_int64s": [1]}, "imputed_value_floats is missing"),
    ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "length of the imputed values"),
    ("FeatureVectorizer", {"inputdimensions": [1, 2]}, "an entry for each input"),
    ("FeatureVectorizer", {"inputdimensions": [-1]}, "no number of features"),
    ("OneHotEncoder", {}, "Either cats_int64s or cats_strings"),
    ("LabelEncoder", {"keys_int64s": [1], "values_int64s": [1]}, "not of the input's type"),
    ("LabelEncoder", {"keys_floats": [1.0], "values_int64s": [1, 2]}, "a value for each key"),
    ("LabelEncoder", {"values_int64s": [1, 2]}, "Exactly one of the attributes keys"),
]


@pytest.mark.parametrize(("op_type", "attributes", "text"), BAD)
def test_errors(op_type, attributes, text):
    with pytest.raises(InvalidGraph, match=text) as error:
        run_ml(op_type, [X], 2, **attributes)
    assert "node it" in str(error.value)
