"""Branches, loops and scans, with small bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.operator_fuzz.draw import STRING, Array, Draw, DType
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.oracle import Use, element_type, reference


def _value(name: str, dtype: DType, rank: int | None = None) -> onnx.ValueInfoProto:
    shape = None if rank is None else [f"{name}{k}" for k in range(rank)]
    return helper.make_tensor_value_info(name, element_type(dtype), shape)


def _graph(name: str, lines: list[Any], inputs: Any, outputs: Any) -> onnx.GraphProto:
    nodes = [
        helper.make_node(op, reads, [writes], name=f"{name}{k}", **more)
        for k, (op, reads, writes, more) in enumerate(lines)
    ]
    return helper.make_graph(nodes, name, inputs, outputs)


def _float_or_whole(draw: Draw) -> DType:
    kinds = [np.float32, np.float64, np.float16] + ([np.int64, np.int32] if draw.opset >= 7 else [])
    return np.dtype(draw.pick(kinds))


@makes("If", exact=True)
def branch(draw: Draw) -> Instance:
    dtype = _float_or_whole(draw)
    x = draw.values(draw.shape(0, 3), dtype)
    rank = x.ndim
    first = draw.pick(["Neg", "Abs", "Identity"] if draw.opset >= 6 else ["Identity"])
    second = draw.pick([["Transpose", {}], ["Identity", {}]])
    same_shape = second[0] == "Identity" or rank < 2
    declared = rank if same_shape or draw.chance(0.5) else None
    then = _graph("then", [(first, ["v"], "t", {})], [], [_value("t", dtype, declared)])
    other = _graph(
        "else",
        [(second[0], ["v"], "e0", second[1]), ("Identity", ["e0"], "e", {})],
        [],
        [_value("e", dtype, declared)],
    )
    condition = np.asarray(bool(draw.contents.random() < 0.5))
    if draw.chance(0.3):
        condition = condition.reshape(1)
    attributes = {"then_branch": then, "else_branch": other}
    return Instance([condition], attributes, [dtype], {"v": x})


@makes("Loop", exact=True)
def loop(draw: Draw) -> Instance:
    dtype = np.dtype(np.float32) if draw.opset < 7 else _float_or_whole(draw)
    x = draw.values(draw.shape(0, 3, high=3), dtype, -2, 2)
    add = "Add" if draw.opset >= 7 else "Sum"
    body = _graph(
        "body",
        [
            ("Identity", ["again"], "goes_on", {}),
            (add, ["state", "v"], "next", {}),
            ("Neg" if draw.opset >= 6 else "Identity", ["next"], "row", {}),
        ],
        [
            _value("number", INT64, 0),
            _value("again", np.dtype(bool), 0),
            _value("state", dtype, x.ndim),
        ],
        [
            _value("goes_on", np.dtype(bool), 0),
            _value("next", dtype, x.ndim),
            _value("row", dtype, x.ndim),
        ],
    )
    trips = np.asarray(int(draw.contents.integers(1, 4)), INT64)
    condition = np.asarray(True) if draw.chance(0.7) else None
    start = draw.values(x.shape, dtype, -2, 2)
    return Instance([trips, condition, start], {"body": body}, [dtype, dtype], {"v": x})


@reference("Loop")
def looped(use: Use, trips: Array, again: Array | None, state: Array, added: Array) -> Any:
    """The body's sums, and a row of each iteration along a new first axis."""
    rows = []
    for _ in range(int(trips)):
        state = state + added
        rows.append(-state if use.opset >= 6 else state)
    return state, np.stack(rows)


