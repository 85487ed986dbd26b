"""Independent loops that two threads walk side by side: the same bits, faults, interruptions."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base.errors import Fail, RuntimeException
from sardonyx.native.layout import FRAME, JOB, NS_PER_ROUND
from sardonyx.plan.steps import Together
from tests.support.inside import executable_of
from tests.support.session import model_of

_random = np.random.default_rng(3)


def _session(model: onnx.ModelProto, threads: int) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def _recurrent(op_type: str, gates: int, hidden: int, width: int) -> onnx.ModelProto:
    """Both directions over a sequence; the second layer reads both of the first."""
    nodes, weights, source, inner = [], [], "x", width
    for layer in ("first", "second"):
        shapes = {"w": (2, gates * hidden, inner), "r": (2, gates * hidden, hidden)}
        for name, shape in shapes.items():
            array = (_random.standard_normal(shape) * 0.1).astype(np.float32)
            weights.append(numpy_helper.from_array(array, f"{layer}_{name}"))
        given = [source, f"{layer}_w", f"{layer}_r"]
        nodes += [
            helper.make_node(
                op_type, given, [f"{layer}_y", f"{layer}_h"],
                hidden_size=hidden, direction="bidirectional",
            ),
            helper.make_node("Transpose", [f"{layer}_y"], [f"{layer}_t"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"{layer}_t", "joined"], [f"{layer}_out"]),
        ]  # fmt: skip
        source, inner = f"{layer}_out", 2 * hidden
    weights.append(numpy_helper.from_array(np.array([0, 0, 2 * hidden], np.int64), "joined"))
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", kind, ["S", "N", width])],
        [helper.make_tensor_value_info(f, kind, None) for f in ("second_out", "first_h")],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _walked(session: Any) -> bool:
    """Whether parts of the last run were walked: their positions are where they ended."""
    executable = executable_of(session)
    with executable.frames.lease() as frame:
        return bool(frame.table("positions").any())


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_directions_side_by_side_give_the_same_bits(op_type: str, gates: int) -> None:
    model = _recurrent(op_type, gates, 96, 24)
    alone, both = _session(model, 1), _session(model, 2)
    steps = [c for c in inspect(both).plan.commands if isinstance(c, Together)]
    assert [len(step.parts) for step in steps] == [2, 2]
    for length, batch in ((150, 2), (1, 1), (60, 7), (150, 2)):
        x = _random.standard_normal((length, batch, 24)).astype(np.float32)
        for mine, theirs in zip(both.run(None, {"x": x}), alone.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert _walked(both)
    assert not _walked(alone)


def test_a_walk_that_returns_to_python_goes_on_where_it_was() -> None:
    model = _recurrent("RNN", 1, 2, 1)
    alone, both = _session(model, 1), _session(model, 2)
    returns = []
    runs = executable_of(both).launcher.runs
    native = runs.execute

    def counting(frame: int, items: int, pool: int) -> int:
        code = native(frame, items, pool)
        returns.append(code)
        return code

    runs.execute = counting
    x = _random.standard_normal((1_200_000, 1, 1)).astype(np.float32)
    for mine, theirs in zip(both.run(None, {"x": x}), alone.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert _walked(both)
    assert len(returns) > 2


_LOOPS = """
g (float[48,48] a, int64[K] places, int64 first, int64 second)
=> (float[48,48] x, float[48,48] y)
{
    x = Loop(first, yes, a) <body =
    one (int64 i, bool c, float[48,48] v) => (bool d, float[48,48] w)
    {
        d = Identity(c)
        at = Gather(places, i)
        p = MatMul(v, q)
        f = Cast<to = 1>(at)
        w = Add(p, f)
    }>
    y = Loop(second, yes, a) <body =
    two (int64 i, bool c, float[48,48] v) => (bool d, float[48,48] w)
    {
        d = Identity(c)
        at = Gather(places, i)
        p = MatMul(v, q)
        f = Cast<to = 1>(at)
        w = Sub(p, f)
    }>
}
"""


def _loops() -> onnx.ModelProto:
    quiet = (np.eye(48) * 0.5).astype(np.float32)
    return model_of(_LOOPS, {"q": quiet, "yes": np.array(True)})


def _feeds(first: int, second: int) -> dict[str, Any]:
    a = _random.standard_normal((48, 48)).astype(np.float32)
    return {
        "a": a, "places": np.arange(300) % 7,
        "first": np.array(first), "second": np.array(second),
    }  # fmt: skip


def test_a_fault_in_one_part_is_an_error_and_the_next_run_is_right() -> None:
    alone, both = _session(_loops(), 1), _session(_loops(), 2)
    for trips in ((300, 300), (300, 301), (301, 300), (250, 300), (0, 300), (300, 0)):
        feeds = _feeds(*trips)
        if max(trips) > 300:
            for session in (alone, both):
                with pytest.raises(RuntimeException, match="out of range for an axis of size 300"):
                    session.run(None, feeds)
            continue
        for mine, theirs in zip(both.run(None, feeds), alone.run(None, feeds), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert _walked(both)


def test_kernels_that_are_long_are_shared() -> None:
    """Ctrl-C would wait for them: a walk does not stop inside one."""
    both, feeds = _session(_loops(), 2), _feeds(300, 300)
    first = both.run(None, feeds)
    assert _walked(both)
    with executable_of(both).frames.lease() as frame:
        frame.table("positions")[:] = 0
        frame.table("jobs").reshape(-1, JOB.words)[:, JOB["cost"]] = NS_PER_ROUND
    for mine, theirs in zip(both.run(None, feeds), first, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not _walked(both)


def test_a_walk_can_be_cancelled() -> None:
    both = _session(_recurrent("LSTM", 4, 64, 8), 2)
    options = sardonyx.RunOptions()
    x = np.zeros((30_000, 4, 8), np.float32)
    short = both.run(None, {"x": x[:100]})

    def stop() -> None:
        executable = executable_of(both)
        for _ in range(2000):
            if any(f.words[FRAME["together"]] for f in list(executable.frames.held)):
                break
            time.sleep(0.001)
        options.terminate = True

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Fail, match="cancel|terminate"):
        both.run(None, {"x": x}, options)
    thread.join()
    for mine, theirs in zip(both.run(None, {"x": x[:100]}), short, strict=True):
        np.testing.assert_array_equal(mine, theirs)
