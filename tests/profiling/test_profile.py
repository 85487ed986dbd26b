"""Profiles of runs: what is in them, and that nothing else changes."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base import errors, knobs
from sardonyx.cpu import recording
from sardonyx.cpu.launcher import CpuLauncher
from sardonyx.llvm.compile import compile_text
from sardonyx.llvm.module import emit_module
from sardonyx.native import kernel_times
from sardonyx.plan.steps import Together
from sardonyx.profiling.profile import Profile
from sardonyx.targets.machine import Caches, Machine
from sardonyx.targets.target import target_for
from tests.support.inside import runs_of
from tests.support.session import model_of
from tests.support.tolerances import is_near

_random = np.random.default_rng(6)


def _weights(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return {n: (_random.standard_normal(s) * 0.1).astype(np.float32) for n, s in shapes.items()}


_CHAIN = """g (float[N,32] x) => (float[N,64] y, float[N,1] m) {
    [first] a = MatMul(x, w)
    [second] b = Add(a, c)
    [third] y = Relu(b)
    [fourth] m = ReduceMean<axes = [1]>(y)
}"""
_LOOP = """g (float[16,16] x, int64 k) => (float[16,16] y) {
    on = Constant<value = bool {1}>()
    [loop] y = Loop(k, on, x) <body = one (int64 i, bool c, float[16,16] v) =>
        (bool d, float[16,16] w) {
        d = Identity(c)
        [inner] p = MatMul(v, q)
        [scale] w = Tanh(p)
    }>
}"""


def _session(
    text: str = _CHAIN,
    weights: Any = None,
    options: sardonyx.SessionOptions | None = None,
    opset: int = 17,
) -> sardonyx.InferenceSession:
    model = model_of(text, weights or _weights(w=(32, 64), c=(64,)), opset)
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def _threads(count: int, **more: Any) -> sardonyx.SessionOptions:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = count
    for name, value in more.items():
        setattr(options, name, value)
    return options


def _x(rows: int = 3) -> dict[str, Any]:
    return {"x": _random.standard_normal((rows, 32)).astype(np.float32)}


def _events(profile: Profile, folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(profile.save(folder / "p.json")).read_text())
    return found


def _nodes(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [e for e in events if e["cat"] == "Node"]


def test_a_file_has_what_onnxruntime_writes(tmp_path: Path) -> None:
    options = _threads(1, enable_profiling=True, profile_file_prefix=str(tmp_path / "run"))
    session = _session(options=options)
    feeds = _x(5)
    want = session.run(None, feeds)
    start_ns = session.get_profiling_start_time_ns()
    path = session.end_profiling()
    assert Path(path).parent == tmp_path
    assert re.fullmatch(r"run_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}\.json", Path(path).name)
    text = Path(path).read_text()
    assert text.startswith("[\n{")
    assert text.endswith("}\n]\n")
    events = json.loads(text)
    assert {e["ph"] for e in events} == {"X"}
    for event in events:
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert all(isinstance(event[name], int) for name in ("pid", "tid", "ts", "dur"))
        begin, took = (int(event["args"][name]) for name in ("start_ns", "duration_ns"))
        assert event["ts"] == begin // 1000
        assert event["ts"] + event["dur"] == (begin + took) // 1000
    names = [e["name"] for e in events if e["cat"] == "Session"]
    assert names[:2] == ["model_loading_array", "session_initialization"]
    assert names[-2:] == ["SequentialExecutor::Execute", "model_run"]
    assert {n for e in _nodes(events) for n in e["args"]["nodes"]} == {
        "first", "second", "third", "fourth",
    }  # fmt: skip
    assert {
        pair
        for e in _nodes(events)
        for pair in zip(e["args"]["nodes"], e["args"]["ops"], strict=True)
    } == {("first", "MatMul"), ("second", "Add"), ("third", "Relu"), ("fourth", "ReduceMean")}
    product = next(e for e in _nodes(events) if e["args"]["op_name"] == "MatMul")
    assert product["name"] == "first_kernel_time"
    facts = product["args"]
    assert facts["provider"] == "CPUExecutionProvider"
    assert facts["node_index"] == "0"
    assert facts["input_type_shape"][0] == {"float": [5, 32]}
    assert {"float": [5, 64]} in facts["output_type_shape"]
    assert facts["activation_size"] == str(5 * 32 * 4)
    assert int(facts["parameter_size"]) >= 4 * (32 * 64 + 64)
    assert int(facts["output_size"]) >= 5 * 64 * 4
    assert facts["operations"] == str(2 * 5 * 32 * 64)
    assert facts["thread_scheduling_stats"]["main_thread"]["block_size"]
    assert int(facts["mem_in_use_peak"]) >= int(facts["mem_bytes_in_use"])
    assert start_ns > 1_600_000_000 * 10**9
    assert session.end_profiling() == ""
    for mine, theirs in zip(session.run(None, feeds), want, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_kernels_lie_inside_their_run(tmp_path: Path) -> None:
    session = _session(options=_threads(2))
    session.run(None, _x(4000))
    with session.profile() as p:
        for _ in range(3):
            session.run(None, _x(4000))
    events = _events(p, tmp_path)
    runs = [e for e in events if e["name"] == "model_run"]
    assert len(runs) == 3
    slack_us = 50
    for event in events:
        if event["cat"] in ("Node", "Kernel"):
            end = event["ts"] + event["dur"]
            assert any(
                r["ts"] - slack_us <= event["ts"] and end <= r["ts"] + r["dur"] + slack_us
                for r in runs
            )
    blocks = [int(e["args"]["blocks"]) for e in events if e["cat"] == "Kernel"]
    claims = [
        sum(e["args"]["thread_scheduling_stats"]["main_thread"]["block_size"])
        for e in _nodes(events)
    ]
    assert sum(blocks) >= sum(claims)
    assert sum(blocks) > 0


def test_loops_and_their_copies_are_named(tmp_path: Path) -> None:
    session = _session(_LOOP, _weights(q=(16, 16)))
    x = _random.standard_normal((16, 16)).astype(np.float32)
    with session.profile() as p:
        session.run(None, {"x": x, "k": np.array(7)})
    nodes = _nodes(_events(p, tmp_path))
    assert sum("inner" in e["args"]["nodes"] for e in nodes) == 7
    # The count is read; what is carried is brought to where iterations compute it, and from there.
    assert sum(e["args"]["nodes"] == ["loop"] for e in nodes) == 1 + 2
    row = next(r for r in p.table() if "inner" in r.nodes)
    assert row.count == 7
    assert row.operations == 7 * 2 * 16**3


def test_calls_whose_blocks_change_from_iteration_to_iteration() -> None:
    text = """g (float[N,4] x, int64 k) => (float[M,4] y) {
        on = Constant<value = bool {1}>()
        [loop] y = Loop(k, on, x) <body = one (int64 i, bool c, float[A,4] v) =>
            (bool d, float[B,4] w) { d = Identity(c) [grow] w = Concat<axis = 0>(v, v) }>
    }"""
    session = _session(text, {}, _threads(2))
    x = _random.standard_normal((64, 4)).astype(np.float32)
    with session.profile() as p:
        (y,) = session.run(None, {"x": x, "k": np.array(9)})
    assert y.shape == (64 * 2**9, 4)
    counts = [r.count for r in p.table() if "grow" in r.nodes]
    assert counts
    assert set(counts) == {9}


def test_host_functions_are_timed(tmp_path: Path) -> None:
    text = "g (string[N] x) => (string[N] y) { [upper] y = StringNormalizer"
    text += '<case_change_action = "UPPER">(x) }'
    session = _session(text, {}, opset=20)
    with session.profile() as p:
        (y,) = session.run(None, {"x": np.array(["a", "bc"], object)})
    assert y.tolist() == ["A", "BC"]
    nodes = [e for e in _nodes(_events(p, tmp_path)) if "upper" in e["args"]["nodes"]]
    assert {e["args"]["op_name"] for e in nodes} == {"StringNormalizer"}
    assert any(
        e["args"]["kernel"] == "text.normalise" and int(e["args"]["duration_ns"]) for e in nodes
    )


def test_a_run_that_fails_is_in_the_profile(tmp_path: Path) -> None:
    session = _session(
        "g (float[N,4] x, int64[M] i) => (float[M,4] y) { y = Gather(x, i) }", {"z": 1}
    )
    x = np.zeros((3, 4), np.float32)
    with session.profile() as p:
        with pytest.raises(errors.SardonyxError, match="out of range"):
            session.run(None, {"x": x, "i": np.array([5])})
        session.run(None, {"x": x, "i": np.array([2])})
    runs = [e for e in _events(p, tmp_path) if e["name"] == "model_run"]
    assert ["error" in r["args"] for r in runs] == [True, False]
    assert "out of range" in runs[0]["args"]["error"]
    assert "1 failed" in repr(p)


def test_runs_like_the_last_one_are_noted_as_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has its own notes, also where memory for them is used up again and again."""
    monkeypatch.setattr(recording, "_LEAST_OF_BLOCKS", 1)
    monkeypatch.setattr(recording, "_LEAST_ROWS", 1)
    session = _session(options=_threads(1))
    rows = [2, 2, 2, 5, 5, 2, 2] * 40
    renewed = []
    renew = recording.Tracks.renew
    monkeypatch.setattr(
        recording.Tracks, "renew", lambda tracks: (renewed.append(tracks), renew(tracks))[1]
    )
    with session.profile() as profile:
        for n in rows:
            x = _x(n)
            y, m = session.run(None, x)
            assert is_near(m, y.mean(1, keepdims=True), "float: sums")
    assert len(renewed) > 5
    runs = list(profile.runs())
    assert [run.trace.sizes["N"] for run in runs] == rows
    assert {tuple(c.command for c in run.calls if c.shares) for run in runs} == {
        tuple(c.command for c in runs[0].calls if c.shares)
    }
    assert [run.calls[0].started_ns for run in runs] == sorted(
        run.calls[0].started_ns for run in runs
    )
    assert not any(run.trace.dropped or run.trace.error for run in runs)


