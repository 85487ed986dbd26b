"""What `sardonyx show` prints of each stage, for targets that no machine decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.base import errors
from sardonyx.compiler.stages import STAGES, stage_text
from sardonyx.compiler.targets import DEVICES, PROCESSORS, TARGETS
from tests.support.session import model_of


def _weights(*shape: int) -> Any:
    return np.full(shape, 0.5, np.float32)


MODELS: dict[str, onnx.ModelProto] = {
    "softmax": model_of(
        "g (float[4,8] x) => (float[4,8] y) { h = MatMul(x, w) b = Add(h, c) r = Relu(b)"
        " q = MatMul(r, v) s = Softmax(q) y = Add(s, x) }",
        {"w": _weights(8, 16), "c": _weights(16), "v": _weights(16, 8)},
    ),
    "image": model_of(
        "g (float[N,3,16,16] x) => (float[N,16] y) { a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a)"
        " c = Conv(b, v) p = GlobalAveragePool(c) y = Flatten(p) }",
        {"w": _weights(16, 3, 3, 3), "v": _weights(16, 16, 1, 1)},
    ),
    "twice": model_of(
        "g (float[16,8] x) => (float[16,8] y) { h = MatMul(x, w) r = Relu(h) k = MatMul(r, v)"
        " y = Relu(k) }",
        {"w": _weights(8, 8), "v": 2 * _weights(8, 8)},
    ),
    "branch": model_of(
        "g (float[4] x, bool c) => (float[4] y) { y = If(c) <then_branch = t () => (float[4] p)"
        " { p = Add(x, x) }, else_branch = e () => (float[4] q) { q = Neg(x) }> }"
    ),
    "loop": model_of(
        "g (float[4] x, int64 n, bool c) => (float[4] y) { y = Loop(n, c, x) <body = b (int64 i,"
        " bool d, float[4] v) => (bool e, float[4] w) { e = Identity(d) w = Tanh(v) }> }"
    ),
    "attention": model_of(
        "g (float[2,16,8] q, float[2,16,8] k, float[2,16,8] v) => (float[2,16,8] y) {"
        " t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v) }"
    ),
    "fixed": model_of(
        "g (float[4,8] x) => (float[4,8] y) { e = Exp(w) f = CumSum(e, a) y = Mul(x, f) }",
        {"w": _weights(4, 8), "a": np.int64(1)},
    ),
    "best": model_of("g (float[N,8] x) => (float[N,2] v, int64[N,2] i) { v, i = TopK(x, k) }",
                     {"k": np.array([2])}),
    "recurrent": model_of(
        "g (float[3,1,4] x) => (float[3,1,1,4] y) { y = RNN<hidden_size=4>(x, w, r) }",
        {"w": _weights(1, 4, 4), "r": _weights(1, 4, 4)},
    ),
    "text": model_of(
        'g (string[M] x) => (string[M] y) { y = StringNormalizer<case_change_action="LOWER">(x) }'
    ),
}  # fmt: skip

#: Model, stage, target, all that is printed.
TEXTS = [
    ("softmax", "tensors", "avx2", """
        %x: float[4,8] = input
        %w: float[8,16] = constant
        %h: float[4,16] = sum over r0 < 8 of %x[i0, r0] * %w[r0, i1] in float  # MatMul_0
        %c: float[16] = constant
        %b: float[4,16] = add(%h[i0, i1], %c[i1])  # Add_1
        %r: float[4,16] = max(%b[i0, i1], 0.0)  # Relu_2
        %v: float[16,8] = constant
        %q: float[4,8] = sum over r0 < 16 of %r[i0, r0] * %v[r0, i1] in float  # MatMul_3
        t0: float[4,1] = max over r0 < 8 of %q[i0, r0]  # Softmax_4
        t1: float[4,8] = sub(%q[i0, i1], t0[i0, 0])  # Softmax_4
        t2: float[4,8] = exp(t1[i0, i1])  # Softmax_4
        t3: float[4,1] = sum over r0 < 8 of t2[i0, r0]  # Softmax_4
        %s: float[4,8] = div(t2[i0, i1], t3[i0, 0])  # Softmax_4
        %y: float[4,8] = add(%s[i0, i1], %x[i0, i1])  # Add_5
        return %y"""),
    ("softmax", "groups", "avx2", """
        g0 contraction %r: float[4,16]; loops 4,16; sum over 8  # MatMul_0 Add_1 Relu_2
        g1 contraction %q: float[4,8]; loops 4,8; sum over 16  # MatMul_3
        g2 loop nest %y: float[4,8]; loops 4; inner 8; max map sum map  # Softmax_4 Add_5"""),
    ("softmax", "layout", "avx2", """
        %x: float[4,8] input, axes 0 1
        %w: float[8,16] constant, axes 0 1
        %c: float[16] constant, axes 0
        %v: float[16,8] constant, axes 0 1
        %r: float[4,16] of g0, axes 0 1
        t0: float[1,8,16] for g0, made by copy_1 of %w
        %q: float[4,8] of g1, axes 0 1
        t1: float[1,16,8] for g1, made by copy_1 of %v
        %y: float[4,8] of g2, axes 0 1"""),
    ("softmax", "choices", "avx2", """
        g0 contraction %r: t0 by copy_1 in 1 blocks (elements 4096, lanes 8), once
        g0 contraction %r: product_0 in 1 blocks (rows 96, columns 16), for this group alone
        g1 contraction %q: t1 by copy_1 in 1 blocks (elements 4096, lanes 8), once
        g1 contraction %q: product_2 in 1 blocks (rows 96, columns 8), for this group alone
        g2 loop nest %y: rows_3 in 4 blocks (lanes 8), for this group alone"""),
    ("twice", "choices", "avx512", """
        g0 contraction %r: t0 by copy_1 in 8 blocks (elements 4096, lanes 16), once
        g0 contraction %r: product_0 in 1 blocks (rows 96, columns 16), shared by 2 groups
        g1 contraction %y: t1 by copy_1 in 8 blocks (elements 4096, lanes 16), once
        g1 contraction %y: product_0 in 1 blocks (rows 96, columns 16), shared by 2 groups"""),
    ("twice", "choices", "sm_80", """
        g0 contraction %r: t0 by map_2 in 8 blocks (elements 128, lanes 8), once
        g0 contraction %r: tiles_1 in 4 subgroups (thread block: rows 16, columns 64, depth 16), \
shared by 2 groups
        g0 contraction %r: a library may do matmul of float, activation relu, no cost model
        g0 contraction %r: a library may do matmul of float, no cost model
        g1 contraction %y: t1 by map_2 in 8 blocks (elements 128, lanes 8), once
        g1 contraction %y: tiles_1 in 4 subgroups (thread block: rows 16, columns 64, depth 16), \
shared by 2 groups
        g1 contraction %y: a library may do matmul of float, activation relu, no cost model
        g1 contraction %y: a library may do matmul of float, no cost model"""),
    ("image", "groups", "avx2", """
        g0 contraction %b: float[N,16,16,16]; loops N,16,16,16; sum over 3,3,3  # Conv_0 Relu_1
        g1 contraction %c: float[N,16,16,16]; loops N,16,16,16; sum over 16  # Conv_2
        g2 loop nest %y: float[N,16]; loops N,16; inner 16,16; sum map  \
# GlobalAveragePool_3 Flatten_4"""),
    ("image", "layout", "avx2", """
        %x: float[N,3,16,16] input, axes 0 1 2 3
        %w: float[16,3,3,3] constant, axes 0 1 2 3
        %v: float[16,16,1,1] constant, axes 0 1 2 3
        %b: float[N,16,16,16] of g0, axes 0 2 3 1, not 0 1 2 3 as in the file; \
strides 4096,1,256,16
        t0: float[N,18,54] for g0, made by image_0 of %x
        t1: float[1,3,9,16] for g0, made by copy_2 of %w
        %c: float[N,16,16,16] of g1, axes 0 2 3 1, not 0 1 2 3 as in the file; \
strides 4096,1,256,16
        t2: float[1,16,16] for g1, made by copy_4 of %v
        %y: float[N,16] of g2, axes 0 1"""),
    ("attention", "groups", "neon", """
        g0 attention %y: float[2,16,8]; batch 2; queries 16; keys 16; columns 8; depth 8  \
# Transpose_0 MatMul_1 Softmax_2 MatMul_3"""),
    ("attention", "choices", "neon", """
        g0 attention %y: attention_0 in 2 blocks (queries 96, keys at once 16), \
for this group alone"""),
    ("attention", "choices", "sm_90", """
        g0 attention %y: attention_0 in 8 subgroups (thread block: queries 64, keys at once 32), \
for this group alone
        g0 attention %y: no library does it: attention of float"""),
    ("branch", "tensors", "avx2", """
        %c: bool[] = input
        %x: float[4] = input
        %y: float[4] = output 0 of if(%c, %x)  # If_0
            then:
              %x: float[4] = from outside
              t0: float[4] = add(%x[i0], %x[i0])  # Add_0
              return t0
            else:
              %x: float[4] = from outside
              t1: float[4] = neg(%x[i0])  # Neg_0
              return t1
        return %y"""),
    ("branch", "groups", "avx2", """
        g0 if %y: float[4]; one of its bodies  # If_0
          then:
            g1 loop nest t0: float[4]; loops 4  # Add_0
          else:
            g2 loop nest t1: float[4]; loops 4  # Neg_0"""),
    ("branch", "choices", "avx2", """
        g0 if %y: its bodies have kernels of their own
        g1 loop nest t0: map_0 in 1 blocks (elements 4096, lanes 4), for this group alone
        g2 loop nest t1: map_1 in 1 blocks (elements 4096, lanes 4), for this group alone"""),
    ("fixed", "groups", "avx2", """
        g0 loop nest %e: float[4,8]; loops 4,8; once  # Exp_0
        g1 scan %f: float[4,8]; loops of its own; once  # CumSum_1
        g2 loop nest %y: float[4,8]; loops 4,8  # Mul_2"""),
    ("best", "groups", "sse", """
        g0 top_k %v: float[N,2], %i: int64[N,2]; loops of its own  # TopK_0"""),
    ("best", "choices", "sse", """
        g0 top_k %v, %i: top_k_0 in N blocks, for this group alone"""),
    ("text", "choices", "avx2", """
        g0 host t0: text.normalise on the host, for this group alone
        g1 host %y: take on the host, for this group alone
        g2 loop nest t1: copy_2 in 1 blocks (lanes 1), for this group alone"""),
]  # fmt: skip


