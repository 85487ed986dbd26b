import numpy as np
import pytest

from sardonyx.base import dtypes, sizes
from sardonyx.llvm.ptx import ptx_target
from sardonyx.llvm.ptx_device import ptx_tiling
from sardonyx.plan.reasons import Reason
from sardonyx.selection.general_copy import general_copy
from sardonyx.tensor import scalar
from sardonyx.tensor.tensor import buffer, indices, make_map, make_reduce, reduced_indices
from tests.support.session import check, model_of
from tests.support.targets import TARGETS, compiled_for

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

RANDOM = np.random.default_rng(0)


def codes(*shape):
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def weights(*shape):
    """Small whole numbers: sums are exact in any order."""
    return RANDOM.integers(-1, 2, shape).astype(np.float32)


# Widths of whole panels, so that only extents and strides differ, then with a part of a panel;
# depthwise filters of many sizes.
MODELS = {
    "products": (
        "g (float[N, 20] x) => (float[N, 320] y) "
        "{ a = MatMul(x, u) b = MatMul(a, v) y = MatMul(b, w) }",
        {"u": weights(20, 128), "v": weights(128, 192), "w": weights(192, 320)},
        [{"x": weights(n, 20)} for n in (1, 5)],
        1,
    ),
    "widths": (
        "g (float[N, 20] x) => (float[N, 160] y) "
        "{ a = MatMul(x, u) b = MatMul(a, v) c = MatMul(b, w) y = MatMul(c, z) }",
        {
            "u": weights(20, 96),
            "v": weights(96, 128),
            "w": weights(128, 288),
            "z": weights(288, 160),
        },
        [{"x": weights(n, 20)} for n in (1, 5)],
        1,
    ),
    "part of a panel": (
        "g (float[N, 20] x) => (float[N, 70] y) "
        "{ a = MatMul(x, u) b = MatMul(a, v) y = MatMul(b, w) }",
        {"u": weights(20, 24), "v": weights(24, 50), "w": weights(50, 70)},
        [{"x": weights(n, 20)} for n in (1, 5)],
        2,
    ),
    "turned": (
        "g (float[N, 20] x) => (float[N, 128] y) "
        "{ a = Gemm<transB = 1>(x, u) y = Gemm<transB = 1>(a, w) }",
        {"u": weights(192, 20), "w": weights(128, 192)},
        [{"x": weights(3, 20)}],
        1,
    ),
    "depthwise": (
        "g (float[1, 160, 6, 6] x) => (float[1, 240, 2, 2] y) "
        "{ a = Conv<group = 160>(x, u) b = Conv(a, v) y = Conv<group = 240>(b, w) }",
        {"u": weights(160, 1, 3, 3), "v": weights(240, 160, 1, 1), "w": weights(240, 1, 3, 3)},
        [{"x": weights(1, 160, 6, 6)}],
        1,
    ),
}
# What takes another number of kernels: shorter vectors have narrower panels, of which other parts
# are left.
OTHERS = {
    ("part of a panel", "sse"): 3,
    ("part of a panel", "neon"): 3,
    ("depthwise", "sse"): 2,
}


def copies(model, target):
    compiled = compiled_for(model, TARGETS[target])
    early = {c.kernel for p in compiled.preparations for c in p.plan.calls}
    return {name for name in early if name.startswith("copy")}


@pytest.mark.parametrize("name", MODELS)
def test_layers_share_the_kernel_that_packs(name):
    text, held, feeds, count = MODELS[name]
    model = model_of(text, held)
    check(model, feeds)
    for target in TARGETS:
        assert len(copies(model, target)) == OTHERS.get((name, target), count), target


def contents(*shape, of=lambda x: x):
    source = buffer("source", shape, dtypes.FLOAT)
    return make_map(shape, of(scalar.load(source, indices(shape)))), source


def test_only_copies_of_known_sizes_are_general():
    target = buffer("target", (2, 3), dtypes.FLOAT)
    plain, source = contents(2, 3)
    found = general_copy(plain, target, {source: (3, 1)})
    assert not isinstance(found, Reason)
    assert sorted(found.values.values()) == [2, 2, 3, 3]
    assert found.contents.shape[1] == 3
    changed, source = contents(2, 3, of=lambda x: x + x)
    assert isinstance(general_copy(changed, target, {source: (3, 1)}), Reason)
    symbolic, source = contents(sizes.symbol("N"), 3)
    assert isinstance(general_copy(symbolic, target, {source: (3, 1)}), Reason)
    empty, source = contents(0, 3)
    assert isinstance(general_copy(empty, target, {source: (3, 1)}), Reason)


