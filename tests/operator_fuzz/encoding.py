"""Operators of ai.onnx.ml that look values up."""

from __future__ import annotations

import numpy as np

from tests.operator_fuzz.draw import STRING, Array, Draw
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.oracle import Use, reference

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
F32 = np.dtype(np.float32)


@makes("OneHotEncoder", domain=ML, exact=True)
def encoded(draw: Draw) -> Instance:
    dtype = draw.type_of("T")
    shape = [draw.size(1, 5)] if draw.chance(0.5) else [draw.size(1, 3), draw.size(1, 3)]
    if dtype == STRING:
        x = draw.contents.choice(np.array(["a", "b", "c"], object), size=tuple(shape)).astype(
            object
        )
        return Instance([x], {"cats_strings": ["a", "b", "c", "d"], "zeros": draw.maybe(1)})
    x = draw.contents.integers(0, 4, tuple(shape)).astype(dtype)
    return Instance([x], {"cats_int64s": [0, 1, 2, 3], "zeros": draw.maybe(1)})


@reference("OneHotEncoder", domain=ML)
def one_hot(use: Use, x: Array) -> Array:
    names = [n.decode() for n in use.attributes.get("cats_strings", ())]
    cats = np.array(names, object) if x.dtype == STRING else np.array(use.attributes["cats_int64s"])
    return (x[..., None] == cats).astype(np.float64)


@makes("LabelEncoder", domain=ML, exact=True, own=True)
def labelled(draw: Draw) -> Instance:
    texts, numbers, reals = ["a", "b", "hello world"], [1, 2, -3], [0.5, 1.0, -2.0]
    shape = draw.shape(1, 3)
    if draw.version == 1:
        if draw.chance(0.5):
            x = draw.values(shape, STRING)
            return Instance(
                [x], {"classes_strings": texts, "default_int64": draw.maybe(7)}, [INT64]
            )
        x = draw.values(shape, INT64)
        return Instance(
            [x], {"classes_strings": texts, "default_string": draw.maybe("none")}, [STRING]
        )
    kinds = {
        "strings": (texts, STRING, "default_string", "none"),
        "int64s": (numbers, INT64, "default_int64", 9),
        "floats": (reals, F32, "default_float", 2.5),
    }
    source, target = draw.pick([*kinds]), draw.pick([*kinds])
    name, default = kinds[target][2:]
    attributes = {
        f"keys_{source}": kinds[source][0],
        f"values_{target}": kinds[target][0],
        name: draw.maybe(default),
    }
    return Instance([draw.values(shape, kinds[source][1])], attributes, [kinds[target][1]])


@reference("LabelEncoder CategoryMapper", domain=ML)
def label(use: Use, x: Array) -> Array:
    g = {
        k: [i.decode() if isinstance(i, bytes) else i for i in v] if isinstance(v, list) else v
        for k, v in use.attributes.items()
    }
    to = use.types[0]
    default = {"object": "default_string", "int64": "default_int64"}.get(to.name, "default_float")
    if "classes_strings" in g:
        pairs = list(enumerate(g["classes_strings"]))
        table = dict(pairs) if x.dtype == INT64 else {b: a for a, b in pairs}
    elif "cats_strings" in g:
        pairs = list(zip(g["cats_int64s"], g["cats_strings"], strict=True))
        table = dict(pairs) if x.dtype == INT64 else {b: a for a, b in pairs}
    else:
        keys, values = (
            next(v for k, v in g.items() if k.startswith(n)) for n in ("keys_", "values_")
        )
        table = dict(zip(keys, values, strict=True))
    found = [table.get(v.item() if hasattr(v, "item") else v, g[default]) for v in x.reshape(-1)]
    return np.array(found, to).reshape(x.shape)


@makes("CategoryMapper", domain=ML, exact=True, own=True)
def mapped(draw: Draw) -> Instance:
    attributes = {
        "cats_strings": ["a", "b", "ab"],
        "cats_int64s": [1, 2, -3],
        "default_int64": draw.maybe(7),
        "default_string": draw.maybe("none"),
    }
    source, to = draw.pick([(STRING, INT64), (INT64, STRING)])
    return Instance([draw.values(draw.shape(1, 3), source)], attributes, [to])