def _text(model: str, stage: str, target: str | None = None, after: str | None = None) -> str:
    return stage_text(MODELS[model].SerializeToString(), stage, after, target)


@pytest.mark.parametrize(
    ("model", "stage", "target", "expected"), TEXTS, ids=[" ".join(t[:3]) for t in TEXTS]
)
def test_texts(model: str, stage: str, target: str, expected: str) -> None:
    lines = [line.removeprefix(" " * 8) for line in expected.strip("\n").split("\n")]
    found = _text(model, stage, target).split("\n")
    assert [line for line in found if not line.startswith(_CANDIDATES)] == lines


#: How lines of candidates begin, behind those of the kernels that were chosen.
_CANDIDATES = ("  not ", "  taken ", "    not ", "    taken ", "      not ", "      taken ")

#: Model, target, the lines of candidates.
CANDIDATES = [
    ("softmax", "avx2", """
        not library: the target has no libraries
        not tiles of thread blocks: the target has no thread blocks
        not a sum in each lane: sums of 8 for 16 columns, with 0 batch axes: vectors of 8 lanes \
run along columns
        taken product of any sizes, 48 ns
        not product of codes in blocks: the target has no instruction for sums of four products \
of bytes
        not kernel of its own, 48 ns: product of any sizes comes first
        not library: the target has no libraries
        not tiles of thread blocks: the target has no thread blocks
        not a sum in each lane: sums of 16 for 8 columns, with 0 batch axes: vectors of 8 lanes \
run along columns
        taken product of any sizes, 32 ns
        not product of codes in blocks: the target has no instruction for sums of four products \
of bytes
        not kernel of its own, 32 ns: product of any sizes comes first
        not part by part: it does not choose between many parts along an axis
        taken as a whole
          not windows of any sizes: its results are no whole vectors of 8 that lie side by side
          not maps of any sizes: its results are no whole vectors of 8 that lie side by side
          not rows of any sizes: 8 elements are reduced, no more than 32 vectors of 8
          taken kernel of its own, 54 ns
            not loops of thread blocks: the target has no thread blocks
            taken loops of vectors, 54 ns"""),
    ("attention", "sm_90", """
        not library: attention of float
        not attention of any number of queries: thread blocks take sizes as they are
        taken tiles of thread blocks, no cost model
        not blocks of queries, no cost model: tiles of thread blocks comes first""",
    ),
    ("best", "sse", """
        taken loops of its own, 48*N ns"""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "target", "expected"), CANDIDATES, ids=[" ".join(c[:2]) for c in CANDIDATES]
)
def test_candidates(model: str, target: str, expected: str) -> None:
    lines = [line.removeprefix(" " * 6) for line in expected.strip("\n").split("\n")]
    found = _text(model, "choices", target).split("\n")
    assert [line for line in found if line.startswith(_CANDIDATES)] == lines


