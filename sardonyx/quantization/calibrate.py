"""Ranges of a model's tensors, found by running it here on sample inputs.

Reductions are part of the model that is run, so that no inner tensor needs to leave the engine
where the bounds are all that is asked for. Histograms take two passes over the inputs: one for the
bounds, one for the counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.loader.writer import write
from sardonyx.quantization.arithmetic import Array
from sardonyx.quantization.calibration_data import CalibrationDataReader, TensorData, TensorsData
from sardonyx.quantization.enums import CalibrationMethod
from sardonyx.quantization.histogram import (
    Histogram,
    entropy_range,
    mean_and_deviation,
    percentiles,
)
from sardonyx.quantization.model import FLOATS, open_model

_logger = get_logger("quantization")


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


def _need(count: int) -> None:
    if not count:
        raise InvalidArgument(
            message(
                "calibration",
                "The calibration data reader gave nothing",
                do="Let get_next() return a dict of arrays at least once",
            )
        )


class MinMaxCalibrater(CalibraterBase):
    """The lowest and highest numbers that occurred, or averages of them over runs."""

    def __init__(
        self,
        model_path: Any,
        op_types_to_calibrate: Iterable[str] | None = None,
        augmented_model_path: str | os.PathLike[str] = "",
        symmetric: bool = False,
        use_external_data_format: bool = False,
        moving_average: bool = False,
        averaging_constant: float = 0.01,
        max_intermediate_outputs: int | None = None,
        per_channel: bool = False,
    ) -> None:
        if not 0 <= averaging_constant <= 1:
            what = "The averaging constant is out of range"
            raise InvalidArgument(
                message("calibration", what, expected="0 to 1", got=str(averaging_constant))
            )
        super().__init__(
            model_path,
            op_types_to_calibrate,
            symmetric=symmetric,
            per_channel=per_channel,
        )
        self._average = moving_average
        self._constant = averaging_constant
        self._found: dict[str, tuple[Array, Array]] = {}

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """See the base class. Averages of one call are moved towards those of the next."""
        seen: dict[str, tuple[list[Array], list[Array]]] = {}
        count = 0
        for feeds in feeds_of(data_reader):
            count += 1
            for name, (low, high) in self._bounds_of(feeds).items():
                lows, highs = seen.setdefault(name, ([], []))
                if self._average or not lows:
                    lows.append(low)
                    highs.append(high)
                else:
                    lows[0] = np.fmin(lows[0], low)
                    highs[0] = np.fmax(highs[0], high)
        _need(count)
        for name, (lows, highs) in seen.items():
            self._merge(name, *self._joined(lows, highs))

    def _joined(self, lows: list[Array], highs: list[Array]) -> tuple[Array, Array]:
        if self._average:
            low, high = (np.nanmean(x, axis=0, dtype=np.asarray(x).dtype) for x in (lows, highs))
        else:
            low, high = lows[0], highs[0]
        if self.symmetric:
            high = np.fmax(np.abs(low), np.abs(high))
            low = -high
        return np.asarray(low), np.asarray(high)

    def _merge(self, name: str, low: Array, high: Array) -> None:
        if name in self._found:
            old_low, old_high = self._found[name]
            if self._average:
                low = old_low + np.asarray(self._constant, low.dtype) * (low - old_low)
                high = old_high + np.asarray(self._constant, low.dtype) * (high - old_high)
            else:
                low, high = np.fmin(old_low, low), np.fmax(old_high, high)
        self._found[name] = low, high

    def compute_data(self) -> TensorsData:
        """The ranges so far."""
        _need(len(self._found) or not self.tensors)
        return TensorsData(self.method, self._found)


class HistogramCalibrater(CalibraterBase):
    """Counts how often numbers occur; how a range is made of that is the subclass's."""

    def __init__(
        self,
        model_path: Any,
        op_types_to_calibrate: Iterable[str] | None = None,
        augmented_model_path: str | os.PathLike[str] = "",
        use_external_data_format: bool = False,
        symmetric: bool = False,
        num_bins: int = 2048,
    ) -> None:
        super().__init__(model_path, op_types_to_calibrate, symmetric=symmetric)
        if num_bins < 2:
            raise InvalidArgument(message("calibration", "A histogram needs two bins at least"))
        self.num_bins = num_bins
        self._feeds: list[Mapping[str, Any]] = []

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Keep the feeds: bounds are found before anything can be counted."""
        count = len(self._feeds)
        self._feeds.extend(dict(feeds) for feeds in feeds_of(data_reader))
        _need(len(self._feeds) - count)

    @property
    def _counts_sizes(self) -> bool:
        """Whether numbers are counted without their signs."""
        return False

    def _histograms(self) -> dict[str, Histogram]:
        _need(len(self._feeds))
        lows: dict[str, Array] = {}
        highs: dict[str, Array] = {}
        for feeds in self._feeds:
            for name, (low, high) in self._bounds_of(feeds).items():
                lows[name] = np.fmin(lows.get(name, low), low)
                highs[name] = np.fmax(highs.get(name, high), high)
        self._bounds = None
        made = {
            name: Histogram(lows[name], highs[name], self.num_bins, self._counts_sizes)
            for name in lows
        }
        computed = [t for t in self.tensors if t not in self.graph.inputs]
        session = self._session(with_tensors(self.graph, computed)) if computed else None
        for feeds in self._feeds:
            for tensor in self.tensors:
                if tensor in self.graph.inputs:
                    made[tensor.name].add(np.asarray(feeds[tensor.name]))
            found = session.run(None, dict(feeds)) if session is not None else []
            for tensor, array in zip(computed, found, strict=True):
                made[tensor.name].add(array)
        return made

    def compute_data(self) -> TensorsData:
        """The ranges so far."""
        return TensorsData(
            self.method, {name: self._range(h) for name, h in self._histograms().items()}
        )

    def _range(self, histogram: Histogram) -> TensorData:
        raise NotImplementedError


class EntropyCalibrater(HistogramCalibrater):
    """The range in which the codes lose the least information (Kullback and Leibler's divergence).

    Args:
        num_quantized_bins: How many codes to reckon with.
        As in the base class otherwise.
    """

    method = CalibrationMethod.Entropy

    def __init__(self, *arguments: Any, num_quantized_bins: int = 128, **named: Any) -> None:
        named.setdefault("num_bins", 128)
        super().__init__(*arguments, **named)
        if not 2 <= num_quantized_bins <= self.num_bins:
            what = f"There are {self.num_bins} bins, and {num_quantized_bins} codes to put them in"
            raise InvalidArgument(message("calibration", what, do="Take more bins than codes"))
        self.num_quantized_bins = num_quantized_bins

    def _range(self, histogram: Histogram) -> TensorData:
        low, high = entropy_range(histogram, self.num_quantized_bins)
        if self.symmetric:
            high = max(abs(low), abs(high))
            low = -high
        return _data(histogram, low, high)


class PercentileCalibrater(HistogramCalibrater):
    """The range in which a percentage of the numbers lies.

    Args:
        percentile: The percentage.
        As in the base class otherwise; ranges are symmetric unless they are asked not to be.
    """

    method = CalibrationMethod.Percentile

    def __init__(self, *arguments: Any, percentile: float = 99.999, **named: Any) -> None:
        named.setdefault("symmetric", True)
        super().__init__(*arguments, **named)
        if not 0 <= percentile <= 100:
            what = "The percentile is out of range"
            raise InvalidArgument(
                message("calibration", what, expected="0 to 100", got=str(percentile))
            )
        self.percentile = percentile

    @property
    def _counts_sizes(self) -> bool:
        return self.symmetric

    def _range(self, histogram: Histogram) -> TensorData:
        return _data(histogram, *percentiles(histogram, self.percentile))


class DistributionCalibrater(HistogramCalibrater):
    """Mean and standard deviation, which scales of 8-bit floats are made of.

    Args:
        scenario: `same`, or `p3` for the third roots of numbers.
        As in the base class otherwise.
    """

    method = CalibrationMethod.Distribution

    def __init__(self, *arguments: Any, scenario: str = "same", **named: Any) -> None:
        super().__init__(*arguments, **named)
        if scenario not in ("same", "p3"):
            what = "There is no such scenario"
            raise InvalidArgument(
                message("calibration", what, expected="same or p3", got=repr(scenario))
            )
        self.scenario = scenario

    def _range(self, histogram: Histogram) -> TensorData:
        power = 1.0 if self.scenario == "same" else 1 / 3
        mean, deviation = mean_and_deviation(histogram, power)
        kind = histogram.dtype
        return TensorData(
            avg=np.array(mean, kind),
            std=np.array(deviation, kind),
            hist=histogram.counts,
            hist_edges=histogram.edges,
            lowest=histogram.edges.min(),
            highest=histogram.edges.max(),
        )


def _data(histogram: Histogram, low: float, high: float) -> TensorData:
    kind = histogram.dtype
    return TensorData(
        lowest=np.array(max(low, histogram.lowest), kind),
        highest=np.array(min(high, histogram.highest), kind),
        hist=histogram.counts,
        bins=histogram.edges,
    )


_CALIBRATERS: dict[CalibrationMethod, Callable[..., CalibraterBase]] = {
    CalibrationMethod.MinMax: MinMaxCalibrater,
    CalibrationMethod.Entropy: EntropyCalibrater,
    CalibrationMethod.Percentile: PercentileCalibrater,
    CalibrationMethod.Distribution: DistributionCalibrater,
}


def create_calibrator(
    model: Any,
    op_types_to_calibrate: Iterable[str] | None = None,
    augmented_model_path: str | os.PathLike[str] = "augmented_model.onnx",
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    use_external_data_format: bool = False,
    providers: Sequence[str] | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> CalibraterBase:
    """What calibrates by a method.

    Args:
        model: A path, bytes, a `ModelProto`, or a graph with types.
        op_types_to_calibrate: Operators whose tensors are looked at; None for all.
        augmented_model_path: Not used: nothing is written.
        calibrate_method: The method.
        use_external_data_format: Not used.
        providers: What runs the model.
        extra_options: Arguments of the class, by name: `symmetric`, `moving_average`,
            `averaging_constant`, `percentile`, `num_bins`, `num_quantized_bins`, `scenario`.

    Raises:
        InvalidArgument: There is no such method, or an argument does not fit it.
    """
    if not isinstance(calibrate_method, CalibrationMethod):
        expected = ", ".join(f"CalibrationMethod.{name}" for name in CalibrationMethod.__members__)
        what = "There is no such calibration method"
        raise InvalidArgument(
            message("calibration", what, expected=expected, got=repr(calibrate_method))
        )
    named = dict(extra_options or {})
    try:
        made = _CALIBRATERS[calibrate_method](
            model, op_types_to_calibrate, augmented_model_path, **named
        )
    except TypeError as error:
        what = f"An option does not fit {calibrate_method.name} ({error})"
        raise InvalidArgument(message("calibration", what)) from error
    if providers:
        made.set_execution_providers(providers)
    return made
