"""What finds ranges of tensors, by method."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.quantization.arithmetic import Array
from sardonyx.quantization.calibration_data import (
    CalibrationDataReader,
    TensorData,
    TensorsData,
    load_tensors_data,
    save_tensors_data,
)
from sardonyx.quantization.calibration_runs import CalibraterBase, feeds_of, need
from sardonyx.quantization.enums import CalibrationMethod
from sardonyx.quantization.histogram_calibraters import (
    DistributionCalibrater,
    EntropyCalibrater,
    HistogramCalibrater,
    PercentileCalibrater,
)

#: onnxruntime has all of them in the module of this name.
__all__ = [
    "CalibraterBase",
    "CalibrationDataReader",
    "CalibrationMethod",
    "DistributionCalibrater",
    "EntropyCalibrater",
    "HistogramCalibrater",
    "MinMaxCalibrater",
    "PercentileCalibrater",
    "TensorData",
    "TensorsData",
    "create_calibrator",
    "load_tensors_data",
    "save_tensors_data",
]


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
        need(count)
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
        need(len(self._found) or not self.tensors)
        return TensorsData(self.method, self._found)


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