#: Model, stage, target, what is among it.
PARTS = [
    ("loop", "tensors", None, ["times:", "t0: float[4] = carried, at first %x", "tanh(t0[i0])"]),
    ("loop", "groups", None, ["g0 loop %y: float[4]; at most", "  body:", "    g1 loop nest t"]),
    ("loop", "ptx", "sm_80", [".visible .entry map_"]),
    ("recurrent", "groups", "avx2", ["at most 3 times  # RNN_0", "sum over 4  # RNN_0"]),
    ("image", "plan", "avx2", ["every run:", "product_1("]),
    ("image", "kernels", "avx512", ["kernel product_1(", "f32x16"]),
    ("image", "llvm", "avx2", ["<8 x float>"]),
    ("image", "llvm", "avx512", ["<16 x float>"]),
    ("image", "llvm", "sm_90", ["ptx_kernel void @\"tiles_0\"", "llvm.nvvm"]),
    ("image", "asm", "avx512", ["%zmm"]),
    ("image", "asm", "neon", ["fmla"]),
    ("image", "ptx", "sm_80", [".target sm_80", ".visible .entry tiles_0("]),
    ("image", "ptx", "sm_90", [".target sm_90", "griddepcontrol"]),
    ("image", "ptx", None, [".target sm_80"]),
    ("image", "choices", "sm_90", ["a library may do convolution of float, activation relu"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "stage", "target", "parts"), PARTS, ids=[f"{p[0]} {p[1]} {p[2]}" for p in PARTS]
)
def test_parts(model: str, stage: str, target: str | None, parts: list[str]) -> None:
    text = _text(model, stage, target)
    for part in parts:
        assert part in text


@pytest.mark.parametrize("target", ["avx2", "sm_90"])
def test_every_stage_is_the_same_again(target: str) -> None:
    without = {"asm"} if target in DEVICES else {"ptx"}
    for stage in [s for s in STAGES if s not in without]:
        first = _text("softmax", stage, target)
        assert first.strip()
        assert _text("softmax", stage, target) == first


ALL = ", ".join(STAGES)
#: Stage, target, what the error says.
ERRORS = [
    ("grpah", None, rf"\[--stage\] No such stage. Expected one of {ALL}, got grpah"),
    ("plan", "avx3", rf"\[--target\] No such target. Expected one of {', '.join(TARGETS)}, got av"),
    ("ptx", "avx2", r"no stage ptx of this target. Expected one of sm_80, sm_90, got avx2"),
    ("asm", "sm_90", rf"no stage asm of this target. Expected one of {', '.join(PROCESSORS)}, got"),
]


@pytest.mark.parametrize(("stage", "target", "text"), ERRORS, ids=[e[0] for e in ERRORS])
def test_errors_name_what_there_is(stage: str, target: str | None, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        _text("twice", stage, target)


def test_models_that_no_gpu_runs_have_no_ptx() -> None:
    with pytest.raises(errors.NotImplemented, match="CUDA.*strings"):
        _text("text", "ptx", "sm_80")