def test_a_failure_in_a_run_like_the_last_one_is_in_the_profile() -> None:
    text = "g (float[8,4] x, int64[2] k) => (float[2,4] y) { y = Gather(x, k) }"
    session = _session(text, {})
    x = _random.standard_normal((8, 4)).astype(np.float32)
    with session.profile() as profile:
        for k in ([0, 7], [1, 2], [3, 9], [5, 5]):
            feeds = {"x": x, "k": np.array(k)}
            if max(k) < 8:
                np.testing.assert_array_equal(session.run(None, feeds)[0], x[k])
            else:
                with pytest.raises(errors.SardonyxError, match="Gather"):
                    session.run(None, feeds)
    assert [bool(run.trace.error) for run in profile.runs()] == [False, False, True, False]


def test_notes_of_a_run_that_begins_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run like the last one may find sizes that it cannot have: then it is another one."""
    session, inner = _session(options=_threads(1)), CpuLauncher.do_commands
    contradicted = []

    def contradict(launcher: CpuLauncher, *given: Any) -> int:
        code = inner(launcher, *given)
        if len(contradicted) == 1:
            return code
        contradicted.append(code)
        raise errors.ContradictingSizes("sizes")

    with session.profile() as profile:
        for number in range(4):
            if number == 2:
                monkeypatch.setattr(CpuLauncher, "do_commands", contradict)
            session.run(None, _x(2))
    runs = list(profile.runs())
    assert contradicted == [0]
    assert len(runs) == 4
    assert len({len(run.calls) for run in runs}) == 1
    assert {tuple(m.name for m in run.trace.moments) for run in runs[1:2]} == {("execute",)}
    assert [m.name for m in runs[2].trace.moments].count("execute") == 1


def test_branches_walked_side_by_side(tmp_path: Path) -> None:
    text = """g (float[64,64] a, int64 k) => (float[64,64] x, float[64,64] y) {
        on = Constant<value = bool {1}>()
        x = Loop(k, on, a) <body = one (int64 i, bool c, float[64,64] v) =>
            (bool d, float[64,64] w) { d = Identity(c) [left] w = MatMul(v, q) }>
        y = Loop(k, on, a) <body = two (int64 i, bool c, float[64,64] v) =>
            (bool d, float[64,64] w) { d = Identity(c) [right] w = MatMul(v, r) }>
    }"""
    session = _session(text, _weights(q=(64, 64), r=(64, 64)), _threads(2))
    feeds = {"a": np.eye(64, dtype=np.float32), "k": np.array(300)}
    session.run(None, feeds)
    with session.profile() as p:
        session.run(None, feeds)
    nodes = _nodes(_events(p, tmp_path))
    for name in ("left", "right"):
        assert (
            sum(name in e["args"]["nodes"] for e in nodes if e["args"]["operations"] != "0") == 300
        )


def test_several_threads_and_profiles_at_once() -> None:
    session = _session(options=_threads(2))
    feeds = [_x(k) for k in (1, 9, 70)]
    want = [session.run(None, f) for f in feeds]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            got = session.run(None, feeds[number])
            if not all(map(np.array_equal, got, want[number])):
                wrong.append(number)

    with session.profile() as outer:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        with session.profile() as inner:
            session.run(None, feeds[0])
        for thread in threads:
            thread.join()
    session.run(None, feeds[0])
    assert not wrong
    assert outer.table().runs == 61
    assert 1 <= inner.table().runs < 61
    assert {row.count for row in outer.table() if row.operator == "MatMul"} == {61}


def test_bindings_are_recorded_and_quick_again(tmp_path: Path) -> None:
    session = _session()
    feeds = _x()
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    y, m = np.zeros((3, 64), np.float32), np.zeros((3, 1), np.float32)
    for name, array in (("y", y), ("m", m)):
        value = sardonyx.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_output(name, value)
    for _ in range(3):
        session.run_with_iobinding(binding)
    with session.profile() as p:
        session.run_with_iobinding(binding)
        session.run_with_iobinding(binding)
    assert p.table().runs == 2
    session.run_with_iobinding(binding)
    assert binding.try_run()
    assert runs_of(session).try_run((feeds["x"],)) is not None
    assert p.table().runs == 2


def test_other_plans_are_recorded(tmp_path: Path) -> None:
    """One that there is already, and one that the first feeds of their sizes make."""
    session = _session(
        "g (float[N,4] x, float[N,4] z) => (float[N,4] y) { y = Add(x, z) }", {"q": 1}
    )
    x, one = np.ones((3, 4), np.float32), np.ones((1, 4), np.float32)
    with session.profile() as p:
        session.run(None, {"x": x, "z": x})
        session.run(None, {"x": x, "z": one})
    with session.profile() as again:
        session.run(None, {"x": x, "z": one})
    good = [t for t in p.traces if not t.error]
    assert len(good) == 2
    assert len({id(t.plan) for t in good}) == 2
    assert any(not t.error for t in again.traces)


def test_a_table_adds_up() -> None:
    session = _session()
    with session.profile() as p:
        for _ in range(4):
            session.run(None, _x(50))
    table = p.table()
    assert [row.total_ns for row in table] == sorted((r.total_ns for r in table), reverse=True)
    assert all(row.count == 4 for row in table)
    assert 0 < table.kernel_ns <= table.run_ns
    assert abs(sum(r.share for r in table) - table.kernel_ns / table.run_ns) < 1e-9
    product = next(r for r in table if r.operator == "MatMul")
    assert product.operations == 4 * 2 * 50 * 32 * 64
    assert product.gflops is not None
    assert "GFLOP/s" in str(table)
    assert "MatMul" in p._repr_html_()
    assert "<table>" in p._repr_html_()
    assert {r.name for r in p.table("operator")} >= {"MatMul"}
    assert "first" in {r.name for r in p.table("node")}
    with pytest.raises(errors.InvalidArgument, match="No such rows"):
        p.table("layer")
    assert repr(p).startswith("Profile(4 runs, ")


def test_an_empty_profile(tmp_path: Path) -> None:
    with _session().profile() as p:
        pass
    assert str(p.table()).startswith("no run was profiled")
    assert [e["name"] for e in _events(p, tmp_path)] == ["session_initialization"]


def test_a_full_profile_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = _session(_LOOP, _weights(q=(16, 16)))
    feeds = {"x": np.zeros((16, 16), np.float32), "k": np.array(3000)}
    with knobs.override("SARDONYX_PROFILE_EVENTS", 1000), caplog.at_level(logging.WARNING):
        with session.profile() as p:
            session.run(None, feeds)
            session.run(None, feeds)
        assert len(_events(p, tmp_path)) == 1000
    assert "Maximum number of events reached" in caplog.text
    assert "SARDONYX_PROFILE_EVENTS" in caplog.text
    assert p.dropped


def test_the_file_is_written_when_the_session_goes(tmp_path: Path) -> None:
    options = _threads(1, enable_profiling=True, profile_file_prefix=str(tmp_path / "gone"))
    session = _session(options=options)
    session.run(None, _x())
    del session
    gc.collect()
    (path,) = tmp_path.iterdir()
    assert any(e["name"] == "model_run" for e in json.loads(path.read_text()))


def test_interrupted_while_the_file_is_written_at_last(
    tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    options = _threads(1, enable_profiling=True, profile_file_prefix=str(tmp_path / "gone"))
    session = _session(options=options)
    session.run(None, _x())
    monkeypatch.setattr("sardonyx.profiling.chrome.events", stop)
    del session
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert "was left out: interrupted" in caplog.text


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    options = _threads(1, enable_profiling=True, profile_file_prefix=str(tmp_path / "no" / "run"))
    with pytest.raises(errors.InvalidArgument, match="folder does not exist"):
        _session(options=options)


def test_a_profile_from_the_cache_knows_as_much(tmp_path: Path) -> None:
    """Tensors and nodes come from the session's cache entry."""
    seen, weights = [], _weights(w=(32, 64), c=(64,))
    for _ in range(2):
        session = _session(weights=weights)
        with session.profile() as p:
            session.run(None, _x())
        seen.append(
            [(e["name"], e["args"]["input_type_shape"]) for e in _nodes(_events(p, tmp_path))]
        )
    assert "from cache" in session.timings
    assert seen[0] == seen[1]
    assert seen[0]


