"""Branches, loops and sizes from data on a GPU: microseconds a run, feeds and results bound there.

    python benchmarks/gpu_loops.py [NAME ...] [--runs 200]

Each line has the largest difference from the processor's results, too (TF32 is on).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from onnx import ModelProto, numpy_helper, parser

import sardonyx

PROVIDERS = ["CUDAExecutionProvider"]
_random = np.random.default_rng(0)


def _weights(*shape: int) -> Any:
    return (_random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def _model(text: str, **weights: Any) -> ModelProto:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def recurrent(batch: int = 1, condition: str = "d = Identity(c)", fed: bool = False) -> Any:
    """A loop of 50 steps of 256 numbers; one whose condition the body computes; one with fed trips.

    The others give all steps, too.
    """
    sizes, gives = f"[{batch},256]", condition.startswith("d = Identity") and not fed
    step, all_steps = (", u", ", all") if gives else ("", "")
    text = f"""g (float[50,{batch},256] x, float{sizes} h{", int64 n" if fed else ""})
        => (float{sizes} y{f", float[50,{batch},256] all" if gives else ""})
        {{ y{all_steps} = Loop(n, true, h) <body = b (int64 i, bool c, float{sizes} s) =>
        (bool d, float{sizes} t{f", float{sizes} u" if gives else ""})
        {{ xt = Gather<axis=0>(x, i) p = MatMul(xt, w) q = MatMul(s, r) a = Add(p, q)
           e = Add(a, bias) t = Tanh(e) {"u = Identity(t)" if gives else ""} {condition} }}> }}"""
    weights = {"w": _weights(256, 256), "r": _weights(256, 256), "bias": _weights(256)}
    weights |= {"true": np.array(True), "much": np.float32(1e9)}
    feeds = {"x": _weights(50, batch, 256), "h": np.zeros((batch, 256), np.float32)}
    if fed:
        feeds["n"] = np.array(50)
    else:
        weights["n"] = np.int64(50)
    return _model(text, **weights), feeds


def branch() -> Any:
    """Two products, or two others, between products."""
    text = """g (float[32,256] x) => (float[32,256] y)
        { t = MatMul(x, w) s = ReduceSum<keepdims=0>(t) c = Greater(s, zero) z = If(c) <
        then_branch = p () => (float[32,256] k) { u = MatMul(t, a) v = Relu(u) k = MatMul(v, b) },
        else_branch = q () => (float[32,256] m) { u = MatMul(t, b) v = Relu(u) m = MatMul(v, a) }>
        y = MatMul(z, w) }"""
    weights = {name: _weights(256, 256) for name in "wab"}
    return _model(text, **weights, zero=np.float32(0)), {"x": _weights(32, 256)}


def lstm(directions: int) -> Any:
    """A recurrent network of 50 steps, 256 wide."""
    way = "forward" if directions == 1 else "bidirectional"
    text = f"""g (float[50,1,256] x) => (float[50,{directions},1,256] y)
        {{ y = LSTM<hidden_size=256, direction="{way}">(x, w, r) }}"""
    weights = {name: _weights(directions, 1024, 256) for name in "wr"}
    return _model(text, **weights), {"x": _weights(50, 1, 256)}


def counted() -> Any:
    """Places of what is not zero between two products: the host controls."""
    text = """g (float[32,1024] x) => (float[32,1024] y, int64[2,K] k)
        { t = MatMul(x, w) u = Relu(t) k = NonZero(u) y = MatMul(u, w) }"""
    return _model(text, w=_weights(1024, 1024)), {"x": _weights(32, 1024)}


MODELS = {
    "loop": recurrent,
    "loop, batch 32": lambda: recurrent(32),
    "loop, condition": lambda: recurrent(
        condition="m = ReduceMax<keepdims=0>(t) d = Less(m, much)"
    ),
    "loop, fed trips": lambda: recurrent(fed=True),
    "branch": branch,
    "LSTM": lambda: lstm(1),
    "LSTM, both ways": lambda: lstm(2),
    "NonZero": counted,
}


def measure(name: str, runs: int) -> None:
    """Print a line for one model."""
    model, feeds = MODELS[name]()
    data = model.SerializeToString()
    wanted = sardonyx.InferenceSession(data).run(None, feeds)
    session = sardonyx.InferenceSession(data, providers=PROVIDERS)
    binding = session.io_binding()
    for key, value in feeds.items():
        there = sardonyx.OrtValue.ortvalue_from_numpy(value, "cuda", 0)
        binding.bind_ortvalue_input(key, there)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda", 0)
    for _ in range(10):
        session.run_with_iobinding(binding)
    took = []
    for _ in range(runs):
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        took.append(1e6 * (time.perf_counter() - start))
    found = binding.copy_outputs_to_cpu()
    same = all(mine.shape == theirs.shape for mine, theirs in zip(found, wanted, strict=True))
    error = (
        max(float(np.abs(a - b).max()) for a, b in zip(found, wanted, strict=True)) if same else -1
    )
    print(f"{name:18} {min(took):9.1f} us, median {sorted(took)[runs // 2]:9.1f}, off {error:.1e}")


def main() -> None:
    """Measure the models that are named, or all."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", choices=[*MODELS, []], default=[])
    arguments.add_argument("--runs", type=int, default=200)
    given = arguments.parse_args()
    for name in given.names or MODELS:
        measure(name, given.runs)


if __name__ == "__main__":
    main()
