"""Ranges around what is launched for each node."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.inspection import inspect
from sardonyx.base import errors, knobs
from sardonyx.cuda.run import marks
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

_CUDA = ["CUDAExecutionProvider"]
_TEXT = """g (float[N,8] x, float[8,8] w) => (float[N,8] y)
    { a = MatMul(x, w) b = Softmax<axis=-1>(a) y = Softmax<axis=0>(b) }"""


class _Noted:
    """What was begun and ended; how much the device had been given by then."""

    def __init__(self, driver: FakeDriver | None) -> None:
        self.driver, self.open, self.names = driver, list[str](), list[str]()
        self.launches = list[int]()

    def push(self, name: str) -> None:
        self.open.append(name)
        self.names.append(name)
        self.launches.append(-self._count())

    def pop(self) -> None:
        self.open.pop()
        self.launches[-1] += self._count()

    def _count(self) -> int:
        return self.driver.launches if self.driver is not None else 0


@pytest.fixture
def noted(gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch) -> _Noted:
    found = _Noted(gpu)
    made = marks.Nvtx(found.push, found.pop)
    for module in (marks, "sardonyx.cuda.run.executable"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.find_nvtx", lambda: made)
    return found


def _session(text: str = _TEXT) -> ort.InferenceSession:
    model = model_of(text)
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    return ort.InferenceSession(model.SerializeToString(), providers=_CUDA)


def _feeds() -> dict[str, Any]:
    draw = np.random.default_rng(0).standard_normal
    return {n: draw((8, 8)).astype(np.float32) for n in "xw"}


def test_every_kernel_has_a_range(gpu: FakeDriver | None, noted: _Noted) -> None:
    session, feeds = _session(), _feeds()
    wanted = [session.run(None, feeds) for _ in range(3)][-1]
    assert noted.names == []
    with marks.nvtx_ranges():
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, feeds)[0], wanted[0])
    count = len(inspect(session).plan.commands)
    assert len(noted.names) == 2 * count and not noted.open
    assert any("MatMul_0" in name for name in noted.names)
    assert any("Softmax_2" in name for name in noted.names)
    if gpu is not None:
        assert noted.launches == [1] * (2 * count)
    session.run(None, feeds)
    assert len(noted.names) == 2 * count


def test_a_switch_marks_all_runs(gpu: FakeDriver | None, noted: _Noted) -> None:
    with knobs.override("SARDONYX_NVTX", True):
        session = _session()
    feeds = _feeds()
    for _ in range(3):
        session.run(None, feeds)
    assert len(noted.names) == 3 * len(inspect(session).plan.commands)
    assert "NVTX" in session.explain()


def test_runs_that_the_host_controls_have_one(gpu: FakeDriver | None, noted: _Noted) -> None:
    session = _session("g (float[N,8] x, float[8,8] w) => (int64[A,B] y) { y = NonZero(x) }")
    feeds = _feeds()
    with marks.nvtx_ranges():
        found = session.run(None, feeds)
    np.testing.assert_array_equal(found[0], np.stack(np.nonzero(feeds["x"])))
    assert len(noted.names) == 1 and not noted.open


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(marks, "_LIBRARIES", ("libnothing.so.0", "nvidia/nothing.so"))
    marks.find_nvtx.cache_clear()
    with pytest.raises(errors.EPFail, match="pip install nvtx"), marks.nvtx_ranges():
        pass
    marks.find_nvtx.cache_clear()
