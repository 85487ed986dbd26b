"""`sardonyx.load`, `warmup`, `out=` and inner tensors by name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.api import load
from sardonyx.api.providers import cuda_is_missing
from sardonyx.base import errors
from sardonyx.cpu.executable import CpuExecutable
from tests.support.session import model_of

_TEXT = """g (float[N,3] x, float[3,2] w) => (float[N,2] y, float[N] total)
    { a = MatMul(x, w) b = Relu(a) c = Add(b, b) y = Neg(c)
      k = Constant<value_ints=[1]>() total = ReduceSum<keepdims=0>(c, k) }"""
_X = np.array([[1, -2, 3], [0.5, 0, -1]], np.float32)
_W = np.array([[1, 2], [-1, 1], [0.5, -3]], np.float32)
_FEEDS = {"x": _X, "w": _W}
_INNER = {"a": _X @ _W, "b": np.maximum(_X @ _W, 0), "c": 2 * np.maximum(_X @ _W, 0)}
_OUTER = {"y": -_INNER["c"], "total": _INNER["c"].sum(1)}


def _model() -> onnx.ModelProto:
    return model_of(_TEXT)


@pytest.fixture
def session() -> sardonyx.InferenceSession:
    return sardonyx.load(_model())


# -- load ---------------------------------------------------------------------------------------


def test_load_takes_paths_bytes_and_models(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(), path)
    for source in (path, str(path), path.read_bytes(), _model()):
        y, total = sardonyx.load(source)(_X, _W)
        np.testing.assert_allclose(y, _OUTER["y"])
        np.testing.assert_allclose(total, _OUTER["total"])


def test_load_hands_on_what_it_is_given() -> None:
    made = sardonyx.load(
        _model(), threads=1, sizes={"N": 2}, config={"session.disable_winograd": "1"}
    )
    options = made.get_session_options()
    assert options.intra_op_num_threads == 1
    assert options.get_session_config_entry("session.disable_winograd") == "1"
    assert made.get_inputs()[0].shape == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"device": "dml"}, errors.InvalidArgument, r"cpu, cuda \(or gpu\), or cuda:N"),
        ({"device": "cuda:x"}, errors.InvalidArgument, "cuda:N"),
        ({"device": "cuda:²"}, errors.InvalidArgument, "cuda:N"),
        ({"device": "cpu:1"}, errors.InvalidArgument, "no such device"),
        ({"device": 3}, errors.InvalidArgument, "no such device"),
        ({"threads": "2"}, errors.InvalidArgument, "no whole number"),
        ({"threads": True}, errors.InvalidArgument, "no whole number"),
        ({"config": {"session.disable_winogrd": "1"}}, errors.InvalidArgument, "disable_winograd"),
        ({"config": {"session.disable_winograd": 1}}, errors.InvalidArgument, "text"),
        ({"use_tf32": 0}, errors.InvalidArgument, "use_tf32.*of the CUDA provider.*device='cuda'"),
        ({"device": "gpu:1", "device_id": 2}, errors.InvalidArgument, "Expected 1, got 2"),
        ({"device": "cuda", "device_id": "x"}, errors.InvalidArgument, "device_id"),
        ({"thread": 2}, errors.WrongType, "no argument 'thread'. Did you mean 'threads'"),
        ({"use_tf": 0, "device": "cuda"}, TypeError, "no argument 'use_tf'. Did .* 'use_tf32'"),
        ({"sizes": {"N": -1}}, errors.InvalidArgument, "no size"),
    ],
)
def test_what_load_refuses(arguments: dict[str, Any], kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        sardonyx.load(_model(), **arguments)


@pytest.mark.skipif(not cuda_is_missing(), reason="there is a GPU")
def test_load_falls_back_to_nothing() -> None:
    with pytest.raises(errors.EPFail, match="cuda cannot be used"):
        sardonyx.load(_model(), device="cuda")


# -- warmup -------------------------------------------------------------------------------------


def test_warmup(session: sardonyx.InferenceSession) -> None:
    assert 0 < session.warmup({"x": (5, 3)}) < 60
    assert session.warmup(_FEEDS) > 0
    np.testing.assert_allclose(session(_X, _W)[0], _OUTER["y"])


def test_warmup_gives_up_and_says_so(
    session: sardonyx.InferenceSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(load, "_SEARCH_SECONDS", 0.05)
    monkeypatch.setattr(CpuExecutable, "is_settling", True)
    assert session.warmup(_FEEDS) >= 0.05
    assert "still made in the background" in caplog.text


@pytest.mark.parametrize(
    ("feeds", "text"),
    [
        ({}, r"warmup x.*not known: \(N, 3\)"),
        ({"x": (2, 3), "z": (1,)}, "no input 'z'"),
        ({"x": (-1, 3)}, "not known"),
        ({"x": (2, 4)}, "x"),
    ],
)
def test_what_warmup_refuses(
    session: sardonyx.InferenceSession, feeds: dict[str, Any], text: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        session.warmup(feeds)


# -- out ----------------------------------------------------------------------------------------


def test_results_are_written_to_the_callers_arrays(session: sardonyx.InferenceSession) -> None:
    y, total = np.full((2, 2), 9, np.float32), np.full(2, 9, np.float32)
    for names in (None, ["y", "total"]):
        y.fill(9)
        found = session.run(names, _FEEDS, out=[y, total])
        assert found[0] is y
        assert found[1] is total
        np.testing.assert_allclose(y, _OUTER["y"])
        np.testing.assert_allclose(total, _OUTER["total"])
    (found,) = session.run(["total"], _FEEDS, out=[total])
    assert found is total
    first, second = session.run(["total", "y"], _FEEDS, out=[None, y])
    assert first is not total
    np.testing.assert_allclose(first, _OUTER["total"])
    assert second is y


def test_memory_of_other_shapes_and_kinds(session: sardonyx.InferenceSession) -> None:
    wide = np.full((2, 4), 9, np.float32)
    strided = wide[:, ::2]
    (found,) = session.run(["y"], _FEEDS, out=[strided])
    np.testing.assert_allclose(strided, _OUTER["y"])
    np.testing.assert_array_equal(wide[:, 1::2], 9)
    assert found is strided
    value = sardonyx.OrtValue.ortvalue_from_numpy(np.zeros((2, 2), np.float32))
    (found,) = session.run(["y"], _FEEDS, out=[value])
    assert found is value
    np.testing.assert_allclose(value.numpy(), _OUTER["y"])


#: Shapes of memory for a result of shape (2, 2), or (2,), and whether it lies there as in rows.
ROOMS = {
    "y": {(3, 2): True, (2, 3): False, (3, 3): False, (4,): True, (9,): True, (1, 2, 2): False,
        (2, 2, 1): False, (1, 4): False},
    "total": {(5,): True, (2, 1): False, (1, 2): False},
}  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), [(n, s) for n, rows in ROOMS.items() for s in rows])
@pytest.mark.parametrize("how", ["out", "a binding", "a pipeline"])
def test_larger_memory(
    session: sardonyx.InferenceSession, name: str, shape: tuple[int, ...], how: str
) -> None:
    """Only where the first rows of it are the result: else they would be torn apart, silently."""
    expected, target = _OUTER[name], np.full(shape, 9, np.float32)

    def run() -> None:
        if how == "out":
            session.run([name], _FEEDS, out=[target])
        elif how == "a pipeline":
            into = [tuple(target if n == name else None for n in ("y", "total"))]
            list(session.pipeline().map([_FEEDS], into=into))
        else:
            binding = session.io_binding()
            for given, array in _FEEDS.items():
                binding.bind_cpu_input(given, array)
            binding.bind_ortvalue_output(name, sardonyx.OrtValue.ortvalue_from_numpy(target))
            session.run_with_iobinding(binding)
            (found,) = binding.get_outputs()
            np.testing.assert_allclose(found.numpy(), expected)
            assert tuple(found.shape()) == expected.shape

    if not ROOMS[name][shape]:
        with pytest.raises(errors.InvalidArgument, match="only the first axis may be larger"):
            run()
        np.testing.assert_array_equal(target, 9)
        return
    run()
    np.testing.assert_allclose(target.reshape(-1)[: expected.size], expected.reshape(-1))
    np.testing.assert_array_equal(target.reshape(-1)[expected.size :], 9)


@pytest.mark.parametrize(
    ("out", "text"),
    [
        ([np.zeros((2, 2), np.float32)], "for each output"),
        (np.zeros((2, 2), np.float32), "is a list"),
        ({"y": None}, "is a list"),
        ([np.zeros((2, 2), np.float64), None], "y"),
        ([np.zeros((1, 2), np.float32), None], "y"),
        (["text", None], "no memory"),
        ([[[0.0]], None], "no memory"),
        ([np.broadcast_to(np.float32(0), (2, 2)), None], "read-only"),
    ],
)
def test_what_out_refuses(session: sardonyx.InferenceSession, out: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        session.run(None, _FEEDS, out=out)
    np.testing.assert_allclose(session.run(None, _FEEDS)[0], _OUTER["y"])


# -- inner tensors ------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_inner_tensors_by_name(level: str) -> None:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = getattr(sardonyx.GraphOptimizationLevel, level)
    session = sardonyx.InferenceSession(_model().SerializeToString(), options)
    everything = _INNER | _OUTER | _FEEDS
    for names in (["a"], ["b", "y"], ["total", "c", "a"], ["a", "a", "y"], ["x", "a"]):
        for _ in range(2):
            found = session.run(names, _FEEDS)
            assert len(found) == len(names)
            for name, array in zip(names, found, strict=True):
                np.testing.assert_allclose(array, everything[name], err_msg=name)
    (found,) = session.run_with_ort_values(
        ["b"], {n: sardonyx.OrtValue.ortvalue_from_numpy(a) for n, a in _FEEDS.items()}
    )
    np.testing.assert_allclose(found.numpy(), _INNER["b"])
    kept = np.zeros((2, 2), np.float32)
    assert session.run(["b"], _FEEDS, out=[kept])[0] is kept
    np.testing.assert_allclose(kept, _INNER["b"])
    assert [o.name for o in session.get_outputs()] == ["y", "total"]


def test_inner_tensors_are_awaited_too(session: sardonyx.InferenceSession) -> None:
    async def both() -> list[Any]:
        return await session.run_async(["c", "y"], _FEEDS)

    c, y = asyncio.run(both())
    np.testing.assert_allclose(c, _INNER["c"])
    np.testing.assert_allclose(y, _OUTER["y"])


def test_names_that_are_nowhere(session: sardonyx.InferenceSession) -> None:
    for names in (["q"], ["y", "q"], ["a", "q"]):
        with pytest.raises(errors.InvalidArgument, match="no output 'q', nor"):
            session.run(names, _FEEDS)
    with pytest.raises(errors.InvalidArgument, match="totl.*total"):
        session.run(["totl"], _FEEDS)


def test_values_of_a_branch_are_not_the_graphs_own() -> None:
    text = """g (float[N] x, bool c) => (float[N] y) { y = If(c) <
        then_branch = t () => (float[N] p) { inner = Neg(x) p = Neg(inner) },
        else_branch = e () => (float[N] q) { q = Identity(x) }> }"""
    session = sardonyx.load(model_of(text))
    with pytest.raises(errors.InvalidArgument, match="no output 'inner', nor"):
        session.run(["inner"], {"x": _X[0], "c": np.array(True)})
