"""Many threads, several sessions, options mixed, sessions made and destroyed meanwhile."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of
from tests.support.tolerances import assert_near, is_near

THREADS, RUNS, SECONDS = 16, 400, 60
W = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
MODELS = {
    # One kernel that threads share, branches, and a loop with sizes from data.
    "product": ("float[n, 64] x", "y = MatMul(x, w)", lambda x: x @ W),
    "branches": (
        "float[n, 64] x",
        "a = MatMul(x, w)  b = Relu(x)  c = MatMul(b, w)  y = Sub(a, c)",
        lambda x: x @ W - np.maximum(x, 0) @ W,
    ),
    "chosen": (
        "float[n, 64] x",
        "k = Relu(x)  p = NonZero(k)  q = Transpose(p)  y = GatherND(x, q)",
        lambda x: x[x > 0],
    ),
}


def made(name: str, threads: int, *, parallel: bool = False, arena: bool = True) -> Any:
    given, nodes, _ = MODELS[name]
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    options.enable_cpu_mem_arena = arena
    if parallel:
        options.execution_mode = sardonyx.ExecutionMode.ORT_PARALLEL
    shape = "m" if name == "chosen" else "n, 64"
    text = f"agraph ({given}) => (float[{shape}] y) {{ {nodes} }}"
    return sardonyx.InferenceSession(model_of(text, {"w": W}).SerializeToString(), options)


def held_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Caller:
    """A thread's runs: each in another session, in another way."""

    def __init__(self, number: int, sessions: list[tuple[str, Any]]) -> None:
        self.number, self.sessions = number, sessions
        self.wrong: list[str] = []
        rng = np.random.default_rng(number)
        self.feeds = [rng.standard_normal((n, 64)).astype(np.float32) for n in (1, 5, 33)]
        self.want = [[MODELS[name][2](x) for x in self.feeds] for name, _ in sessions]

    def __call__(self) -> None:
        try:
            for k in range(RUNS):
                self._run(k)
        except BaseException as error:  # noqa: BLE001 - the test says it
            self.wrong.append(repr(error))

    def _run(self, k: int) -> None:
        which, size, way = k % 3, (k // 3) % 3, (k + self.number) % 7
        session, x = self.sessions[which][1], self.feeds[size]
        options = None if way < 3 else sardonyx.RunOptions()
        if way == 3:
            options.terminate = True
            with pytest.raises(errors.Fail, match="cancelled"):
                session.run(None, {"x": x}, options)
            options.terminate = False
        if way == 4:
            options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        if way == 5:
            value = sardonyx.OrtValue.ortvalue_from_numpy(x)
            found = session.run_with_ort_values(["y"], {"x": value}, options)[0].numpy()
        elif way == 6:
            binding = session.io_binding()
            binding.bind_cpu_input("x", x)
            binding.bind_output("y")
            session.run_with_iobinding(binding, options)
            found = binding.copy_outputs_to_cpu()[0]
        else:
            timeout = 100.0 if way == 2 else None
            found = session.run(None, {"x": x}, options, timeout=timeout)[0]
        if not is_near(found, self.want[which][size], "float: which result it is"):
            self.wrong.append(f"run {k} of thread {self.number}")


def round_of(sessions: list[tuple[str, Any]]) -> None:
    callers = [Caller(number, sessions) for number in range(THREADS)]
    threads = [threading.Thread(target=caller, daemon=True) for caller in callers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + SECONDS
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < deadline, "threads wait for each other"
        for count, name in enumerate(MODELS):
            x = callers[0].feeds[2]
            found = made(name, 2 + count).run(None, {"x": x})[0]
            assert_near(found, MODELS[name][2](x), "float: which result it is")
        time.sleep(0.05)
    assert [wrong for caller in callers for wrong in caller.wrong] == []


def test_right_answers_without_deadlock_or_growth() -> None:
    sessions = [
        ("product", made("product", 2)),
        ("branches", made("branches", 3, parallel=True)),
        ("chosen", made("chosen", 1, arena=False)),
    ]
    round_of(sessions)
    gc.collect()
    before, threads = held_bytes(), threading.active_count()
    frames = [session.memory()["frames"] for _, session in sessions]
    round_of(sessions)
    gc.collect()
    assert threading.active_count() <= threads + 1  # limits of time have a thread, now and then
    assert all(n <= max(f, THREADS) for n, f in zip(
        (session.memory()["frames"] for _, session in sessions), frames, strict=True))  # fmt: skip
    assert held_bytes() - before < 20 << 20
