"""Casts between all pairs of types: in a run, and of constants while a model is loaded."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.base import dtypes
from tests.support import exact
from tests.support.oracle import Oracle

TYPES = tuple(d for d in dtypes.ALL if d.kind not in "sc")
#: Of types that are converted alike one is enough.
SOURCES = tuple(
    d
    for d in TYPES
    if (d.is_float and d.name not in "float8e5m2 float8e5m2fnuz float6e2m3 float6e3m2".split())
    or d.name in "int64 uint64 int32 uint8 int4 bool".split()
)
VALUES = np.array([-0.0, -1, 2.5, 300, 70000, 1e38, 1e-42])


def numbers(dtype):
    """Numbers of a type, and beyond those of narrower types."""
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.is_integer:
        bits = dtype.bits - (dtype.kind == "i")
        low, high = -(1 << bits) if dtype.kind == "i" else 0, (1 << bits) - 1
        whole = {min(max(int(v), low), high) for v in VALUES}
        return np.array(sorted(whole), object).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        specials = [np.inf, -np.inf, np.nan] if dtype.bits >= 16 else []
        return np.concatenate([VALUES, specials]).astype(dtype.numpy)


@pytest.mark.parametrize("source", SOURCES, ids=repr)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_constants_are_cast_as_a_run_casts(source):
    x = numbers(source)
    weights = [numpy_helper.from_array(x[k : k + 1].reshape(()), f"c{k}") for k in range(x.size)]
    nodes, pairs = [], []
    for target in TYPES:
        for saturate in (1, 0) if target.is_narrow_float and target.bits == 8 else (1,):
            ends = [
                f"{target.name}_{saturate}",
                *(f"{target.name}_{saturate}_{w.name}" for w in weights),
            ]
            pairs.append((source, target, saturate, ends))
            for begin, end in zip(("x", *(w.name for w in weights)), ends, strict=True):
                kind = {"to": target.onnx_id, "saturate": saturate}
                nodes.append(helper.make_node("Cast", [begin], [end], **kind))
    outputs = [end for *_, ends in pairs for end in ends]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", source.onnx_id, ["n"])],
        [onnx.ValueInfoProto(name=end) for end in outputs], weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 28)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=13)
    session = sardonyx.InferenceSession(model.SerializeToString())
    found = dict(zip(outputs, session.run(None, {"x": x}), strict=True))
    oracle = dict(zip(outputs, Oracle(model).run({"x": x}), strict=True))
    for _, target, _, ends in pairs:
        runs = found[ends[0]]
        assert runs.dtype == target.numpy
        folded = np.concatenate([found[end].reshape(1) for end in ends[1:]])
        # Types without NaN have nothing for it: ONNX leaves that open, as floats beyond integers.
        open_ = np.isnan(x.astype(np.float64)) if target.bits < 8 else np.zeros(x.size, bool)
        for other in (folded, oracle[ends[0]]):
            equal = bits_of(runs) == bits_of(other)
            if target.is_float:
                both = [np.isnan(v.astype(np.float64)) for v in (runs, other)]
                equal |= both[0] & both[1]
            assert (equal | open_).all(), (target, x[~equal], runs[~equal], other[~equal])


#: Types that a kernel holds and rounds alike are left out.
NEAR_TIES = tuple(d for d in SOURCES if d.bits >= 32 or d.bits == 16)


def is_open(x, source, target, saturate):
    """Whether the standard leaves a cast open, or others decide what it gives."""
    infinite = isinstance(x, float) and np.isinf(x)
    if target.name.endswith("fnuz") and saturate:
        return infinite
    return target.bits < 8 and source.is_float and (infinite or x != x)


@pytest.mark.parametrize("source", NEAR_TIES, ids=repr)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_cast_rounds_once(source):
    """Near ties, at the ends of the range and of the subnormal numbers: fed, and of weights."""
    nodes, weights, feeds, rows = [], [], {}, []
    for target in (d for d in TYPES if d is not source):
        x = exact.numbers(source, target)
        feeds[f"x_{target}"] = x
        weights.append(numpy_helper.from_array(x, f"w_{target}"))
        for saturate in (1, 0) if target.is_narrow_float and target.bits == 8 else (1,):
            ends = [f"{target}_{saturate}_{k}" for k in "xw"]
            rows.append((target, saturate, x, ends))
            kind = {"to": target.onnx_id, "saturate": saturate}
            nodes += [helper.make_node("Cast", [f"x_{target}"], [ends[0]], **kind),
                      helper.make_node("Cast", [f"w_{target}"], [ends[1]], **kind)]  # fmt: skip
    outputs = [end for *_, ends in rows for end in ends]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, source.onnx_id, [name]) for name in feeds],
        [onnx.ValueInfoProto(name=end) for end in outputs], weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 28)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=13)
    session = sardonyx.InferenceSession(model.SerializeToString())
    found = dict(zip(outputs, session.run(None, feeds), strict=True))
    for target, saturate, x, ends in rows:
        given = exact.of_array(x)
        wants = [exact.cast(n, source, target, bool(saturate)) for n in given]
        for end in ends:
            got = exact.of_array(found[end])
            for n, have, want in zip(given, got, wants, strict=True):
                if not is_open(n, source, target, saturate):
                    assert is_same(have, want), (source, end, n, have, want)


def is_same(have, want):
    if isinstance(want, float) and np.isnan(want):
        return isinstance(have, float) and np.isnan(have)
    if isinstance(want, float) and want == 0:
        return have == 0 and np.signbit(float(have)) == np.signbit(want)
    return have == want


def bits_of(x):
    return x.view(f"u{x.dtype.itemsize}")
