"""Like runs after something has gone wrong, or in the middle of what another thread does."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.run import executable, marks
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.replaying import Replay
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.storage import OutputPlacement
from tests.support.fake_driver import FakeDriver
from tests.support.inside import executable_of
from tests.support.session import model_of

_SUM = "g (float[N] x, float[1] w) => (float[N] y) { a = Mul(x, w) y = Add(a, x) }"
_BRANCH = """g (float[N] x, float[N] w) => (float[N] y) {
    c = ReduceSum<keepdims=0>(x) zero = Constant<value=float {0.0}>() b = Greater(c, zero)
    y = If(b) <then_branch = t () => (float[N] p) { p = Add(x, w) },
        else_branch = e () => (float[N] q) { q = Sub(x, w) }> }"""
_TRIPS = 2000
_LOOP = """g (float[N] x, int64 n) => (float[N] y) {
    t = Constant<value=bool {1}>()
    y = Loop(n, t, x) <body = b (int64 i, bool c, float[N] v) => (bool d, float[N] u) {
        d = Identity(c) o = Constant<value_float=1.0>() u = Add(v, o) }> }"""
_OUT_OF_MEMORY = 2


def _session(text: str) -> ort.InferenceSession:
    model = model_of(text).SerializeToString()
    return ort.InferenceSession(model, providers=["CUDAExecutionProvider"])


def _value(array: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


def _ones(number: float = 1, size: int = 9) -> Any:
    return np.full(size, number, np.float32)


def _left() -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


@pytest.mark.parametrize("refused", ["cuMemcpyAsync", "cuGraphLaunch", "cuStreamSynchronize"])
def test_the_run_after_a_refused_one_writes_to_its_own_memory(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """What was sent before is there no more, though that run failed."""
    session, outs, bindings = _session(_SUM), [], []
    for number in range(2):
        outs.append(_value(_ones(0)))
        bindings.append(session.io_binding())
        bindings[-1].bind_ortvalue_input("x", _value(_ones(number + 1)))
        bindings[-1].bind_ortvalue_input("w", _value(_ones(1, 1)))
        bindings[-1].bind_ortvalue_output("y", outs[-1])
    for _ in range(2):
        session.run_with_iobinding(bindings[0])
    with monkeypatch.context() as patch:
        patch.setattr(lazy, refused, lambda *_: (_OUT_OF_MEMORY,), raising=False)
        with pytest.raises(SardonyxError, match=refused):
            session.run_with_iobinding(bindings[1])
    for out in outs:
        out.update_inplace(_ones(0))
    session.run_with_iobinding(bindings[0])
    assert [out.numpy()[0] for out in outs] == [2, 0]


def test_a_loop_that_ends_as_it_is_cancelled(
    gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to end behind its last trip; the next run's loop is not."""
    session = _session(_LOOP)
    feeds = {"x": _value(_ones()), "n": _value(np.array(_TRIPS))}
    for _ in range(3):
        session.run_with_ort_values(None, feeds)
    finish = CudaFrame.finish

    def late(self: CudaFrame, cancel: CancelFlag | None = None) -> None:
        finish(self)
        self.contexts.stop()

    with monkeypatch.context() as patch:
        patch.setattr(CudaFrame, "finish", late)
        session.run_with_ort_values(None, feeds, ort.RunOptions())
    for _ in range(2):
        assert session.run_with_ort_values(None, feeds)[0].numpy()[0] == _TRIPS + 1


@pytest.mark.parametrize("is_over", [True, False])
def test_a_loop_after_one_that_was_cancelled_and_forgotten(
    gpu: FakeDriver | None, is_over: bool
) -> None:
    session = _session(_LOOP)
    feeds = {"x": _value(_ones()), "n": _value(np.array(_TRIPS))}
    for _ in range(3):
        session.run_with_ort_values(None, feeds)
    executable = executable_of(session)
    cancel, wanted = CancelFlag(), OutputPlacement([executable.facts.memory_kind], waits=False)
    started = executable.start([x._array for x in feeds.values()], wanted, cancel)
    cancel.set()
    while not started.is_over and is_over:
        pass
    del started
    for _ in range(2):
        assert session.run_with_ort_values(None, feeds)[0].numpy()[0] == _TRIPS + 1


def test_graphs_are_released_in_the_middle_of_a_run(
    gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, values = _session(_BRANCH), [_value(_ones(k + 1)) for k in range(3)]
    for _ in range(3):
        session.run_with_ort_values(None, {"x": values[0], "w": values[0]})
    rewrite, asked = Replay.rewrite, []

    def released(self: Replay) -> bool:
        asked.append(session.release_captured_graph(0))
        return rewrite(self)

    monkeypatch.setattr(Replay, "rewrite", released)
    (found,) = session.run_with_ort_values(None, {"x": values[1], "w": values[2]})
    assert asked and found.numpy()[0] == 5


def test_marks_of_runs_whose_graph_has_a_number(
    gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[Any] = []
    nvtx = marks.Nvtx(names.append, lambda: None)
    for module in (marks, executable):
        monkeypatch.setattr(module, "find_nvtx", lambda: nvtx)
    session, options = _session(_SUM), ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "0")
    feeds = {"x": _value(_ones()), "w": _value(_ones(1, 1))}
    for _ in range(3):
        session.run_with_ort_values(None, feeds, options)
    with marks.nvtx_ranges():
        session.run_with_ort_values(None, feeds, options)
    assert names


class _Owner:
    pass


def test_memory_of_others_is_let_go_of_by_the_next_run(gpu: FakeDriver | None) -> None:
    session, held, owner = _session(_SUM), _value(_ones(3)), _Owner()
    x, w = _value(_ones()), _value(_ones(1, 1))
    for _ in range(3):
        session.run_with_ort_values(None, {"x": x, "w": w})
    array, kept = held._array, weakref.ref(owner)
    foreign = ort.OrtValue(array.kind.at(array.address, (9,), np.dtype("f4"), owner))
    del owner
    (found,) = session.run_with_ort_values(None, {"x": foreign, "w": w}, _left())
    del foreign
    (found,) = session.run_with_ort_values(None, {"x": found, "w": w})
    gc.collect()
    assert kept() is None and found.numpy()[0] == 12
