"""A fixed part of the fuzzer, and what it is made of."""

from __future__ import annotations

import ctypes

import numpy as np
import onnx
import pytest

from sardonyx.base import dtypes
from sardonyx.tensor.noise import Noise
from tests.fuzz import compare, shrink
from tests.fuzz.graphs import Case, make
from tests.support.oracle import Oracle
from tests.support.session import model_of

_SEEDS = range(36)


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    monkeypatch.setenv("SARDONYX_COMPILE_PROCESSES", "1")


@pytest.mark.parametrize("seed", _SEEDS)
def test_fused_and_unfused_equal_the_evaluator(seed: int) -> None:
    case = make(seed)
    found = compare.difference(case.model, case.feeds, threads=1 + seed % 2)
    assert not found, f"python -m tests.fuzz.campaign --seed {seed}: {found}"


def test_graphs_are_valid_and_the_same_for_the_same_seed() -> None:
    for seed in range(100, 150):
        case = make(seed)
        onnx.checker.check_model(case.model)
        assert case.model.SerializeToString() == make(seed).model.SerializeToString()


def test_noise_moves_what_is_rounded_and_leaves_whole_numbers() -> None:
    exact = np.array([0.1, 3.0, 1 / 3, -7.0, 1e8 + 1])
    moved = Noise(1).rounded(exact, dtypes.FLOAT, np.abs(exact))
    assert list(moved == exact) == [False, True, False, True, False]
    assert np.all(np.abs(moved - exact) <= 2.0**-24 * np.abs(exact))
    left = np.array([0.25, 0.25])  # of 0.1 and 1/3 and so on, of 1 and -0.75
    moved = Noise(1).rounded(left, dtypes.FLOAT, np.array([0.1 + 1 / 3, 1.75]))
    assert list(moved == left) == [False, True]
    whole = np.array([0.5, 2.0, 1e15])
    assert np.array_equal(Noise(1).rounded(whole, dtypes.DOUBLE, 1.0), whole)


#: Equal terms, whose rounding errors do not cancel when they are added one after the other.
_SUMS = {
    "CumSum": "y = CumSum(x, axis)",
    "ReduceSum": "y = ReduceSum<keepdims = 0>(x)",
    "MatMul": "y = MatMul(x, x)",
}


@pytest.mark.parametrize("operator", _SUMS)
def test_noise_of_sums_is_as_large_as_their_errors(operator: str) -> None:
    axes = "A" if operator == "CumSum" else ""
    text = f"g (float[N] x) => (float[{axes}] y) <int64 axis = {{0}}> {{ {_SUMS[operator]} }}"
    model = model_of(text)
    x = np.full(3000, 0.15039417, np.float32)
    terms = x * x if operator == "MatMul" else x
    in_order = np.cumsum(terms, dtype=np.float32)  # the least careful kernel that is not wrong
    (want,) = Oracle(model).run({"x": x}, double=True)
    yardstick = compare._Yardstick(Oracle(model), {"x": x}, [want])
    got = in_order if operator == "CumSum" else in_order[-1]
    assert not np.any(yardstick.unexplained(0, got))
    assert np.any(yardstick.unexplained(0, got * np.float32(1.01)))


#: Add, Softmax, Neg; another output.
_TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N] x) => (float[N] y, float[N] z) {
    a = Add(x, x) b = Softmax(a) y = Neg(b) z = Exp(x)
}"""


def _case() -> Case:
    x = np.linspace(-1, 1, 5).astype(np.float32)
    return Case(0, onnx.parser.parse_model(_TEXT), [{"x": x}] * 3)


def test_the_evaluator_checks_what_a_body_takes_for_granted_first() -> None:
    text = """g (float[N,4] x, float[7,4] y, bool c) => (float[A,4] z) {
        z = If(c) <then_branch = t () => (float[B,4] a) { a = Add(x, y) },
                   else_branch = e () => (float[C,4] b) { b = Identity(x) }> }"""
    feed = {"x": np.ones((1, 4), np.float32), "y": np.ones((7, 4), np.float32), "c": np.array(True)}
    (z,) = Oracle(model_of(text)).run(feed)  # not 7 rows of x, but one
    np.testing.assert_array_equal(z, np.full((7, 4), 2.0))


def test_wrong_results_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = _case()
    assert not compare.difference(case.model, case.feeds)
    real = compare._session

    def wrong(model: onnx.ModelProto, kind: str, threads: int) -> object:
        session = real(model, kind, threads)

        class _Wrong:
            def run(self, names: object, feed: dict, out: object = None) -> list:
                y, z = session.run(None, feed, out=out)
                return [y, z * np.float32(1 + 1e-5)] if kind == "unfused" else [y, z]

        return _Wrong()

    monkeypatch.setattr(compare, "_session", wrong)
    found = compare.difference(case.model, case.feeds)
    assert found.startswith("unfused run 0: output 1 (z) differs: 5 of 5")


@pytest.mark.parametrize("place", [-1, 5])
def test_what_is_written_beside_a_result_is_found(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = _case()
    real = compare._session

    def careless(model: onnx.ModelProto, kind: str, threads: int) -> object:
        session = real(model, kind, threads)

        class _Careless:
            def run(self, names: object, feed: dict, out: list[np.ndarray]) -> None:
                session.run(None, feed, out=out)
                at = out[1].ctypes.data + place * out[1].itemsize
                ctypes.c_uint8.from_address(at).value ^= 1

        return _Careless()

    monkeypatch.setattr(compare, "_session", careless)
    found = compare.difference(case.model, case.feeds)
    assert found == "fused run 0: 1 bytes beside output 1 were written"


def test_a_graph_that_differs_gets_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretended(model: onnx.ModelProto, feeds: object, threads: int = 1) -> str:
        bad = any(n.op_type == "Softmax" for n in model.graph.node)
        return "fused run 0: output 0 differs" if bad else ""

    monkeypatch.setattr(shrink, "difference_or_crash", pretended)
    smaller = shrink.shrink(_case())
    assert [n.op_type for n in smaller.model.graph.node] == ["Softmax"]
    assert "differs" in shrink.report(smaller)
