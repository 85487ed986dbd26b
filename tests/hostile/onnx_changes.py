"""Changes that know ONNX: wiring, sizes, attributes, functions, nesting, data in other files."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper

from tests.hostile import tree, values

_KINDS = [v.number for v in AttributeProto.DESCRIPTOR.enum_types_by_name["AttributeType"].values]
_TYPES = [v.number for v in TensorProto.DESCRIPTOR.enum_types_by_name["DataType"].values]
_SCHEMAS = sorted({s.name for s in defs.get_all_schemas()})
#: Google's protobuf reads 100 messages inside each other; a branch adds three.
_DEEPEST = 26
_DATA_FIELDS = (
    "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data",
    "raw_data",
)  # fmt: skip


def graphs(model: ModelProto) -> list[GraphProto]:
    """The model's graph and those inside it."""
    return tree.messages(model).get("GraphProto") or [model.graph]


def _nodes(model: ModelProto) -> list[NodeProto]:
    return tree.messages(model).get("NodeProto", [])


def _names(model: ModelProto) -> list[str]:
    found: dict[str, None] = {"": None}
    for graph in graphs(model):
        found.update((v.name, None) for v in (*graph.input, *graph.initializer, *graph.output))
        for node in graph.node:
            found.update((name, None) for name in (*node.input, *node.output))
    return list(found)


def _some(rnd: random.Random, items: Iterable[object]) -> object | None:
    listed = list(items)
    return rnd.choice(listed) if listed else None


def _wire(rnd: random.Random, model: ModelProto) -> None:
    """Inputs or outputs of a node become other values: cycles, values that are made twice."""
    node = rnd.choice(_nodes(model) or [NodeProto()])
    side = node.input if rnd.random() < 0.7 else node.output
    name = rnd.choice([*_names(model), "nobody", node.output[0] if node.output else ""])
    if side and rnd.random() < 0.8:
        side[rnd.randrange(len(side))] = name
    else:
        side.append(name)


def _size(rnd: random.Random, model: ModelProto) -> None:
    """A dimension of a tensor, or of a declared type."""
    tensors = tree.messages(model).get("TensorProto", [])
    shapes = tree.messages(model).get("TensorShapeProto", [])
    if tensors and (not shapes or rnd.random() < 0.5):
        tensor = rnd.choice(tensors)
        if tensor.dims and rnd.random() < 0.7:
            tensor.dims[rnd.randrange(len(tensor.dims))] = values.integer(rnd)
        else:
            tensor.dims.extend([values.integer(rnd)] * rnd.choice((1, 1, 2, 70)))
    elif shapes:
        shape = rnd.choice(shapes)
        dim = shape.dim.add() if not shape.dim or rnd.random() < 0.2 else rnd.choice(shape.dim)
        if rnd.random() < 0.6:
            dim.dim_value = values.integer(rnd)
        else:
            dim.dim_param = rnd.choice((*values.TEXTS, "N", "N*N", "-1", "N+1", "0"))


def _contents(rnd: random.Random, model: ModelProto) -> None:
    """Numbers of a small tensor, which may be sizes, axes or indices; or their type or place."""
    tensors = tree.messages(model).get("TensorProto", [])
    if not tensors:
        return
    tensor = rnd.choice(tensors)
    kind = rnd.randrange(6)
    if kind == 0:
        tensor.data_type = rnd.choice([*_TYPES, values.integer(rnd, -(1 << 31), (1 << 31) - 1)])
    elif kind == 1:
        field = rnd.choice(_DATA_FIELDS)
        if field == "raw_data":
            tensor.raw_data = rnd.randbytes(rnd.choice((0, 1, 7, 8, 1000)))
        elif field == "string_data":
            tensor.string_data.append(rnd.choice(values.TEXTS).encode("utf-8", "replace"))
        else:
            getattr(tensor, field).extend([rnd.choice((0, 1, 100))] * rnd.choice((1, 3, 100)))
    elif kind == 2:
        tensor.raw_data = tree.changed_bytes(rnd, tensor.raw_data)
    else:
        _replace_numbers(rnd, tensor)


