"""`disabled_optimizers`: what of ours does not happen then, and that results stay the same."""

from __future__ import annotations

import logging
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.api.optimizers import ACTING, GROUPED
from sardonyx.base import errors
from sardonyx.passes.pipeline import PASSES
from sardonyx.plan import pipeline
from sardonyx.tools.optimizer.simplify import STEPS
from tests.support.session import model_of
from tests.support.tolerances import assert_near

KEY = "optimization.disable_specified_optimizers"
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, np.float32)


def names_in(path: Path) -> list[str]:
    return sorted(node.op_type for node in onnx.load(path).graph.node)


#: A model's text, weights and inputs; the operators of the written model, with all optimisers and
#: without one of them.
WRITTEN: dict[str, tuple[str, dict[str, Any], tuple[int, ...], str, str]] = {
    "CommonSubexpressionElimination": (
        "{ a = Exp(x) b = Exp(x) y = Add(a, b) }", {}, (2, 3), "Add Exp", "Add Exp Exp",
    ),
    "ConstantFolding": (
        "{ a = Mul(w, w) y = Add(x, a) }", {"w": floats(70)}, (2, 70), "Add", "Add Mul",
    ),
    "ConvBNFusion": (
        "{ a = Conv(x, w) y = BatchNormalization(a, s, s, s, s) }",
        {"w": floats(3, 2, 1, 1), "s": np.abs(floats(3)) + 1}, (1, 2, 4, 4),
        "Conv", "BatchNormalization Conv",
    ),
    "ConvMulFusion": (
        "{ a = Conv(x, w) y = Mul(a, s) }",
        {"w": floats(3, 2, 1, 1), "s": floats(3, 1, 1)}, (1, 2, 4, 4), "Conv", "Conv Mul",
    ),
    "MatMulAddFusion": (
        "{ a = MatMul(x, w) y = Add(a, b) }",
        {"w": floats(3, 4), "b": floats(4)}, (2, 3), "Gemm", "Add MatMul",
    ),
    "TransposeOptimizer": (
        "{ a = Transpose<perm = [1, 0, 2]>(x) b = Transpose<perm = [2, 1, 0]>(a) y = Exp(b) }",
        {}, (2, 3, 4), "Exp Transpose", "Exp Transpose Transpose",
    ),
    "ReshapeFusion": (
        "{ a = Reshape(x, s) b = Reshape(a, t) y = Exp(b) }",
        {"s": np.array([6, 4]), "t": np.array([3, 8])}, (2, 3, 4),
        "Exp Reshape", "Exp Reshape Reshape",
    ),
}  # fmt: skip


def made(name: str, path: Path, how: str = "") -> tuple[sardonyx.InferenceSession, tuple[int, ...]]:
    text, weights, shape, *_ = WRITTEN[name]
    first = shape[0] if "Reshape" in text else "n"
    rank = ", ".join(map(str, [first, *shape[1:]]))
    model = model_of(f"agraph (float[{rank}] x) => (float y) {text}", weights)
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(path)
    given: dict[str, Any] = {}
    if how == "argument":
        given = {"disabled_optimizers": [name]}
    elif how == "set":
        given = {"disabled_optimizers": {name, "EliminateIdentity"}}
    elif how == "entry":
        options.add_session_config_entry(KEY, f"EliminateIdentity; {name};")
    return sardonyx.InferenceSession(model.SerializeToString(), options, **given), shape


@pytest.mark.parametrize("how", ["argument", "set", "entry"])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written(name: str, how: str, tmp_path: Path) -> None:
    all_of_them, shape = made(name, tmp_path / "a.onnx")
    without, _ = made(name, tmp_path / "b.onnx", how)
    assert " ".join(names_in(tmp_path / "a.onnx")) == WRITTEN[name][3]
    assert " ".join(names_in(tmp_path / "b.onnx")) == WRITTEN[name][4]
    x = {"x": floats(*shape)}
    want = all_of_them.run(None, x)[0]
    assert_near(without.run(None, x)[0], want, "float: sums")


ATTENTION = model_of(
    "agraph (float[2, n, 16] q, float[2, m, 16] k, float[2, m, 16] v) => (float[2, n, 16] y)"
    "{ t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t) p = Softmax<axis = -1>(s)"
    " y = MatMul(p, v) }"
)
CODES = model_of(
    "agraph (uint8[n, 32] x) => (float[n, 8] y) { a = DequantizeLinear(x, sx, zx)"
    " b = DequantizeLinear(w, sw, zw) y = MatMul(a, b) }",
    {
        "sx": np.float32(0.1), "zx": np.uint8(3), "sw": np.float32(0.2), "zw": np.int8(0),
        "w": RANDOM.integers(-128, 127, (32, 8), np.int8),
    },
)  # fmt: skip
NORMS = model_of(
    "agraph (float[n, 2, 8, 8] x) => (float[n, 3, 8, 8] y)"
    "{ a = Conv(x, w) y = BatchNormalization(a, s, s, s, s) }",
    {"w": floats(3, 2, 1, 1), "s": np.abs(floats(3)) + 1},
)

