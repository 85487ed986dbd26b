"""Models of which a device has parts: strings, sequences and maps stay on the processor."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.inspection import inspect
from sardonyx.base import errors
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CUDA = "CUDAExecutionProvider"
_random = np.random.default_rng(5)


def _grid(*shape: int) -> Any:
    # Few bits, so that products are exact in any precision that a device may choose.
    return (_random.integers(-8, 9, shape) / 8).astype(np.float32)


_WORDS = np.array(["a", "b", "c"], object)
_WEIGHTS = {
    "table": _grid(3, 8), "w": _grid(8, 8), "v": _grid(8, 2), "far": np.array([0.01], np.float32),
    "labels": np.array(["no", "yes"], object), "across": _WORDS.reshape(1, 3),
    "down": _WORDS.reshape(3, 1), "zero": np.array([0]), "one": np.array([1]),
    "gates": _grid(1, 32, 8) / 4, "back": _grid(1, 32, 8) / 4,
    "both": np.array([0, 1]), "most": np.array([3]),
}  # fmt: skip
_EIGHTS = _grid(2, 8)
_NAMES = np.array(list("abcdef"), object)
_UPPER = 'up = StringNormalizer<case_change_action="UPPER">(names)'
#: Text, inputs, how many regions, and what the processor has.
MODELS: dict[str, tuple[str, dict[str, Any], int, set[str]]] = {
    "a tokenizer in front, labels behind": (
        """g (string[N] t) => (float[N,2] z, string[N] y) {
        each = Unsqueeze(t, one) same = Equal(each, across) n = Cast<to=7>(same)
        ids = ArgMax<axis=1, keepdims=0>(n) e = Gather(table, ids) m = MatMul(e, w) r = Relu(m)
        z = MatMul(r, v) best = ArgMax<axis=1, keepdims=0>(z) y = Gather(labels, best) }""",
        {"t": np.array(["b", "a", "c", "b"], object)}, 1, {"Unsqueeze", "Equal", "Gather"},
    ),
    "a sequence in the middle": (
        """g (float[N,8] x, seq(float[A,8]) q, int64 i) => (float[A,2] y) { a = MatMul(x, w)
        b = Relu(a) s = SequenceInsert(q, b) c = SequenceAt(s, i) y = MatMul(c, v) }""",
        {"x": _grid(5, 8), "q": [_grid(3, 8), _grid(2, 8)], "i": np.int64(2)}, 2,
        {"SequenceInsert", "SequenceAt"},
    ),
    "the largest boxes behind": (
        f"""g (float[N,8] x, string[N] names) => (int64[K,3] k, float[N,2] z, string[N] up) {{
        {_UPPER} a = MatMul(x, w) b = Relu(a) z = MatMul(b, v) four = Concat<axis=1>(z, z)
        boxes = Unsqueeze(four, zero) flat = ReduceMax<keepdims=0>(z, one)
        row = Unsqueeze(flat, both) k = NonMaxSuppression(boxes, row, most, far) }}""",
        {"x": _grid(6, 8), "names": _NAMES}, 1, {"StringNormalizer", "NonMaxSuppression"},
    ),
    "branches around": (
        f"""g (float[N,8] x, string[N] names, bool c) => (float[N,2] y, string[N] up) {{ {_UPPER}
        y = If(c) <
            then_branch = t () => (float[N,2] p) {{ a = MatMul(x, w) p = MatMul(a, v) }},
            else_branch = e () => (float[N,2] q) {{ q = MatMul(x, v) }}> }}""",
        {"x": _grid(6, 8), "names": _NAMES, "c": np.array(True)}, 2, {"StringNormalizer", "If"},
    ),
    "parts that branches read": (
        f"""g (float[N,8] x, string[N] names, bool c) => (float[N,2] y, string[N] up) {{ {_UPPER}
        a = MatMul(x, w) b = Relu(a) y = If(c) <
            then_branch = t () => (float[N,2] p) {{ p = MatMul(b, v) }},
            else_branch = e () => (float[N,2] q) {{ d = Add(b, x) q = MatMul(d, v) }}> }}""",
        {"x": _grid(6, 8), "names": _NAMES, "c": np.array(True)}, 3, {"StringNormalizer", "If"},
    ),
    "sizes from data": (
        """g (string[N] t) => (float[K,2] z) { u = Unique(t) each = Unsqueeze(u, zero)
        same = Equal(down, each) n = Cast<to=7>(same) ids = ArgMax<axis=0, keepdims=0>(n)
        e = Gather(table, ids) m = MatMul(e, w) z = MatMul(m, v) }""",
        {"t": np.array(["b", "a", "b"], object)}, 1, {"Unique", "Unsqueeze", "Equal"},
    ),
    "results that nobody wants": (
        f"""g (float[T,1,8] x, string[N] names) => (float[D,1,8] h, string[N] up) {{ {_UPPER}
        , h = LSTM<hidden_size=8>(x, gates, back) }}""",
        {"x": _grid(4, 1, 8), "names": _NAMES}, 1, {"StringNormalizer"},
    ),
}  # fmt: skip


def _model(name: str) -> bytes:
    text = MODELS[name][0]
    used = {n: a for n, a in _WEIGHTS.items() if re.search(rf"[(, ]{n}[,)]", text)}
    return model_of(text, used, opset=20).SerializeToString()


def _check(found: Any, wanted: Any) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        if theirs.dtype == object:
            assert mine.tolist() == theirs.tolist()
        else:
            assert_near(mine, theirs, "float: sums")


@pytest.mark.parametrize("name", MODELS)
def test_parts_give_what_the_processor_gives(gpu: FakeDriver | None, name: str) -> None:
    _, feeds, count, on_processor = MODELS[name]
    model = _model(name)
    here = ort.InferenceSession(model)
    there = ort.InferenceSession(model, providers=[CUDA])
    assert there.get_providers() == [CUDA, "CPUExecutionProvider"]
    for _ in range(3):
        _check(there.run(None, feeds), here.run(None, feeds))
    if "c" in feeds:
        other = {**feeds, "c": np.array(False)}
        _check(there.run(None, other), here.run(None, other))
    said = there.explain()
    assert len(inspect(there).regions) == count, said
    assert said.count("copied to the device in each call") == count
    assert f"region {count}:" in said
    left = {n.rpartition("_")[0] for n in sum(inspect(there).claims.left.values(), [])}
    assert left == on_processor
    assert "on the processor, since they" in said
    assert any("cuda" in name for name in there.memory()["devices"])


def test_what_is_copied_is_listed(gpu: FakeDriver | None) -> None:
    name = "a tokenizer in front, labels behind"
    session = ort.InferenceSession(_model(name), providers=[CUDA])
    feeds = MODELS[name][1]
    for _ in range(2):
        session.run(None, feeds)
    said = session.explain()
    (claim,) = inspect(session).claims.made  # type: ignore[union-attr]  # it has claims
    assert f"{CUDA}: {len(claim.nodes)} nodes in 2 calls" in said
    (region,) = inspect(session).regions
    each = sum(
        4 * v.dtype.numpy.itemsize * int(np.prod([d for d in v.shape or () if isinstance(d, int)]))
        for v in (*region.inputs, *region.outputs)
    )
    assert claim.copied_bytes == 2 * each
    assert "strings, sequences, optionals or maps" in said


def test_a_model_with_little_work_stays_on_the_processor(
    gpu: FakeDriver | None, caplog: pytest.LogCaptureFixture
) -> None:
    text = """g (string[N] t, float[N] x) => (string[N] y, float[N] z) {
        y = StringNormalizer<case_change_action="UPPER">(t) z = Add(x, x) }"""
    model = model_of(text, opset=20).SerializeToString()
    with caplog.at_level(logging.WARNING):
        session = ort.InferenceSession(model, providers=[CUDA])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert "the whole model runs on the processor" in caplog.text
    found = session.run(None, {"t": np.array(["a"], object), "x": np.ones(1, np.float32)})
    assert found[0].tolist() == ["A"]


def test_nodes_are_assigned_and_memory_is_given_back(gpu: FakeDriver | None) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    model = _model("a sequence in the middle")
    session = ort.InferenceSession(model, options, providers=[CUDA])
    found = session.get_provider_graph_assignment_info()
    assert [(s.ep_name, [n.op_type for n in s.get_nodes()]) for s in found] == [
        (CUDA, ["MatMul", "Relu"]),
        (CUDA, ["MatMul"]),
        ("CPUExecutionProvider", ["SequenceInsert"]),
        ("CPUExecutionProvider", ["SequenceAt"]),
    ]
    session.trim()
    assert session.memory()["frames"] == 0


def test_faults_in_a_part_are_errors_and_the_next_run_works(gpu: FakeDriver | None) -> None:
    text = """g (float[N,8] x, int64[M] i, string[K] names) => (float[M,8] y, string[K] up) {
        up = StringNormalizer<case_change_action="UPPER">(names)
        a = MatMul(x, w) y = Gather(a, i) }"""
    model = model_of(text, {"w": _WEIGHTS["w"]}, opset=20).SerializeToString()
    session, here = ort.InferenceSession(model, providers=[CUDA]), ort.InferenceSession(model)
    good = {"x": _grid(5, 8), "i": np.array([1, 4]), "names": _NAMES}
    for _ in range(2):
        with pytest.raises(errors.RuntimeException, match="index 9 is out of range"):
            session.run(None, {**good, "i": np.array([1, 9])})
        _check(session.run(None, good), here.run(None, good))


def test_feeds_that_contradict_names_get_regions_of_their_own(gpu: FakeDriver | None) -> None:
    text = """g (float[N,8] x, float[N,8] z, string[N] names) => (float[A,8] y, string[N] up) {
        up = StringNormalizer<case_change_action="UPPER">(names)
        a = MatMul(x, w) b = MatMul(z, w) y = Add(a, b) }"""
    model = model_of(text, {"w": _WEIGHTS["w"]}, opset=20).SerializeToString()
    session, here = ort.InferenceSession(model, providers=[CUDA]), ort.InferenceSession(model)
    for rows in (3, 1):
        feeds = {"x": _grid(3, 8), "z": _grid(rows, 8), "names": _NAMES}
        _check(session.run(None, feeds), here.run(None, feeds))
    assert len(inspect(session).regions) == 1
    assert [len(e.regions) for e in inspect(session).variants.values()] == [1]


def test_several_threads_run_one_session(gpu: FakeDriver | None) -> None:
    from concurrent.futures import ThreadPoolExecutor

    name = "a sequence in the middle"
    model = _model(name)
    session, here = ort.InferenceSession(model, providers=[CUDA]), ort.InferenceSession(model)

    def work(rows: int) -> None:
        x = np.full((rows + 4, 8), rows / 8, np.float32)
        feeds = {"x": x, "q": [_EIGHTS], "i": np.int64(rows % 2)}
        for _ in range(5):
            _check(session.run(None, feeds), here.run(None, feeds))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


def test_without_a_way_back_it_is_refused(gpu: FakeDriver | None) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(errors.NotImplemented, match="strings, sequences"):
        ort.InferenceSession(_model("a sequence in the middle"), options, providers=[CUDA])