def test_unoptimised_graphs_have_a_kernel_for_each_node(tmp_path: Path) -> None:
    level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = _session(options=_threads(1, graph_optimization_level=level))
    with session.profile() as p:
        session.run(None, _x())
    nodes = _nodes(_events(p, tmp_path))
    assert {e["args"]["op_name"] for e in nodes} >= {"MatMul", "Add", "Relu", "ReduceMean"}
    assert all(len(e["args"]["nodes"]) <= 1 for e in nodes)


def test_onnxruntime_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tool that it prints its own profiles with."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        pytest.skip("onnxruntime is not installed: it is no dependency of the tests")
    monkeypatch.syspath_prepend(str(Path(spec.origin).parent / "transformers"))
    reader = importlib.import_module("profile_result_processor")
    session = _session()
    with session.profile() as p:
        session.run(None, _x(3000))
        session.run(None, _x(3000))
    events = reader.load_profile_json(p.save(tmp_path / "p.json"))
    assert any("first" in line for line in reader.parse_node_results(events))
    assert any("MatMul" in line for line in reader.parse_kernel_results(events))
    assert any("MatMul" in line for line in reader.group_node_results(events))


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    session = _session()
    with session.profile() as p:
        session.run(None, _x())
    (tmp_path / "p.json").mkdir()
    with pytest.raises(OSError, match=r"p\.json"):
        p.save(tmp_path / "p.json")
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]
    with pytest.raises(FileNotFoundError):
        p.save(tmp_path / "missing" / "p.json")


