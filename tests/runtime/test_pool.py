"""Thread pools under runs: sizes, several runs at once, fork, exit, cancelling."""

import dataclasses
import gc
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from sardonyx.base import dtypes, knobs, processors
from sardonyx.base.errors import Fail, RuntimeException
from sardonyx.cpu.threads import thread_count
from sardonyx.native.functions import library
from sardonyx.plan.plan import BufferSpec, Command, InputSpec, Plan, PointerArgument, SizeArgument
from sardonyx.runtime import pool
from sardonyx.runtime.thread_setup import ThreadSetup
from sardonyx.store.cache import default_cache
from tests.support.plans import (
    N,
    bytes_of,
    chunked,
    executable,
    floats,
    result,
    sum_plan,
)

#: A cost that uses every thread there is.
MUCH = 10**6


def feed(rows=70, columns=100):
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 8, 16])
def test_any_number_of_threads(threads):
    e = executable(sum_plan(MUCH), threads=threads)
    start = time.monotonic()
    for rows in [70, 1, 70, 3, 0, 33] * 20:
        x = feed(rows)
        np.testing.assert_array_equal(e.run([x])[0], 3 * x)
    # 360 commands; the machine may be busy with other things.
    assert time.monotonic() - start < 30


def busy_plan(blocks, count, cost):
    """Commands whose blocks take `count` pauses each; the feed is not used."""
    arguments = (PointerArgument(0), SizeArgument(count))
    command = Command("busy", blocks, cost, arguments)
    return Plan((), (result(blocks),), (BufferSpec("output", 0, bytes_of(blocks)),), (command,))


def thread_numbers_plan():
    buffers = (BufferSpec("output", 0, bytes_of(N)),)
    command = chunked("thread_numbers", (0,), N, MUCH, scratch_bytes=64)
    return Plan((floats(N),), (result(N),), buffers, (command,))


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_have_numbers_and_scratch_memory_of_their_own(threads):
    e = executable(thread_numbers_plan(), threads=threads)
    seen = set()
    for _ in range(50):
        seen |= set(e.run([np.zeros(20_000, np.float32)])[0].tolist())
    assert seen <= set(range(threads))


def test_workers_take_part():
    e = executable(busy_plan(40, 20_000, 10**7), threads=2)
    shared = executable(thread_numbers_plan(), threads=2)
    for _ in range(100):
        e.run([])
        if 1 in shared.run([np.zeros(1 << 20, np.float32)])[0]:
            return
    raise AssertionError("the worker never did anything")


