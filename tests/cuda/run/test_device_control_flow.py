"""Branches and loops as nodes of CUDA graphs: what they compute, and what happens to them."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.inspection import inspect
from sardonyx.base import errors
from sardonyx.cuda.run import device_state
from sardonyx.plan.control_flow import ParallelParts
from tests.cuda.run.test_captured import _captured as captured
from tests.support.fake_driver import FakeDriver
from tests.support.inside import executable_of
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CUDA = "CUDAExecutionProvider"
_random = np.random.default_rng(17)


def _few_bits(*shape: int) -> Any:
    return (_random.integers(-8, 9, shape) / 8).astype(np.float32)


class Case(NamedTuple):
    text: str
    feeds: list[dict[str, Any]]
    weights: dict[str, Any] = {}  # noqa: RUF012 - nothing writes to it


def _rows(*sizes: int, **others: Any) -> list[dict[str, Any]]:
    return [{"x": _few_bits(t, 5), "h": _few_bits(5), **others} for t in sizes]


_SIZE = "k = Shape<start=0, end=1>(x) n = Squeeze(k)"
CASES = {
    "counted, with slices": Case(
        f"""g (float[T,N] x, float[N] h) => (float[N] y, float[S,N] z) {{ {_SIZE}
        y, z = Loop(n, , h) <body = b (int64 i, bool c, float[N] s) =>
            (bool d, float[N] t, float[N] u) {{ d = Identity(c) a = Gather(x, i)
            e = Add(a, s) t = Tanh(e) u = Neg(t) }}> }}""",
        _rows(3, 4, 1, 0, 70),
    ),
    "as often as is fed": Case(
        """g (float[N] x, int64 n) => (float[N] y) { y = Loop(n, , x) <body = b
        (int64 i, bool c, float[N] s) => (bool d, float[N] t) { d = Identity(c) t = Tanh(s) }> }""",
        [{"x": _few_bits(9), "n": np.array(n)} for n in (3, 0, 1, 200, -4)],
    ),
    "as long as a condition holds": Case(
        """g (float[N] x, bool first) => (float[N] y) { y = Loop(, first, x) <body = b
        (int64 i, bool c, float[N] s) => (bool d, float[N] t) { t = Mul(s, half)
            m = ReduceMax<keepdims=0>(t) d = Greater(m, small) }> }""",
        [{"x": 100 * _few_bits(7) + 50, "first": np.array(c)} for c in (True, False, True)],
        {"half": np.float32(0.5), "small": np.float32(0.1)},
    ),
    "a branch": Case(
        """g (float[N] x, bool c) => (float[N] y) { a = Exp(x) y = If(c)
        <then_branch = t () => (float[N] u) { b = Neg(a) u = CumSum(b, zero) },
         else_branch = e () => (float[N] v) { v = CumSum(a, zero) }> }""",
        [{"x": _few_bits(n), "c": np.array(c)} for n in (6, 3) for c in (True, False, True)],
        {"zero": np.int64(0)},
    ),
    "a branch that does nothing": Case(
        """g (float[N] x) => (float[N] y) { s = ReduceSum<keepdims=0>(x) c = Greater(s, limit)
        y = If(c) <then_branch = t () => (float[N] u) { u = Identity(x) },
         else_branch = e () => (float[N] v) { v = CumSum(x, zero) }> }""",
        [{"x": _few_bits(6) + s} for s in (-2, 2)],
        {"zero": np.int64(0), "limit": np.float32(0)},
    ),
    "branches in a loop": Case(
        """g (float[N] x, int64 n) => (float[N] y) { y = Loop(n, , x) <body = b
        (int64 i, bool c, float[N] s) => (bool d, float[N] t) { d = Identity(c)
            r = Mod(i, three) even = Equal(r, one) t = If(even)
            <then_branch = p () => (float[N] u) { u = CumSum(s, zero) },
             else_branch = q () => (float[N] v) { lo = ReduceMin<keepdims=0>(s) w = Sub(s, lo)
                v = Sqrt(w) }> }> }""",
        [{"x": _few_bits(5), "n": np.array(n)} for n in (7, 2)],
        {"zero": np.int64(0), "one": np.int64(1), "three": np.int64(3)},
    ),
    "a loop in a branch in a loop": Case(
        """g (float[N] x, int64 n, int64 m) => (float[N] y, float[K,N] z) { y, z = Loop(five, , x)
        <body = b (int64 i, bool c, float[N] s) => (bool d, float[N] t, float[N] all)
            { d = Identity(c) more = Less(i, n) t = If(more)
            <then_branch = p () => (float[N] u) { u = Loop(m, , s) <body = inner
                (int64 j, bool f, float[N] q) => (bool g2, float[N] r) { g2 = Identity(f)
                 w = CumSum(q, zero) r = Tanh(w) }> },
             else_branch = q () => (float[N] v) { v = CumSum(s, zero) }> all = Neg(t) }> }""",
        [
            {"x": _few_bits(5), "n": np.int64(a), "m": np.int64(b)}
            for a, b in ((2, 3), (0, 1), (9, 0))
        ],
        {"zero": np.int64(0), "five": np.int64(5)},
    ),
    "Scan, one way and the other": Case(
        """g (float[T,N] x, float[N] h) => (float[N] y, float[T,N] z, float[T,N] w) {
        y, z, w = Scan<num_scan_inputs=2, scan_input_directions=[0, 1], body = b
            (float[N] s, float[N] a, float[N] r) => (float[N] t, float[N] u, float[N] v)
            { t = Add(s, a) u = Mul(t, r) v = Sub(r, s) }>(h, x, x) }""",
        _rows(3, 5, 1),
    ),
    "a recurrent network": Case(
        """g (float[T,B,4] x) => (float[T,2,B,3] y, float[2,B,3] h)
        { y, h = GRU<hidden_size=3, direction="bidirectional">(x, w, r) }""",
        [{"x": _few_bits(t, b, 4)} for t, b in ((5, 2), (1, 1), (6, 2))],
        {"w": _few_bits(2, 9, 4), "r": _few_bits(2, 9, 3)},
    ),
    "loops side by side": Case(
        """g (float[N] x, float[N] h, int64 n) => (float[N] y, float[N] z, float[N] w) {
        y = Loop(n, , x) <body = a (int64 i, bool c, float[N] s) => (bool d, float[N] t)
            { d = Identity(c) e = Tanh(s) more = Less(i, two) t = If(more)
              <then_branch = p () => (float[N] u) { u = Neg(e) },
               else_branch = q () => (float[N] v) { v = Sqrt(e) }> }>
        z = Loop(n, , h) <body = b (int64 j, bool f, float[N] r) => (bool k, float[N] o)
            { k = Identity(f) o = Sin(r) }> w = Add(y, z) }""",
        [{"x": -_few_bits(6), "h": _few_bits(6), "n": np.array(n)} for n in (3, 0, 8)],
        {"two": np.int64(1)},
    ),
    "products": Case(
        """g (float[M,8] x, int64 n) => (float[M,8] y) { y = Loop(n, , x) <body = b
        (int64 i, bool c, float[M,8] s) => (bool d, float[M,8] t) { d = Identity(c)
            p = MatMul(s, w) q = Add(p, x) t = Tanh(q) }> }""",
        [{"x": _few_bits(m, 8), "n": np.array(4)} for m in (3, 40, 3)],
        {"w": _few_bits(8, 8) / 4},
    ),
    "parts whose sizes differ from trip to trip": Case(
        """g (float[N] x) => (float[K] z) { z = Loop(five, ) <body = b
        (int64 i, bool c) => (bool d, float s) { d = Identity(c) e = Unsqueeze(i, first)
            f = Add(e, e) p = Slice(x, e, f, first) s = ReduceSum<keepdims=0>(p) }> }""",
        [{"x": _few_bits(n)} for n in (9, 12)],
        {"first": np.array([0], np.int64), "five": np.int64(5)},
    ),
}
#: Models that the host controls, and why.
BY_HOST = {
    "a value grows": """g (float[N] x, int64 n) => (float[M] y) { y = Loop(n, , x) <body = b
        (int64 i, bool c, float[P] s) => (bool d, float[Q] t) { d = Identity(c)
            t = Concat<axis=0>(s, x) }> }""",
    "is known only when the run gets there": """g (float[N] x, int64 n) => (float[N] y) {
        k = NonZero(x) f = Cast<to=1>(k) s = ReduceSum<keepdims=0>(f) y = Add(x, s) }""",
}


def _session(
    case: Case, *, opset: int = 17, **provider: Any
) -> tuple[ort.InferenceSession, ort.InferenceSession]:
    model = model_of(case.text, case.weights, opset)
    options = {"use_tf32": "0", **provider}
    session = ort.InferenceSession(model.SerializeToString(), providers=[(CUDA, options)])
    return session, ort.InferenceSession(model.SerializeToString())


def _check(found: Any, wanted: Any) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        mine = mine.numpy() if isinstance(mine, ort.OrtValue) else mine
        assert mine.shape == np.shape(theirs)
        assert_near(mine, theirs, "float: products")


def _on_device(feeds: dict[str, Any]) -> dict[str, ort.OrtValue]:
    return {n: ort.OrtValue.ortvalue_from_numpy(np.asarray(a), "cuda", 0) for n, a in feeds.items()}


@pytest.mark.parametrize("name", CASES)
def test_graphs_do_what_the_processor_does(gpu: FakeDriver | None, name: str) -> None:
    session, reference = _session(CASES[name])
    feeds = CASES[name].feeds
    for given in (*feeds, *feeds):
        _check(session.run(None, given), reference.run(None, given))
    text = session.explain()
    assert "control steps in each decide" in text and "CUDA graphs: none" not in text
    if gpu is not None:
        assert gpu.replays == 2 * len(feeds)


def test_rounds_of_several_trips(lazy: FakeDriver) -> None:
    case = CASES["counted, with slices"]
    session, reference = _session(case)
    for trips, rounds in ((20, 2), (12, 3), (7, 7), (16, 2), (15, 3), (20, 2), (1, 1), (0, 0)):
        given = _rows(trips)[0]
        before = lazy.rounds
        _check(session.run(None, given), reference.run(None, given))
        assert lazy.rounds - before == rounds


def test_parts_that_need_nothing_of_each_other_are_branches(gpu: FakeDriver | None) -> None:
    case = CASES["loops side by side"]
    session, reference = _session(case)
    control_flow = inspect(session).control_flow
    assert any(
        isinstance(node, ParallelParts) and len(node.parts) == 2 for node in control_flow.nodes
    )
    assert set(control_flow.lanes.values()) == {0, 1}
    there = _on_device(case.feeds[0])
    with captured(lambda s: session.run_with_ort_values(None, there, stream=s.handle)) as graph:
        graph.replay()
        _check(graph.given, reference.run(None, case.feeds[0]))


@pytest.mark.parametrize("name", CASES)
def test_all_ways_to_run(gpu: FakeDriver | None, name: str) -> None:
    """Values of the device, results at new places, bindings, runs that nobody waits for."""
    session, reference = _session(CASES[name])
    left = ort.RunOptions()
    left.add_run_config_entry("disable_synchronize_execution_providers", "1")
    for given in CASES[name].feeds:
        wanted = reference.run(None, given)
        there = _on_device(given)
        names = [o.name for o in session.get_outputs()]
        for _ in range(3):
            _check(session.run_with_ort_values(names, there), wanted)
        binding = session.io_binding()
        for n, value in there.items():
            binding.bind_ortvalue_input(n, value)
        for n in names:
            binding.bind_output(n, "cuda", 0)
        for options in (None, None, left, left):
            session.run_with_iobinding(binding, options)
        binding.synchronize_outputs()
        _check(binding.copy_outputs_to_cpu(), wanted)


@pytest.mark.parametrize("name", ["branches in a loop", "as often as is fed", "products"])
def test_they_become_part_of_a_callers_graph(gpu: FakeDriver | None, name: str) -> None:
    session, reference = _session(CASES[name])
    feeds = CASES[name].feeds
    there = _on_device(feeds[0])
    with captured(lambda s: session.run_with_ort_values(None, there, stream=s.handle)) as graph:
        for given in feeds:
            if given["x"].shape == feeds[0]["x"].shape:
                for n, value in there.items():
                    value.update_inplace(np.asarray(given[n]))
                graph.replay()
                _check(graph.given, reference.run(None, given))


@pytest.mark.parametrize("reason", BY_HOST)
def test_explain_says_why_the_host_controls(gpu: FakeDriver | None, reason: str) -> None:
    feeds = {"x": _few_bits(6), "n": np.int64(3)}
    session, reference = _session(Case(BY_HOST[reason], [feeds]))
    given = {i.name: feeds[i.name] for i in session.get_inputs()}
    for _ in range(2):
        _check(session.run(None, given), reference.run(None, given))
    (line,) = [x for x in session.explain().splitlines() if "CUDA graphs: none" in x]
    assert reason in line


def test_what_lies_between_steps_of_the_host_is_captured(
    gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes differ from run to run, and one graph serves several of them."""
    monkeypatch.setattr(device_state, "LEAST_COMMANDS", 3)
    case = Case(
        """g (float[N,8] x) => (float[K,8] y, int64[2,M] k) {
        a = MatMul(x, w) b = CumSum(a, one) c = MatMul(b, w) e = CumSum(c, zero) k = NonZero(x)
        r, q = Split<axis=0, num_outputs=2>(k) f = Squeeze(r, first) s = Gather(e, f)
        t = MatMul(s, w) u = CumSum(t, one) v = MatMul(u, w) y = CumSum(v, zero) }""",
        [{"x": _few_bits(n, 8)} for n in (3, 4, 3, 4, 4, 9)],
        {
            "w": _few_bits(8, 8) / 4, "zero": np.int64(0), "one": np.int64(1),
            "first": np.array([0]),
        },
    )  # fmt: skip
    session, reference = _session(case, opset=18)
    for given in (*case.feeds, *case.feeds):
        _check(session.run(None, given), reference.run(None, given))
    (line,) = [x for x in session.explain().splitlines() if "CUDA graphs" in x]
    assert "2 parts of a run, since the host reads sizes" in line and "NonZero" in line
    if gpu is not None:
        assert 8 <= gpu.replays <= 22


