"""What the documents promise of a GPU, measured in one go; needs torch to compare with.

    python benchmarks/gpu_promises.py MODEL.onnx ...

* a product of 4,096 cubed in float16, beside torch's;
* how much longer the first run of a size takes than later ones (models with a batch of any size);
* eight threads of 200 runs at ten sizes each: the bits of one thread, and memory before and after;
* the same with tensors of torch that a stream of each thread's own writes until just before a run;
* in a process without libraries, the product again, and each model beside the processor's results.

Models may have had their weights stripped: see `gpu_kernels.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_kernels
import numpy as np
from onnx import TensorProto, helper

import sardonyx as ort
from sardonyx.base import knobs

PROVIDERS = [("CUDAExecutionProvider", {})]
SIDE = 4096
#: Dimensions other than the batch, N.
KNOWN = {"S": 128, "P": 128, "H": 224, "W": 224}
_random = np.random.default_rng(3)


def on_device(array: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


def one_node(kind: str, element: int, shapes: list[list[int]], result: list[int]) -> bytes:
    inputs = [helper.make_tensor_value_info(f"x{k}", element, s) for k, s in enumerate(shapes)]
    node = helper.make_node(kind, [i.name for i in inputs], ["y"])
    outputs = [helper.make_tensor_value_info("y", element, result)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    serialized: bytes = model.SerializeToString()
    return serialized


def product() -> None:
    model = one_node("MatMul", TensorProto.FLOAT16, [[SIDE, SIDE]] * 2, [SIDE, SIDE])
    feeds = [(_random.standard_normal((SIDE, SIDE)) / 64).astype(np.float16) for _ in range(2)]
    values = dict(zip(("x0", "x1"), map(on_device, feeds), strict=True))

    def rate(call: Callable[[], object]) -> float:
        return 2 * SIDE**3 / gpu_kernels.median_us(call, 1.0) / 1e6

    session = ort.InferenceSession(model, providers=PROVIDERS)
    session.warmup(dict(zip(("x0", "x1"), feeds, strict=True)))
    ours = rate(lambda: session.run_with_ort_values(None, values))
    import torch

    a, b = (torch.from_numpy(x).cuda() for x in feeds)

    def multiply() -> None:
        torch.matmul(a, b)
        torch.cuda.synchronize()

    theirs = rate(multiply)
    with_them = "with" if knobs.get("SARDONYX_LIBRARIES") else "without"
    print(
        f"product of {SIDE} cubed, float16, {with_them} libraries: {ours:.0f} TFLOP/s,"
        f" {ours / theirs:.2f} of torch ({theirs:.0f})"
    )


def feeds_of(path: Path, dtype: str, batch: int) -> dict[str, Any]:
    model = gpu_kernels.load_model(path, dtype, KNOWN | {"N": batch})
    return gpu_kernels.feeds_of(model, seed=batch)


def first_runs(path: Path, dtype: str) -> None:
    model = gpu_kernels.load_model(path, dtype, KNOWN)
    session = ort.InferenceSession(model.SerializeToString(), providers=PROVIDERS)
    extra = []
    for batch in (4, 3, 5, 6, 7):
        feeds = {k: on_device(v) for k, v in feeds_of(path, dtype, batch).items()}
        start = time.perf_counter()
        session.run_with_ort_values(None, feeds)
        first = time.perf_counter() - start
        settled = gpu_kernels.median_us(lambda f=feeds: session.run_with_ort_values(None, f), 0.2)
        if batch != 4:
            extra.append(first * 1e3 - settled / 1e3)
    print(
        f"{path.stem} {dtype}: first runs of four sizes take"
        f" {', '.join(f'{x:.0f}' for x in extra)} ms more than settled ones"
    )


#: What a thread does for a run of one size: its feeds in, its results out.
Run = Callable[[int], list[np.ndarray[Any, Any]]]


def threads(path: Path, dtype: str) -> None:
    """Eight threads, feeds and results in the host's memory."""
    session, feeds = prepare_sizes(path, dtype)

    def run(size: int) -> list[np.ndarray[Any, Any]]:
        return session.run(None, feeds[size])

    compare_threads(f"{path.stem} {dtype}", session, feeds, lambda: run)


