"""Inputs of undeclared or wrongly declared rank: the ranks come with the feeds."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base import errors
from tests.support.session import model_of
from tests.support.tolerances import assert_near

#: About what no target changes.
pytestmark = pytest.mark.once

RANDOM = np.random.default_rng(3)


def unranked(text: str, *names: str, weights: Any = None) -> onnx.ModelProto:
    """A model whose inputs and outputs of these names have no shape."""
    model = model_of(text, weights)
    for info in (*model.graph.input, *model.graph.output):
        if info.name in names:
            info.type.tensor_type.ClearField("shape")
    return model


def of(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


SOFTMAX = unranked(
    "g (float[n] x) => (float[n] y) { z = Softmax <axis=-1> (x) y = Add(z, x) }", "x", "y"
)
#: Name, model, feeds, of which each has other ranks or sizes.
CASES: list[tuple[str, onnx.ModelProto, list[dict[str, Any]]]] = [
    (
        "softmax",
        SOFTMAX,
        [{"x": of(3)}, {"x": of(2, 3)}, {"x": of(2, 2, 5)}, {"x": of(4, 3)}, {"x": of(0, 3)}],
    ),
    (
        "two inputs",
        unranked("g (float[n] x, float[n] w) => (float[n] y) { y = MatMul(x, w) }", *"xwy"),
        [
            {"x": of(3), "w": of(3)},
            {"x": of(2, 3), "w": of(3, 4)},
            {"x": of(5, 2, 3), "w": of(3, 4)},
        ],
    ),
    (
        "one known",
        unranked("g (float[n] x, float[2, 3] w) => (float[n] y) { y = Add(x, w) }", *"xy"),
        [{"x": a, "w": of(2, 3)} for a in (of(3), of(), of(4, 1, 3))],
    ),
    (
        "only one rank works",
        unranked(
            "g (float[n] x) => (float[n] y) { y = Conv <kernel_shape=[3]> (x, w) }", *"xy",
            weights={"w": of(4, 2, 3)},
        ),
        [{"x": of(1, 2, 9)}, {"x": of(3, 2, 5)}],
    ),
    (
        "the rank counts",
        unranked(
            """g (float[n] x) => (int64[n] y, float[n] z) {
            y = Shape(x) s = Shape(y) f = Flatten(x) c = Cast <to=1> (s) z = Mul(f, c) }""", *"xyz",
        ),
        [{"x": of(2, 3)}, {"x": of(2, 3, 4)}, {"x": of(7)}],
    ),
    (
        "captured by a branch",
        unranked(
            """g (float[n] x, bool c) => (float[n] y) {
            y = If (c) <then_branch = t () => (float a) { a = Neg(x) },
                        else_branch = e () => (float b) { b = Softmax(x) }> }""", *"xy",
        ),
        [
            {"x": of(2, 3), "c": np.array(True)},
            {"x": of(2, 3), "c": np.array(False)},
            {"x": of(4), "c": np.array(True)},
        ],
    ),
    (
        "declared as a number",
        model_of("g (float x) => (float y) { y = Exp(x) }"),
        [{"x": of(3)}, {"x": of(2, 3)}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model", "feeds"), CASES, ids=[c[0] for c in CASES])
def test_runs_at_every_rank(name: str, model: onnx.ModelProto, feeds: list[dict[str, Any]]) -> None:
    session = sardonyx.InferenceSession(model.SerializeToString())
    reference = ReferenceEvaluator(model)
    for feed in (*feeds, *feeds):
        for mine, theirs in zip(session.run(None, feed), reference.run(None, feed), strict=True):
            assert mine.shape == np.shape(theirs)
            assert mine.dtype == np.asarray(theirs).dtype
            assert_near(mine, theirs, "float: products")


def test_the_face() -> None:
    session = sardonyx.InferenceSession(SOFTMAX.SerializeToString())
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    # As onnxruntime 1.31.1 reports them.
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", [])
    assert (y.name, y.type, y.shape) == ("y", "tensor(float)", [])
    assert "the ranks of x come with runs" in session.explain()
    session.run(None, {"x": of(2, 3)})
    session.run(None, {"x": of(4)})
    session.run(None, {"x": of(5)})
    assert list(inspect(session).variants) == ["x of rank 2", "x of rank 1"]
    assert "another plan, for x of rank 2:" in session.explain()


def test_bound_memory() -> None:
    session = sardonyx.InferenceSession(SOFTMAX.SerializeToString())
    binding, x, y = session.io_binding(), of(2, 3), np.empty((2, 3), np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", sardonyx.OrtValue.ortvalue_from_numpy(y))
    session.run_with_iobinding(binding)
    assert np.array_equal(binding.get_outputs()[0].numpy(), session.run(None, {"x": x})[0])


def test_overridable_initializer_of_unknown_rank() -> None:
    model = unranked(
        "g (float[n] x, float[n] w) => (float[m] y) { y = Add(x, w) }", "w",
        weights={"w": np.float32([1, 2])},
    )  # fmt: skip
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert np.array_equal(session.run(None, {"x": np.float32([1, 1])})[0], [2, 3])
    x, w = np.float32([1, 2, 3]), np.float32([[1], [2]])
    assert np.array_equal(session.run(None, {"x": x, "w": w})[0], x + w)


def test_the_cache_has_every_plan(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(SOFTMAX, path)
    x = of(2, 3)
    first = sardonyx.InferenceSession(path)
    want = first.run(None, {"x": x})[0]
    second = sardonyx.InferenceSession(path)
    assert "from cache" in second.timings
    assert np.array_equal(second.run(None, {"x": x})[0], want)
    assert "from cache" in inspect(second).variants["x of rank 2"].timings


def test_plans_are_few() -> None:
    session = sardonyx.InferenceSession(SOFTMAX.SerializeToString())
    for rank in range(1, 21):
        x = of(*[1] * (rank - 1), 3)
        assert session.run(None, {"x": x})[0].shape == x.shape
    assert list(inspect(session).variants) == [f"x of rank {k}" for k in range(5, 21)]
    assert session.run(None, {"x": of(3)})[0].shape == (3,)


def test_threads_share_a_plan() -> None:
    session = sardonyx.InferenceSession(SOFTMAX.SerializeToString())
    wrong, barrier = [], threading.Barrier(6)

    def work(number: int) -> None:
        x = np.ones([1] * (number % 3) + [4], np.float32)
        barrier.wait()
        for _ in range(5):
            got = session.run(None, {"x": x})[0]
            if got.shape != x.shape or not np.allclose(got, 1.25):
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(inspect(session).variants) == 3


def test_logged(caplog: pytest.LogCaptureFixture) -> None:
    session = sardonyx.InferenceSession(SOFTMAX.SerializeToString())
    with caplog.at_level(logging.INFO, "sardonyx"):
        session.run(None, {"x": of(2, 3)})
    assert [r.levelname for r in caplog.records if "x of rank 2" in r.message] == ["INFO"]
    number = sardonyx.InferenceSession(CASES[-1][1].SerializeToString())
    caplog.clear()
    number.run(None, {"x": of(2)})
    assert [r.levelname for r in caplog.records if "x of rank 1" in r.message] == ["WARNING"]


def test_ranks_that_the_model_cannot_take() -> None:
    session = sardonyx.InferenceSession(CASES[3][1].SerializeToString())
    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match=r"cannot take x of rank 2: .*Conv"):
            session.run(None, {"x": of(2, 3)})
    with pytest.raises(errors.InvalidArgument, match=r"input x.*type"):
        session.run(None, {"x": np.ones((1, 2, 9))})
    assert not inspect(session).variants
    assert session.run(None, {"x": of(1, 2, 9)})[0].shape == (1, 4, 7)


#: Wrong whatever the rank is: these come when the session is made.
WRONG: list[tuple[str, type[Exception], str]] = [
    ("y = Nonsense(x)", errors.InvalidGraph, "Nonsense"),
    ("y = Relu(x, x)", errors.InvalidGraph, "Relu"),
    ("y = Concat(x, x)", errors.InvalidGraph, "axis"),
    ("y = BitwiseAnd(x, x)", errors.InvalidGraph, "BitwiseAnd"),
]


@pytest.mark.parametrize(("body", "error", "text"), WRONG)
def test_errors_that_no_rank_mends(body: str, error: type[Exception], text: str) -> None:
    model = unranked("g (float[n] x) => (float[n] y) {" + body + "}", "x", "y")
    with pytest.raises(error, match=text):
        sardonyx.InferenceSession(model.SerializeToString())


def test_type_of_an_output_is_inferred() -> None:
    model = unranked("g (float[n] x) => (float[n] y) { y = Shape(x) }", "x", "y")
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert session.get_outputs()[0].type == "tensor(int64)"
    assert helper.tensor_dtype_to_np_dtype(7) == session.run(None, {"x": of(2, 3)})[0].dtype
