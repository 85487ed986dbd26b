"""`sardonyx compare MODEL --against onnxruntime`: error of each output, and where it begins."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.api.session import InferenceSession
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.cli.arguments import real
from sardonyx.cli.inputs import add_input_arguments, make_inputs, open_session
from sardonyx.cli.output import say
from sardonyx.ir.graph import Graph
from sardonyx.loader.load import load
from sardonyx.loader.writer import write
from sardonyx.store.bundle import is_bundle
from sardonyx.tools.engines import engine_module
from sardonyx.tools.made_up import explained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, against what, how exact."""
    parser.add_argument("model", type=Path, help="the ONNX file")
    parser.add_argument(
        "--against",
        default="onnxruntime",
        metavar="MODULE",
        help="a module with onnxruntime's InferenceSession (onnxruntime); it runs on the processor",
    )
    parser.add_argument(
        "--tolerance", type=real(), default=1e-4, help="relative error allowed (0.0001)"
    )
    add_input_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Compare; the exit status is 1 if an output is off."""
    other = _Other(options.against)
    if is_bundle(options.model):
        what = "It is a bundle, which other engines do not read"
        do = "Give the ONNX file that it was made of"
        raise InvalidArgument(message(str(options.model), what, do=do))
    session = open_session(options)
    feeds, sizes = make_inputs(session, options)
    names = [o.name for o in session.get_outputs()]
    with explained(sizes):
        ours = session.run(None, feeds)
    if sizes.chosen:
        say(sizes.told())
    theirs = other.run(str(options.model), names, feeds)
    worst = 0.0
    for name, a, b in zip(names, ours, theirs, strict=True):
        error = relative_error(a, b)
        worst = max(worst, error)
        say(f"{name}: {a.dtype}{list(a.shape)} relative error {error:.3g}")
    if worst <= options.tolerance:
        return 0
    say(f"more than is allowed (--tolerance {options.tolerance:g})")
    say(_first_difference(options.model, other, feeds, options.tolerance))
    return 1


class _Other:
    """A module with onnxruntime's names, whose errors become ours."""

    def __init__(self, name: str) -> None:
        self._make = engine_module(name).InferenceSession
        self._name = name

    def run(self, model: Any, names: list[str] | None, feeds: dict[str, Any]) -> list[Any]:
        """Outputs of a model."""
        try:
            made = self._make(model, providers=["CPUExecutionProvider"])
            return list(made.run(names, feeds))
        except Exception as error:  # noqa: BLE001 - another engine has errors of its own
            text = " ".join(str(error).split())
            raise errors.Fail(message(self._name, f"{type(error).__name__}: {text}")) from error


def relative_error(ours: Any, theirs: Any) -> float:
    """Norm of the difference over that of the reference; infinite when shapes or texts differ."""
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.shape != b.shape:
        return float("inf")
    if a.dtype.kind in "OSU" or b.dtype.kind in "OSU":
        return 0.0 if (a == b).all() else float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    difference = np.where(same, 0.0, a - b)
    if not np.isfinite(difference).all():
        return float("inf")
    return float(np.linalg.norm(difference) / (np.linalg.norm(np.where(same, 0, b)) + 1e-30))


def _first_difference(path: Path, other: _Other, feeds: dict[str, Any], tolerance: float) -> str:
    """Name the first node, in order, whose output differs: inner values become outputs."""
    graph = load(path)
    for node in graph.nodes:
        trial = _with_outputs(load(path), [v.name for v in node.outputs if not v.is_omitted])
        try:
            ours = InferenceSession(trial).run(None, feeds)
        except SardonyxError as error:
            return f"node {node.name} ({node.op_type}) cannot be run on its own: {error}"
        theirs = other.run(trial, None, feeds)
        found = [relative_error(a, b) for a, b in zip(ours, theirs, strict=True)]
        if max(found, default=0.0) > tolerance:
            return f"first difference: node {node.name} ({node.op_type}), error {max(found):.3g}"
    return "no single node differs: the error grows along the way"


def _with_outputs(graph: Graph, names: list[str]) -> bytes:
    graph.outputs[:] = [v for v in (graph.value(n) for n in names) if v is not None]
    return write(graph)
