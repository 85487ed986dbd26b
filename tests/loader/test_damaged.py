"""Damaged input ends in an error about the input, never in another exception."""

import random

import onnx
import pytest
from onnx import helper

from sardonyx.base.errors import InvalidGraph, InvalidProtobuf, NoSuchFile
from sardonyx.loader import wire
from sardonyx.loader.load import load
from sardonyx.loader.onnx_format import GRAPH, MODEL
from sardonyx.loader.source import FileSource, Source
from tests.loader import models

ALLOWED = (InvalidGraph, InvalidProtobuf, NoSuchFile)


def attempt(data, folder):
    """Load, and decode all constants; whether that succeeded."""
    try:
        graph = load(data, folder=folder)
        for value in graph.initializers.values():
            value.constant.array()
    except ALLOWED as error:
        assert str(error).startswith("[")
        return False
    return True


@pytest.mark.parametrize("build", models.ALL)
def test_truncation_at_every_byte(build, tmp_path):
    data = build().SerializeToString()
    assert attempt(data, tmp_path)
    for size in range(len(data)):
        attempt(data[:size], tmp_path)


@pytest.mark.parametrize("build", models.ALL)
def test_flipped_bits(build, tmp_path):
    data = build().SerializeToString()
    seed = 20240
    generator = random.Random(seed)
    for _ in range(500):
        changed = bytearray(data)
        for _ in range(generator.choice((1, 1, 1, 2, 8))):
            changed[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        try:
            attempt(bytes(changed), tmp_path)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {bytes(changed).hex()}") from error


def varint(value):
    encoded = b""
    while value >= 128:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def nested(depth):
    data = b""
    for _ in range(depth):  # a graph in an attribute of a node of a graph
        data = field(1, field(5, field(6, data)))
    return field(7, data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x08", "byte 0, ModelProto.*ends inside a field"),
        (b"\x08\x80", "ends inside a field"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "byte 1, ModelProto.*more than 10 bytes"),
        (b"\x3a\x05ab", "byte 2, ModelProto.*length 5 exceeds the 2 bytes"),
        (b"\x3a" + b"\xff" * 9 + b"\x01", "length 18446744073709551615 exceeds"),
        (field(7, field(1, b"\x0a\x09x")), r"byte 6, ModelProto.graph.node\[0\].*length 9"),
        (b"\x38\x01", "field graph has the wrong wire type 0"),
        (b"\x0d\x01\x02\x03\x04", "field ir_version has the wrong wire type 5"),
        (b"\x00\x00", "no field with number 0"),
        (b"\x96\x06\x00", "no wire type 6"),
        (b"\x94\x06", "A group ends that did not begin"),
        (b"\x93\x06", "ends inside a field"),
        (b"\x93\x06" * 200, "Groups are nested more than 100 deep"),
        (field(2, b"\xff"), "text in producer_name is not UTF-8"),
        (
            field(7, 2 * field(1, field(5, field(1, b"axis"))) + field(1, field(5, b"\x0a\x09x"))),
            r"byte 28, ModelProto.graph.node\[2\].attribute\[0\].*length 9",
        ),
        (nested(40), "Messages are nested more than 100 deep"),
    ],
)
def test_broken_bytes(data, text):
    with pytest.raises(InvalidProtobuf, match=text):
        load(data)


def test_unknown_fields_are_skipped():
    extra = b"".join(
        [
            varint(500 << 3) + b"\x05",
            varint(501 << 3 | 1) + bytes(8),
            field(502, b"abc"),
            varint(503 << 3 | 3) + field(504, b"x") + varint(505 << 3) + b"\x01",
            varint(503 << 3 | 4),
            varint(506 << 3 | 5) + bytes(4),
        ]
    )
    assert len(load(extra + models.mlp().SerializeToString() + extra).nodes) == 3


def test_message_in_two_parts_is_merged():
    record = wire.decode(MODEL, Source(field(7, field(2, b"a")) + field(7, field(10, b"b"))))
    assert (record.graph.name, record.graph.doc_string) == ("a", "b")


def test_window_by_window_gives_the_same(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    for build in models.ALL:
        onnx.save(build(), path)
        expected = describe(wire.decode(MODEL, Source(path.read_bytes())))
        for size in (16, 40, 100, 1000):
            monkeypatch.setattr(wire, "WINDOW_BYTES", size)
            assert describe(wire.decode(MODEL, FileSource(str(path)))) == expected


def describe(item):
    if isinstance(item, wire.WireRecord):
        return {k: describe(v) for k, v in item.__dict__.items() if k != "kind"}
    return [describe(x) for x in item] if isinstance(item, list) else item


def test_packed_and_single_numbers_mean_the_same():
    dims = [1, 300, 70000]
    single = b"".join(b"\x08" + varint(d) for d in dims)
    for data in (single, field(1, b"".join(map(varint, dims)))):
        record = wire.decode(GRAPH, Source(field(5, data)))
        assert record.initializer[0].dims == dims


@pytest.mark.parametrize("leaf", ["Relu", "Empty"])
@pytest.mark.parametrize("count", [3, 40])
def test_functions_that_stand_for_very_many_nodes(count, leaf, monkeypatch):
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "Empty", ["x"], ["x"], [], imports)]
    for level in range(count):
        op_type = f"F{level - 1}" if level else leaf
        domain = "" if op_type == "Relu" else "f"
        names = ["x", *[f"v{i}" for i in range(99)], "y"]
        nodes = [
            helper.make_node(op_type, [a], [b], domain=domain)
            for a, b in zip(names, names[1:], strict=False)
        ]
        functions.append(helper.make_function("f", f"F{level}", ["x"], ["y"], nodes, imports))
    model = models.mlp()
    model.functions.extend(functions)
    model.graph.node[0].CopyFrom(helper.make_node(f"F{count - 1}", ["x"], ["h"], domain="f"))
    monkeypatch.setattr("sardonyx.loader.build.INLINED_NODES_LIMIT", 1000)
    with pytest.raises(InvalidGraph, match="more than 1000 nodes|nested more than 32 deep"):
        load(model)
