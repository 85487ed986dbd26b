"""Long repeated fields, read many elements at once, are what the plain reader makes of them."""

import numpy as np
import onnx
import pytest
from onnx import helper

from sardonyx.base.errors import InvalidProtobuf
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.loader.load import load
from sardonyx.loader.runs import reading_with
from sardonyx.loader.writer import write
from sardonyx.native.field_reader import RunReader
from sardonyx.native.functions import library

RNG = np.random.default_rng(2)


@pytest.fixture(params=[False, True], ids=["arrays", "native"])
def native(request):
    """Whether runs are read by native code, or by operations on arrays."""
    if not request.param:
        yield False
        return
    reader = RunReader(library())
    with reading_with(lambda: reader):
        yield True


@pytest.fixture(params=["bytes", "file"])
def read_back(request, tmp_path, native):
    """Attributes as they are read from memory, or piece by piece from a file."""

    def read(**attributes):
        node = helper.make_node("It", ["x"], ["y"], domain="d", **attributes)
        x, y = helper.make_tensor_value_info("x", 1, [1]), onnx.ValueInfoProto(name="y")
        graph = helper.make_graph([node], "g", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("d", 1)], ir_version=8)
        source = data = model.SerializeToString()
        if request.param == "file":
            source = tmp_path / "model.onnx"
            source.write_bytes(data)
        (loaded,) = load(source).nodes
        return loaded.attributes

    return read


LENGTH = 30_000
#: Values, and whether they are one array afterwards.
INTEGERS = [
    (RNG.integers(0, 3, LENGTH), True),
    (np.full(LENGTH, 1 << 40), True),
    (RNG.integers(0, 1 << 62, LENGTH) >> RNG.integers(0, 62, LENGTH), True),
    (np.arange(100_000), True),
    (np.append(np.arange(LENGTH), [-1, -(1 << 63)]), True),
    (np.where(np.arange(LENGTH) % 5000 == 4999, -7, 300), True),
    (np.where(RNG.random(LENGTH) < 0.05, -1, 300), False),
    (RNG.integers(-(1 << 63), (1 << 63) - 1, LENGTH), False),
    (np.arange(1000), False),
]


@pytest.mark.parametrize("case", range(len(INTEGERS)))
def test_integers(read_back, case):
    values, is_long = INTEGERS[case]
    found = read_back(a=values.tolist(), b=1)
    assert isinstance(found["a"], LongList) is is_long
    assert list(found["a"]) == values.tolist() and found["b"] == 1


@pytest.mark.parametrize("count", [63, 64, 65, 2000, 50_000])
def test_floats(read_back, count):
    values = RNG.standard_normal(count).astype(np.float32).tolist()
    found = read_back(a=values, b=[1.5])
    assert isinstance(found["a"], LongList) is (count > 1100)
    assert list(found["a"]) == values and found["b"] == [1.5]


#: Texts, and whether they are one array afterwards. "J" is the byte before each text.
TEXTS = [
    (["BRANCH_LEQ", "LEAF"] * 5000, True),
    (["", "a", "b", "", "x" * 127] * 3000, True),
    (["a\0", "a", "\0a"] * 3000, True),
    (["LEAF"] * 9000 + ["J", "JJ"] * 50 + ["LEAF"] * 9000, True),
    (["LEAF"] * 3000 + ["y" * 128, "z" * 5000, "é"], True),
    (["J\4LEA"] * 5000, False),
    ([f"label {n}" for n in range(20_000)], False),
]


@pytest.mark.parametrize("case", range(len(TEXTS)))
def test_texts(read_back, native, case):
    values, is_long = TEXTS[case]
    found = read_back(a=values)["a"]
    # Native code goes from text to text: it does not mind what is in them.
    is_long |= native and len(set(values)) < 16
    assert isinstance(found, LongList) is is_long and list(found) == values


def test_a_long_list_is_written_as_it_was_read(read_back):
    given = {"a": [1, 300] * 3000, "b": [0.5, -1.25] * 3000, "c": ["x", "yz"] * 3000, "d": 7}
    found = read_back(**given)
    graph = Graph("g", opset={"d": 1})
    node = Node("It", "d", [], [Value("y")], found, "it", 1)
    graph.add_node(node)
    graph.outputs.append(node.outputs[0])
    (again,) = load(write(graph)).nodes
    assert again.attributes == given
    assert all(isinstance(again.attributes[name], LongList) for name in "abc")


def test_packed_elements_among_others(native):
    # ints is field 8: elements with a tag each, then packed ones, then others again.
    single = b"\x40\x05" * 2000
    attribute = b"\x0a\x01a\xa0\x01\x07" + single + b"\x42\x02\x01\x02" + single
    node = b"\x12\x01y\x22\x02It\x3a\x01d\x2a" + _size(len(attribute)) + attribute
    graph = b"\x0a" + _size(len(node)) + node + b"\x62\x03\x0a\x01y"
    opset = b"\x42\x05\x0a\x01d\x10\x01"
    (loaded,) = load(b"\x08\x08\x3a" + _size(len(graph)) + graph + opset).nodes
    assert list(loaded.attributes["a"]) == [5] * 2000 + [1, 2] + [5] * 2000


def test_damaged_runs_are_noticed(native):
    values = [1 << 40] * 3000
    attribute = helper.make_attribute("a", values).SerializeToString()
    node = helper.make_node("It", ["x"], ["y"], domain="d").SerializeToString()
    # The last number has no last byte: bytes that go on, up to the end of the message.
    broken = attribute[:-1] + b"\xff"
    node += b"\x2a" + _size(len(broken)) + broken
    graph = b"\x0a" + _size(len(node)) + node
    model = b"\x08\x08\x3a" + _size(len(graph)) + graph
    with pytest.raises(InvalidProtobuf):
        load(model)


def _size(n):
    return bytes([n & 127 | 128]) + _size(n >> 7) if n >= 128 else bytes([n])