def test_memory_is_not_held_twice() -> None:
    session = _session()
    session.run(None, _x(2000))
    before = session.memory()["held_bytes"]
    with session.profile():
        session.run(None, _x(2000))
        assert session.memory()["held_bytes"] <= before
    session.run(None, _x(2000))
    assert session.memory()["held_bytes"] <= before


@pytest.mark.parametrize(
    ("isa", "arch", "clock"),
    [("neon", "aarch64", "cntvct_el0"), ("sse", "x86_64", "llvm.readcyclecounter")],
)
def test_every_processor_has_a_clock(isa: str, arch: str, clock: str) -> None:
    target = target_for(isa, Machine(arch, frozenset(), Caches()))
    text = emit_module([kernel_times.record(), kernel_times.clock()], target)
    assert clock in text
    assert compile_text(text, target)


def test_branches_of_a_graph_under_ort_parallel(tmp_path: Path) -> None:
    text = """g (float[N,256] x) => (float[N,256] y) {
        [a1] a = MatMul(x, w1) [a2] b = Tanh(a) [a3] c = MatMul(b, w2)
        [b1] d = MatMul(x, w3) [b2] e = Tanh(d) [b3] f = MatMul(e, w4)
        [join] y = Add(c, f)
    }"""
    weights = _weights(**{f"w{k}": (256, 256) for k in range(1, 5)})
    mode = sardonyx.ExecutionMode.ORT_PARALLEL
    session = _session(text, weights, _threads(2, execution_mode=mode))
    assert any(isinstance(step, Together) for step in inspect(session).plan.commands)
    feeds = {"x": _random.standard_normal((40, 256)).astype(np.float32)}
    (want,) = session.run(None, feeds)
    with session.profile() as p:
        for _ in range(5):
            np.testing.assert_array_equal(session.run(None, feeds)[0], want)
    events = _events(p, tmp_path)
    for name in ("a1", "a3", "b1", "b3"):
        assert sum(e["name"] == f"{name}_kernel_time" for e in _nodes(events)) == 5
    assert sum(e["name"] == "ParallelExecutor::Execute" for e in events) == 5
