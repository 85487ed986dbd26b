"""Files that were written to hurt: each ends in a named error, soon, and says what is wrong."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper

import sardonyx
from sardonyx.base.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    OutOfMemory,
    SardonyxError,
)
from sardonyx.ir.node import Node
from tests.hostile.raw import varint
from tests.support.session import model_of

IMPORTS = [helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)]


@pytest.fixture(autouse=True)
def _soon() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 30


def session_of(model: ModelProto | bytes | str) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.memory_limit_bytes", str(64 << 20))
    options.add_session_config_entry("session.load_timeout_seconds", "10")
    source = model.SerializeToString() if isinstance(model, ModelProto) else model
    return sardonyx.InferenceSession(source, options)


def calling(functions: list[onnx.FunctionProto], name: str) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node(name, ["x"], ["y"], domain="custom")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    return helper.make_model(graph, opset_imports=IMPORTS, functions=functions, ir_version=9)


def function(name: str, *calls: str) -> onnx.FunctionProto:
    values = ["x", *(f"t{k}" for k in range(1, len(calls))), "y"]
    nodes = [
        helper.make_node(op, [a], [b], domain="" if op == "Neg" else "custom")
        for op, a, b in zip(calls, values, values[1:], strict=False)
    ]
    return helper.make_function("custom", name, ["x"], ["y"], nodes, IMPORTS)


FUNCTIONS: list[tuple[str, list[onnx.FunctionProto], str]] = [
    ("itself", [function("f", "f")], "calls itself: f -> f"),
    ("a circle", [function("f", "g"), function("g", "h"), function("h", "f")], "calls itself"),
    ("a long chain", [*(function(f"f{k}", f"f{k + 1}") for k in range(50)), function("f50", "Neg")],
     "nested more than"),
    ("twice, 30 times", [*(function(f"f{k}", *[f"f{k + 1}"] * 2) for k in range(30)),
     function("f30", "Neg")], "stand for more than"),
    ("a thousand, 3 times", [*(function(f"f{k}", *[f"f{k + 1}"] * 1000) for k in range(3)),
     function("f3", "Neg")], "stand for more than"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("functions", "text"), [c[1:] for c in FUNCTIONS], ids=[c[0] for c in FUNCTIONS]
)
def test_functions_without_end(
    functions: list[onnx.FunctionProto], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sardonyx.loader.build.INLINED_NODES_LIMIT", 20_000)
    with pytest.raises(InvalidGraph, match=text):
        session_of(calling(functions, functions[0].name))


def nested(depth: int, *, graphs: bool) -> bytes:
    """A graph in an attribute of a node of a graph, or groups, so many times; as bytes."""
    data = b""
    for _ in range(depth):
        if graphs:
            for number in (6, 5, 1):  # AttributeProto.g, NodeProto.attribute, GraphProto.node
                data = varint(number << 3 | 2) + varint(len(data)) + data
        else:
            data = varint(99 << 3 | 3) + data + varint(99 << 3 | 4)
    if graphs:
        data = varint(7 << 3 | 2) + varint(len(data)) + data
    return varint(1 << 3) + varint(8) + data


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("depth", [40, 3000])
def test_messages_in_each_other(depth: int, graphs: bool) -> None:
    with pytest.raises((InvalidProtobuf, InvalidGraph), match="nested|no graph|op_type"):
        session_of(nested(depth, graphs=graphs))


def branches(depth: int) -> ModelProto:
    """An If in a branch of an If, and so on."""
    node = helper.make_node("Neg", ["x"], ["y"])
    for k in range(depth):
        held = [
            helper.make_graph([node] if number == 0 else [helper.make_node("Abs", ["x"], ["y"])],
                              f"b{k}.{number}", [], [onnx.ValueInfoProto(name="y")])
            for number in range(2)
        ]  # fmt: skip
        node = helper.make_node("If", ["c"], ["y"], then_branch=held[0], else_branch=held[1])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
              helper.make_tensor_value_info("c", TensorProto.BOOL, [])]  # fmt: skip
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=IMPORTS[:1], ir_version=9)


def test_branches_in_branches() -> None:
    x = np.ones(3, np.float32)
    try:
        got = session_of(branches(20)).run(None, {"x": x, "c": np.array(True)})[0]
    except SardonyxError as error:
        assert str(error).startswith("[")
    else:
        assert np.array_equal(got, -x)


def huge_tensor(dims: list[int], *, raw: bytes = b"") -> ModelProto:
    model = model_of("g (float[N] x) => (float[M] y) { y = Add(x, w) }")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=raw)
    model.graph.initializer.append(tensor)
    return model


def huge_fill(count: int) -> ModelProto:
    return model_of(
        f"""g (float[1] x) => (float[M] y) {{ n = Constant<value_ints=[{count}]>()
        z = ConstantOfShape(n) i = Constant<value_int=0>() s = CumSum(z, i) y = Add(s, x) }}"""
    )


def huge_attribute(count: int) -> ModelProto:
    model = model_of("g (float[N,4] x) => (float[M] y) { y = ReduceSum<keepdims=0>(x) }", opset=11)
    node = model.graph.node[0]
    node.attribute.append(AttributeProto(name="axes", type=AttributeProto.INTS, ints=[1] * count))
    return model


def of_text(kind: str, text: str, opset: int = 17) -> ModelProto:
    return model_of(f"g ({kind} x) => (float[A] y) {{ {text} }}", opset=opset)


SIZES: list[tuple[str, Callable[[], ModelProto]]] = [
    ("a billion elements without data", lambda: huge_tensor([1 << 30])),
    ("more elements than can be counted", lambda: huge_tensor([1 << 62, 1 << 62])),
    ("a product that wraps to 4 bytes", lambda: huge_tensor([1 << 32, 1 << 32, 1], raw=b"1234")),
    ("a negative size", lambda: huge_tensor([-1], raw=b"1234")),
    ("zero times too many", lambda: huge_tensor([0, 1 << 62, 1 << 62])),
    ("a billion constants to fold", lambda: huge_fill(1 << 30)),
    ("2 to the 60 constants to fold", lambda: huge_fill(1 << 60)),
    ("a million axes", lambda: huge_attribute(1_000_000)),
    ("kernel_shape of 2 to the 40", lambda: of_text("float[1,1,8,8]",
        "y = MaxPool<kernel_shape=[1099511627776,3]>(x)")),
    ("a pad of 2 to the 50", lambda: of_text("float[N]",
        "p = Constant<value_ints=[0,1125899906842624]>() y = Pad(x, p)")),
    ("repeats of 2 to the 50", lambda: of_text("float[N]",
        "p = Constant<value_ints=[1125899906842624]>() y = Tile(x, p)")),
    ("a depth of 2 to the 50", lambda: of_text("float[N]",
        """d = Constant<value_int=1125899906842624>() i = Cast<to=7>(x)
        v = Constant<value_floats=[0.0, 1.0]>() y = OneHot(i, d, v)""")),
    ("2 to the 50 outputs of Split", lambda: of_text("float[N]",
        "y = Split<num_outputs=1125899906842624>(x)", opset=18)),
]  # fmt: skip


@pytest.mark.parametrize("make", [c[1] for c in SIZES], ids=[c[0] for c in SIZES])
def test_sizes_beyond_all_measure(make: Callable[[], ModelProto]) -> None:
    with pytest.raises(SardonyxError, match=r"^\["):
        session = session_of(make())
        shape = [d if isinstance(d, int) else 3 for d in session.get_inputs()[0].shape]
        session.run(None, {"x": np.ones(shape, np.float32)}, timeout=5)


PATHS = ["../secret", "sub/../../secret", "/etc/hostname", "/dev/zero", "pipe", "sub", "", "a\0b",
         "sub\\..\\..\\secret", "missing", "short", "loop", "/proc/self/mem"]  # fmt: skip


@pytest.mark.parametrize("location", PATHS)
def test_places_of_data_that_are_refused(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "short").write_bytes(bytes(15))
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    model = huge_tensor([4])
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    model.graph.initializer[0].external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(SardonyxError, match=r"^\["):
        session_of(str(folder / "m.onnx"))


CHANGES_IN_PLACE = """
import os, sys, threading, numpy as np, sardonyx
from sardonyx.base.errors import SardonyxError
from sardonyx.loader.load import load
folder = sys.argv[1]
model, weights = folder + "/m.onnx", folder + "/w"
x = {"x": np.ones((2, 1024), np.float32)}
full = open(weights, "rb").read()
session = sardonyx.InferenceSession(model)
before = session.run(None, x)[0]
os.truncate(weights, 0)                       # while a session has it
assert np.array_equal(session.run(None, x)[0], before)
open(weights, "wb").write(full)
graph = load(model)                           # while it is being loaded
array = graph.initializers["w"].constant.array()
os.truncate(weights, 4096)
assert array.sum() == 1024 * 1024             # what was read stays
try:
    graph.initializers["w"].constant.array()
    raise SystemExit("a truncated file was read")
