"""Whole networks against ONNX's reference evaluator, at many shapes in one session."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base.errors import InvalidArgument
from sardonyx.compiler.build import compile_lowered
from sardonyx.llvm import compile
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.groups import LoopNest
from sardonyx.plan.inline import is_view
from sardonyx.targets.target import host_target
from tests.engine import networks
from tests.support.session import model_of

_random = np.random.default_rng(5)


def _floats(*shape: int) -> Any:
    return _random.standard_normal(shape).astype(np.float32)


def _ids(n: int, s: int) -> dict[str, Any]:
    mask = np.ones((n, s), np.int64)
    mask[:, s - s // 4 :] = 0
    mask[:, :1] = 1
    return {"ids": _random.integers(-50, 50, (n, s)), "mask": mask}


def _step(n: int, s: int, p: int) -> dict[str, Any]:
    past = [_floats(n, 2, p, 16) for _ in range(2)]
    return {"x": _floats(n, s, 32), "past_key": past[0], "past_value": past[1]}


CASES: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "perceptron": (networks.perceptron, [{"x": _floats(n, 40)} for n in (1, 2, 7, 64, 0)]),
    "convolutional": (
        networks.convolutional,
        [{"x": _floats(n, 3, h, w)} for n, h, w in ((1, 32, 32), (2, 21, 38), (1, 9, 64))],
    ),
    "transformer": (
        networks.transformer,
        [_ids(n, s) for n, s in ((1, 1), (1, 16), (3, 7), (2, 130))],
    ),
    "decoder_step": (
        networks.decoder_step,
        [_step(*k) for k in ((1, 1, 0), (1, 1, 5), (2, 3, 0), (1, 9, 70), (3, 1, 129))],
    ),
}


def relative_error(got: Any, want: Any) -> float:
    """Norm of the difference over the norm of the reference."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    wide = want.astype(np.float64)
    return float(np.linalg.norm(got.astype(np.float64) - wide) / (np.linalg.norm(wide) + 1e-30))


@pytest.mark.parametrize("name", CASES)
def test_equals_reference(name: str) -> None:
    build, feeds = CASES[name]
    model = build()
    session = sardonyx.InferenceSession(model.SerializeToString())
    reference = ReferenceEvaluator(model)
    for feed in feeds:
        got, want = session.run(None, feed), reference.run(None, feed)
        assert max(map(relative_error, got, want)) < 2e-5


def test_new_shapes_compile_nothing() -> None:
    session = sardonyx.InferenceSession(networks.decoder_step().SerializeToString())
    session.run(None, _step(1, 1, 0))
    before = compile.COUNTS["modules"]
    random = np.random.default_rng(0)
    for _ in range(500):
        session.run(None, _step(*(int(k) for k in random.integers((1, 1, 0), (4, 6, 90)))))
    assert compile.COUNTS["modules"] == before


def test_steps_equal_one_long_run() -> None:
    session = sardonyx.InferenceSession(networks.decoder_step().SerializeToString())
    x = _floats(1, 200, 32)
    empty = np.zeros((1, 2, 0, 16), np.float32)
    past = [empty, empty]
    last = None
    for step in range(200):
        last, *past = session.run(
            None, {"x": x[:, step : step + 1], "past_key": past[0], "past_value": past[1]}
        )
    whole = session.run(None, {"x": x, "past_key": empty, "past_value": empty})
    assert relative_error(last, whole[0][:, -1:]) < 1e-5
    assert relative_error(past[0], whole[1]) < 1e-6