def _replace_numbers(rnd: random.Random, tensor: TensorProto) -> None:
    count = 1
    for size in tensor.dims:
        count *= size
    if not 0 <= count <= 200:
        return
    for field in _DATA_FIELDS:
        tensor.ClearField(field)
    if tensor.data_type == TensorProto.INT64:
        tensor.int64_data.extend(values.integer(rnd) for _ in range(count))
    elif tensor.data_type == TensorProto.INT32:
        low, high = -(1 << 31), (1 << 31) - 1
        tensor.int32_data.extend(values.integer(rnd, low, high) for _ in range(count))
    else:
        tensor.data_type = TensorProto.FLOAT
        tensor.float_data.extend(values.real(rnd) for _ in range(count))


def _attribute(rnd: random.Random, model: ModelProto) -> None:
    """An attribute of another value, kind or name; or one more that the operator knows."""
    node = rnd.choice(_nodes(model) or [NodeProto()])
    if node.attribute and rnd.random() < 0.5:
        attribute = rnd.choice(node.attribute)
        if rnd.random() < 0.3:
            attribute.type = rnd.choice(_KINDS)
            return
        if rnd.random() < 0.1:
            attribute.ref_attr_name = rnd.choice(("alpha", "axis", attribute.name, ""))
            return
    else:
        names = ["axis", "to", "axes", "keepdims", "nothing"]
        if defs.has(node.op_type):
            names = list(defs.get_schema(node.op_type).attributes) or names
        attribute = node.attribute.add()
        attribute.name = rnd.choice(names)
        attribute.type = rnd.choice(_KINDS)
        if defs.has(node.op_type) and rnd.random() < 0.7:
            wanted = defs.get_schema(node.op_type).attributes.get(attribute.name)
            if wanted is not None:
                attribute.type = int(wanted.type.value)
    count = rnd.choice((0, 1, 2, 3, 4, 5, 300))
    attribute.i, attribute.f = values.integer(rnd), values.real(rnd)
    attribute.s = rnd.choice(values.TEXTS).encode("utf-8", "replace")
    for field in ("ints", "floats", "strings"):
        if rnd.random() < 0.7:
            attribute.ClearField(field)
    attribute.ints.extend(values.integer(rnd) for _ in range(count))
    attribute.floats.extend(values.real(rnd) for _ in range(count))


def _operator(rnd: random.Random, model: ModelProto) -> None:
    """Another operator, domain or version."""
    node = rnd.choice(_nodes(model) or [NodeProto()])
    kind = rnd.randrange(4)
    if kind <= 1:
        functions = [f.name for f in model.functions]
        node.op_type = rnd.choice([*_SCHEMAS, *functions, "", "Nothing"])
    elif kind == 2:
        node.domain = rnd.choice(
            ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "custom", "x" * 500)
        )
    elif model.opset_import:
        chosen = rnd.choice(model.opset_import)
        chosen.version = rnd.choice((rnd.randint(-1, 30), values.integer(rnd)))


def _endless_functions(rnd: random.Random, model: ModelProto) -> None:
    """Functions that call themselves, each other in a circle, or each the next one twice."""
    count, domain = rnd.choice((1, 2, 3, 30, 60)), rnd.choice(("custom", "custom", ""))
    circle, calls = rnd.random() < 0.5, rnd.choice((1, 2, 2, 8))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)]
    for k in range(count):
        following = f"f{k + 1}" if k + 1 < count else ("f0" if circle else "Neg")
        of = domain if following != "Neg" else ""
        nodes = [
            helper.make_node(following, [f"t{c}" if c else "x"], [f"t{c + 1}"], domain=of)
            for c in range(calls)
        ]
        nodes[-1].output[0] = "y"
        made = helper.make_function(domain, f"f{k}", ["x"], ["y"], nodes, imports)
        model.functions.append(made)
    if not any(o.domain == "custom" for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid("custom", 1))
    node = rnd.choice(_nodes(model) or [NodeProto()])
    node.op_type, node.domain = "f0", domain
    del node.input[1:], node.output[1:]
    node.ClearField("attribute")