except SardonyxError as error:
    assert "changed" in str(error) or "truncated" in str(error), error
stopped = []
def change():                                 # again and again, while others load
    while not stopped:
        open(weights, "wb").write(full)
        os.truncate(weights, 100)
thread = threading.Thread(target=change)
thread.start()
kinds = set()
for number in range(12):
    try:
        sardonyx.InferenceSession(model).run(None, x)
        kinds.add("ran")
    except SardonyxError as error:
        kinds.add(type(error).__name__)
stopped.append(1)
thread.join()
print(*sorted(kinds))
"""


def test_files_that_change_in_place(tmp_path: Path) -> None:
    model = model_of("g (float[N,1024] x) => (float[N,1024] y) { y = MatMul(x, w) }",
                     {"w": np.ones((1024, 1024), np.float32)})  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w")
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root), "SARDONYX_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", CHANGES_IN_PLACE, str(tmp_path)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert set(done.stdout.split()) <= {"ran", "Fail", "InvalidGraph", "NoSuchFile"}


def test_text_of_any_length_and_kind() -> None:
    for name in ("n" * 1_000_000, "{0} {x!r} %s", "\u202e", "a b\n"):
        model = model_of("g (float[N] x) => (float[N] y) { y = Neg(x) }")
        model.graph.node[0].name = model.graph.node[0].op_type = name
        with pytest.raises(SardonyxError) as caught:
            session_of(model)
        assert len(str(caught.value)) < 4_000_000


def test_memory_and_changes_have_their_own_names() -> None:
    with pytest.raises(OutOfMemory, match="64|67108864"):
        session_of(huge_fill(1 << 30))
    assert issubclass(OutOfMemory, MemoryError)
    assert issubclass(Fail, RuntimeError)


def test_a_refused_model_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its error is held, and without waiting for Python's collector."""
    monkeypatch.setattr("sardonyx.compiler.drive._LONG_SECONDS", 0.0)
    monkeypatch.setattr("sardonyx.loader.build.INLINED_NODES_LIMIT", 5_000)
    functions = [
        *(function(f"f{k}", *[f"f{k + 1}"] * 2) for k in range(30)),
        function("f30", "Neg"),
    ]
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(x, Node) for x in gc.get_objects())
        with pytest.raises(InvalidGraph) as caught:
            session_of(calling(functions, "f0"))
        assert "stand for more than" in str(caught.value)
        assert sum(isinstance(x, Node) for x in gc.get_objects()) <= before
    finally:
        gc.enable()


