"""Makes a graph that differs smaller: outputs, nodes and parts of bodies are dropped."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import onnx
from onnx import helper, shape_inference

from tests.fuzz.compare import difference_or_crash
from tests.fuzz.graphs import Case


def _kind(text: str) -> str:
    """What of a difference must stay while the graph gets smaller."""
    parts = text.split(":")
    return parts[0].split(" run")[0] + (parts[1] if "differs" not in text else " differs")[:30]


def shrink(case: Case, threads: int = 1, tries: int = 300) -> Case:
    """The smallest case found that differs in the same way; itself if nothing differs."""
    found = difference_or_crash(case.model, case.feeds, threads)
    if not found:
        return case
    wanted = _kind(found)

    def still(model: onnx.ModelProto) -> bool:
        try:
            onnx.checker.check_model(model)
            now = difference_or_crash(model, _used(model, case), threads)
        except Exception:
            return False
        return bool(now) and _kind(now) == wanted

    model, again = case.model, True
    while again and tries > 0:
        again = False
        for smaller in _smaller(model):
            tries -= 1
            if still(smaller):
                model, again = smaller, True
                break
            if tries <= 0:
                break
    smallest = Case(case.seed, model, case.feeds)
    return Case(case.seed, model, _used(model, smallest))


def report(case: Case, threads: int = 1) -> str:
    """The graph as text, its feeds' shapes, and the difference."""
    text = onnx.printer.to_text(case.model)
    feeds = "\n".join(
        ", ".join(f"{n}: {a.dtype}{list(a.shape)}" for n, a in feed.items()) for feed in case.feeds
    )
    found = difference_or_crash(case.model, case.feeds, threads)
    return f"{text}\n{feeds}\nseed {case.seed}: {found or 'no difference'}"


def _used(model: onnx.ModelProto, case: Case) -> list[dict]:
    names = {i.name for i in model.graph.input}
    return [{n: a for n, a in feed.items() if n in names} for feed in case.feeds]


def _smaller(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    outputs = len(model.graph.output)
    if outputs > 1:
        for keep in range(outputs):
            yield _changed(model, lambda m, k=keep: _keep_output(m, k))
    for depth, graph in enumerate(_graphs(model.graph)):
        for node in range(len(graph.node) - 1, -1, -1):
            yield _changed(model, lambda m, d=depth, k=node: _bypass(_graphs(m.graph)[d], k))
    for node in range(len(model.graph.node) - 1, -1, -1):
        yield _changed(model, lambda m, k=node: _as_output(m, k))


def _changed(model: onnx.ModelProto, change: Callable[[onnx.ModelProto], None]) -> onnx.ModelProto:
    made = copy.deepcopy(model)
    change(made)
    _clean(made.graph)
    return made


def _keep_output(model: onnx.ModelProto, number: int) -> None:
    kept = copy.deepcopy(model.graph.output[number])
    del model.graph.output[:]
    model.graph.output.append(kept)


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """A graph, and all that are inside it."""
    found = [graph]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += _graphs(attribute.g)
    return found


def _bypass(graph: onnx.GraphProto, number: int) -> None:
    """Let readers of a node's first output read its first input."""
    node = graph.node[number]
    if not node.input or not node.input[0]:
        return
    _rename(graph, node.output[0], node.input[0])
    made = {name for n in graph.node for name in n.output}
    for output in graph.output:
        if output.name == node.output[0] and node.input[0] in made:
            output.name = node.input[0]
    del graph.node[number]


def _as_output(model: onnx.ModelProto, number: int) -> None:
    """What a node gives becomes the only output."""
    types = {v.name: v for v in shape_inference.infer_shapes(model).graph.value_info}
    for name in model.graph.node[number].output:
        if name in types and types[name].type.tensor_type.elem_type:
            kind = types[name].type.tensor_type
            rank = [None] * len(kind.shape.dim) if kind.HasField("shape") else None
            del model.graph.output[:]
            info = helper.make_tensor_value_info(name, kind.elem_type, rank)
            model.graph.output.append(info)
            del model.graph.node[number + 1 :]
            return


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for k, name in enumerate(node.input):
            if name == old:
                node.input[k] = new
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, old, new)


def _reads(node: onnx.NodeProto) -> set[str]:
    found = set(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            found |= {name for inner in attribute.g.node for name in _reads(inner)}
            found |= {o.name for o in attribute.g.output}
    return found


def _clean(graph: onnx.GraphProto) -> None:
    """Drop what nothing reads."""
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= _reads(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    for field in (graph.initializer, graph.input):
        left = [x for x in field if x.name in needed]
        del field[:]
        field.extend(left)
