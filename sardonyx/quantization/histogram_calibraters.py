"""Ranges from histograms: two passes over the inputs, one for the bounds, one for the counts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.quantization.arithmetic import Array
from sardonyx.quantization.calibration_data import (
    CalibrationDataReader,
    TensorData,
    TensorsData,
)
from sardonyx.quantization.calibration_runs import CalibraterBase, feeds_of, need, with_tensors
from sardonyx.quantization.enums import CalibrationMethod
from sardonyx.quantization.histogram import (
    Histogram,
    entropy_range,
    mean_and_deviation,
    percentiles,
)


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
        need(len(self._feeds) - count)

    @property
    def _counts_sizes(self) -> bool:
        """Whether numbers are counted without their signs."""
        return False

    def _histograms(self) -> dict[str, Histogram]:
        need(len(self._feeds))
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