#: What a session's kernels are called, with all optimisers and without one.
PLANNED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "AttentionFusion": (ATTENTION, {n: floats(2, 5, 16) for n in "qkv"}, "attention"),
    "QDQSelectorActionTransformer": (
        CODES, {"x": RANDOM.integers(0, 255, (4, 32), np.uint8)}, "integers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANNED)
def test_what_is_planned(name: str) -> None:
    model, feeds, kernel = PLANNED[name]
    data = model.SerializeToString()
    plain, without = (
        sardonyx.InferenceSession(data, **given) for given in ({}, {"disabled_optimizers": [name]})
    )
    want, found = plain.run(None, feeds)[0], without.run(None, feeds)[0]
    assert_near(found, want, "float: layers")
    assert kernel in plain.explain()
    assert kernel not in without.explain()
    for again in (pickle.loads(pickle.dumps(without)), without):
        assert kernel not in again.explain()
        again.set_providers(["CPUExecutionProvider"])
        assert kernel not in again.explain()
    plain.set_providers(["CPUExecutionProvider"])
    assert kernel in plain.explain()


def test_batch_norms_of_a_session() -> None:
    data, x = NORMS.SerializeToString(), {"x": floats(2, 2, 8, 8)}
    plain = sardonyx.InferenceSession(data)
    without = sardonyx.InferenceSession(data, disabled_optimizers=["ConvBNFusion"])
    assert_near(without.run(None, x)[0], plain.run(None, x)[0], "float: layers near zero")
    assert without.get_session_options().disabled_optimizers == ("ConvBNFusion",)


@pytest.mark.parametrize("name", ACTING)
def test_results_stay_the_same(name: str) -> None:
    model, feeds, _ = PLANNED["QDQSelectorActionTransformer"]
    attention = PLANNED["AttentionFusion"][:2]
    for data, given in ((model, feeds), (NORMS, {"x": floats(1, 2, 8, 8)}), attention):
        text = data.SerializeToString()
        want = sardonyx.InferenceSession(text).run(None, given)[0]
        found = sardonyx.InferenceSession(text, disabled_optimizers=[name]).run(None, given)[0]
        assert_near(found, want, "float: layers")


def test_each_step_exists() -> None:
    own = {name for name, _, lowest in PASSES if lowest} | STEPS.keys()
    own |= {"fold constants", *(pipeline.OPTIONAL - {"rings"})}
    assert {step for steps in ACTING.values() for step in steps} <= own
    assert not set(ACTING) & set(GROUPED)


def test_names_that_do_nothing_are_said(caplog: Any) -> None:
    data = NORMS.SerializeToString()
    with caplog.at_level(logging.WARNING):
        sardonyx.InferenceSession(data, disabled_optimizers=["SkipLayerNormFusion"])
    assert "SkipLayerNormFusion has no effect" in caplog.text
    text = "no optimiser 'ConvBnFusion'.*Did you mean 'ConvBNFusion'"
    with pytest.warns(UserWarning, match=text) as w:
        sardonyx.InferenceSession(data, disabled_optimizers=["ConvBnFusion"])
    assert w[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sardonyx.InferenceSession(data, disabled_optimizers=[])
        sardonyx.InferenceSession(data, disabled_optimizers=None)
        sardonyx.InferenceSession(data, disabled_optimizers="ConstantFolding")


@pytest.mark.parametrize("given", [[1], 3, [None], [b"ConstantFolding"]])
def test_what_are_no_names(given: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="no names of optimisers"):
        sardonyx.InferenceSession(NORMS.SerializeToString(), disabled_optimizers=given)


def test_they_match_onnxruntime(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = model_of("agraph (float[n] x) => (float[n] y) { a = Exp(x) b = Exp(x) y = Add(a, b) }")
    for names in ([], ["CommonSubexpressionElimination"]):
        found = []
        for module in (onnxruntime, sardonyx):
            options = module.SessionOptions()
            options.log_severity_level = 4
            options.optimized_model_filepath = str(tmp_path / f"{module.__name__}.onnx")
            module.InferenceSession(model.SerializeToString(), options, disabled_optimizers=names)
            found.append(names_in(tmp_path / f"{module.__name__}.onnx"))
        assert found[0] == found[1]
