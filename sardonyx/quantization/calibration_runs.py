"""A model is run on sample inputs, and its tensors are looked at.

Reductions are part of the model that is run, so that no inner tensor needs to leave the engine
where the bounds are all that is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.loader.writer import write
from sardonyx.quantization.arithmetic import Array
from sardonyx.quantization.calibration_data import (
    CalibrationDataReader,
    TensorsData,
)
from sardonyx.quantization.enums import CalibrationMethod
from sardonyx.quantization.model import FLOATS, open_model


class CalibraterBase:
    """Runs a model on feeds and looks at its tensors.

    Args:
        model_path: A path, bytes, a `ModelProto`, or a graph with types.
        op_types_to_calibrate: Operators whose inputs and outputs are looked at; None for all.
        augmented_model_path: Not used: nothing is written.
        symmetric: Whether ranges are made symmetric.
        use_external_data_format: Not used.
        per_channel: A range for each entry of axis 1.
    """

    method = CalibrationMethod.MinMax

    def __init__(
        self,
        model_path: Any,
        op_types_to_calibrate: Iterable[str] | None = None,
        augmented_model_path: str | os.PathLike[str] = "",
        symmetric: bool = False,
        use_external_data_format: bool = False,
        per_channel: bool = False,
    ) -> None:
        self.graph = open_model(model_path, prepare=False)
        self.symmetric = symmetric
        self.per_channel = per_channel
        self.tensors = tensors_of(self.graph, op_types_to_calibrate)
        self.execution_providers: Sequence[str] | None = None
        self._bounds: Any = None

    def set_execution_providers(self, execution_providers: Sequence[str]) -> None:
        """Run on these providers."""
        self.execution_providers = execution_providers
        self._bounds = None

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Run the model on all that a reader gives; may be called again with more.

        Raises:
            InvalidArgument: The reader gives nothing, or something else than arrays by name.
        """
        raise NotImplementedError

    def compute_data(self) -> TensorsData:
        """The ranges of what was collected.

        Raises:
            InvalidArgument: Nothing was.
        """
        raise NotImplementedError

    def _session(self, graph: Graph) -> Any:
        from sardonyx.api.session import InferenceSession

        providers = self.execution_providers
        data = write(graph)
        return InferenceSession(data, providers=list(providers) if providers else None)

    def _bounds_of(self, feeds: Mapping[str, Any]) -> dict[str, tuple[Array, Array]]:
        """Lowest and highest number of each tensor in one run."""
        if self._bounds is None:
            self._bounds = self._session(with_bounds(self.graph, self.tensors, self.per_channel))
            self._names = [v.name for v in self.tensors]
        found = self._bounds.run(None, dict(feeds))[len(self.graph.outputs) :]
        return {name: (found[2 * k], found[2 * k + 1]) for k, name in enumerate(self._names)}


def tensors_of(graph: Graph, op_types: Iterable[str] | None) -> list[Value]:
    """Float tensors that nodes of some operators read or compute, in order; constants left out."""
    wanted = None if op_types is None else frozenset(op_types)
    found: dict[Value, None] = {}
    for node in graph.nodes:
        if wanted is None or node.op_type in wanted:
            for value in (*node.inputs, *node.outputs):
                is_own = value is not None and value.graph is graph and value.constant is None
                if value is not None and is_own and value.dtype in FLOATS and not value.is_omitted:
                    found[value] = None
    return list(found)


def with_bounds(graph: Graph, tensors: Sequence[Value], per_channel: bool = False) -> Graph:
    """A copy of a graph with the bounds of tensors as further outputs, two for each."""
    values: dict[Value, Value] = {}
    copy = graph.clone(values)
    for tensor in tensors:
        for op_type in ("ReduceMin", "ReduceMax"):
            made = copy.new_value(f"{tensor.name}_{op_type}", tensor.dtype)
            inputs = [values[tensor]]
            attributes: dict[str, Any] = {"keepdims": 0}
            if per_channel and len(tensor.shape or ()) > 1:
                axes = [0, *range(2, len(tensor.shape or ()))]
                if copy.opset.get("", 0) < 18:
                    attributes["axes"] = axes
                else:
                    from sardonyx.ir.constant import Constant

                    inputs.append(copy.add_constant("axes", Constant.from_array(np.array(axes))))
            copy.add_node(Node(op_type, "", inputs, (made,), attributes))
            copy.outputs.append(made)
    return copy


def with_tensors(graph: Graph, tensors: Sequence[Value]) -> Graph:
    """A copy of a graph with tensors as further outputs."""
    values: dict[Value, Value] = {}
    copy = graph.clone(values)
    copy.outputs[:] = [values[tensor] for tensor in tensors]
    return copy


def feeds_of(reader: CalibrationDataReader) -> Iterable[Mapping[str, Any]]:
    """What a reader gives, one by one.

    Raises:
        InvalidArgument: It gives something else than arrays by name.
    """
    while True:
        feeds = reader.get_next()
        if not feeds:
            return
        if not isinstance(feeds, Mapping):
            raise InvalidArgument(
                message(
                    "calibration",
                    f"{type(reader).__name__}.get_next() gives no arrays by name",
                    expected="a dict, or None at the end",
                    got=type(feeds).__name__,
                )
            )
        yield feeds


def need(count: int) -> None:
    """Refuse a calibration without data.

    Raises:
        InvalidArgument: The count is 0.
    """
    if not count:
        raise InvalidArgument(
            message(
                "calibration",
                "The calibration data reader gave nothing",
                do="Let get_next() return a dict of arrays at least once",
            )
        )
