"""What is printed of one node: group, fusion, kernels, layout, time, or why it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.base.errors import InvalidArgument
from sardonyx.cli.main import main
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
    assert _why(node, **arguments) == expected.strip("\n")


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