def writers(path: Path, dtype: str) -> None:
    """Eight threads; the stream of each is still writing a run's feeds when the run begins."""
    import torch

    session, feeds = prepare_sizes(path, dtype)
    right = [{k: torch.from_numpy(v).cuda() for k, v in feed.items()} for feed in feeds]
    torch.cuda.synchronize()

    def begin() -> Run:
        stream = torch.cuda.Stream()
        busy = torch.rand(1 << 24, device="cuda")
        written = [{k: torch.empty_like(v) for k, v in feed.items()} for feed in right]
        torch.cuda.synchronize()

        def run(size: int) -> list[np.ndarray[Any, Any]]:
            with torch.cuda.stream(stream):
                for name, tensor in written[size].items():
                    tensor.zero_()
                    busy.sin_()  # a while; a product would get a work space for each thread
                    tensor.copy_(right[size][name])
                return session.run(None, written[size])

        return run

    compare_threads(f"{path.stem} {dtype}, written until just before", session, feeds, begin)


def prepare_sizes(path: Path, dtype: str) -> tuple[ort.InferenceSession, list[dict[str, Any]]]:
    model = gpu_kernels.load_model(path, dtype, KNOWN)
    session = ort.InferenceSession(model.SerializeToString(), providers=PROVIDERS)
    feeds = [feeds_of(path, dtype, batch) for batch in range(1, 11)]
    for feed in feeds:
        session.warmup(feed)
    return session, feeds


def compare_threads(
    title: str, session: ort.InferenceSession, feeds: list[dict[str, Any]], begin: Callable[[], Run]
) -> None:
    """Print how many results differ from one thread's, and the memory in use after each round.

    Args:
        title: What is printed before.
        session: What runs.
        feeds: The feeds of each size, in the host's memory.
        begin: Gives a thread what it does for each run.
    """
    wanted = [session.run(None, feed) for feed in feeds]
    wrong: list[int] = []
    failed: list[BaseException] = []

    # Nobody may wait for the whole device while a run is captured, so all is prepared before.
    runs = [begin() for _ in range(8)]

    def work(number: int) -> None:
        order = np.random.default_rng(number).integers(0, len(feeds), 200)
        run = runs[number]
        try:
            for k in order:
                found = run(int(k))
                if any(not np.array_equal(a, b) for a, b in zip(found, wanted[k], strict=True)):
                    wrong.append(int(k))
        except BaseException as error:
            failed.append(error)

    def held() -> int:
        import torch

        free, total = torch.cuda.mem_get_info()
        return int(total - free) >> 20

    memory = []
    for _ in range(3):
        workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failed:
            raise failed[0]
        memory.append(held())
    print(
        f"{title}: 8 threads x 200 runs x 10 sizes, three times: {len(wrong)} differ;"
        f" MiB of the device after each: {memory}"
    )


def without_libraries(path: Path, dtype: str) -> None:
    model = gpu_kernels.load_model(path, dtype, KNOWN | {"N": 2})
    feeds = gpu_kernels.feeds_of(model)
    source = model.SerializeToString()
    found = ort.InferenceSession(source, providers=PROVIDERS).run(None, feeds)
    wanted = ort.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds)
    errors = [
        float(np.linalg.norm(a.astype(np.float64) - b) / (np.linalg.norm(b.astype(float)) + 1e-30))
        for a, b in zip(found, wanted, strict=True)
    ]
    print(f"{path.stem} {dtype} without libraries: differs from the processor by {max(errors):.1e}")


#: What is measured for each model, and what once; what needs a process without libraries.
OF_MODELS = {
    "first": first_runs,
    "threads": threads,
    "writers": writers,
    "alone": without_libraries,
}
ONCE = {"product": product}
WITHOUT = ("product", "alone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--only", nargs="*", default=["product", "first", "threads", "writers"])
    options = parser.parse_args()
    for name in options.only:
        begin = time.perf_counter()
        if name in ONCE:
            ONCE[name]()
        else:
            for path in options.models:
                for dtype in ("float32", "float16"):
                    OF_MODELS[name](path, dtype)
        print(f"    ({name}: {time.perf_counter() - begin:.0f} s)", flush=True)
    if knobs.get("SARDONYX_LIBRARIES") and options.only == parser.get_default("only"):
        command = [sys.executable, __file__, *map(str, options.models), "--only", *WITHOUT]
        subprocess.run(command, env=os.environ | {"SARDONYX_LIBRARIES": "0"}, check=True)


if __name__ == "__main__":
    main()