def _nest(rnd: random.Random, model: ModelProto) -> None:
    """A node goes into a branch, that into a branch, and so on."""
    graph = rnd.choice(graphs(model))
    if not graph.node:
        return
    place = rnd.randrange(len(graph.node))
    inner = NodeProto()
    inner.CopyFrom(graph.node[place])
    depth = rnd.choice((1, 2, 5, 12, _DEEPEST))
    wide = rnd.random() < 0.3 and depth <= 12
    results = [name for name in inner.output if name]
    for k in range(depth):
        outputs = [onnx.ValueInfoProto(name=name) for name in results]
        branches = {}
        for number, name in enumerate(("then_branch", "else_branch")):
            held = GraphProto(name=f"b{k}.{number}")
            if wide or number == 0:
                held.node.append(inner)
            else:
                held.node.extend(
                    helper.make_node("Constant", [], [n], value_int=1) for n in results
                )
            held.output.extend(outputs)
            branches[name] = held
        outer = helper.make_node("If", [rnd.choice(_names(model)[:8])], results)
        outer.attribute.extend(
            AttributeProto(name=name, type=AttributeProto.GRAPH, g=g)
            for name, g in branches.items()
        )
        nested = max((d for _, _, d in tree.sites(outer)), default=0)
        if outer.ByteSize() > 1 << 20 or nested > 3 * _DEEPEST:
            break
        inner = outer
    graph.node[place].CopyFrom(inner)


def _external(rnd: random.Random, model: ModelProto) -> None:
    """A tensor's data lies in another file."""
    tensors = tree.messages(model).get("TensorProto", [])
    if not tensors:
        return
    tensor = rnd.choice(tensors)
    if rnd.random() < 0.7:
        for field in _DATA_FIELDS:
            tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    path = rnd.choice(values.PATHS) if rnd.random() < 0.6 else "data.bin"
    entries = {"location": path}
    if rnd.random() < 0.6:
        entries["offset"] = str(rnd.choice((0, 1, 8, 4096, values.integer(rnd))))
    if rnd.random() < 0.6:
        entries["length"] = str(rnd.choice((0, 4, 48, values.integer(rnd), "0x10", "1e3", "٣")))
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def _sparse(rnd: random.Random, model: ModelProto) -> None:
    """An initializer becomes sparse, with indices that may lie outside."""
    graph = rnd.choice(graphs(model))
    tensor = _some(rnd, graph.initializer)
    if not isinstance(tensor, TensorProto):
        return
    sparse = graph.sparse_initializer.add()
    sparse.dims.extend(tensor.dims if rnd.random() < 0.6 else [values.integer(rnd)])
    count = rnd.choice((0, 1, 3))
    sparse.values.CopyFrom(
        helper.make_tensor(tensor.name, TensorProto.FLOAT, [count], [1.5] * count)
    )
    places = [rnd.choice((0, 1, 2, values.integer(rnd))) for _ in range(count)]
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [count], places))
    graph.initializer.remove(tensor)


def _face(rnd: random.Random, model: ModelProto) -> None:
    """Inputs, outputs and initializers take each other's places."""
    graph = rnd.choice(graphs(model))
    kind = rnd.randrange(4)
    if kind == 0:
        graph.output.add(name=rnd.choice(_names(model)))
    elif kind == 1 and graph.input:
        del graph.input[rnd.randrange(len(graph.input))]
    elif kind == 2:
        graph.input.add(name=rnd.choice(_names(model)))
    else:
        made = helper.make_tensor(rnd.choice(_names(model)), TensorProto.INT64, [2], [3, 4])
        graph.initializer.append(made)


def _generic(rnd: random.Random, model: ModelProto) -> None:
    """Anything."""
    tree.mutate(rnd, model)


_CHANGES: list[tuple[int, Callable[[random.Random, ModelProto], None]]] = [
    (6, _generic), (4, _wire), (4, _size), (5, _contents), (6, _attribute), (4, _operator),
    (1, _endless_functions), (1, _nest), (1, _external), (1, _sparse), (2, _face),
]  # fmt: skip


def mutate(rnd: random.Random, model: ModelProto) -> list[str]:
    """Change a model in a few ways; gives their names."""
    weights, changes = zip(*_CHANGES, strict=True)
    chosen = rnd.choices(changes, weights, k=rnd.choice((1, 1, 1, 2, 2, 3, 5)))
    for change in chosen:
        change(rnd, model)
    return [change.__name__.strip("_") for change in chosen]
