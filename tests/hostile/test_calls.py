"""Options set to nonsense, methods called at the wrong time: a result, or a named error."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import sardonyx as ort
from sardonyx.api import thread_pool
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import Fail, InvalidArgument, SardonyxError
from sardonyx.datasets import get_example
from tests.hostile import calls
from tests.hostile.calls import NONSENSE, SUBJECTS, X, binding, session, value

METHODS = [(name, method) for name in SUBJECTS for method in calls.methods(name)]
PROPERTIES = [(name, prop) for name in SUBJECTS for prop in calls.properties(name)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("name", "method"), METHODS)
def test_nonsense_for_an_argument(monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    # Nonsense may be taken: other tests have the threads that all sessions share as they were.
    monkeypatch.setattr(thread_pool, "_shared_setup", thread_pool._shared_setup)
    start = time.monotonic()
    ended = {text: calls.ending(call) for text, call in calls.calls(name, method)}
    assert not {text: how for text, how in ended.items() if how}
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(("name", "prop"), PROPERTIES)
def test_nonsense_for_a_property(name: str, prop: str) -> None:
    for text, odd in NONSENSE.items():
        made = SUBJECTS[name].make()
        assert not calls.ending(lambda made=made, odd=odd: setattr(made, prop, odd)), text


def test_there_is_much_to_call() -> None:
    """Names come from the classes: none is left out because a class hides it."""
    assert len(METHODS) > 150 and len(PROPERTIES) > 25
    for name, subject in SUBJECTS.items():
        known = dir(subject.make())
        assert set(subject.good) <= set(known), name
        assert set(subject.left_out) <= set(known), name


def test_a_misfit_is_named_and_pythons_own_errors_stay() -> None:
    @names_misfits
    def add(a: Any, b: Any) -> Any:
        return a.there + b

    with pytest.raises(InvalidArgument, match=r"add\] An argument does not fit: AttributeError"):
        add(None, 1)
    with pytest.raises(TypeError, match="positional") as raised:
        add(1)  # type: ignore[call-arg]  # the mistake tested
    assert not isinstance(raised.value, SardonyxError)


def _run_twice_ended() -> None:
    options = ort.RunOptions()
    options.terminate = True
    for _ in range(2):
        with pytest.raises(SardonyxError):
            session().run(None, {"X": X}, options)
    options.terminate = False
    session().run(None, {"X": X}, options)


def _bind_the_wrong_sessions() -> None:
    session().run_with_iobinding(binding())


def _run_with_nothing_bound() -> None:
    made = session()
    made.run_with_iobinding(made.io_binding())


def _run_after_clearing() -> None:
    made = binding()
    made.run()
    made.clear_binding_inputs()
    made.run()


def _an_adapter_without_a_file() -> None:
    options = ort.RunOptions()
    options.add_active_adapter(ort.LoraAdapter())
    session().run(None, {"X": X}, options)


def _end_a_profile_that_never_began() -> None:
    made = session()
    assert made.end_profiling() == made.end_profiling() == ""
    raise Fail("it gives no file")


def _values_that_cannot_be_written() -> None:
    array = X.copy()
    array.flags.writeable = False
    ort.OrtValue.ortvalue_from_numpy(array).update_inplace(X)


def _sequences_as_tensors() -> None:
    ort.OrtValue([X]).numpy()


WRONG_TIMES: list[Callable[[], None]] = [
    _bind_the_wrong_sessions, _run_with_nothing_bound, _run_after_clearing,
    _an_adapter_without_a_file, _end_a_profile_that_never_began, _values_that_cannot_be_written,
    _sequences_as_tensors,
]  # fmt: skip


@pytest.mark.parametrize("call", WRONG_TIMES, ids=lambda call: call.__name__)
def test_the_wrong_time(call: Callable[[], None]) -> None:
    with pytest.raises(SardonyxError):
        call()


def test_options_that_end_runs_end_each() -> None:
    _run_twice_ended()


def _long() -> tuple[ort.InferenceSession, dict[str, Any]]:
    feeds = {"x": np.ones(4096, np.float32), "n": np.array(10**9)}
    loop = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Sin", ["a"], ["e"])], "b",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("c", 9, []),
         helper.make_tensor_value_info("a", 1, ["N"])],
        [helper.make_tensor_value_info("d", 9, []), helper.make_tensor_value_info("e", 1, ["N"])],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=loop)], "g",
        [helper.make_tensor_value_info("x", 1, ["N"]), helper.make_tensor_value_info("n", 7, [])],
        [helper.make_tensor_value_info("y", 1, ["N"])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString()), feeds


#: What another thread does to a session, or to the options of its run, meanwhile.
MEANWHILE: dict[str, Callable[[ort.InferenceSession], Any]] = {
    "trim": lambda s: s.trim(),
    "set_providers": lambda s: s.set_providers(["CPUExecutionProvider"]),
    "explain": lambda s: s.explain(verbose=True),
    "memory": lambda s: s.memory(),
    "run": lambda s: s.run(None, {"x": np.zeros(3, np.float32), "n": np.array(2)}),
    "a run that is wrong": lambda s: calls.ending(lambda: s.run(None, {"x": "no", "n": 1})),
    "end_profiling": lambda s: s.end_profiling(),
    "timings": lambda s: s.timings,
    "get_tuning_results": lambda s: s.get_tuning_results(),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_while_a_run_is_under_way(what: str) -> None:
    made, feeds = _long()
    options, ended = ort.RunOptions(), []

    def run() -> None:
        try:
            made.run(None, feeds, options)
        except SardonyxError as error:
            ended.append(type(error).__name__)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.05)
    try:
        MEANWHILE[what](made)
        assert thread.is_alive()
    finally:
        options.terminate = True
        thread.join(20)
    assert not thread.is_alive() and len(ended) == 1
    (y,) = made.run(None, {"x": np.zeros(3, np.float32), "n": np.array(2)})
    assert y.tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_callbacks_of_another_thread_that_raise() -> None:
    told = queue.Queue[threading.Thread]()

    def tell(*_: Any) -> None:
        told.put(threading.current_thread())
        raise SystemExit

    made = session()
    made.run_async(["Y"], {"X": X}, tell)
    told.get(timeout=10).join(10)  # its failure is this test's, not the next one's
    np.testing.assert_array_equal(made.run(None, {"X": X})[0], X * X)


def test_what_was_awaited_is_over() -> None:
    async def twice() -> None:
        async_runs = session().run_async({"X": X})
        await async_runs
        with pytest.raises(RuntimeError, match="already"):
            await async_runs

    asyncio.run(twice())


def test_binding_and_values_outlive_what_they_came_from() -> None:
    made = binding()
    made.run()
    outputs = made.get_outputs()
    del made
    np.testing.assert_array_equal(outputs[0].numpy(), X * X)
    compiler = ort.ModelCompiler(ort.SessionOptions(), get_example("mul_1.onnx"))
    assert compiler.compile_to_bytes() and compiler.compile_to_bytes()
    assert value().numpy().tolist() == X.tolist()
