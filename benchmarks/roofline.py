"""How near the kernels come to what this machine can do at most.

    python benchmarks/roofline.py [THREADS]

The machine's peaks are measured first, by loops of nothing but multiply-adds in registers, sums of
products of bytes, and reads and copies of more memory than the caches hold. Then one kernel of each
family is run at a size that allows it to be fast. Printed: GFLOP/s or GB/s, and the share of the
peak that bounds it. Products whose work Winograd's filters save are counted as direct sums, so
their share may exceed 100 %.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import numpy_helper, parser

import sardonyx
from sardonyx.tools.peaks import peaks

Array = np.ndarray[Any, Any]
F = np.float32
_RANDOM = np.random.default_rng(0)
#: How long each thing is repeated; the least time counts.
_SECONDS = 2.0


@dataclass
class Case:
    """One kernel: its graph, feeds and weights, its work, and which peak bounds it."""

    family: str
    body: str
    feeds: dict[str, Array]
    work: float
    bound: str
    weights: dict[str, Array] = field(default_factory=dict)

    def session(self, threads: int) -> sardonyx.InferenceSession:
        """A session that runs it."""
        names = {"float32": "float", "uint8": "uint8", "int8": "int8", "int64": "int64"}
        inputs = ", ".join(
            f"{names[v.dtype.name]}[{','.join(map(str, v.shape))}] {k}"
            for k, v in self.feeds.items()
        )
        model = parser.parse_model(
            f'<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]> g ({inputs}) '
            f"=> (float[] y) {{ {self.body} }}"
        )
        model.graph.output[0].type.Clear()
        for name, value in self.weights.items():
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        return sardonyx.InferenceSession(model.SerializeToString(), options)


def _floats(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape, F)


def _product(name: str, m: int, k: int, n: int) -> Case:
    feeds, weights = {"x": _floats(m, k)}, {"w": _floats(k, n)}
    return Case(f"product {name}", "y = MatMul(x, w)", feeds, 2 * m * k * n, "floats", weights)


def _convolution(
    name: str, channels: int, filters: int, side: int, taps: int, step: int = 1
) -> Case:
    body = (
        f"y = Conv<pads=[{taps // 2},{taps // 2},{taps // 2},{taps // 2}], "
        f"strides=[{step},{step}]>(x, w)"
    )
    work = 2 * channels * filters * (side // step) ** 2 * taps**2
    weights = {"w": _floats(filters, channels, taps, taps)}
    feeds = {"x": _floats(1, channels, side, side)}
    return Case(f"convolution {name}", body, feeds, work, "floats", weights)


def cases() -> list[Case]:
    """A kernel of each family."""
    x, big = _floats(2048, 4096), _floats(8192, 4096)
    gemv = _floats(4096, 16384)
    codes = _RANDOM.integers(0, 255, (512, 1024), np.uint8)
    signed = _RANDOM.integers(-127, 127, (1024, 1024), np.int8)
    packed = _RANDOM.integers(0, 255, (16384, 128, 16), np.uint8)
    scales = np.abs(_floats(16384 * 128))
    heads = {n: _floats(1, 12, 512, 64) for n in "qkv"}
    depthwise = _floats(1, 128, 112, 112)
    rows = x.nbytes
    return [
        _product("1024 x 1024 x 1024", 1024, 1024, 1024),
        _product("128 x 768 x 3072", 128, 768, 3072),
        _product("197 x 768 x 768", 197, 768, 768),
        _convolution("1x1, 256 to 512, 28x28", 256, 512, 28, 1),
        _convolution("3x3 by Winograd, 128, 28x28", 128, 128, 28, 3),
        _convolution("3x3 step 2, 128, 56x56", 128, 128, 56, 3, 2),
        _convolution("7x7 step 2, 3 to 64, 224x224", 3, 64, 224, 7, 2),
        Case(
            "product of bytes 512 x 1024 x 1024", "y = MatMulInteger(x, w)", {"x": codes},
            2 * 512 * 1024 * 1024, "bytes", {"w": signed},
        ),
        Case(
            "attention 12 x 512 x 64",
            "t = Transpose<perm=[0,1,3,2]>(k) s = MatMul(q, t) c = Constant<value_float=0.125>() "
            "m = Mul(s, c) p = Softmax<axis=-1>(m) y = MatMul(p, v)",
            heads, 4 * 12 * 512 * 512 * 64, "floats",
        ),
        Case(
            "matrix times vector 4096 x 16384", "y = MatMul(x, w)", {"x": _floats(1, 4096)},
            gemv.nbytes, "read", {"w": gemv},
        ),
        Case(
            "4-bit matrix times vector 4096 x 16384",
            "y = com.microsoft.MatMulNBits<K=4096, N=16384, bits=4, block_size=32>(x, w, s)",
            {"x": _floats(1, 4096)}, packed.nbytes + scales.nbytes, "read",
            {"w": packed, "s": scales},
        ),
        Case(
            "depthwise 3x3, 128, 112x112", "y = Conv<group=128, pads=[1,1,1,1]>(x, w)",
            {"x": depthwise}, 2 * depthwise.nbytes, "copy", {"w": _floats(128, 1, 3, 3)},
        ),
        Case(
            "sum of two tensors", "y = Add(a, b)", {"a": big, "b": big + 1}, 3 * big.nbytes, "copy",
        ),
        Case("softmax of rows", "y = Softmax<axis=-1>(x)", {"x": x}, 2 * rows, "copy"),
        Case(
            "layer norm of rows", "y = LayerNormalization(x, w)", {"x": x}, 2 * rows, "copy",
            {"w": _floats(4096)},
        ),
        Case("sums of rows", "y = ReduceSum<keepdims=0>(x, a)", {"x": big}, big.nbytes, "read",
             {"a": np.array([1])}),
        Case("transposition", "y = Transpose(x)", {"x": x}, 2 * rows, "copy"),
        Case("exp", "y = Exp(x)", {"x": x}, 2 * rows, "copy"),
    ]  # fmt: skip


def main() -> None:
    """Print the table."""
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    found = peaks(threads, seconds=_SECONDS)
    print(f"{threads} threads. Peaks: " + ", ".join(f"{k} {v:.0f}" for k, v in found.items()))
    print(f"{'':44}{'G/s':>8}{'peak':>8}{'share':>8}")
    for case in cases():
        if case.bound not in found:
            continue
        session = case.session(threads)
        binding = session.io_binding()
        for name, value in case.feeds.items():
            binding.bind_cpu_input(name, value)
        # Memory that was never touched costs more than many a kernel: results go to one place.
        result = sardonyx.OrtValue.ortvalue_from_numpy(session.run(None, case.feeds)[0])
        binding.bind_ortvalue_output("y", result)
        best, end = float("inf"), time.perf_counter() + _SECONDS
        while time.perf_counter() < end:
            start = time.perf_counter()
            session.run_with_iobinding(binding)
            best = min(best, time.perf_counter() - start)
        rate = case.work / best / 1e9
        share = 100 * rate / found[case.bound]
        print(f"{case.family:44}{rate:8.1f}{case.bound:>8}{share:7.0f}%")


if __name__ == "__main__":
    main()
