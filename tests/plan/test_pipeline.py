"""The list of planning passes: each does something, or says why it did nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.cuda.provider import CudaProvider
from sardonyx.plan.pipeline import OPTIONAL, PASSES, StepwisePass
from tests.support.noted import noted
from tests.support.session import model_of

#: Targets are named: the machine has no part in it.
pytestmark = pytest.mark.once


def _weights(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _product(extent: str = "64") -> onnx.ModelProto:
    return model_of(
        f"g (float[{extent}, 64] x) => (float[{extent}, 64] y) {{ [n] h = MatMul(x, w)"
        " [r] y = Relu(h) }",
        {"w": _weights(64, 64)},
    )


def _convolution(channels: int, filters: int, size: str = "20, 64") -> onnx.ModelProto:
    return model_of(
        f"g (float[1, {channels}, {size}] x) => (float[1, {filters}, {size}] y) {{"
        " a = Relu(x) [n] b = Conv<pads = [1, 1, 1, 1]>(a, w) c = Exp(b) d = Neg(b) y = Add(c, d)"
        "}",
        {"w": _weights(filters, channels, 3, 3)},
    )


def _chain() -> onnx.ModelProto:
    """Two convolutions: nothing lies between them."""
    return model_of(
        "g (float[1, 16, 20, 20] x) => (float[1, 16, 20, 20] y) { [n] a = Conv(x, w)"
        " y = Conv(a, w) }",
        {"w": _weights(16, 16, 1, 1)},
    )


def _attention(middle: str) -> onnx.ModelProto:
    return model_of(
        "g (float[2, 16, 8] q, float[2, 16, 8] k, float[2, 16, 8] v) => (float[2, 16, 8] y) {"
        f" t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t) p = {middle}(s)"
        " [n] y = MatMul(p, v) }"
    )


def _codes(axis: int) -> onnx.ModelProto:
    """A product of dequantised codes, with a scale for each row or column of the left factor."""
    return model_of(
        f"""g (uint8[8, 8] x) => (float[8, 4] y) {{
        a = DequantizeLinear <axis: int = {axis}> (x, s, z) b = DequantizeLinear (w, one, none)
        [n] y = MatMul (a, b) }}""",
        {
            "s": np.full(8, 2, np.float32), "z": np.zeros(8, np.uint8),
            "w": np.ones((8, 4), np.int8), "one": np.float32(1), "none": np.int8(0),
        },
    )  # fmt: skip


def _loop(length: int) -> onnx.ModelProto:
    return model_of(
        f"g (float[{length}] x, int64 m, bool c) => (float[{length}] y) {{ [n] y = Loop(m, c, x)"
        f" <body = b (int64 i, bool d, float[{length}] v) => (bool e, float[{length}] w)"
        " { e = Identity(d) w = Tanh(v) }> }"
    )


_APPENDED = model_of(
    "g (float[1, P, 16] x, float[1, 2, 16] z) => (float[1, Q, 16] y)"
    " { [n] y = Concat<axis = 1>(x, z) }"
)
_ROWS = model_of(
    "g (float[64, 64] x, float[32, 64] z) => (float[32, 64] y)"
    " { r = ReduceMax<axes = [1], keepdims = 0>(x) [n] y = Mul(z, r) }"
)
_INTEGERS = model_of(
    "g (uint8[64, 64] x) => (int32[64, 64] y) { [n] y = MatMulInteger(x, w) }",
    {"w": np.ones((64, 64), np.int8)},
)

#: Pass, model, target, whether it changes the group of node `n`, why it does or does not.
CASES: list[tuple[str, onnx.ModelProto, str, bool, str]] = [
    ("inplace append", _APPENDED, "avx2", True, "it continues an input"),
    ("inplace append", _attention("Softmax"), "avx2", False, "it does not begin with an input"),
    ("inline", _chain(), "avx2", False, "it is a sum, or has loops of its own"),
    ("group", _product(), "avx2", True, "the map that reads the sum is its epilogue"),
    ("group", _chain(), "avx2", False, "no epilogue: what reads the sum is no map"),
    ("group", _ROWS, "avx2", False, "its axes have other lengths than those of the reduction"),
    ("attention", _attention("Softmax"), "avx2", True, "the softmax of another product's scores"),
    ("attention", _attention("Sigmoid"), "avx2", False, "no softmax between two products"),
    ("attention", _attention("Softmax<axis = 1>"), "avx2", False, "the softmax is not over the"),
    ("integers", _codes(0), "avx2", True, "both factors are dequantised codes"),
    ("integers", _codes(1), "avx2", False, "its scales or zero points change along what is summed"),
    ("integers", _codes(0), "sm_80", False, "thread blocks and libraries take factors in floats"),
    ("swap operands", _convolution(5, 4), "avx512", True, "its columns are fewer than the lanes"),
    ("swap operands", _convolution(5, 8), "avx2", False, "its 8 columns fill vectors of 8 lanes"),
    ("layouts", _chain(), "avx2", True, "its columns lie side by side"),
    ("layouts", _product(), "avx2", False, "the caller reads it row-major"),
    ("rings", _loop(512), "avx2", True, "values that lie in rings: 1"),
    ("rings", _loop(8), "avx2", False, "it carries values of fewer than 1024 bytes each"),
    ("pad input", _convolution(3, 16), "avx2", True, "windows over few channels become long runs"),
    ("pad input", _convolution(16, 16), "avx2", False, "16 channels, more than 7"),
    ("lay out image", _convolution(5, 4), "avx512", True, "all that its windows see"),
    ("lay out image", _convolution(16, 16), "avx2", False, "its operands were not swapped"),
    ("hoist numbers", _INTEGERS, "avx2", True, "layers that differ in these numbers alone"),
    ("hoist numbers", _convolution(16, 16), "avx2", False, "its factors are no codes"),
    ("reorder operand", _convolution(16, 16), "avx2", True, "its channels lie apart"),
    ("reorder operand", _INTEGERS, "avx2", False, "its kernel walks the rows"),
    ("reorder operand", _convolution(3, 16), "avx2", False, "its left factor is a copy already"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{n}: {why}"[:50] for n, _, _, _, why in CASES])
def test_a_pass_says_what_it_did(case: tuple[str, onnx.ModelProto, str, bool, str]) -> None:
    name, model, target, changed, why = case
    outcome = noted(model, target).passes("n")[name]
    assert why in str(outcome.reason)
    assert outcome.changed is changed


def test_every_pass_has_cases() -> None:
    """One that applies, and one that does not; what `inline` applies to has no group."""
    names = [p.name for p in PASSES]
    assert len(names) == len(set(names))
    assert {(n, changed) for n, _, _, changed, _ in CASES} == {
        (n, c) for n in names for c in (True, False)
    } - {("inline", True)}


def test_what_is_inlined_has_no_group() -> None:
    """Exp, Neg and Add are the epilogue of the convolution; Relu has memory, and says why."""
    found = noted(_convolution(16, 16), "avx2")
    assert len(found.compiled.groups) == 2
    why = found.passes("Relu_0")["inline"].reason
    assert str(why) == "a product reads it several times, and would compute it anew"


@pytest.mark.parametrize("name", sorted(OPTIONAL - {"rings"}))
def test_optional_passes_can_be_left_out(name: str) -> None:
    models = {"attention": _attention("Softmax"), "integers": _codes(0)}
    found = noted(models.get(name, _convolution(16, 16)), "avx2", without=frozenset({name}))
    outcome = found.passes("n")[name]
    assert not outcome.changed
    assert str(outcome.reason) == "the pass is left out"


def test_rings_can_be_left_out() -> None:
    found = noted(_loop(512), "avx2", without=frozenset({"rings"}))
    assert str(found.passes("n")["rings"].reason) == "the pass is left out"
    assert CudaProvider.without <= OPTIONAL


def test_nothing_is_fused_at_level_0() -> None:
    outcomes = noted(_product(), "avx2", fuse=False).passes("n")
    assert str(outcomes["group"].reason) == "nothing is fused"
    assert str(outcomes["layouts"].reason) == "nothing is fused at this optimisation level"


def test_passes_say_what_they_do() -> None:
    for one in PASSES:
        assert one.does.endswith(".")
        assert one.does[0].isupper()


def test_steps_that_walk_groups_together_stand_side_by_side() -> None:
    """`pipeline.run` walks the groups once for each run of steps."""
    places = [k for k, one in enumerate(PASSES) if isinstance(one, StepwisePass)]
    assert places == list(range(places[0], places[-1] + 1))
