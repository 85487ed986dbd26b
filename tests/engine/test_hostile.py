"""Broken files and feeds: named errors, never a crash, and sessions that go on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.base import errors
from sardonyx.base.errors import SardonyxError
from tests.engine import networks
from tests.support.session import model_of

#: Runs what thread blocks do, thread by thread.
pytestmark = pytest.mark.once

_IMAGE = {"x": np.zeros((1, 3, 16, 16), np.float32)}
_TEXT = {"ids": np.zeros((1, 8), np.int64), "mask": np.ones((1, 8), np.int64)}


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files(seed: int) -> None:
    rnd = random.Random(seed)
    models = [
        (networks.perceptron().SerializeToString(), {"x": np.zeros((1, 40), np.float32)}),
        (networks.transformer().SerializeToString(), _TEXT),
    ]
    for number in range(16):
        raw, feeds = models[number % 2]
        damaged = bytearray(raw)
        if rnd.random() < 0.3:
            damaged = damaged[: rnd.randrange(len(damaged))]
        for _ in range(rnd.randint(1, 3)):
            if damaged:
                damaged[rnd.randrange(min(len(damaged), 3000))] = rnd.randrange(256)
        try:
            sardonyx.InferenceSession(bytes(damaged)).run(None, feeds)
        except (SardonyxError, ValueError) as error:
            assert str(error), f"an error without a text, seed {seed}, number {number}"


BAD_FEEDS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ValueError, "missing"),
    ({"x": np.zeros((1, 40), np.float64)}, errors.InvalidArgument, "element type"),
    ({"x": np.zeros((1, 41), np.float32)}, errors.InvalidArgument, "Expected 40, got 41"),
    ({"x": np.zeros(40, np.float32)}, errors.InvalidArgument, "rank"),
    ({"x": np.zeros((1, 40), np.float32), "y": 1}, errors.InvalidArgument, "no input 'y'"),
    ({"x": np.array([["a"] * 40])}, errors.InvalidArgument, "element type"),
    ({"x": object()}, errors.InvalidArgument, "no array"),
]


@pytest.mark.parametrize(("feeds", "kind", "text"), BAD_FEEDS)
def test_bad_feeds(feeds: dict[str, Any], kind: type[Exception], text: str) -> None:
    session = sardonyx.InferenceSession(networks.perceptron().SerializeToString())
    with pytest.raises(kind, match=text):
        session.run(None, feeds)
    good = {"x": np.ones((2, 40), np.float32)}
    assert session.run(None, good)[0].shape == (2, 5)


def _one_node(op: str, inputs: dict[str, Any], shape: list[Any] | None, **attributes: Any) -> bytes:
    given = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    wanted = [helper.make_tensor_value_info("y", next(iter(inputs.values()))[0], shape)]
    node = helper.make_node(op, list(inputs), ["y"], name="the_node", **attributes)
    model = helper.make_model(
        helper.make_graph([node], "g", given, wanted),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.ir_version = 8
    return bytes(model.SerializeToString())


def test_index_out_of_range_names_the_node() -> None:
    inputs = {"x": (TensorProto.FLOAT, ["A", 4]), "i": (TensorProto.INT64, ["B"])}
    session = sardonyx.InferenceSession(_one_node("Gather", inputs, ["B", 4]))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with pytest.raises(errors.RuntimeException, match="(?s)the_node.*7 is out of range"):
        session.run(None, {"x": x, "i": np.array([0, 7])})
    assert np.array_equal(session.run(None, {"x": x, "i": np.array([-1])})[0], x[-1:])


def test_sizes_that_contradict_each_other() -> None:
    inputs = {"a": (TensorProto.FLOAT, ["A", 4]), "b": (TensorProto.FLOAT, ["B", 4])}
    session = sardonyx.InferenceSession(_one_node("Add", inputs, ["A", 4]))
    a = np.ones((3, 4), np.float32)
    assert session.run(None, {"a": a, "b": a})[0].sum() == 24
    with pytest.raises(errors.InvalidArgument):
        session.run(None, {"a": a, "b": a[:2]})


@pytest.mark.parametrize("zeros", [(0, 4), (3, 0)])
def test_empty_tensors(zeros: tuple[int, int]) -> None:
    inputs = {"x": (TensorProto.FLOAT, ["A", "B"])}
    session = sardonyx.InferenceSession(_one_node("Softmax", inputs, ["A", "B"], axis=1))
    assert session.run(None, {"x": np.zeros(zeros, np.float32)})[0].shape == zeros


def test_unknown_operator_and_missing_file(tmp_path: Path) -> None:
    inputs = {"x": (TensorProto.FLOAT, [3])}
    with pytest.raises(errors.InvalidGraph, match="the_node.*NoSuchOperator"):
        sardonyx.InferenceSession(_one_node("NoSuchOperator", inputs, [3]))
    with pytest.raises(errors.NoSuchFile):
        sardonyx.InferenceSession(tmp_path / "missing.onnx")


def test_model_file_may_change_after_creation(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(networks.convolutional(), path)
    session = sardonyx.InferenceSession(path)
    before = session.run(None, _IMAGE)
    path.write_bytes(b"overwritten" * 10_000)
    path.unlink()
    for a, b in zip(before, session.run(None, _IMAGE), strict=True):
        assert np.array_equal(a, b)


def _in_fresh_process(code: str, cache: Path) -> str:
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"SARDONYX_CACHE": str(cache), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_seen_before_needs_no_compiler(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(networks.perceptron(), path)
    code = (
        "import sys, numpy as np, sardonyx\n"
        f"s = sardonyx.InferenceSession({str(path)!r})\n"
        "y = s.run(None, {'x': np.ones((2, 40), np.float32)})[0]\n"
        "print('llvmlite' in sys.modules, y.tobytes().hex())\n"
    )
    cold, warm = (_in_fresh_process(code, tmp_path / "cache").split() for _ in range(2))
    assert (cold[0], warm[0]) == ("True", "False")
    assert cold[1] == warm[1]


def test_forks_while_another_thread_compiles(tmp_path: Path) -> None:
    code = """
