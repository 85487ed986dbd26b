"""Times of the kernels of a run, by events between them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.inspection import inspect
from sardonyx.api.providers import cuda_is_missing
from sardonyx.base import knobs, notes
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.run import marks
from sardonyx.cuda.run.timing import Timeline, kernel_times
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_CUDA = ["CUDAExecutionProvider"]
_TEXT = """g (float[N,8] x, float[8,8] w) => (float[N,8] y)
    { a = MatMul(x, w) b = Softmax<axis=-1>(a) y = Softmax<axis=0>(b) }"""


def _session(text: str, providers: Any = _CUDA) -> ort.InferenceSession:
    model = model_of(text)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    return ort.InferenceSession(model.SerializeToString(), providers=providers)


def _feeds() -> dict[str, Any]:
    draw = np.random.default_rng(0).standard_normal
    return {n: draw((8, 8)).astype(np.float32) for n in "xw"}


def test_every_kernel_is_measured_once(gpu: FakeDriver | None) -> None:
    session, feeds = _session(_TEXT), _feeds()
    wanted = [session.run(None, feeds) for _ in range(3)][-1]
    with kernel_times() as times:
        found = session.run(None, feeds)
        assert len(times.kernels) == len(inspect(session).plan.commands)
        session.run(None, feeds)
    np.testing.assert_array_equal(found[0], wanted[0])
    session.run(None, feeds)
    count = len(times.kernels) // 2
    assert [k.kernel for k in times.kernels[:count]] == [k.kernel for k in times.kernels[count:]]
    nodes = [name for k in times.kernels[:count] for name in k.nodes]
    assert {"MatMul_0", "Softmax_1", "Softmax_2"} <= set(nodes)
    starts = [k.start_ns for k in times.kernels[:count]]
    assert starts == sorted(starts)
    assert all(k.duration_ns > 0 for k in times.kernels)
    assert times.late == 0


def test_a_stream_is_not_held_for_ever(
    lazy: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, feeds = _session(_TEXT), _feeds()
    wanted = session.run(None, feeds)
    monkeypatch.setattr(Timeline, "let_go", lambda timeline: None)
    with session.profile() as profile:
        found = session.run(None, feeds)
    np.testing.assert_array_equal(found[0], wanted[0])
    assert "waited for the host" in Path(profile.save(tmp_path / "p.json")).read_text()


@pytest.mark.skipif(bool(cuda_is_missing()), reason="there is no GPU with a driver")
def test_others_may_give_memory_back_meanwhile() -> None:
    """Which waits for the whole device, and lets nobody launch until then."""
    session, feeds = _session(_TEXT), _feeds()
    wanted = session.run(None, feeds)
    ended = threading.Event()

    def give_back() -> None:
        device(0).enter()
        while not ended.is_set():
            call("cuMemFree", int(call("cuMemAlloc", 1 << 20)))

    thread = threading.Thread(target=give_back)
    thread.start()
    try:
        with kernel_times() as times:
            for _ in range(20):  # another algorithm may be found meanwhile
                assert_near(session.run(None, feeds)[0], wanted[0], "float: functions")
    finally:
        ended.set()
        thread.join()
    assert len(times.kernels) == 20 * len(inspect(session).plan.commands)


def test_runs_that_the_host_controls(gpu: FakeDriver | None) -> None:
    session = _session("g (float[N,8] x, float[8,8] w) => (int64[A,B] y) { y = NonZero(x) }")
    feeds = _feeds()
    for _ in range(2):
        with kernel_times() as times:
            found = session.run(None, feeds)
        np.testing.assert_array_equal(found[0], np.stack(np.nonzero(feeds["x"])))
        assert {k.nodes for k in times.kernels} == {("NonZero_0",)}
        starts = [k.start_ns for k in times.kernels]
        assert starts == sorted(starts)
        assert all(k.duration_ns >= 0 for k in times.kernels)
    np.testing.assert_array_equal(session.run(None, feeds)[0], found[0])


_LOOP = """g (float[N,8] x, float[8,8] w, int64 k, bool c) => (float[N,8] y) {
    [sums] r = Loop(k, , x) <body = one (int64 i, bool d, float[A,8] v) => (bool e, float[A,8] u) {
        e = Identity(d) [step] u = MatMul(v, w) }>
    [branch] b = If(c) <then_branch = p () => (float[A,8] s) { [yes] s = Sin(r) },
        else_branch = q () => (float[A,8] t) { [no] t = Cos(r) }>
    y = Neg(b) }"""


@pytest.mark.parametrize("trips", [0, 1, 3])
@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("graphs", ["0", "1"])
def test_loops_and_branches(gpu: FakeDriver | None, graphs: str, taken: bool, trips: int) -> None:
    options = {"enable_cuda_graph": graphs, "use_tf32": "0"}
    session = _session(_LOOP, [("CUDAExecutionProvider", options)])
    feeds = _feeds() | {"k": np.int64(trips), "c": np.array(taken)}
    wanted = session.run(None, feeds)
    with kernel_times() as times:
        found = session.run(None, feeds)
    # What is measured the host controls, and in its loops our kernel does what else a library does:
    # sines of numbers up to 100, which are the same but for some units in their last place.
    assert_near(found[0], wanted[0], "float: sines")
    nodes = [name for k in times.kernels for name in k.nodes]
    assert nodes.count("step") == trips, nodes
    assert ("yes" in nodes, "no" in nodes) == (taken, not taken)


def test_a_replayed_binding_is_measured(gpu: FakeDriver | None) -> None:
    session, feeds = _session(_TEXT), _feeds()
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    binding.bind_output("y", "cuda", 0, np.float32, [8, 8])
    for _ in range(4):
        session.run_with_iobinding(binding)
    with kernel_times() as times:
        session.run_with_iobinding(binding, ort.RunOptions())
    assert len(times.kernels) == len(inspect(session).plan.commands)


def test_profiles_have_what_the_device_measured(gpu: FakeDriver | None, tmp_path: Path) -> None:
    session, feeds = _session(_TEXT), _feeds()
    session.warmup(feeds)  # libraries may find other algorithms until then, of other bits
    wanted = [session.run(None, feeds) for _ in range(3)][-1]
    with session.profile() as p, kernel_times() as times:
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, feeds)[0], wanted[0])
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    binding.bind_output("y", "cuda", 0, np.float32, [8, 8])
    with session.profile() as bound:
        session.run_with_iobinding(binding)
    count = len(inspect(session).plan.commands)
    assert [sum(row.count for row in x.table()) for x in (p, bound)] == [2 * count, count]
    assert len(times.kernels) == 2 * count
    assert "profiled runs are no CUDA graphs" in p.table().summary
    assert "\n" not in p.table().summary
    events = json.loads(Path(p.save(tmp_path / "p.json")).read_text())
    nodes = [e for e in events if e["cat"] == "Node"]
    kernels = [e for e in events if e["cat"] == "Kernel"]
    assert {e["args"]["provider"] for e in nodes} == {"CUDAExecutionProvider"}
    assert {(e["pid"], e["tid"]) for e in kernels} == {(-1, -1)}
    assert [e["ts"] for e in nodes] == [e["ts"] for e in kernels]
    np.testing.assert_array_equal(session.run(None, feeds)[0], wanted[0])


def test_a_profile_has_kernels_of_runs_that_the_host_controls(
    gpu: FakeDriver | None, tmp_path: Path
) -> None:
    session = _session("g (float[N,8] x, float[8,8] w) => (int64[A,B] y) { y = NonZero(x) }")
    with session.profile() as p:
        for _ in range(2):
            session.run(None, _feeds())
    events = json.loads(Path(p.save(tmp_path / "p.json")).read_text())
    assert sum(e["name"] == "model_run" for e in events) == 2
    kernels = [e for e in events if e.get("cat") == "Kernel"]
    assert kernels and len(kernels) % 2 == 0


@pytest.mark.parametrize("name", ["kernel_times()", "nvtx_ranges()"])
@pytest.mark.parametrize("on_gpu", [True, False])
def test_what_measures_nothing_says_so_once(
    name: str, on_gpu: bool, gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(notes, "_noted", set())
    nothing = marks.Nvtx(lambda name: None, lambda: None)
    monkeypatch.setattr(marks, "find_nvtx", lambda: nothing)
    session = _session(_TEXT) if on_gpu else _session(_TEXT, ["CPUExecutionProvider"])
    around = {"kernel_times()": kernel_times, "nvtx_ranges()": marks.nvtx_ranges}[name]
    for _ in range(2):
        with around():
            session.run(None, _feeds())
    found = [r.getMessage() for r in caplog.records if "has no effect" in r.getMessage()]
    assert [text.partition(" has no effect: no kernel ran on a GPU")[0] for text in found] == (
        [] if on_gpu else [name]
    )


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_switch_that_marks_nothing_says_so(
    on_gpu: bool, gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(notes, "_noted", set())
    nothing = marks.Nvtx(lambda name: None, lambda: None)
    monkeypatch.setattr("sardonyx.cuda.run.executable.find_nvtx", lambda: nothing)
    monkeypatch.setattr(marks, "find_nvtx", lambda: nothing)
    with knobs.override("SARDONYX_NVTX", True):
        session = _session(_TEXT) if on_gpu else _session(_TEXT, ["CPUExecutionProvider"])
    with marks.nvtx_ranges():
        session.run(None, _feeds())
    found = [r.getMessage() for r in caplog.records if "has no effect" in r.getMessage()]
    expected = [] if on_gpu else ["SARDONYX_NVTX has no effect: the session runs on the processor"]
    assert [text.partition(",")[0] for text in found[:1]] == expected
