"""Providers outside the package: parts of graphs, options, refusals, what sessions say of them."""

from __future__ import annotations

import logging
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support import numpy_provider
from tests.support.session import model_of
from tests.support.tolerances import assert_near

NAME = "NumpyExecutionProvider"
R = np.random.default_rng(0)
W = {"w": R.standard_normal((8, 8), np.float32), "b": R.standard_normal(8, np.float32)}
CHAIN = """agraph (float[n, 8] x) => (float[n, 8] y) {
    m = MatMul(x, w)  a = Add(m, b)  r = Relu(a)  y = Sigmoid(r) }"""
X = R.standard_normal((4, 8), np.float32)


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution beside this one that brings the provider."""
    folder = tmp_path / "numpy_provider-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy-provider\nVersion: 1.0\n")
    entry = f"[sardonyx.providers]\n{NAME} = tests.support.numpy_provider:NumpyProvider\n"
    (folder / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    numpy_provider.MADE.clear()


def made(
    text: str = CHAIN, weights: Any = None, config: dict[str, str] | None = None, **options: str
) -> sardonyx.InferenceSession:
    given = sardonyx.SessionOptions()
    for key, value in (config or {}).items():
        given.add_session_config_entry(key, value)
    data = model_of(text, W if weights is None else weights).SerializeToString()
    return sardonyx.InferenceSession(
        data, given, providers=[(NAME, options), "CPUExecutionProvider"]
    )


def expected(x: np.ndarray = X) -> np.ndarray:
    return 1 / (1 + np.exp(-np.maximum(x @ W["w"] + W["b"], 0)))


def parts() -> list[list[str]]:
    return [[n.outputs[0].name for n in p.nodes] for p in numpy_provider.MADE[-1].parts]


def test_a_provider_is_found_and_claims_a_chain() -> None:
    assert sardonyx.get_available_providers()[-2:] == [NAME, "CPUExecutionProvider"]
    session = made(config={"session.record_ep_graph_assignment_info": "1"})
    assert parts() == [["m", "a", "r"]]
    assert session.get_providers() == [NAME, "CPUExecutionProvider"]
    for rows in (4, 1, 7, 0):
        x = R.standard_normal((rows, 8), np.float32)
        assert_near(session.run(None, {"x": x})[0], expected(x), "float: functions")
    found = session.get_provider_graph_assignment_info()
    assert [(s.ep_name, [n.op_type for n in s.get_nodes()]) for s in found] == [
        (NAME, ["MatMul", "Add", "Relu"]),
        ("CPUExecutionProvider", ["Sigmoid"]),
    ]
    assert f"{NAME}: 3 nodes in 4 calls" in session.explain()


def test_what_a_provider_sees() -> None:
    made()
    (part,) = numpy_provider.MADE[-1].parts
    assert [(v.name, v.shape, v.dtype) for v in part.inputs] == [("x", ("n", 8), np.float32)]
    assert [(v.name, v.shape) for v in part.outputs] == [("r", ("n", 8))]
    product = part.nodes[0]
    assert (product.op_type, product.domain, product.version) == ("MatMul", "", 17)
    np.testing.assert_array_equal(product.inputs[1].constant, W["w"])
    assert part.is_inside(product.outputs[0])
    assert part.readers(product.outputs[0]) == (part.nodes[1],)


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        # A way out and back: what comes back cannot be in the part it comes from.
        ("a = Relu(x)  s = Sin(a)  y = Add(a, s)", [["a"], ["y"]]),
        # Two readers beside each other join through what they read.
        ("a = Relu(x)  p = Add(a, b)  q = Add(a, a)  y = Add(p, q)", [["a", "p", "q", "y"]]),
        # Two parts that wait for each other are none: one edge between them stays.
        (
            "a = Relu(x)  c = Relu(b2)  s = Sin(a)  t = Add(s, c)  y = Add(t, a)",
            [["a"], ["c", "t", "y"]],
        ),
        # Neighbours with nothing between them are two parts.
        ("a = Relu(x)  c = Relu(b2)  s = Sin(a)  t = Sin(c)  y = Mul(s, t)", [["a"], ["c"]]),
        ("y = Sin(x)", []),
    ],
    ids=["detour", "diamond", "cross", "apart", "none"],
)  # fmt: skip
def test_parts_are_convex_and_as_large_as_can_be(nodes: str, want: list[list[str]]) -> None:
    text = f"agraph (float[n, 8] x, float[8] b2) => (float[n, 8] y) {{ {nodes} }}"
    session = made(text)
    assert sorted(parts()) == sorted(want)
    plain = sardonyx.InferenceSession(model_of(text, W).SerializeToString())
    feeds = {"x": X, "b2": W["b"]}
    assert_near(
        session.run(None, feeds)[0], plain.run(None, feeds)[0], "float: functions near zero"
    )


def test_outputs_of_the_model_and_values_read_in_branches() -> None:
    text = """agraph (float[n, 8] x, bool c) => (float[n, 8] a, float[n, 8] y, float[n, 8] again) {
        a = Relu(x)
        again = Add(a, b)
        y = If(c) <then_branch = t () => (float[n, 8] p) { p = Sin(again) },
                   else_branch = e () => (float[n, 8] q) { q = Add(a, a) }> }"""
    session = made(text)
    assert parts() == [["a", "again"]]
    for c in (True, False):
        a, y, again = session.run(None, {"x": X, "c": np.array(c)})
        np.testing.assert_array_equal(a, np.maximum(X, 0))
        np.testing.assert_allclose(again, a + W["b"])
        assert_near(y, np.sin(again) if c else 2 * a, "float: functions near zero")


def test_options_come_back_as_text_and_nonsense_is_refused() -> None:
    session = made(most_rows=100)  # type: ignore[arg-type]
    assert session.get_provider_options()[NAME]["most_rows"] == "100"
    assert session.get_provider_options()[NAME]["memory"] == "host"
    with pytest.raises(errors.InvalidArgument, match="no option 'colour'"):
        made(colour="red")
    again = pickle.loads(pickle.dumps(session))
    assert again.get_provider_options() == session.get_provider_options()
    assert_near(again.run(None, {"x": X})[0], expected(), "float: functions")


def test_memory_of_its_own() -> None:
    session = made(memory="own")
    assert_near(session.run(None, {"x": X})[0], expected(), "float: functions")
    assert "copied" in session.explain()


def test_what_is_refused_when_compiled_is_left_to_the_processor(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "sardonyx"):
        session = made(least_nodes="4")
    assert "left to the processor: too small" in caplog.text
    assert "refused what begins with MatMul" in session.explain()
    assert_near(session.run(None, {"x": X})[0], expected(), "float: functions")


def test_what_is_refused_in_a_run_is_done_by_the_processor(caplog: Any) -> None:
    session = made(most_rows="2")
    with caplog.at_level(logging.WARNING, "sardonyx"):
        for _ in range(3):
            assert_near(session.run(None, {"x": X})[0], expected(), "float: functions")
    assert caplog.text.count("the processor stands in: more than 2 rows") == 1
    assert_near(session.run(None, {"x": X[:1]})[0], expected(X[:1]), "float: functions")
    assert "in 4 calls, the processor stood in 3 times: more than 2 rows" in session.explain()


def test_a_failure_is_an_error_that_names_the_provider() -> None:
    session = made(broken="run")
    with pytest.raises(errors.RuntimeException, match=f"{NAME}.*OSError: the device is gone"):
        session.run(None, {"x": X})


def test_nobody_may_stand_in() -> None:
    config = {"session.disable_cpu_ep_fallback": "1"}
    with pytest.raises(errors.Fail, match="left for the processor"):
        made(config=config)
    text = CHAIN.replace("r = Relu(a)  y = Sigmoid(r)", "y = Relu(a)")
    made(text, config=config).run(None, {"x": X})
    with pytest.raises(errors.RuntimeException, match="more than 2 rows"):
        made(text, config=config, most_rows="2").run(None, {"x": X})
    with pytest.raises(errors.EPFail, match="there is no such device"):
        made(text, config=config, broken="start")


def test_one_that_cannot_start_is_passed_over(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING, "sardonyx"):
        session = made(broken="start")
    assert "there is no such device" in caplog.text
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert_near(session.run(None, {"x": X})[0], expected(), "float: functions")


def test_sizes_are_checked_as_without_it() -> None:
    text = "agraph (float[n, k] x, float[k, m] v) => (float[n, m] y) { y = MatMul(x, v) }"
    session = made(text)
    with pytest.raises(errors.InvalidArgument):
        session.run(None, {"x": X, "v": np.ones((5, 2), np.float32)})
    assert session.run(None, {"x": X, "v": np.ones((8, 2), np.float32)})[0].shape == (4, 2)


def test_threads_share_a_session() -> None:
    session, wrong = made(memory="own"), []

    def run(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((seed + 1, 8)).astype(np.float32)
        wrong.extend(
            1 for _ in range(50) if not np.allclose(session.run(None, {"x": x})[0], expected(x))
        )

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert f"{NAME}: 3 nodes in 200 calls" in session.explain()


def test_libraries_of_onnxruntime_are_refused() -> None:
    with pytest.raises(errors.NotImplemented, match=r"docs/plugins\.md"):
        sardonyx.register_execution_provider_library("x", "libx.so")
