"""Errors can be caught by the names that callers of onnxruntime expect, and by Python's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of


def _floats(*shape: int) -> Any:
    return np.ones(shape, np.float32)


_FAR = np.full((2, 1), 3)
#: Operator: model, feeds, the class that onnxruntime 1.31.1 raises, Python's.
DATA: dict[str, tuple[str, dict[str, Any], type, type]] = {
    "Gather": (
        "g (float[N] x, int64[K, L] i) => (float[K, L] y) { y = Gather(x, i) }",
        {"x": _floats(3), "i": _FAR}, errors.InvalidArgument, IndexError,
    ),
    "GatherElements": (
        "g (float[N, M] x, int64[K, L] i) => (float[K, L] y) { y = GatherElements(x, i) }",
        {"x": _floats(3, 1), "i": _FAR}, errors.Fail, IndexError,
    ),
    "GatherND": (
        "g (float[N] x, int64[K, 1] i) => (float[K] y) { y = GatherND(x, i) }",
        {"x": _floats(3), "i": _FAR}, errors.InvalidArgument, IndexError,
    ),
    "ScatterElements": (
        "g (float[N, M] x, int64[K, L] i, float[K, L] u) => (float[N, M] y)"
        " { y = ScatterElements(x, i, u) }",
        {"x": _floats(3, 1), "i": _FAR, "u": _floats(2, 1)}, errors.InvalidArgument, IndexError,
    ),
    "ScatterND": (
        "g (float[N] x, int64[K, 1] i, float[K] u) => (float[N] y) { y = ScatterND(x, i, u) }",
        {"x": _floats(3), "i": _FAR, "u": _floats(2)}, errors.InvalidArgument, IndexError,
    ),
    "TopK": (
        "g (float[N] x, int64[1] k) => (float[K] y, int64[K] i) { y, i = TopK(x, k) }",
        {"x": _floats(3), "k": np.array([4])}, errors.Fail, IndexError,
    ),
    "Div": (
        "g (int32[N] x, int32[N] z) => (int32[N] y) { y = Div(x, z) }",
        {"x": np.ones(2, np.int32), "z": np.zeros(2, np.int32)}, errors.Fail, ZeroDivisionError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_data_that_cannot_be(name: str) -> None:
    text, feeds, theirs, pythons = DATA[name]
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    for kind in (theirs, pythons, errors.RuntimeException):
        with pytest.raises(kind, match=f"node {name}"):
            session.run(None, feeds)


def test_data_that_cannot_be_where_another_plan_runs() -> None:
    """The plan for sizes that contradict names gives its own error, not the contradiction."""
    text = (
        "g (float[N] x, float[N] w, int64[1] i) => (float[M] y) { s = Add(x, w) y = Gather(s, i) }"
    )
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    with pytest.raises(errors.IndexOutOfRange, match="index 3 is out of range"):
        session.run(None, {"x": _floats(3), "w": _floats(1), "i": np.array([3])})


def test_data_that_cannot_be_in_bound_memory() -> None:
    session = sardonyx.InferenceSession(model_of(DATA["Gather"][0]).SerializeToString())
    binding, result = session.io_binding(), _floats(2, 1)
    for name, feed in DATA["Gather"][1].items():
        binding.bind_cpu_input(name, feed)
    binding.bind_ortvalue_output("y", sardonyx.OrtValue.ortvalue_from_numpy(result))
    with pytest.raises(IndexError, match="index 3 is out of range"):
        session.run_with_iobinding(binding)


MODEL = model_of("g (float[N] x) => (float[N] y) { y = Neg(x) }").SerializeToString()
FEEDS = {"x": _floats(2)}


def _made(**arguments: Any) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(MODEL, **arguments)


#: Calls whose arguments are of a type that is not taken: TypeError, as in onnxruntime.
CALLS: dict[str, Callable[[], Any]] = {
    "no model": lambda: sardonyx.InferenceSession(3),
    "options": lambda: _made(sess_options={"intra_op_num_threads": 1}),
    "providers": lambda: _made(providers="CPUExecutionProvider"),
    "names": lambda: _made().run("y", FEEDS),
    "feeds": lambda: _made().run(None, [_floats(2)]),
    "options of a run": lambda: _made().run(None, FEEDS, {"terminate": False}),
    "a callback": lambda: _made().run_async(None, FEEDS, "print"),
    "feeds of a callback": lambda: _made().run_async(None, [_floats(2)], print),
    "a number": lambda: setattr(sardonyx.SessionOptions(), "intra_op_num_threads", "two"),
    "an entry": lambda: sardonyx.SessionOptions().add_session_config_entry("a", 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_other_types(name: str) -> None:
    for kind in (TypeError, errors.InvalidArgument):
        with pytest.raises(kind):
            CALLS[name]()


def test_a_callback_waits_for_no_missing_feed() -> None:
    called: list[Any] = []
    with pytest.raises(ValueError, match=r"\['x'\]\) are missing"):
        _made().run_async(None, {}, lambda *given: called.append(given))
    assert not called