@makes("Scan", exact=True)
def scan(draw: Draw) -> Instance:
    dtype = np.dtype(np.float32) if draw.opset < 9 else _float_or_whole(draw)
    shape = draw.shape(0, 2, high=3)
    steps = draw.size(1, 4)
    body = _graph(
        "body",
        [
            ("Add", ["state", "row"], "next", {}),
            ("Sub", ["next", "row"], "left", {}),
            ("Neg", ["next"], "out", {}),
        ],
        [_value("state", dtype, len(shape)), _value("row", dtype, len(shape))],
        [_value("next", dtype, len(shape)), _value("out", dtype, len(shape))],
    )
    attributes: dict[str, Any] = {"body": body, "num_scan_inputs": 1}
    backwards = draw.integer(0, 1)
    if draw.version == 8:
        batch = draw.size(1, 2)
        attributes["directions"] = draw.maybe([backwards]) if not backwards else [1]
        lengths: Array | None = None
        inputs = [
            lengths,
            draw.values([batch, *shape], dtype),
            draw.values([batch, steps, *shape], dtype),
        ]
        return Instance(inputs, attributes, [dtype, dtype])
    axis, out_axis = draw.integer(0, len(shape)), draw.integer(0, len(shape))
    rows = [*shape[:axis], steps, *shape[axis:]]
    if draw.version >= 11 and draw.chance(0.4):
        axis, out_axis = axis - len(rows), out_axis - len(rows)
    attributes["scan_input_axes"] = [axis]
    attributes["scan_output_axes"] = [out_axis]
    attributes["scan_input_directions"] = [backwards] if backwards else draw.maybe([0])
    attributes["scan_output_directions"] = draw.maybe([draw.integer(0, 1)])
    return Instance(
        [draw.values(shape, dtype), draw.values(rows, dtype)], attributes, [dtype, dtype]
    )


@reference("Scan")
def scanned(use: Use, *arrays: Array | None) -> Any:
    """The body's sum of states and rows, and the negated sums, along the axes that are named."""
    g = use.attributes
    if use.version == 8:
        _, state, rows = arrays
        found = [
            scanned_rows(s, r, bool(g.get("directions", [0])[0]))
            for s, r in zip(state, rows, strict=True)
        ]
        return tuple(np.stack(part) for part in zip(*found, strict=True))
    state, rows = arrays
    rows = np.moveaxis(rows, g["scan_input_axes"][0], 0)
    last, out = scanned_rows(state, rows, bool(g.get("scan_input_directions", [0])[0]))
    if g.get("scan_output_directions", [0])[0]:
        out = out[::-1]
    return last, np.moveaxis(out, 0, g["scan_output_axes"][0])


def scanned_rows(state: Array, rows: Array, backwards: bool) -> tuple[Array, Array]:
    """The last state, and what each step gives."""
    out = []
    for row in rows[::-1] if backwards else rows:
        state = state + row
        out.append(-state)
    return state, np.stack(out)


@makes("SequenceMap", exact=True)
def mapped(draw: Draw) -> Instance:
    dtype = np.dtype(np.float32)
    rank = draw.integer(1, 3)
    shapes = [[draw.size(1, 3) for _ in range(rank)] for _ in range(draw.integer(1, 4))]
    body = _graph(
        "body",
        [("Neg", ["item"], "a", {}), ("Abs", ["a"], "b", {})],
        [_value("item", dtype, rank)],
        [_value("b", dtype, rank)],
    )
    return Instance([[draw.values(s, dtype) for s in shapes]], {"body": body}, ["object"])


@makes("Constant", exact=True, own=True)
def constant(draw: Draw) -> Instance:
    dtype = draw.type_of("T")
    shape = [draw.integer(0, 3) for _ in range(draw.integer(0, 3))]
    kind = draw.integer(0, 6) if draw.version >= 12 else 0
    if kind < 3 or dtype == STRING:
        return Instance([], {"value": draw.fixed(shape, dtype)}, [dtype])
    number = [draw.integer(-9, 9) for _ in range(3)]
    return [
        Instance([], {"value_float": number[0] / 4}, [np.dtype(np.float32)]),
        Instance([], {"value_floats": [n / 4 for n in number]}, [np.dtype(np.float32)]),
        Instance([], {"value_int": number[0]}, [INT64]),
        Instance([], {"value_ints": number}, [INT64]),
    ][kind - 3]