def sums(rank: int) -> ModelProto:
    """The number of elements of a tensor whose sizes are all sums of two."""
    lines = [f"c{k} = Concat<axis=0>(a{k}, b{k})" for k in range(rank)]
    for k in range(1, rank):
        before = f"m{k - 1}" if k > 1 else "c0"
        lines.append(f"u{k} = Unsqueeze<axes=[{k}]>({before}) m{k} = Mul(u{k}, c{k})")
    inputs = ", ".join(f"float[A{k}] a{k}, float[B{k}] b{k}" for k in range(rank))
    text = (
        f"g ({inputs}) => (float[X,Y] y) {{ {' '.join(lines)} y = Flatten<axis=0>(m{rank - 1}) }}"
    )
    return model_of(text, opset=11)


def powers(times: int) -> ModelProto:
    """A size n that becomes n * (n + 1), again and again."""
    lines = [f"p{k} = Add(q{k}, one) q{k + 1} = Mul(p{k}, q{k})" for k in range(times)]
    return model_of(
        f"""g (float[A,B,C] x, float[1] v) => (float[N] y) {{ one = Constant<value_ints=[1]>()
        q0 = Shape(x) {" ".join(lines)} t = ReduceProd<keepdims=1>(q{times}) y = Expand(v, t) }}"""
    )


@pytest.mark.parametrize("make", [lambda: sums(15), lambda: sums(40)])
def test_sizes_that_unfold(make: Callable[[], ModelProto]) -> None:
    with pytest.raises(NotImplementedError, match="terms|too complicated"):
        session_of(make())


@pytest.mark.parametrize(
    ("shape", "where", "what"),
    [
        ((1, 1, 1), "[node Expand_", "The shape [over 2^63] that it makes is too large"),
        ((0, 1, 1), "[run]", "The size is too large for these feeds"),
    ],
)
def test_powers_of_sizes(shape: tuple[int, ...], where: str, what: str) -> None:
    """Each is a symbol of its own, so a session is made at once; a million digits are no size."""
    v = np.ones(1, np.float32)
    with pytest.raises(InvalidArgument) as caught:
        session_of(powers(40)).run(None, {"x": np.zeros(shape, np.float32), "v": v})
    assert str(caught.value).startswith(where) and what in str(caught.value)
    (found,) = session_of(powers(2)).run(None, {"x": np.zeros((2, 1, 3), np.float32), "v": v})
    assert found.shape == (42 * 6 * 156,)
