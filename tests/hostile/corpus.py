"""What is mutated: small models, ONNX's own cases, and windows of a few nodes of real models."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import onnx
from onnx import helper, shape_inference

from tests.engine import networks
from tests.hostile.control import CONTROL
from tests.loader import models
from tests.support.session import model_of

Build = Callable[[random.Random], onnx.ModelProto]

_GRAPHS = Path(__file__).parents[1] / "plan" / "graphs"
#: Larger weights of a window become inputs: what is interesting is the structure.
_KEPT_WEIGHT_BYTES = 2000
_LARGEST_FILE_BYTES = 3_000_000


class Corpus:
    """Models by name, in a fixed order.

    Args:
        cases: Whether ONNX's node tests are among them; making them takes seconds.
        folders: Folders whose models are taken windows of, too.
    """

    def __init__(self, *, cases: bool = True, folders: tuple[str, ...] = ()) -> None:
        self._groups: list[dict[str, Build]] = [_own(), _simple()]
        if cases:
            self._groups.append(_node_cases())
        files = [*sorted(_GRAPHS.glob("*.onnx"))]
        for folder in folders:
            files += sorted(Path(folder).rglob("*.onnx"))
        small = [f for f in files if f.stat().st_size < _LARGEST_FILE_BYTES]
        self._groups.append({f"window of {f.name}": _windows(f) for f in small})
        self._by_name = {name: b for group in self._groups for name, b in group.items()}

    def __len__(self) -> int:
        return len(self._by_name)

    def choose(self, rnd: random.Random) -> str:
        """The name of one of them; each kind of model is as likely."""
        return rnd.choice(sorted(rnd.choice(self._groups)))

    def build(self, name: str, rnd: random.Random) -> onnx.ModelProto:
        """A new copy of a model."""
        return self._by_name[name](rnd)


def _own() -> dict[str, Build]:
    found: dict[str, Build] = {
        "perceptron": lambda _: networks.perceptron(),
        "convolutional": lambda _: networks.convolutional(),
        "transformer": lambda _: networks.transformer(),
        "decoder step": lambda _: networks.decoder_step(),
    }
    for build in models.ALL:
        found[f"loader {build.__name__}"] = lambda _, build=build: build()
    for name, text in CONTROL.items():
        found[f"control {name}"] = lambda _, text=text: model_of(text)
    return found


def _simple() -> dict[str, Build]:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    files = [*sorted(folder.rglob("model.onnx"))]
    return {
        f"onnx {f.parent.name}": lambda _, f=f: onnx.load(f)
        for f in files
        if f.stat().st_size < _LARGEST_FILE_BYTES
    }


def _node_cases() -> dict[str, Build]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in collect_testcases(None) if c.model is not None]
    written = {f"node {c.name}": c.model.SerializeToString() for c in cases}
    return {
        name: lambda _, data=data: onnx.load_from_string(data)
        for name, data in sorted(written.items())
        if len(data) < _LARGEST_FILE_BYTES
    }


def _windows(path: Path) -> Build:
    return lambda rnd: window(_inferred(path), rnd)


@lru_cache(maxsize=8)
def _inferred(path: Path) -> onnx.ModelProto:
    return shape_inference.infer_shapes(onnx.load(path), data_prop=True)


def window(model: onnx.ModelProto, rnd: random.Random) -> onnx.ModelProto:
    """A few nodes of a model that follow each other; what they read becomes inputs."""
    graph = model.graph
    first = rnd.randrange(len(graph.node))
    nodes = graph.node[first : first + rnd.choice((1, 2, 3, 4, 6, 8))]
    known = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}
    weights = {t.name: t for t in graph.initializer}
    made = {name for node in nodes for name in node.output if name}
    read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
    later = {name for node in graph.node[first + len(nodes) :] for name in node.input}
    later |= {v.name for v in graph.output}
    inputs, kept = [], []
    for name in read:
        if name in weights and len(weights[name].raw_data) <= _KEPT_WEIGHT_BYTES:
            kept.append(weights[name])
        elif name in weights:
            tensor = weights[name]
            inputs.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
        elif name in known:
            inputs.append(known[name])
        else:
            inputs.append(helper.make_tensor_value_info(name, 1, None))
    outputs = [
        known.get(name) or helper.make_tensor_value_info(name, 1, None)
        for name in sorted(made & later) or sorted(made)[:1]
    ]
    found = helper.make_graph(nodes, "window", inputs, outputs, kept)
    made_of = helper.make_model(found, opset_imports=model.opset_import, functions=model.functions)
    made_of.ir_version = model.ir_version
    return made_of
