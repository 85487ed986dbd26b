"""What is printed of one node: group, fusion, kernels, layout, time, or why it has none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.base.errors import InvalidArgument
from sardonyx.cli.main import main
from sardonyx.tools import measured
from sardonyx.tools.measured import MeasuredKernel
from sardonyx.tools.why import why_text
from tests.support.session import model_of

MODEL = model_of(
    """net (float[N, 8] x, float[4] b, bool c) => (float[N, 8] y, float[4] z) {
    [shape] s = Shape (x)
    [grown] t = Exp (w)
    [product] p = MatMul (x, t)
    [sum] a = Add (p, v)
    [again] q = MatMul (x, t)
    [dead] d = Exp (p)
    [end] r = Mul (a, q)
    [same] y = Reshape (r, s)
    [either] z = If (c) <
        then_branch = t () => (float[4] e) { [inside] e = Tanh (b) },
        else_branch = f () => (float[4] g) { g = Neg (b) }
    > }""",
    {"w": np.ones((8, 8), np.float32), "v": np.ones(8, np.float32)},
)
#: A product of codes that are dequantised per column of the summed axis: no sum of integers.
QUANTISED = model_of(
    """net (uint8[4, 8] x) => (float[4, 4] y) {
    [left] a = DequantizeLinear <axis: int = 1> (x, s, z)
    [right] b = DequantizeLinear (w, one, none)
    [product] y = MatMul (a, b)
    }""",
    {
        "s": np.arange(1, 9, dtype=np.float32), "z": np.zeros(8, np.uint8),
        "w": np.ones((8, 4), np.int8), "one": np.float32(1), "none": np.int8(0),
    },
)  # fmt: skip

INTEGERS = model_of(
    "net (int64[4, 8] x, int64[8, 4] w) => (int64[4, 4] y) { [product] y = MatMul (x, w) }"
)

PRODUCT = """
g1 contraction %y: float[N,8]; loops N,8; sum over 8
  fused with: sum end
  choice: t0 by copy_2 in 1 blocks (elements 4096, lanes 8), once
  choice: product_1 in ((N + 95) // 96) blocks (rows 96, columns 8), for this group alone
  apart: %t of g0 (grown): inline: a product reads it several times, and would compute it anew; \
group: no sum, reduction or other map takes it in
  layout: %y: float[N,8] of g1, axes 0 1
  layout: t0: float[1,8,8] for g1, made by copy_2 of %t
"""
#: Node, arguments, all that is printed.
TEXTS: list[tuple[str, dict[str, Any], str]] = [
    ("product", {}, f"""
node product: MatMul{PRODUCT.rstrip()}
  expected: 6*N ns on one thread, by the cost model; --dim gives sizes"""),
    ("product", {"known": {"N": 64}}, f"""
node product: MatMul{PRODUCT.rstrip()}
  expected: 384 ns on one thread, 97 % of all kernels, by the cost model"""),
    ("a", {}, f"""
node sum: Add{PRODUCT.rstrip().replace("sum end", "product end")}
  expected: 6*N ns on one thread, by the cost model; --dim gives sizes"""),
    ("product", {"level": 0}, """
node product: MatMul
g1 contraction %p: float[N,8]; loops N,8; sum over 8
  fused with: no other node
  choice: product_1 in ((N + 95) // 96) blocks (rows 96, columns 8), for this group alone
  apart: %t of g0 (grown): inline: nothing is fused: what a node gives has memory; \
group: nothing is fused
  layout: %p: float[N,8] of g1, axes 0 1
  expected: (5*N + ((N + 2) // 3)) ns on one thread, by the cost model; --dim gives sizes"""),
    ("grown", {}, """
node grown: Exp
g0 loop nest %t: float[8,8]; loops 8,8; once
  fused with: no other node
  choice: map_0 in 1 blocks (elements 4096, lanes 8), once, for this group alone
  layout: %t: float[8,8] of g0, axes 0 1
  expected: nothing in a run: it is computed once, when the session is made"""),
    ("shape", {}, """
node shape: Shape
no kernel: it only works out sizes, which is done before kernels run"""),
    ("again", {}, """
node again: MatMul
no kernel: its result is known to be equal to another value, which stands for it"""),
    ("dead", {}, """
node dead: Exp
no kernel: nothing reads its results"""),
    ("same", {}, """
node same: Reshape
no kernel: no elements move: what reads it finds them where its input has them"""),
    ("either", {}, """
node either: If
g2 if %z: float[4]; one of its bodies
  fused with: no other node
  choice: its bodies have kernels of their own
  layout: %z: float[4] of g2, axes 0"""),
    ("inside", {}, """
node inside: Tanh
g3 loop nest t1: float[4]; loops 4
  fused with: no other node
  choice: map_3 in 1 blocks (elements 4096, lanes 4), for this group alone
  layout: t1: float[4] of g3, axes 0
  expected: 8 ns on one thread, by the cost model"""),
]  # fmt: skip


def _why(node: str, model: onnx.ModelProto = MODEL, **arguments: Any) -> str:
    arguments.setdefault("target", "avx2")
    return why_text(model.SerializeToString(), node, **arguments)


@pytest.mark.parametrize(
    ("node", "arguments", "expected"), TEXTS, ids=[f"{n} {a}" for n, a, _ in TEXTS]
)
def test_texts(node: str, arguments: dict[str, Any], expected: str) -> None:
    lines = _why(node, **arguments).split("\n")
    kept = [x for x in lines if not x.startswith(("  candidate: ", "  pass: "))]
    assert "\n".join(kept) == expected.strip("\n")


#: Node, arguments, candidates and passes that are printed.
CONSIDERED: list[tuple[str, dict[str, Any], str]] = [
    ("product", {"known": {"N": 64}}, """
candidate: not library: the target has no libraries
candidate: not tiles of thread blocks: the target has no thread blocks
candidate: not a sum in each lane: sums of 8 for 8 columns, with 0 batch axes: vectors of 8 lanes \
run along columns
candidate: taken product of any sizes, 384 ns
candidate: not product of codes in blocks: the target has no instruction for sums of four products \
of bytes
candidate: not kernel of its own, 384 ns: product of any sizes comes first
pass: inplace append of %y did nothing: it does not begin with an input
pass: inline of %y did nothing: an output, a branch or a loop needs it in memory
pass: group: the map that reads the sum is its epilogue
pass: attention did nothing: no softmax between two products
pass: integers did nothing: its factors are not dequantised from 8 bits
pass: swap operands did nothing: its 8 columns fill vectors of 8 lanes
pass: layouts of %y did nothing: the caller reads it row-major"""),
    ("product", {"level": 0}, """
candidate: not library: the target has no libraries
candidate: not tiles of thread blocks: the target has no thread blocks
candidate: not a sum in each lane: sums of 8 for 8 columns, with 0 batch axes: vectors of 8 lanes \
run along columns
candidate: not product of any sizes: its right factor changes from run to run
candidate: not product of codes in blocks: its right factor changes from run to run
candidate: taken kernel of its own, (5*N + ((N + 2) // 3)) ns
candidate:   not integers in matrices: its factors are not 8-bit codes
candidate:   not integers: its factors are not 8-bit codes
candidate:   not bfloat16 in matrices: factors are not rounded: session.allow_bfloat16_products is \
not set
candidate:   not winograd: its filters change from run to run
candidate:   not bfloat16: factors are not rounded: session.allow_bfloat16_products is not set
candidate:   taken product, (5*N + ((N + 2) // 3)) ns
pass: inline of %p did nothing: it is a sum, or has loops of its own
pass: group did nothing: nothing is fused
pass: attention did nothing: nothing is fused at this optimisation level
pass: integers did nothing: nothing is fused at this optimisation level
pass: swap operands did nothing: nothing is fused at this optimisation level
pass: layouts of %p did nothing: nothing is fused at this optimisation level
pass: pad input did nothing: its right factor changes from run to run: nothing of it is packed
pass: lay out image did nothing: its operands were not swapped: the left factor is no constant
pass: hoist numbers did nothing: its factors are no codes
pass: reorder operand did nothing: its right factor changes from run to run: nothing of it is \
packed"""),
    ("inside", {}, """
candidate: not part by part: it does not choose between many parts along an axis
candidate: taken as a whole
candidate:   not windows of any sizes: it reduces nothing
candidate:   not maps of any sizes: its results are no whole vectors of 8 that lie side by side
candidate:   not rows of any sizes: it reduces nothing
candidate:   taken kernel of its own, 8 ns
candidate:     not loops of thread blocks: the target has no thread blocks
candidate:     taken loops of vectors, 8 ns
pass: inline of t1 did nothing: an output, a branch or a loop needs it in memory
pass: group did nothing: no sum, reduction or other map takes it in
pass: integers did nothing: nothing in it is dequantised, or rounded to codes
pass: layouts of t1 did nothing: the caller reads it row-major"""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("node", "arguments", "expected"), CONSIDERED, ids=[f"{n} {a}" for n, a, _ in CONSIDERED]
)
def test_candidates_and_passes(node: str, arguments: dict[str, Any], expected: str) -> None:
    lines = _why(node, **arguments).split("\n")
    kept = [x[2:] for x in lines if x.startswith(("  candidate: ", "  pass: "))]
    assert "\n".join(kept) == expected.strip("\n")


#: Each node in a kernel of its own, or several tensors in one.
CHAIN = model_of(
    """net (float[4, 8] x, int64 n, bool c) => (float[4, 8] y, float[4, 8] u, float[4, 8] v) {
    [first] p = MatMul (x, w)
    [second] q = MatMul (p, w)
    [soft] y = Softmax (q)
    [loop] u, v = Loop (n, c, x, x) <body = b
        (int64 i, bool k, float[4, 8] s, float[4, 8] t)
        => (bool l, float[4, 8] d, float[4, 8] e)
        { l = Identity (k) d = MatMul (s, w) e = MatMul (t, w) }>
    }""",
    {"w": np.ones((8, 8), np.float32)},
)
_SUMS = "inline: it is a sum, or has loops of its own"
#: Node, target, lines that are printed, and what none begins with.
LINES_OF: list[tuple[str, str, list[str], str]] = [
    ("first", "avx2", [], "apart:"),  # it reads what is fed
    ("second", "avx2", [f"apart: %p of g0 (first): {_SUMS}; group: no epilogue: "], ""),
    ("soft", "avx2", [f"apart: %q of g1 (second): {_SUMS}; group: no epilogue: "], ""),
    ("loop", "avx2", ["pass: inline of %u, %v did nothing: it is a sum, or has loops of its own",
                      "pass: layouts of %u, %v did nothing: the caller reads it row-major"], ""),
    ("second", "sm_80", ["candidate: taken tiles of thread blocks, 3306 cycles of the device",
                         "candidate: not kernel of its own, no cost model: tiles of thread blocks"
                         " comes first",
                         "choice: a library may do matmul of float, no cost model"], "expected:"),
    ("soft", "sm_80", ["candidate:   taken loops of thread blocks, no cost model"], "expected:"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("node", "target", "expected", "never"), LINES_OF, ids=[f"{n} {t}" for n, t, *_ in LINES_OF]
)
def test_lines(node: str, target: str, expected: list[str], never: str) -> None:
    lines = [x[2:] for x in _why(node, CHAIN, target=target).split("\n")]
    for text in expected:
        assert any(line.startswith(text) for line in lines), (text, lines)
    assert not never or not [x for x in lines if x.startswith(never)]


def test_measured_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's peaks are given: a share follows from them and from the time."""
    seen: list[int] = []

    def given(threads: int) -> dict[str, float]:
        seen.append(threads)
        return {"floats": 1e-9, "copy": 1e9}

    monkeypatch.setattr(measured, "peaks", given)
    text = _why("product", target=None, known={"N": 64}, measured=1)
    (line,) = [x for x in text.split("\n") if x.startswith("  measured:")]
    assert re.fullmatch(
        r"  measured: \d+ ns by product_\d+ on 1 thread, \d+ % of the roofline"
        r" \(floats, 0 GFLOP/s\)", line,
    )  # fmt: skip
    assert seen == [1]
    assert "measured" not in _why("shape", target=None, known={"N": 64}, measured=1)
    chosen = _why("product", target=None, measured=1)
    assert chosen.endswith("measured with sizes chosen: N=1 (others with --dim NAME=N)")
    nothing = _why("inside", target=None, measured=1)
    assert "measured: no kernel of it ran" in nothing or "by map_" in nothing


#: Kernel, peaks, what bounds it, its share.
BOUNDS = [
    (MeasuredKernel("product_1", 100.0, 1000, 10, False), "floats", 0.1),
    (MeasuredKernel("map_1", 100.0, 0, 1000, False), "copy", 2.0),
    (MeasuredKernel("integers_1", 100.0, 1000, 10, True), "bytes", 0.025),
]


@pytest.mark.parametrize(("kernel", "bound", "share"), BOUNDS, ids=[b[1] for b in BOUNDS])
def test_share_of_the_roofline(kernel: MeasuredKernel, bound: str, share: float) -> None:
    assert kernel.bound({"floats": 100.0, "bytes": 400.0, "copy": 5.0}) == (bound, share)


#: Model, target, the reason against what else there is.
REASONS = [
    (QUANTISED, "avx2", "no integers: its scales or zero points change along what is summed"),
    (QUANTISED, "sm_80", "a library may do matmul of float"),
    (INTEGERS, "sm_80", "no library does it: products of int64 summed in int64"),
]


@pytest.mark.parametrize(("model", "target", "text"), REASONS, ids=[r[2][:30] for r in REASONS])
def test_what_was_not_taken_has_its_reason(model: onnx.ModelProto, target: str, text: str) -> None:
    assert f"\n  choice: {text}" in _why("product", model, target=target)


def test_times_are_for_processors() -> None:
    assert "expected:" in _why("product", target="neon")
    assert "expected:" not in _why("product", target="sm_90")


def test_names_are_made_printable() -> None:
    built = model_of("net (float[4] x) => (float[4] y) { y = Relu (x) }")
    built.graph.node[0].name = "relu\x1b[31m\nFORGED"
    text = _why(built.graph.node[0].name, built)
    assert text.startswith("node relu\\x1b[31m\\nFORGED: Relu\ng0 loop nest %y")


ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("prodcut", {}, "No node is called 'prodcut', and none has such an output. Did you mean 'prod"),
    ("sum", {"known": {"M": 2}}, "No input has a dimension 'M'"),
    ("sum", {"target": "avx3"}, "No such target. Expected one of amx, avx512"),
]


@pytest.mark.parametrize(("node", "arguments", "text"), ERRORS, ids=[e[2][:20] for e in ERRORS])
def test_errors(node: str, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        _why(node, **arguments)


#: Arguments of the command, exit status, a part of what is printed, on stdout or stderr.
LINES = [
    ("--why product --target avx2 --dim N=64", 0, "expected: 384 ns on one thread"),
    ("--why product -o 0 --target sse", 0, "contraction %p"),
    ("--why nothing", 2, "No node is called 'nothing'"),
    ("--why product --json -x 2", 2, "so --json, --threads would have no effect"),
    ("--why product --no-run --nodes", 2, "so --nodes, --no-run would have no effect"),
    ("--why product -e cuda --verbose", 2, "so --verbose, --provider would have no effect"),
    ("--target sse", 2, "Name the node with --why"),
    ("--measure", 2, "Name the node with --why"),
    ("--why product --measure --target sse", 2, "Leave one of the two out"),
    ("--why product --target nonsense", 2, "sm_90"),
]


@pytest.mark.parametrize(("arguments", "status", "text"), LINES, ids=[c[0] for c in LINES])
def test_command(
    arguments: str, status: int, text: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(MODEL, "m.onnx")
    try:
        found = main(["explain", "m.onnx", *arguments.split()])
    except SystemExit as ended:
        found = int(ended.code or 0)
    printed = capsys.readouterr()
    assert found == status
    assert text in (printed.err if status else printed.out)
