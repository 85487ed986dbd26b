"""Constants are made piece by piece, the same in a file as in memory."""

import io
import tracemalloc
import weakref

import numpy as np
import pytest

from sardonyx.base.errors import OutOfMemory
from sardonyx.compiler import build, preparing
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cpu.provider import CpuProvider
from sardonyx.runtime.budget import Budget
from sardonyx.store import constants
from sardonyx.store.machine_code import Units
from sardonyx.targets.target import host_target
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_CHAIN = "g (float[2, 64] x) => (float[2, 64] y) { %s }"


def _weights(count, size):
    random = np.random.default_rng(0)
    return {f"w{k}": random.standard_normal((size, size)).astype(np.float32) for k in range(count)}


def _chain(count):
    names = ["x", *(f"t{k}" for k in range(1, count)), "y"]
    return " ".join(
        f"{after} = MatMul({before}, w{k})"
        for k, (before, after) in enumerate(zip(names, names[1:], strict=False))
    )


MODELS = {
    "packed": (_CHAIN % _chain(3), _weights(3, 64)),
    "as it is": (
        "g (int64[n] x) => (float[n, 64] y) { y = Gather(w0, x) }",
        _weights(1, 64),
    ),
    "packed and as it is": (
        "g (int64[n] x) => (float[n, 64] y) { a = Gather(w0, x) y = MatMul(a, w0) }",
        _weights(1, 64),
    ),
    "folded in steps": (
        "g (float[64] x) => (float[64] y) { a = Softmax(w0) b = ReduceSum(a, axes) y = Add(x, b) }",
        {**_weights(1, 64), "axes": np.array([0])},
    ),
    "bool": (
        "g (float[3] x) => (float[3] y) { y = Where(c, x, one) }",
        {"c": np.array([True, False, True]), "one": np.float32(1)},
    ),
    "text": (
        "g (int64[n] x) => (string[n] y) { y = Gather(words, x) }",
        {"words": np.array(["a", "", "bc"], object)},
    ),
}


def _built(path):
    return build.build_model(
        path, EngineOptions(), CpuProvider(), {}, Budget(), Units(host_target(), None)
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("limit", [256, 1 << 30])
def test_file_and_memory_are_equal(name, limit, tmp_path, monkeypatch):
    monkeypatch.setattr(preparing, "_BATCH_BYTES", limit)
    monkeypatch.setattr(constants, "_CHUNK_BYTES", limit)
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(*MODELS[name]).SerializeToString())
    built = _built(str(path))
    file = io.BytesIO()
    built.constants.write(file)
    written = file.getvalue()
    arrays = built.constants.arrays()
    assert arrays
    for array, (dtype, shape, at, size) in zip(arrays, built.record.constants, strict=True):
        assert array.shape == shape and array.nbytes == size
        found = np.frombuffer(written[at : at + size], dtype.stored).reshape(shape)
        np.testing.assert_array_equal(found, array)


def test_what_shares_nothing_is_prepared_apart(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(*MODELS["packed"]).SerializeToString())
    counts = []
    for limit in (1, 1 << 30):
        monkeypatch.setattr(preparing, "_BATCH_BYTES", limit)
        counts.append(len(_built(str(path)).constants.recipe.preparations))
    assert counts == [3, 1]


def test_weights_are_never_in_memory_all_at_once(tmp_path, monkeypatch):
    each = 4 * 1024 * 1024
    monkeypatch.setattr(preparing, "_BATCH_BYTES", 2 * each)
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path / "cache"))
    text = (_CHAIN % _chain(8)).replace("64", "1024")
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(text, _weights(8, 1024)).SerializeToString())
    create_engine(model_of(*MODELS["packed"]).SerializeToString())  # what any first session holds
    tracemalloc.start()
    try:
        engine = create_engine(str(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * each  # of eight, which were there twice if all were prepared together
    x = np.ones((2, 1024), np.float32)
    (found,) = engine.run([x])
    expected = x.astype(np.float64)
    for weight in _weights(8, 1024).values():
        expected = expected @ weight
    assert_near(found, expected, "float: models")


def test_staging_is_given_back_before_there_is_less(tmp_path, monkeypatch):
    """The largest come first; what comes later reuses memory that is not much more than needed."""
    monkeypatch.setattr(preparing, "_BATCH_BYTES", 1)
    text = "g (float[2, 64] x) => (%s) { %s }"
    widths = (64, 128, 256, 512)
    results = ", ".join(f"float[2, {n}] y{n}" for n in widths)
    nodes = " ".join(f"y{n} = MatMul(x, w{n})" for n in widths)
    weights = {f"w{n}": np.ones((64, n), np.float32) for n in widths}
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(text % (results, nodes), weights).SerializeToString())
    built, live, before, sizes = _built(str(path)), set(), [], []
    allocate = constants.aligned_array

    def watched(shape, dtype):
        before.append(len(live))
        sizes.append(*shape)
        array = allocate(shape, dtype)
        live.add(len(before))
        weakref.finalize(array.base, live.discard, len(before))
        return array

    monkeypatch.setattr(constants, "aligned_array", watched)
    built.constants.write(io.BytesIO())
    assert before == [0, 0]
    assert sizes == [2 * 64 * 512 * 4, 2 * 64 * 64 * 4]  # read and packed


def test_memory_that_is_refused_is_not_counted(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(*MODELS["packed"]).SerializeToString())
    budget = Budget()
    built = build.build_model(
        str(path), EngineOptions(), CpuProvider(), {}, budget, Units(host_target(), None)
    )
    held = budget.held_bytes

    def refuse(shape, dtype):
        raise OutOfMemory("no")

    monkeypatch.setattr(constants, "aligned_array", refuse)
    with pytest.raises(OutOfMemory):
        built.constants.write(io.BytesIO())
    assert budget.held_bytes == held