def test_threads_share_a_session() -> None:
    model = networks.transformer()
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 1
    session = sardonyx.InferenceSession(model.SerializeToString(), options)
    feeds = [_ids(n, s) for n, s in ((1, 20), (2, 31), (1, 64), (3, 5))]
    wanted = [session.run(None, f)[0] for f in feeds]
    wrong: list[int] = []

    def work(number: int) -> None:
        results = [session.run(None, feeds[number])[0] for _ in range(25)]
        wrong.extend(number for r in results if not np.array_equal(r, wanted[number]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_attention_and_epilogues_are_fused() -> None:
    session = sardonyx.InferenceSession(networks.transformer().SerializeToString())
    kernels = [name.split("_")[0] for name in inspect(session).kernels]
    assert kernels.count("attention") == 1
    assert kernels.count("product") == 6
    assert len(kernels) <= 11


def test_index_out_of_range_is_an_error_and_the_session_lives() -> None:
    session = sardonyx.InferenceSession(networks.transformer().SerializeToString())
    good = _ids(1, 8)
    before = session.run(None, good)[0]
    bad = dict(good, ids=np.full((1, 8), 50))
    with pytest.raises(RuntimeError, match="index 50 is out of range for an axis of size 50"):
        session.run(None, bad)
    assert np.array_equal(session.run(None, good)[0], before)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_softmax_over_any_axis(op: str, axis: int) -> None:
    n = networks.Net()
    model = n.model({"x": ("f", ["A", "B", "C", "D"])}, [n.add(op, "x", axis=axis)])
    session = sardonyx.InferenceSession(model.SerializeToString())
    for shape in ((2, 3, 4, 5), (1, 1, 1, 1), (3, 17, 2, 40), (0, 2, 3, 4)):
        x = _floats(*shape)
        wide = x.astype(np.float64)
        wide = wide - wide.max(axis, keepdims=True, initial=-np.inf)
        want = wide - np.log(np.exp(wide).sum(axis, keepdims=True))
        want = np.exp(want) if op == "Softmax" else want
        assert relative_error(session.run(None, {"x": x})[0], want.astype(np.float32)) < 1e-6


def test_computed_weights_are_packed_once() -> None:
    n = networks.Net()
    weights = n.add("Tanh", n.constant(n.random.standard_normal((64, 48)).astype(np.float32)))
    model = n.model({"x": ("f", ["N", 64])}, [n.add("MatMul", "x", weights)], opset=21)
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert len(inspect(session).plan.commands) == 1
    x = _floats(3, 64)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert relative_error(session.run(None, {"x": x})[0], want) < 1e-6


def test_dimension_names_that_do_not_hold() -> None:
    n = networks.Net()
    shape = ["N", "M"]
    total = n.add("Mul", n.add("Add", "a", "b"), "c")
    model = n.model({"a": ("f", shape), "b": ("f", shape), "c": ("f", ["K", "M"])}, [total])
    session = sardonyx.InferenceSession(model.SerializeToString())
    for a, b, c in (
        ((3, 5), (3, 5), (3, 5)),
        ((3, 5), (1, 5), (3, 1)),
        ((1, 5), (4, 1), (1, 5)),
        ((1, 1), (1, 40), (7, 40)),
        ((0, 5), (1, 5), (1, 1)),
    ):
        feeds = {"a": _floats(*a), "b": _floats(*b), "c": _floats(*c)}
        want = (feeds["a"] + feeds["b"]) * feeds["c"]
        assert np.array_equal(session.run(None, feeds)[0], want)
    with pytest.raises(ValueError, match="wrong size|contradict"):
        session.run(None, {"a": _floats(3, 5), "b": _floats(2, 5), "c": _floats(3, 5)})


def _copies(model: Any) -> int:
    """Kernels of every run that only move elements."""
    graph = load(model.SerializeToString())
    optimise(graph)
    compiled, _ = compile_lowered(graph, lower(graph), host_target())
    groups = [i.group for i in compiled.invocations if any(r.constant is None for r in i.reads)]
    moved = [
        g for g in groups if isinstance(g, LoopNest) and all(is_view(s.body) for s in g.stages)
    ]
    return len(moved)


@pytest.mark.parametrize(
    ("build", "most"),
    [(networks.perceptron, 0), (networks.transformer, 0), (networks.convolutional, 2)],
)
def test_layout_copies(build: Any, most: int) -> None:
    assert _copies(build()) <= most


def test_feeds_that_no_plan_fits_are_refused_at_once():
    """A plan that leaves so many broadcasts to the run would need sizes of exponential length."""
    names = [f"x{k}" for k in range(40)]
    total, lines = "x0", []
    for k, name in enumerate(names[1:]):
        total, before = f"t{k}", total
        lines.append(f"{total} = Add({before}, {name})")
    declared = ", ".join(f"float[N] {name}" for name in names)
    text = f"g ({declared}) => (float[N] {total}) {{ {' '.join(lines)} }}"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    feeds = {name: np.full(4, k, np.float32) for k, name in enumerate(names)}
    np.testing.assert_array_equal(session.run(None, feeds)[0], np.full(4, sum(range(40))))
    feeds["x3"] = np.zeros(7, np.float32)
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="x3"):
            session.run(None, feeds)