def test_runs_without_a_graph_are_controlled_by_the_host(gpu: FakeDriver | None) -> None:
    case = CASES["counted, with slices"]
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")
    for session, reference in (_session(case), _session(case, enable_cuda_graph="0")):
        for given in case.feeds:
            _check(session.run(None, given, options), reference.run(None, given))
    if gpu is not None:
        assert gpu.replays == 0


def test_a_driver_that_cannot(lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["a branch"]
    monkeypatch.setattr(lazy, "cuDriverGetVersion", lambda: (0, 12030), raising=False)
    session, reference = _session(case)
    _check(session.run(None, case.feeds[0]), reference.run(None, case.feeds[0]))
    assert "the driver, for CUDA 12.3, has no conditional nodes" in session.explain()


def test_a_driver_whose_branches_have_one_side(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "cuDriverGetVersion", lambda: (0, 12040), raising=False)
    case = CASES["a branch"]
    session, reference = _session(case)
    for given in case.feeds:
        _check(session.run(None, given), reference.run(None, given))
    assert lazy.replays == len(case.feeds)


def test_what_cannot_be_captured_is_left_to_the_host(lazy: FakeDriver) -> None:
    lazy.uncapturable.add("node")
    case = CASES["as often as is fed"]
    session, reference = _session(case)
    for _ in range(2):
        for given in case.feeds:
            _check(session.run(None, given), reference.run(None, given))
    assert lazy.replays == 0
    assert "the driver does not capture it" in session.explain()


def test_sizes_of_a_branch_that_is_passed_by(gpu: FakeDriver | None) -> None:
    """Those of both branches are worked out first: what one cannot be is the other's no concern."""
    case = Case(
        """g (float[N] x, bool c) => (float[N] y) { y = If(c)
        <then_branch = t () => (float[N] u) { p = Slice(x, two, five, first) q = ReduceSum(p, first)
            u = Add(x, q) },
         else_branch = e () => (float[N] v) { v = CumSum(x, zero) }> }""",
        [{"x": _few_bits(n), "c": np.array(c)} for n in (6, 1) for c in (True, False)],
        {"two": np.array([2]), "five": np.array([5]), "first": np.array([0]), "zero": np.int64(0)},
    )
    session, reference = _session(case)
    for given in case.feeds:
        _check(session.run(None, given), reference.run(None, given))


def test_faults_end_loops(gpu: FakeDriver | None) -> None:
    case = Case(
        """g (float[N] x, int64 n, int64[M] at) => (float[N] y) { y = Loop(n, , x) <body = b
        (int64 i, bool c, float[N] s) => (bool d, float[N] t) { d = Identity(c)
            k = Gather(at, i) v = Gather(x, k) t = Add(s, v) }> }""",
        [],
    )
    session, reference = _session(case)
    good = {"x": _few_bits(4), "n": np.int64(3), "at": np.array([0, 3, 1])}
    for bad in ({"n": np.int64(1000)}, {"at": np.array([0, 9, 1])}):
        with pytest.raises((errors.RuntimeException, errors.InvalidArgument), match="index"):
            session.run(None, {**good, **bad})
        _check(session.run(None, good), reference.run(None, good))


def test_the_host_ends_a_loop(lazy: FakeDriver) -> None:
    """On the host's word a loop that would never end does, within some trips."""
    case = CASES["as often as is fed"]
    session, reference = _session(case)
    short = {"x": case.feeds[0]["x"], "n": np.int64(2)}
    _check(session.run(None, short), reference.run(None, short))
    (frame,) = executable_of(session).frames.held
    frame.contexts.stop()
    before = lazy.rounds
    session.run(None, {**short, "n": np.int64(1 << 60)})
    assert lazy.rounds - before <= 65
    _check(session.run(None, short), reference.run(None, short))


def test_a_limit_of_time_ends_a_loop_without_end(gpu: FakeDriver | None) -> None:
    if gpu is not None:
        pytest.skip("the host's driver does a replay while it is asked for events")
    case = CASES["as often as is fed"]
    session, reference = _session(case)
    options = ort.RunOptions()
    threading.Timer(0.3, lambda: setattr(options, "terminate", True)).start()
    with pytest.raises(errors.Fail, match="cancelled"):
        session.run(None, {**case.feeds[0], "n": np.int64(1 << 60)}, options)
    _check(session.run(None, case.feeds[0]), reference.run(None, case.feeds[0]))


def test_threads(gpu: FakeDriver | None) -> None:
    case = CASES["branches in a loop"]
    session, reference = _session(case)
    wanted = [reference.run(None, given) for given in case.feeds]
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                for given, result in zip(case.feeds, wanted, strict=True):
                    _check(session.run(None, given), result)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