def test_many_runs_at_once():
    e = executable(sum_plan(MUCH), threads=3)
    problems = []

    def use(number):
        for k in range(30):
            x = feed(1 + (number * 7 + k) % 40) + number
            (y,) = e.run([x])
            if not np.array_equal(y, 3 * x):
                problems.append((number, k))

    threads = [threading.Thread(target=use, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(e.frames) <= 6


def test_faults_in_parallel_commands():
    arguments = (*map(PointerArgument, range(3)), SizeArgument(4))
    buffers = (
        BufferSpec("input", 0, 16),
        BufferSpec("input", 1, 8),
        BufferSpec("output", 0, 4),
    )
    inputs = (floats(4), InputSpec("index", dtypes.INT64, ()))
    plan = Plan(
        inputs,
        (result(),),
        buffers,
        (Command("pick", 0, 0, arguments), Command("pick", 50, MUCH, arguments, origin=("g",))),
    )
    e = executable(plan, threads=4)
    for _ in range(20):
        with pytest.raises(RuntimeException, match=r"\[node g\] index -1 .* size 4"):
            e.run([np.zeros(4, np.float32), np.array(-1)])
        assert e.run([np.ones(4, np.float32), np.array(1)])[0] == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_cancelling_a_long_run(threads):
    # Each block takes some 10 us, all together far longer than the test may.
    e = executable(busy_plan(10**7, 500, 10**11), threads=threads)
    failure = []

    def use():
        try:
            e.run([])
        except Fail as error:
            failure.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    deadline = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)
        e.frames.cancel()
    thread.join(1)
    assert failure == ["[run] The run was cancelled."]


@pytest.mark.parametrize("threads", [1, 2])
def test_long_runs_come_in_rounds(threads):
    """Commands of many rounds, and many commands of a round together, give what short ones do."""
    short = sum_plan()
    for cost in (10**9, 3 * 10**7, 10**13):
        commands = tuple(dataclasses.replace(c, cost_ns=cost) for c in short.commands)
        e = executable(dataclasses.replace(short, commands=commands), threads=threads)
        for rows in (70, 1, 0):
            np.testing.assert_array_equal(e.run([feed(rows)])[0], 3 * feed(rows))


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupts_end_long_runs(threads):
    text = f"""
import signal
from tests.runtime.test_pool import *
e = executable(busy_plan(10**7, 500, 10**11), threads={threads})
x = executable(sum_plan(MUCH), threads={threads})
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    e.run([])
except KeyboardInterrupt:
    print(float(x.run([feed()])[0][0, 1]))
"""
    assert run_python(text).stdout == "3.0\n"


def test_sessions_share_pools_and_pools_end():
    a, b = pool.shared_pool(2), pool.shared_pool(2)
    assert a is b
    assert pool.shared_pool(1) is None
    seven = pool.shared_pool(7)
    workers = list(seven._workers)
    assert all(w.is_alive() for w in workers)
    del seven
    gc.collect()
    for worker in workers:
        worker.join(20)
    assert not any(w.is_alive() for w in workers)


@contextmanager
def given(own):
    """Inside, executables that have not run yet get this pool."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "shared_pool", lambda *_: own)
        yield


def test_a_closed_pool_is_not_used():
    e, own = executable(sum_plan(MUCH), threads=2), pool.Pool(2)
    with given(own):
        e.run([feed()])
    assert e.workers is own
    own.close()
    own.close()
    assert own.closed
    np.testing.assert_array_equal(e.run([feed()])[0], 3 * feed())


@pytest.mark.parametrize("threads", [2, 6])
def test_without_futexes(threads, monkeypatch):
    monkeypatch.setattr(pool, "_SYSTEM_CALLS", {})
    e, own = executable(sum_plan(MUCH), threads=threads), pool.Pool(threads)
    with given(own):
        for rows in [70, 1, 0, 200] * 5:
            np.testing.assert_array_equal(e.run([feed(rows)])[0], 3 * feed(rows))
    assert e.workers is own
    own.close()
    assert not any(w.is_alive() for w in own._workers)


def test_idle_workers_sleep():
    e = executable(sum_plan(MUCH), threads=2)
    e.run([feed()])
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05


ALLOWED = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
SEVERAL = pytest.mark.skipif(len(ALLOWED) < 2, reason="one processor leaves nothing to choose")


def masks_after_a_run(setup=pool._PLAIN, caller=None):
    """Processors that a worker may use once it was woken; `caller`: those of the run's thread."""
    e, own = executable(sum_plan(MUCH), threads=2), pool.Pool(2, setup)
    until = time.monotonic() + 30
    while not own._words[pool.POOL["sleepers"]] and time.monotonic() < until:
        time.sleep(0.001)

    def run():
        if caller is not None:
            os.sched_setaffinity(0, caller)
        np.testing.assert_array_equal(e.run([feed()])[0], 3 * feed())

    with given(own):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert e.workers is own
    found = [os.sched_getaffinity(native) for _, native in own.identities]
    own.close()
    return found


@SEVERAL
def test_workers_leave_the_processor_of_the_caller():
    (mask,) = masks_after_a_run()
    assert mask < ALLOWED and len(mask) == len(ALLOWED) - 1
    first, second, *_ = sorted(ALLOWED)
    (mask,) = masks_after_a_run(caller={first, second})
    assert mask in ({first}, {second})


@SEVERAL
@pytest.mark.parametrize("case", ["the caller has one processor", "the user places the workers"])
def test_workers_stay_where_somebody_else_placed_threads(case):
    one = {min(ALLOWED)}
    if case == "the caller has one processor":
        assert masks_after_a_run(caller=one) == [ALLOWED]
    else:
        assert masks_after_a_run(ThreadSetup((frozenset(one),))) == [one]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork():
    text = """
import os, sys, numpy as np
from tests.runtime.test_pool import *
e = executable(sum_plan(MUCH), threads=3)
x = feed()
e.run([x])
child = os.fork()
for _ in range(20):
    assert np.array_equal(e.run([x])[0], 3 * x)
if child:
    assert e.workers.threads == 3 and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    assert pool.generation == 1 and all(w.is_alive() for w in e.workers._workers)
print("done", flush=True)
"""
    assert run_python(text).stdout == "done\n" * 2


def run_python(text):
    """Run a program that must end by itself."""
    found = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 0, found.stderr
    return found


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "threading.Thread(target=e.run, args=([x],)).start()",
        "threading.Thread(target=long.run, args=([],), daemon=True).start(); time.sleep(0.05)",
    ],
)
def test_the_interpreter_ends(end):
    text = f"""
import sys, threading, atexit
from tests.runtime.test_pool import *
e, x = executable(sum_plan(MUCH), threads=4), feed()
long = executable(busy_plan(10**8, 500, 10**12), threads=4)
e.run([x])
atexit.register(lambda: print(float(e.run([x])[0][0, 1]), flush=True))
{end}
"""
    assert run_python(text).stdout == "3.0\n"


