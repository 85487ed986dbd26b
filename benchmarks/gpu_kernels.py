"""Where a model's time goes on a GPU: wall time of runs, and each kernel of a replayed graph.

    python benchmarks/gpu_kernels.py MODEL.onnx:float16:32 ... [--sizes S=128,N=batch] [--top 12]

A model may be one of those whose weights were stripped (`random_weights` in its metadata): they are
drawn again. A model of float32 is made one of float16 by converting its weights and declared types.
Kernels are traced by torch's profiler, if torch is there. Times in microseconds.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import statistics
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

import sardonyx

PROVIDERS = [("CUDAExecutionProvider", {})]
_LARGEST_HALF = 6e4


def load_model(path: Path, dtype: str, sizes: dict[str, int]) -> onnx.ModelProto:
    """A model with weights, the type of its floats, and its dimensions fixed."""
    model = onnx.load(path)
    known = {p.key: p.value for p in model.metadata_props}
    drawn = json.loads(known.get("random_weights", "{}"))
    del model.metadata_props[:]
    for tensor in model.graph.initializer:
        if tensor.name in drawn:
            mean, deviation = drawn[tensor.name]
            random = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            values = random.standard_normal(tuple(tensor.dims), np.float32)
            values = values * np.float32(deviation) + np.float32(mean)
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            tensor.CopyFrom(numpy_helper.from_array(values.astype(kind), tensor.name))
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    if dtype == "float16":
        _halve(model.graph)
    return model


def _halve(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _halve_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
            if attribute.type == onnx.AttributeProto.TENSOR:
                _halve_tensor(attribute.t)


def _halve_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        values = numpy_helper.to_array(tensor).clip(-_LARGEST_HALF, _LARGEST_HALF)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), tensor.name))


def feeds_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, Any]:
    """Arrays for the inputs of a model whose dimensions are fixed."""
    random, found = np.random.default_rng(seed), {}
    weights = {t.name for t in model.graph.initializer}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
        if "mask" in value.name:
            found[value.name] = np.ones(shape, kind)
        elif kind.kind in "iu":
            found[value.name] = random.integers(0, 1000, shape).astype(kind)
        else:
            found[value.name] = random.standard_normal(shape).astype(kind)
    return found


def median_us(call: Callable[[], object], seconds: float = 0.5) -> float:
    """The median time of a call, after five that are not counted."""
    for _ in range(5):
        call()
    times: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e6


def trace(call: Callable[[], object], runs: int = 5) -> list[tuple[str, float, float]]:
    """Name, start and duration of each kernel of the middle one of some runs."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(runs):
            call()
            time.sleep(0.002)
    events = [
        (str(e.name()), e.start_ns() / 1e3, e.duration_ns() / 1e3)
        for e in profiler.profiler.kineto_results.events()
        if "CUDA" in str(e.device_type()) and e.duration_ns()
    ]
    events.sort(key=lambda e: e[1])
    found: list[list[tuple[str, float, float]]] = [[]]
    for event in events:
        if found[-1] and event[1] > found[-1][-1][1] + found[-1][-1][2] + 1000:
            found.append([])
        found[-1].append(event)
    return found[len(found) // 2]


def report_kernels(events: list[tuple[str, float, float]], top: int, listed: int) -> None:
    """Sums by kernel, and the first ones in their order with the gaps before them."""
    span = events[-1][1] + events[-1][2] - events[0][1]
    busy = sum(e[2] for e in events)
    print(f"  {len(events)} kernels, span {span:.0f}, busy {busy:.0f}, gaps {span - busy:.0f}")
    sums: dict[str, list[float]] = collections.defaultdict(list)
    for name, _, duration in events:
        sums[name].append(duration)
    for name, each in sorted(sums.items(), key=lambda x: -sum(x[1]))[:top]:
        print(f"    {sum(each):8.1f} = {len(each):3} x {sum(each) / len(each):7.2f}  {name[:110]}")
    end = events[0][1]
    for name, start, duration in events[:listed]:
        print(f"      +{start - end:5.2f} {duration:7.2f}  {name[:90]}")
        end = start + duration


def measure(path: Path, dtype: str, batch: int, sizes: dict[str, int], arguments: Any) -> None:
    """Print what is known of one model."""
    model = load_model(path, dtype, {"N": batch, "batch": batch, **sizes})
    feeds, data = feeds_of(model), model.SerializeToString()
    start = time.perf_counter()
    session = sardonyx.InferenceSession(data, providers=PROVIDERS)
    created = time.perf_counter() - start
    got = session.run(None, feeds)
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, sardonyx.OrtValue.ortvalue_from_numpy(value, "cuda", 0))
    for spec, value in zip(session.get_outputs(), got, strict=True):
        held = sardonyx.OrtValue.ortvalue_from_shape_and_type(
            list(value.shape), value.dtype, "cuda", 0
        )
        binding.bind_ortvalue_output(spec.name, held)

    def bound() -> None:
        session.run_with_iobinding(binding)

    times = {
        "bound": median_us(bound),
        "numpy": median_us(lambda: session.run(None, feeds)),
    }
    with contextlib.suppress(ImportError):
        import torch

        tensors = {k: torch.from_numpy(v).cuda() for k, v in feeds.items()}
        times["torch tensors"] = median_us(lambda: session.run(None, tensors))
    text = ", ".join(f"{k} {v:.0f}" for k, v in times.items())
    error = ""
    if arguments.check:
        cpu = sardonyx.InferenceSession(data).run(None, feeds)
        worst = max(
            float(np.linalg.norm(a.astype(float) - b) / (np.linalg.norm(b.astype(float)) or 1))
            for a, b in zip(got, cpu, strict=True)
            if a.dtype.kind == "f"
        )
        error = f", off the CPU's by {worst:.1e}"
    print(f"{path.stem} {dtype} {batch}: {text}; created in {created:.1f} s{error}", flush=True)
    if arguments.top:
        report_kernels(trace(bound), arguments.top, arguments.listed)
    if arguments.explain:
        print(session.explain())


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--sizes", default="S=128,T=128", help="dimensions by name")
    parser.add_argument("--top", type=int, default=0, help="kernels with the largest sums")
    parser.add_argument("--listed", type=int, default=0, help="kernels in their order")
    parser.add_argument("--check", action="store_true", help="compare with the CPU's results")
    parser.add_argument("--explain", action="store_true")
    arguments = parser.parse_args()
    sizes = {k: int(v) for k, v in (x.split("=") for x in arguments.sizes.split(","))}
    for model in arguments.models:
        path, dtype, batch = (*model.split(":"), "float", "1")[:3]
        measure(Path(path), dtype, int(batch), sizes, arguments)


if __name__ == "__main__":
    main()
