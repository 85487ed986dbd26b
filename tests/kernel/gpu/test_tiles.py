"""Products in tiles of thread blocks, thread by thread: every element, exactly.

Inputs are small integers, so that sums are exact in every type.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from sardonyx.kernel.language.text import to_text
from sardonyx.llvm.ptx_device import ptx_tiling
from tests.support.emulated import Emulated
from tests.support.session import model_of

#: Runs what thread blocks do, thread by thread.
pytestmark = pytest.mark.once

_random = np.random.default_rng(3)

MATMUL = "g ({t}{a} x, {t}{b} w) => ({t}{y} y) {{ y = MatMul(x, w) }}"


def _integers(shape: tuple[int, ...], kind: str) -> Any:
    return _random.integers(-3, 4, shape).astype(_KINDS[kind])


_KINDS = {
    "float": np.float32, "float16": np.float16, "double": np.float64, "int32": np.int32,
    "int64": np.int64, "uint8": np.uint8, "int8": np.int8,
}  # fmt: skip


def _check(text: str, feeds: dict[str, Any], weights: Any = None, **tiling: Any) -> None:
    model = model_of(text, weights)
    emulated = Emulated(model, ptx_tiling(**tiling))
    assert any(name.startswith("tiles") for name in emulated.names), emulated.names
    want = ReferenceEvaluator(model).run(None, feeds)
    for mine, theirs in zip(emulated.run(feeds), want, strict=True):
        np.testing.assert_array_equal(mine, np.asarray(theirs))


@pytest.mark.parametrize(
    ("kind", "tf32"),  # which is of float32 alone
    [("float", True), ("float", False), ("float16", False), ("double", False), ("int32", False)],
)
@pytest.mark.parametrize(
    ("a", "b", "y", "shapes"),
    [
        ("[N,K]", "[K,M]", "[N,M]", [((65, 33), (33, 70))]),
        ("[70,48]", "[48,72]", "[70,72]", [((70, 48), (48, 72))]),
        ("[2,3,20,40]", "[2,3,40,24]", "[2,3,20,24]", [((2, 3, 20, 40), (2, 3, 40, 24))]),
        ("[1,64]", "[64,80]", "[1,80]", [((1, 64), (64, 80))]),
    ],
)
def test_matrix_products(kind: str, tf32: bool, a: str, b: str, y: str, shapes: Any) -> None:
    for left, right in shapes:
        feeds = {"x": _integers(left, kind), "w": _integers(right, kind)}
        _check(MATMUL.format(t=kind, a=a, b=b, y=y), feeds, tf32=tf32)


@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
def test_transposed_factors(kind: str, first: int, second: int) -> None:
    m, k, n = 40, 48, 56
    shapes = [(k, m) if first else (m, k), (n, k) if second else (k, n)]
    text = (
        f"g ({kind}{list(shapes[0])} x, {kind}{list(shapes[1])} w, {kind}[{n}] c) =>"
        f" ({kind}[{m},{n}] y) {{ y = Gemm<transA={first}, transB={second}>(x, w, c) }}"
    )
    feeds = {
        "x": _integers(shapes[0], kind),
        "w": _integers(shapes[1], kind),
        "c": _integers((n,), kind),
    }
    _check(text, feeds)


CONVOLUTIONS = {
    "plain": ((1, 16, 9, 7), (24, 16, 3, 3), "pads=[1,1,1,1]"),
    "strided": ((2, 3, 12, 11), (8, 3, 5, 5), "strides=[2,2],pads=[2,1,2,1]"),
    "dilated": ((1, 8, 10, 10), (12, 8, 3, 3), "dilations=[2,2],pads=[2,2,2,2]"),
    "grouped": ((1, 32, 6, 6), (48, 16, 3, 3), "group=2,pads=[1,1,1,1]"),
    "pointwise": ((1, 32, 8, 8), (40, 32, 1, 1), "strides=[1,1]"),
    "patches": ((1, 3, 16, 16), (20, 3, 8, 8), "strides=[8,8]"),
    "deep": ((1, 64, 4, 4), (16, 64, 3, 3), "pads=[1,1,1,1]"),
}


#: Filters that are fed are loaded as the others are, once they have been transposed.
_FILTERS = [
    *((name, "float16", True) for name in CONVOLUTIONS),
    *((name, "float", number % 2 == 1) for number, name in enumerate(CONVOLUTIONS)),
    ("plain", "float16", False),
]


@pytest.mark.parametrize(("name", "kind", "constant"), _FILTERS)
def test_convolutions(name: str, kind: str, constant: bool) -> None:
    x, w, attributes = CONVOLUTIONS[name]
    given = "" if constant else f", {kind}{list(w)} w"
    text = (
        f"g ({kind}{list(x)} x{given}) => ({kind}[A,B,C,D] y)"
        f" {{ a = Neg(x) b = Conv<{attributes}>(a, w) y = Relu(b) }}"
    )
    feeds, filters = {"x": _integers(x, kind)}, _integers(w, kind)
    if constant:
        _check(text, feeds, {"w": filters})
    else:
        _check(text, feeds | {"w": filters})


def test_epilogues_read_what_lies_beside_the_result() -> None:
    text = (
        "g (float16[33,40] x, float16[40,64] w, float16[64] c, float16[33,64] r) =>"
        " (float16[33,64] y) { a = MatMul(x, w) b = Add(a, c) d = Add(b, r) y = Relu(d) }"
    )
    shapes = {"x": (33, 40), "w": (40, 64), "c": (64,), "r": (33, 64)}
    _check(text, {n: _integers(s, "float16") for n, s in shapes.items()})


def test_computed_factors_are_multiplied_as_they_are_made() -> None:
    text = (
        "g (uint8[N,40] x, int8[40,24] w, uint8 z) => (int32[N,24] y)"
        " { y = MatMulInteger(x, w, z) }"
    )
    feeds = {
        "x": _random.integers(0, 9, (21, 40)).astype(np.uint8), "w": _integers((40, 24), "int8"),
        "z": np.uint8(3),
    }  # fmt: skip
    _check(text, feeds)


def test_bfloat16() -> None:
    model = model_of(MATMUL.format(t="bfloat16", a="[20,40]", b="[40,24]", y="[20,24]"))
    x, w = (_random.integers(-3, 4, s).astype(ml_dtypes.bfloat16) for s in ((20, 40), (40, 24)))
    (got,) = Emulated(model).run({"x": x, "w": w})
    want = (x.astype(np.float32) @ w.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(got, want)


def test_nothing_to_sum_or_to_store() -> None:
    for n, k in ((0, 5), (3, 0)):
        feeds = {"x": _integers((n, k), "float"), "w": _integers((k, 8), "float")}
        _check(MATMUL.format(t="float", a="[N,K]", b="[K,8]", y="[N,8]"), feeds)


def test_products_of_constants_are_computed_once_by_the_processor() -> None:
    text = "g (float[3,20] x) => (float[3,8] y) { a = MatMul(v, w) y = MatMul(x, a) }"
    weights = {"v": _integers((20, 16), "float"), "w": _integers((16, 8), "float")}
    emulated = Emulated(model_of(text, weights))
    assert len([n for n in emulated.names if n.startswith("tiles")]) == 1


@pytest.mark.parametrize(("kind", "rows"), [("float", 3), ("float16", 70), ("int32", 3)])
def test_parts_of_sums_meet(kind: str, rows: int) -> None:
    """Few outputs and long sums: thread blocks share them; known sizes, and sizes of a run."""
    feeds = {"x": _integers((rows, 400), kind), "w": _integers((400, 40), kind)}
    for given in ((str(rows), "400"), ("N", "K")):
        n, k = given
        text = MATMUL.format(t=kind, a=f"[{n},{k}]", b=f"[{k},40]", y=f"[{n},40]")
        _check(text, feeds, processors=8)


def test_runs_of_different_sizes_use_different_tiles() -> None:
    text = MATMUL.format(t="float16", a="[N,32]", b="[32,128]", y="[N,128]")
    emulated = Emulated(model_of(text), ptx_tiling(processors=2))
    assert len(emulated.names) == 2
    w = _integers((32, 128), "float16")
    for n in (130, 20):
        x = _integers((n, 32), "float16")
        (got,) = emulated.run({"x": x, "w": w})
        np.testing.assert_array_equal(got, x.astype(np.float32) @ w.astype(np.float32))
    used = [emulated.blocks({"N": n}) for n in (130, 20)]
    assert [b > 0 for b in used[0]] != [b > 0 for b in used[1]]


def test_slices_of_loops_may_begin_anywhere() -> None:
    """A slice of a scanned input begins at a multiple of its size: nothing moves 16 bytes there."""
    text = (
        "g (float16[3,5,40] x, float16[40,8] w) => (float16[3,5,8] y) { y = Scan <"
        " num_scan_inputs=1, body = b (float16[5,40] s) => (float16[5,8] t)"
        " { t = MatMul(s, w) }> (x) }"
    )
    emulated = Emulated(model_of(text))
    programs = [i.kernel.program for i in emulated.compiled.invocations]
    lines = [line for p in programs if p.kind == "block" for line in to_text(p).splitlines()]
    assert any("copy_async" in line or "load_matrix" in line for line in lines)
    assert not any("copy_async" in line and "size_bytes=16" in line for line in lines)