def test_llvm_is_not_imported_for_the_run_time():
    text = """
import sys
from sardonyx.native.functions import library
from sardonyx.runtime.thread_setup import ThreadSetup
library()
from sardonyx.runtime import executable, pool
assert "llvmlite" not in sys.modules
"""
    library()
    if default_cache().folder is None:
        pytest.skip("nothing is cached")
    run_python(text)


def test_thread_count(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert thread_count(5) == 5
    assert thread_count() == processors.usable_processors()
    with knobs.override("SARDONYX_THREADS", "3"):
        assert thread_count() == 3
        assert thread_count(2) == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        assert thread_count() == 3


@pytest.mark.parametrize(
    ("text", "count"), [("6", 6), (" 4, 2", 4), ("0", None), ("", None), ("-1", None), ("x", None)]
)
def test_thread_count_of_openmp(text, count, monkeypatch, caplog):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert thread_count() == (count or processors.usable_processors())
    assert thread_count(2) == 2
    assert ("ignored" in caplog.text) == (text in ("-1", "x"))


def test_thread_count_follows_affinity_and_quota(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(processors, "allowed_processors", lambda: 6)
    for quota, count in ((float("inf"), 6), (8.0, 6), (2.5, 3), (0.2, 1)):
        monkeypatch.setattr(processors, "cgroup_quota", lambda quota=quota: quota)
        assert thread_count() == count


@pytest.mark.parametrize(
    ("files", "membership", "quota"),
    [
        ({}, "0::/", float("inf")),
        ({"cpu.max": "max 100000"}, "0::/", float("inf")),
        ({"cpu.max": "150000 100000"}, "0::/", 1.5),
        ({"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 3),
        ({"cpu/g/cpu.cfs_quota_us": "50000", "cpu/g/cpu.cfs_period_us": "100000"},
         "4:cpu,cpuacct:/g\n5:memory:/h", 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "", float("inf")),
    ],
)  # fmt: skip
def test_quota(files, membership, quota, tmp_path):
    root = tmp_path / "root"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    (tmp_path / "self").write_text(membership + "\n")
    assert processors.cgroup_quota(root, tmp_path / "self") == quota
