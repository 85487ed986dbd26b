"""What a session says that it holds, without anything being done to it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect, inspect_engine
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.datasets import get_example
from sardonyx.plan.plan import Plan
from sardonyx.targets.target import host_target
from tests.support.fake_provider import installed
from tests.support.session import model_of

_TEXT = """g (float[N,16] x, int64[1] k) => (float[N,16] y) {
    a = MatMul(x, w) b = Softmax(a) c = CumSum(b, k) y = MatMul(c, w) }"""
_WEIGHT = np.eye(16, dtype=np.float32)
_FEEDS = {"x": np.ones((3, 16), np.float32), "k": np.array([1])}


def _model() -> bytes:
    return bytes(model_of(_TEXT, {"w": _WEIGHT}).SerializeToString())


def test_before_and_after_runs() -> None:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 2
    session = sardonyx.InferenceSession(_model(), options)
    before = inspect(session)
    assert (before.frames, before.arena_bytes, before.sizes, before.variants) == ((), 0, {}, {})
    assert (before.threads, before.share, before.runs_on) == (2, 2, host_target().name)
    assert [v.name for v in before.inputs] == ["x", "k"]
    assert [v.name for v in before.outputs] == ["y"]
    assert [name.split("_")[0] for name in before.kernels].count("product") == 2
    assert before.kernels == [call.kernel for call in before.plan.calls]
    assert before.constant_bytes >= _WEIGHT.nbytes
    assert (before.libraries.pending, before.claims, before.regions) == (0, None, ())
    session.run(None, _FEEDS)
    after = inspect(session)
    assert after.sizes["N"] == 3
    assert len(after.frames) == 1
    assert after.arena_bytes == after.frames[0].arena_bytes > 0
    assert after.arena_bytes <= after.held_bytes <= after.limit_bytes
    assert after.plan is before.plan
    assert before.frames == ()  # it says what was
    session.trim()
    assert inspect(session).frames == ()


def test_it_agrees_with_what_is_printed() -> None:
    session = sardonyx.InferenceSession(_model())
    for _ in range(2):
        session.run(None, _FEEDS)
    found, memory, said = inspect(session), session.memory(), session.explain()
    assert memory["weights_bytes"] == found.constant_bytes
    assert memory["intermediate_bytes"] == found.arena_bytes
    assert memory["frames"] == len(found.frames)
    assert memory["held_bytes"] == found.held_bytes
    assert all(name in said for name in found.kernels)
    assert f"{len(found.kernels)} kernels" in said


def test_other_plans_are_within() -> None:
    text = "g (float[] x) => (float[] y) { y = Relu(x) }"
    model = model_of(text)
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.ClearField("shape")
    session = sardonyx.InferenceSession(model.SerializeToString())
    for shape in ((2,), (2, 3)):
        session.run(None, {"x": np.ones(shape, np.float32)})
    found = inspect(session)
    assert list(found.variants) == ["x of rank 1", "x of rank 2"]
    assert [len(v.frames) for v in found.variants.values()] == [1, 1]
    assert found.held_bytes == found.variants["x of rank 2"].held_bytes


@pytest.mark.parametrize("graphs", [True, False])
def test_of_a_device(graphs: bool) -> None:
    with installed():
        session = sardonyx.InferenceSession(_model(), providers=["CUDAExecutionProvider"])
        options = sardonyx.RunOptions()
        options.add_run_config_entry("gpu_graph_id", "0" if graphs else "-1")
        for _ in range(4):
            session.run(None, _FEEDS, options)
        found = inspect(session)
        (frame,) = found.frames
        assert frame.is_own_stream and frame.stream != 0
        assert (frame.replays > 0) == graphs
        assert found.libraries == type(found.libraries)()
        assert found.worker_ids == ()


def test_of_an_engine() -> None:
    engine = create_engine(_model(), EngineOptions())
    assert inspect_engine(engine).kernels == [c.kernel for c in engine.executable.plan.calls]


def test_it_is_frozen() -> None:
    found = inspect(sardonyx.InferenceSession(_model()))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.plan = None  # type: ignore[misc, assignment]  # that is what is asked
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        assert not isinstance(value, list | set), field.name
        assert field.name in ("plan", "facts", "claims") or not hasattr(value, "run")
    assert isinstance(found.plan, Plan) and isinstance(found.variants, Mapping)


def test_a_session_pays_nothing_for_it() -> None:
    code = (
        "import sys, numpy, sardonyx\n"
        "s = sardonyx.InferenceSession(sys.argv[1])\n"
        "s.run(None, {s.get_inputs()[0].name: numpy.ones((3, 2), numpy.float32)})\n"
        "print('sardonyx.api.inspection' in sys.modules)\n"
    )
    model = get_example("mul_1.onnx")
    done = subprocess.run([sys.executable, "-c", code, model], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
