"""How near the kernels come to what this machine can do at most.

    python benchmarks/roofline.py [THREADS]

The machine's peaks are measured first, by loops of nothing but multiply-adds in registers, sums of
products of bytes, and reads and copies of more memory than the caches hold. Then one kernel of each
family is run at a size that allows it to be fast. Printed: GFLOP/s or GB/s, and the share of the
peak that bounds it. Products whose work Winograd's filters save are counted as direct sums, so
their share may exceed 100 %.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from onnx import numpy_helper, parser

import sardonyx
from sardonyx.targets.target import host_target

Array = np.ndarray[Any, Any]
F = np.float32
_RANDOM = np.random.default_rng(0)
_BUFFER_BYTES = 2**28
#: How long each thing is repeated; the least time counts.
_SECONDS = 2.0


def _loop(kind: str, lanes: int) -> str:
    """LLVM IR of `void loop(i8* from, i8* to, i64 count)`."""
    vector = f"<{lanes} x float>" if kind != "bytes" else f"<{lanes} x i32>"
    zero, start = "zeroinitializer", 24
    phis = "\n".join(
        f"%a{k} = phi {vector} [ {zero}, %entry ], [ %b{k}, %body ]" for k in range(start)
    )
    if kind == "floats":
        call = f"call {vector} @llvm.fma.v{lanes}f32({vector} %x, {vector} %y, {vector} %a"
    else:
        bits = lanes * 32
        call = (
            f"call {vector} @llvm.x86.avx512.vpdpbusd.{bits}({vector} %a@, <{4 * lanes} x i8> %x, "
            f"<{4 * lanes} x i8> %y"
        )
    names = [
        call.replace("@,", f"{k},") + (f"{k})" if kind == "floats" else ")") for k in range(start)
    ]
    steps = "\n".join(f"%b{k} = {name}" for k, name in enumerate(names))
    total = "\n".join(
        f"%s{k} = {'fadd' if kind == 'floats' else 'add'} {vector} "
        f"{f'%s{k - 1}' if k else '%x0'}, %b{k}"
        for k in range(start)
    )
    operand = vector if kind == "floats" else f"<{4 * lanes} x i8>"
    declared = (
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})"
        if kind == "floats"
        else f"declare {vector} @llvm.x86.avx512.vpdpbusd.{lanes * 32}"
        f"({vector}, {operand}, {operand})"
    )
    return f"""
{declared}
define void @loop(ptr %from, ptr %to, i64 %count) {{
entry:
  %x = load {operand}, ptr %from
  %y = load {operand}, ptr %to
  %x0 = load {vector}, ptr %from
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  {phis}
  {steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %body, label %done
done:
  {total}
  store {vector} %s{start - 1}, ptr %to
  ret void
}}"""


_STREAMS = """
define void @read(ptr %from, ptr %to, i64 %count) {
entry:
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  SUMS
  %next = add i64 %i, 32
  %more = icmp ult i64 %next, %count
  br i1 %more, label %body, label %done
done:
  %t0 = fadd <16 x float> %b0, %b1
  %t1 = fadd <16 x float> %b2, %b3
  %t2 = fadd <16 x float> %t0, %t1
  store <16 x float> %t2, ptr %to
  ret void
}"""


def _streams() -> str:
    phis, rest = [], []
    for k in range(8):
        if k < 4:
            phis.append(f"%a{k} = phi <16 x float> [ zeroinitializer, %entry ], [ %b{k}, %body ]")
        # Two lines of each of four streams, which lie a quarter of the whole apart.
        rest.append(f"%o{k} = mul i64 %count, {k % 4}")
        rest.append(f"%m{k} = add i64 %o{k}, {16 * (k // 4)}")
        rest.append(f"%j{k} = add i64 %i, %m{k}")
        rest.append(f"%p{k} = getelementptr float, ptr %from, i64 %j{k}")
        rest.append(f"%v{k} = load <16 x float>, ptr %p{k}, align 64")
    for k in range(4):
        rest.append(f"%w{k} = fadd <16 x float> %v{k}, %v{k + 4}")
        rest.append(f"%b{k} = fadd <16 x float> %a{k}, %w{k}")
    return _STREAMS.replace("SUMS", "\n  ".join(phis + rest))


def _compiled(text: str) -> tuple[Any, Callable[[str], Any]]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    form = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return engine, lambda name: form(engine.get_function_address(name))


def _together(work: Callable[[int], None], threads: int) -> float:
    """Seconds that `threads` threads take for a piece of work each, at best."""
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        team = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
        start = time.perf_counter()
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        best = min(best, time.perf_counter() - start)
    return best


def _aligned(size_bytes: int) -> Array:
    whole = np.ones(size_bytes + 64, np.uint8)
    return whole[-whole.ctypes.data % 64 :][:size_bytes]


def peaks(threads: int) -> dict[str, float]:
    """GFLOP/s of floats, GOP/s of bytes, and GB/s read and copied, of so many threads."""
    target = host_target()
    lanes, count = target.lanes(32), 4_000_000
    found = {}
    for kind in ("floats", "bytes"):
        if kind == "bytes" and not target.has_dots:
            continue
        engine, function = _compiled(_loop(kind, lanes))
        loop, small = function("loop"), [_aligned(256) for _ in range(2 * threads)]

        def run(k: int) -> None:  # it is done with before the loop goes on
            loop(small[2 * k].ctypes.data, small[2 * k + 1].ctypes.data, count)  # noqa: B023

        operations = 2 * 24 * lanes * count * (4 if kind == "bytes" else 1)
        found[kind] = operations * threads / _together(run, threads) / 1e9
        del engine
    engine, function = _compiled(_streams())
    read, share = function("read"), _BUFFER_BYTES // threads // 512 * 512
    whole, other = _aligned(_BUFFER_BYTES), _aligned(_BUFFER_BYTES)
    sinks = [_aligned(64) for _ in range(threads)]

    def reading(k: int) -> None:
        read(whole.ctypes.data + k * share, sinks[k].ctypes.data, share // 16)

    def copying(k: int) -> None:
        ctypes.memmove(other.ctypes.data + k * share, whole.ctypes.data + k * share, share)

    found["read"] = share * threads / _together(reading, threads) / 1e9
    found["copy"] = 2 * share * threads / _together(copying, threads) / 1e9
    return found


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
    found = peaks(threads)
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
