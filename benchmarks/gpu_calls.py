"""What a run of a small kernel takes on a GPU, as the host sees it, one way of calling by another.

    python benchmarks/gpu_calls.py

Prints for each way the medians of single calls, in us, of five processes: a process is faster or
slower than another as a whole. Tensors of torch are left out where torch is not installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from gpu_kernels import median_us
from gpu_promises import PROVIDERS, on_device, one_node
from onnx import TensorProto

import sardonyx as ort

SIZE = 256
#: So many runs in a row that nobody waits for; then somebody does.
ROW = 10


def calls() -> dict[str, tuple[Callable[[], object], int]]:
    """What is called by its name, and how many runs that is."""
    model = one_node("Relu", TensorProto.FLOAT, [[SIZE]], [SIZE])
    session = ort.InferenceSession(model, providers=PROVIDERS)
    left = ort.RunOptions()
    left.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def new() -> ort.OrtValue:
        return on_device(np.ones(SIZE, np.float32))

    values = itertools.cycle([new() for _ in range(9)])
    results = itertools.cycle([new() for _ in range(9)])
    same = new()

    def bound() -> Any:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x0", new())
        binding.bind_ortvalue_output("y", new())
        return binding

    one, two, anew = bound(), itertools.cycle([bound(), bound()]), session.io_binding()

    def bind_and_run() -> None:
        anew.bind_ortvalue_input("x0", next(values))
        anew.bind_ortvalue_output("y", next(results))
        session.run_with_iobinding(anew)

    def row() -> None:
        for _ in range(ROW - 1):
            session.run_with_ort_values(None, {"x0": next(values)}, left)
        session.run_with_ort_values(None, {"x0": same})

    async def several() -> None:
        for _ in range(ROW):
            await session.run_async({"x0": same})

    return {
        "run_with_ort_values, the same values": (
            lambda: session.run_with_ort_values(None, {"x0": same}), 1,
        ),
        "run_with_ort_values, values at other addresses": (
            lambda: session.run_with_ort_values(None, {"x0": next(values)}), 1,
        ),
        "a binding that is run again": (lambda: session.run_with_iobinding(one), 1),
        "two bindings in turns": (lambda: session.run_with_iobinding(next(two)), 1),
        "a binding that is bound anew each time": (bind_and_run, 1),
        "run, values of the device to NumPy": (lambda: session.run(None, {"x0": same}), 1),
        "run_async, awaited": (lambda: asyncio.run(several()), ROW),
        f"{ROW} runs in a row, the last waited for, each": (row, ROW),
    } | of_torch(session)  # fmt: skip


def of_torch(session: ort.InferenceSession) -> dict[str, tuple[Callable[[], object], int]]:
    """The same with tensors of torch, in its default stream and in another."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch

    tensors = itertools.cycle([torch.ones(SIZE, device="cuda") for _ in range(9)])
    stream = torch.cuda.Stream()

    def beside() -> None:
        with torch.cuda.stream(stream):
            for _ in range(ROW):
                session(next(tensors))

    return {
        "model(x), tensors of torch": (lambda: session(next(tensors)), 1),
        "model(x), in another stream of torch's": (beside, ROW),
    }


def main() -> None:
    if sys.argv[1:] == ["--once"]:
        print(json.dumps({name: median_us(call) / runs for name, (call, runs) in calls().items()}))
        return
    command = [sys.executable, __file__, "--once"]
    found = [json.loads(subprocess.check_output(command)) for _ in range(5)]
    for name in found[0]:
        print(f"{name}: {', '.join(f'{process[name]:.1f}' for process in found)}")


if __name__ == "__main__":
    main()