def test_filters_of_all_sizes_are_transformed_by_one_kernel():
    """Three convolutions by Winograd's filters over other channels, panels of one width."""
    text = (
        "g (float[1, 64, 24, 24] x) => (float[1, 64, 24, 24] y) { "
        "a = Conv<pads = [1, 1, 1, 1]>(x, u) b = Conv<pads = [1, 1, 1, 1]>(a, v) "
        "c = Conv<pads = [1, 1, 1, 1]>(b, w) y = Conv<pads = [1, 1, 1, 1]>(c, t) }"
    )
    held = {
        "u": weights(128, 64, 3, 3) / 32, "v": weights(192, 128, 3, 3) / 32,
        "w": weights(640, 192, 3, 3) / 32, "t": weights(64, 640, 3, 3) / 64,
    }  # fmt: skip
    model = model_of(text, held)
    check(model, [{"x": weights(1, 64, 24, 24)}], tolerance="float: sums that cancel")
    for name, target in TARGETS.items():
        compiled = compiled_for(model, target)
        calls = [c.kernel for p in compiled.preparations for c in p.plan.calls]
        transformed = [call for call in calls if call.startswith("map")]
        assert len(transformed) == 4, name
        # 64 filters are one panel of 16 lanes a vector: that has a form of its own.
        assert len(set(transformed)) == (2 if target.lanes(32) == 16 else 1), name
        # Their largest magnitudes.
        reduced = [call for call in calls if call.startswith("rows")]
        assert len(reduced) == 4, name
        assert len(set(reduced)) == 1, name


def test_codes_of_all_sizes_are_summed_by_one_kernel():
    text = (
        "g (uint8[N, 32] x, uint8[N, 80] t) => (int32[N, 96] y, int32[N, 64] z) "
        "{ y = MatMulInteger(x, u) z = MatMulInteger(t, v) }"
    )
    held = {"u": weights(32, 96).astype(np.int8), "v": weights(80, 64).astype(np.int8)}
    model = model_of(text, held)
    check(model, [{"x": codes(5, 32), "t": codes(5, 80)}])
    for name, target in TARGETS.items():
        compiled = compiled_for(model, target)
        calls = [c.kernel for p in compiled.preparations for c in p.plan.calls]
        summed = [call for call in calls if call.startswith("rows")]
        assert len(summed) == 2, name
        assert len(set(summed)) == 1, name


def test_what_reduces_constants_may_have_any_sizes():
    target, source = (buffer(n, (m,), dtypes.FLOAT) for n, m in (("target", 32), ("source", 9600)))
    (i,), (r, s) = indices((32,)), reduced_indices((100, 3))
    body = scalar.unary("abs", scalar.load(source, (96 * r + 3 * i + s,)))
    largest = make_reduce((32,), (100, 3), "max", body, dtypes.FLOAT)
    assert isinstance(general_copy(largest, target, {source: (1,)}), Reason)
    found = general_copy(largest, target, {source: (1,)}, runs_once=True)
    assert not isinstance(found, Reason)
    # Vectors, elements of the source, and what is reduced; a filter's taps stay a number.
    assert sorted(found.values.values()) == [2, 100, 9600]
    assert found.contents.extents[1] == 3
    assert (found.contents.kind, found.contents.dtype) == ("max", dtypes.FLOAT)


def test_what_runs_once_may_compute_something():
    target = buffer("target", (20, 30), dtypes.FLOAT)
    changed, source = contents(20, 30, of=lambda x: x + x)
    assert isinstance(general_copy(changed, target, {source: (30, 1)}), Reason)
    found = general_copy(changed, target, {source: (30, 1)}, runs_once=True)
    assert not isinstance(found, Reason)
    # Lanes, and what of them is computed, are seen as they are.
    assert found.contents.shape[1] == 30
    assert sorted(found.values.values()) == [20, 20, 30, 30]
    place = scalar.cast(scalar.load(source, (0, 0)), dtypes.INT64)
    looked_up = make_map(
        (20, 30), scalar.load(source, (scalar.as_index(place, 20), indices((20, 30))[1]))
    )
    assert isinstance(general_copy(looked_up, target, {source: (30, 1)}, runs_once=True), Reason)


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_a_device_are_packed_before_any_run(name):
    text, held, _, _ = MODELS[name]
    compiled = compiled_for(model_of(text, held), ptx_target("sm_90", ptx_tiling(132)))
    assert compiled.preparations
    assert not [c.kernel for c in compiled.main.calls if not c.origin]