import os, signal, threading
import numpy as np, sardonyx
from tests.engine import networks
from tests.support.session import model_of
def compile(name):
    model = networks.perceptron()
    model.producer_name = name
    session = sardonyx.InferenceSession(model.SerializeToString())
    return session.run(None, {'x': np.ones((2, 40), np.float32)})[0].shape
stopped = []
def go():
    while not stopped:
        compile(os.urandom(6).hex())
compile('first')  # what numpy and llvmlite import late is theirs to protect
thread = threading.Thread(target=go)
thread.start()
ends = []
for number in range(6):
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(0 if compile(str(number)) == (2, 5) else 1)
    ends.append(os.waitpid(child, 0)[1])
stopped.append(1)
thread.join()
print(set(ends))
"""
    assert _in_fresh_process(code, tmp_path / "cache").strip() == "{0}"


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code = (
        "import numpy as np, sardonyx, sys\n"
        "sys.path.insert(0, '.')\n"
        "from tests.engine import networks\n"
        "s = sardonyx.InferenceSession(networks.perceptron().SerializeToString())\n"
        "print(s.run(None, {'x': np.ones((2, 40), np.float32)})[0].shape)\n"
    )
    assert _in_fresh_process(code, blocked / "cache").strip() == "(2, 5)"


READS_OUTSIDE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("GatherElements", {"x": (3, 4), "i": np.zeros((9, 9), np.int64)}, {}),
    ("ScatterElements", {"x": (3, 4), "i": np.zeros((9, 9), np.int64), "u": (9, 9)}, {}),
    ("Gather", {"x": (0, 1 << 20), "i": np.zeros(1, np.int64)}, {}),
    ("Conv", {"x": (1, 2, 4, 4), "w": (3, 2, 1, 1), "b": (1 << 1,)}, {}),
    ("Pad", {"x": (0, 4), "p": np.array([1, 1, 1, 1])}, {"mode": "reflect"}),
    ("Pad", {"x": (0, 4), "p": np.array([1, 1, 1, 1])}, {"mode": "edge"}),
    ("GridSample", {"x": (8, 1, 4, 4), "g": (1, 6, 6, 2)}, {}),
    ("GridSample", {"x": (1, 1, 4, 4), "g": (1, 6, 6, 1)}, {}),
    ("ReverseSequence", {"x": (4, 40), "n": np.array([1, 2])}, {}),
    ("BatchNormalization", {"x": (1, 5, 2), "s": (5,), "b": (5,), "m": (3,), "v": (5,)}, {}),
]


@pytest.mark.parametrize(("op", "feeds", "attributes"), READS_OUTSIDE)
def test_feeds_that_would_read_outside(
    op: str, feeds: dict[str, Any], attributes: dict[str, Any]
) -> None:
    arrays = {
        n: f if isinstance(f, np.ndarray) else np.ones(f, np.float32) for n, f in feeds.items()
    }
    inputs = {
        n: (helper.np_dtype_to_tensor_dtype(a.dtype), [f"{n}{k}" for k in range(a.ndim)])
        for n, a in arrays.items()
    }
    raw = _one_node(op, inputs, None, **attributes)
    model = onnx.load_from_string(raw)
    if "p" in arrays:  # the pads must be known
        model.graph.initializer.append(onnx.numpy_helper.from_array(arrays.pop("p"), "p"))
        del model.graph.input[1]
    session = sardonyx.InferenceSession(model.SerializeToString())
    with pytest.raises((errors.InvalidArgument, errors.RuntimeException)):
        session.run(None, arrays)


BAD_ATTRIBUTES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("MaxPool", {"x": (1, 1, 6)}, {"kernel_shape": [2], "strides": [1 << 62]}, "positive"),
    ("MaxPool", {"x": (1, 1, 6)}, {"kernel_shape": [0]}, "positive"),
    ("AveragePool", {"x": (1, 1, 6)}, {"kernel_shape": [1 << 40]}, "positive"),
    ("ConvTranspose", {"x": (1, 1, 6), "w": (1, 1, 2)}, {"strides": [0]}, "positive"),
    ("LRN", {"x": (1, 1, 6)}, {"size": 0}, "positive"),
    ("TopK", {"x": (3, 4), "i": np.array([1, 2])}, {}, "the_node"),
    ("OneHot", {"i": np.array([1, 2]), "d": np.array([4, 4]), "v": (2,)}, {}, "the_node"),
    ("Resize", {"x": (1, 1, 6), "r": (0,), "s": np.array([1, 1, np.nan], np.float32)}, {}, "nan"),
]


@pytest.mark.parametrize(("op", "feeds", "attributes", "text"), BAD_ATTRIBUTES)
def test_attributes_and_contents_that_cannot_be(
    op: str, feeds: dict[str, Any], attributes: dict[str, Any], text: str
) -> None:
    arrays = {
        n: f if isinstance(f, np.ndarray) else np.ones(f, np.float32) for n, f in feeds.items()
    }
    inputs = {
        n: (helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)) for n, a in arrays.items()
    }
    model = onnx.load_from_string(_one_node(op, inputs, None, **attributes))
    for name in set(arrays) & {"i", "d", "s", "r"}:
        model.graph.initializer.append(onnx.numpy_helper.from_array(arrays[name], name))
        model.graph.input.remove(next(i for i in model.graph.input if i.name == name))
    if op == "TopK":
        model.graph.node[0].output.append("places")
    with pytest.raises(errors.InvalidGraph, match=text):
        sardonyx.InferenceSession(model.SerializeToString())


def _sum_with_external_weight(folder: Path, value: float) -> Path:
    weight = np.full((400, 4), value, np.float32)
    inputs = {"x": (TensorProto.FLOAT, ["N", 4]), "w": (TensorProto.FLOAT, [400, 4])}
    model = onnx.load_from_string(_one_node("Add", inputs, None))
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weight", size_threshold=0)
    return path


def test_external_data_that_changes(tmp_path: Path) -> None:
    path, x = _sum_with_external_weight(tmp_path, 1), np.zeros((400, 4), np.float32)
    old = sardonyx.InferenceSession(path)
    assert old.run(None, {"x": x})[0].max() == 1
    times = os.stat(tmp_path / "weight")
    np.full((400, 4), 2, np.float32).tofile(tmp_path / "weight")
    os.utime(tmp_path / "weight", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert sardonyx.InferenceSession(path).run(None, {"x": x})[0].max() == 2
    assert old.run(None, {"x": x})[0].max() == 1
    # Another shape needs a plan that would have to be made of other weights.
    with pytest.raises(errors.InvalidArgument):
        old.run(None, {"x": x[:1]})


@pytest.mark.parametrize("k", [2**63 - 1, -(2**63)])
def test_diagonals_beyond_all_matrices(k: int) -> None:
    inputs = {"x": (TensorProto.FLOAT, ["A", "B"]), "k": (TensorProto.INT64, [])}
    session = sardonyx.InferenceSession(_one_node("Trilu", inputs, ["A", "B"]))
    x = np.ones((3, 4), np.float32)
    assert session.run(None, {"x": x, "k": np.array(k)})[0].sum() == (0 if k > 0 else 12)


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integer_division_by_zero(op: str) -> None:
    inputs = {"x": (TensorProto.INT64, ["N"]), "d": (TensorProto.INT64, ["N"])}
    session = sardonyx.InferenceSession(_one_node(op, inputs, ["N"]))
    x, y = np.arange(21), np.full(21, 4)
    want = x // 4 if op == "Div" else x % 4
    assert np.array_equal(session.run(None, {"x": x, "d": y})[0], want)
    y[19] = 0
    with pytest.raises(errors.RuntimeException, match="(?s)the_node.*division by zero"):
        session.run(None, {"x": x, "d": y})


_PAD = "g (float[N] x, int64[2] p) => (float[A] y) { y = Pad(x, p) }"
_LESS = "g (float[N] x) => (float[A] y) <int64[2] p = {-2, -2}> { y = Pad(x, p) }"
_RESIZE = """g (float[1,1,H,W] x, float[4] s) => (float[A,B,C,D] y) <float[0] r = {}> {
    y = Resize(x, r, s) }"""
_THREE, _SQUARE = np.ones(3, np.float32), np.ones((1, 1, 2, 2), np.float32)
#: What only a run knows: model, feeds that it takes, feeds that it does not, and why not.
OUT_OF_BOUNDS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (_PAD, {"p": np.array([-2, -1])}, {"p": np.array([-2, -2])}, "removes more of axis 0"),
    (_PAD, {"p": np.array([-4, 2])}, {"p": np.array([-5, 1])}, "removes more of axis 0"),
    (_LESS, {"x": np.ones(4, np.float32)}, {"x": _THREE}, "removes more of axis 0.*Pad_0"),
    *(
        (_RESIZE, {"s": np.float32([1, 1, 1, 2])}, {"s": np.float32([1, 1, s, 1])}, "Resize_0")
        for s in (0.0, -1.0, np.nan, np.inf)
    ),
]


@pytest.mark.parametrize(("text", "good", "bad", "why"), OUT_OF_BOUNDS)
def test_counts_and_scales_that_only_a_run_knows(
    text: str, good: dict[str, Any], bad: dict[str, Any], why: str
) -> None:
    session = sardonyx.InferenceSession(model_of(text, opset=18).SerializeToString())
    others = {"x": _SQUARE if text is _RESIZE else _THREE}
    for _ in range(2):
        with pytest.raises(errors.InvalidArgument, match=why):
            session.run(None, others | bad)
        session.run(None, others | good)


def test_a_number_has_no_axes() -> None:
    model = model_of("g (float x) => (float y) { y = Softmax(x) }").SerializeToString()
    with pytest.raises(errors.InvalidGraph, match="Softmax_0.*Expected a tensor with axes"):
        sardonyx.InferenceSession(model)
