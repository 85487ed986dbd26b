"""Feeds that are not what they seem: each ends in a named error, or in what its elements say."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import as_strided
from onnx import helper

import sardonyx
from sardonyx.base.errors import InvalidArgument, OutOfMemory, SardonyxError
from tests.support.session import model_of


def session(model: onnx.ModelProto) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.memory_limit_bytes", str(64 << 20))
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def numbers() -> sardonyx.InferenceSession:
    return session(model_of("g (float[N] x) => (float[N] y) { y = Add(x, x) }"))


class Raises:
    """Its way to an array fails."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("its own")


class GivesNone:
    """Its way to an array leads nowhere."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        return 5


class RaisesOnDevice:
    """Its memory cannot be shared."""

    def __dlpack__(self, **_: Any) -> Any:
        raise KeyError("its own")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class NoCapsule(RaisesOnDevice):
    """It shares what is no memory."""

    def __dlpack__(self, **_: Any) -> Any:
        return 5


class Text(str):
    """Text that compares as it likes."""

    def __hash__(self) -> int:
        raise ZeroDivisionError

    __eq__ = object.__eq__


class WithoutText:
    """What has no text."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def without_end(count: int, item: Any = None) -> Any:
    """An array of one element, which it repeats so often."""
    return as_strided(np.array([np.float32(1) if item is None else item]), (count,), (0,))


LIES: list[tuple[str, Any, type[SardonyxError]]] = [
    ("its own error", Raises(), InvalidArgument),
    ("no array", GivesNone(), InvalidArgument),
    ("an error while sharing", RaisesOnDevice(), InvalidArgument),
    ("no memory to share", NoCapsule(), InvalidArgument),
    ("a list in itself", (found := []) or found.append(found) or found, InvalidArgument),
    ("a number that no float holds", [10**400], InvalidArgument),
    ("fields", np.zeros(3, [("a", "f4")]), InvalidArgument),
    ("times", np.zeros(3, "M8[s]"), InvalidArgument),
    ("many axes", np.zeros((1,) * 60, np.float32), InvalidArgument),
    ("one element, a billion times", without_end(1 << 30), OutOfMemory),
    ("one element, 2 to the 60 times", without_end(1 << 60), OutOfMemory),
    ("the same in another order of bytes", without_end(1 << 30, np.array(1, ">f4")), OutOfMemory),
]


@pytest.mark.parametrize(("feed", "error"), [c[1:] for c in LIES], ids=[c[0] for c in LIES])
def test_what_is_refused(feed: Any, error: type[SardonyxError]) -> None:
    with pytest.raises(error, match=r"^\["):
        numbers().run(None, {"x": feed})


@pytest.mark.parametrize("name", [None, 5, ("x",), b"x"])
def test_names_that_are_no_text(name: Any) -> None:
    x = np.ones(1, np.float32)
    with pytest.raises(InvalidArgument, match="Names are text"):
        numbers().run(None, {"x": x, name: x})


def test_elements_in_any_order() -> None:
    x = np.arange(12, dtype=np.float32)
    for feed in (x[::-1], x[::3], x.astype(">f4"), without_end(5),
                 np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)):  # fmt: skip
        got = numbers().run(None, {"x": feed})[0]
        assert got.tolist() == [2 * v for v in feed.tolist()]


def test_truth_that_is_neither() -> None:
    """NumPy makes bytes into truth values as they are."""
    odd = np.array([0, 1, 2, 255, 128], np.uint8).view(np.bool_)
    model = model_of("""g (bool[N] c, float[N] x) => (int64[1,M] p, float[K] y, int64 n) {
        p = NonZero(c)
        y = Compress<axis=0>(x, c) k = Cast<to=7>(c) n = ReduceSum<keepdims=0>(k) }""")
    x = np.arange(5, dtype=np.float32)
    p, y, n = session(model).run(None, {"c": odd, "x": x})
    assert (p.tolist(), y.tolist(), n) == ([[1, 2, 3, 4]], [1, 2, 3, 4], 4)


STRINGS: list[tuple[Any, Any]] = [
    (np.array(["\udcff\ud800", "a\0b"], object), ["\udcff\ud800", "a\0b"]),
    (np.array([b"\xff\xfe"]), ["\udcff\udcfe"]),
    (np.array([b"\xff\xfe"], object), [r"b'\xff\xfe'"]),
    (np.array([Text("t"), Text("t")], object), ["t", "t"]),
    (np.array([1, None], object), ["1", "None"]),
    (np.array([WithoutText()], object), InvalidArgument),
    (without_end(1 << 36, "a"), OutOfMemory),
]


@pytest.mark.parametrize(("feed", "wanted"), STRINGS)
def test_strings(feed: Any, wanted: Any) -> None:
    made = session(model_of("g (string[N] x) => (string[N] y) { y = Identity(x) }"))
    if isinstance(wanted, list):
        assert made.run(None, {"x": feed})[0].tolist() == wanted
    else:
        with pytest.raises(wanted, match=r"^\["):
            made.run(None, {"x": feed})


def with_input(type_: onnx.TypeProto, node: onnx.NodeProto) -> sardonyx.InferenceSession:
    inputs = [onnx.ValueInfoProto(name="x", type=type_)]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return session(helper.make_model(graph, opset_imports=imports, ir_version=9))


def a_sequence() -> sardonyx.InferenceSession:
    tensors = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [None])
    node = helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)
    return with_input(helper.make_sequence_type_proto(tensors), node)


def a_map() -> sardonyx.InferenceSession:
    value = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    node = helper.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml",
                            map_form="SPARSE", max_map=5)  # fmt: skip
    return with_input(helper.make_map_type_proto(onnx.TensorProto.INT64, value), node)


OBJECTS = [
    (a_sequence, [without_end(1 << 40)], OutOfMemory),
    (a_sequence, [np.zeros(1 << 20, np.float32)] * 2000, OutOfMemory),
    (a_sequence, [object()], InvalidArgument),
    (a_sequence, "abc", InvalidArgument),
    (a_sequence, [[1, 2], [3]], [1, 2, 3]),
    (a_map, {1 << 70: 1.0}, InvalidArgument),
    (a_map, {None: 1.0}, InvalidArgument),
    (a_map, {1.5: 1.0}, InvalidArgument),
    (a_map, {"1": 1.0}, InvalidArgument),
    (a_map, {np.int32(1): 2.5}, [0, 2.5, 0, 0, 0]),
    (a_map, {1: np.zeros(3)}, InvalidArgument),
    (a_map, {1: "a"}, InvalidArgument),
    (a_map, [1], InvalidArgument),
    (a_map, {1: 2.5}, [0, 2.5, 0, 0, 0]),
]


@pytest.mark.parametrize(("make", "feed", "wanted"), OBJECTS)
def test_sequences_and_maps(make: Any, feed: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert make().run(None, {"x": feed})[0].reshape(-1).tolist() == wanted
    else:
        with pytest.raises(wanted, match=r"^\["):
            make().run(None, {"x": feed})
