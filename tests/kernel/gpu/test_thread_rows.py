"""Maps and reductions for thread blocks, thread by thread, against NumPy in double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.llvm.ptx_device import ptx_tiling
from tests.support.emulated import Emulated
from tests.support.session import model_of
from tests.support.tolerances import assert_near

#: Runs what thread blocks do, thread by thread.
pytestmark = pytest.mark.once

_random = np.random.default_rng(3)
_KINDS = {
    "float": (np.float32, "float: short sums"),
    "float16": (np.float16, "half: two roundings"),
    "double": (np.float64, "double: transforms"),
}
_OF_WINDOWS = {"float": "float: windows", "float16": "half: windows", "double": "double: windows"}


def _normal(x: Any) -> Any:
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _softmax(x: Any) -> Any:
    powers = np.exp(x.astype(np.float64))
    return powers / powers.sum(-1, keepdims=True)


_LINES = {
    "normalisation": ("LayerNormalization<axis=-1>(x, s)", _normal),
    "softmax": ("Softmax<axis=-1>(x)", _softmax),
    "tanh": ("Tanh(x)", lambda x: np.tanh(x.astype(np.float64))),
}


@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("length", [33, 96, 100, 768, 2000])
@pytest.mark.parametrize("name", _LINES)
def test_lines(name: str, length: int, kind: str) -> None:
    call, wanted = _LINES[name]
    text = (
        f"g ({kind}[N,{length}] x, {kind}[{length}] s) => ({kind}[N,{length}] y) {{ y = {call} }}"
    )
    emulated = Emulated(model_of(text))
    assert [i.kernel.program.kind for i in emulated.compiled.invocations] == ["block"]
    dtype, like = _KINDS[kind]
    feeds = {"x": _random.standard_normal((5, length)).astype(dtype), "s": np.ones(length, dtype)}
    (got,) = emulated.run(feeds)
    assert_near(got, wanted(feeds["x"]), like)


_REDUCED: dict[str, tuple[str, tuple[int, ...], str, tuple[int, ...], Any]] = {
    "channels last": ("ReduceMean", (2, 7, 7, 40), "float", (1, 2), np.mean),
    "doubles of a thread block": ("ReduceMax", (3, 2050), "double", (1,), np.max),
    "integers": ("ReduceSum", (3, 70), "int64", (1,), np.sum),
    "small integers": ("ReduceMin", (5, 70), "int8", (1,), np.min),
    "a product": ("ReduceProd", (5, 64), "float", (1,), np.prod),
}


@pytest.mark.parametrize("name", _REDUCED)
def test_reductions(name: str) -> None:
    operator, shape, kind, axes, wanted = _REDUCED[name]
    sizes = ",".join(map(str, shape))
    left = ",".join(str(n) for k, n in enumerate(shape) if k not in axes)
    text = f"g ({kind}[{sizes}] x) => ({kind}[{left}] y) {{ y = {operator}<keepdims=0>(x, a) }}"
    dtype = {"int64": np.int64, "int8": np.int8}.get(kind) or _KINDS[kind][0]
    x = _random.uniform(-9, 9, shape).astype(dtype)
    x = (np.abs(x) % 1 + 0.5).astype(dtype) if operator == "ReduceProd" else x
    emulated = Emulated(model_of(text, {"a": np.array(axes)}, 18))
    assert [i.kernel.program.kind for i in emulated.compiled.invocations] == ["block"]
    (got,) = emulated.run({"x": x})
    held = x if x.dtype.kind == "i" else x.astype(np.float64)
    assert_near(got, wanted(held, axis=axes), "float: sums")


def test_what_is_transposed_is_read_where_it_lies() -> None:
    x = _random.integers(0, 99, (3, 70))
    emulated = Emulated(model_of("g (int64[3,70] x) => (int64[70,3] y) { y = Transpose(x) }"))
    np.testing.assert_array_equal(emulated.run({"x": x})[0], x.T)


def test_many_elements_are_read_sixteen_bytes_at_once() -> None:
    text = "g (float16[4096,256] x) => (float16[4096,256] y) { y = Neg(x) }"
    (kernel,) = (i.kernel for i in Emulated(model_of(text)).compiled.invocations)
    assert kernel.blocks == 4096 * 256 // 8 // 128 * 4


@pytest.mark.parametrize(
    ("kind", "batch", "blocks"),
    [
        ("float", 0, 0), ("float", 1, 4), ("float", 3, 12), ("float", 4, 4), ("float", 5, 8),
        ("float16", 7, 28), ("float16", 8, 4),
    ],
)  # fmt: skip
def test_windows_have_short_vectors_where_few_threads_have_work(
    kind: str, batch: int, blocks: int
) -> None:
    """Of 1,024 sums for each image, eight neighbours share a thread; a device of 128 threads."""
    text = f"""g ({kind}[N,8,8,16] x) => ({kind}[N,8,8,16] y) {{
      a = Transpose<perm=[0,3,1,2]>(x) b = Conv<pads=[1,1,1,1],group=16>(a, f)
      y = Transpose<perm=[0,2,3,1]>(b)
    }}"""
    dtype = _KINDS[kind][0]
    weights = _random.standard_normal((16, 1, 3, 3)).astype(dtype)
    emulated = Emulated(model_of(text, {"f": weights}), ptx_tiling(processors=1))
    assert emulated.blocks({"N": batch})[-1] == blocks
    x = _random.standard_normal((batch, 8, 8, 16)).astype(dtype)
    (got,) = emulated.run({"x": x})
    padded = np.pad(x.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    taps = ((i, j) for i in range(3) for j in range(3))
    wanted = sum(padded[:, i : i + 8, j : j + 8] * weights[:, 0, i, j] for i, j in taps)
    assert_near(got, wanted, _OF_WINDOWS[kind])
