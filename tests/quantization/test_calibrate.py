from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sardonyx import quantization as q
from sardonyx.base import errors
from sardonyx.quantization.calibration_data import ListReader
from sardonyx.quantization.histogram import (
    Histogram,
    entropy_range,
    mean_and_deviation,
    percentiles,
)
from tests.support.session import model_of

METHOD = q.CalibrationMethod
MODEL = model_of("net (float[N] x) => (float[N] y) { h = Add(x, one) y = Mul(h, h) }",
                 {"one": np.float32(1)})  # fmt: skip
FEEDS = [{"x": np.array([-3, 0, 1], np.float32)}, {"x": np.array([-1, 4], np.float32)}]


def ranges(method: Any = METHOD.MinMax, **options: Any) -> dict[str, tuple[float, float]]:
    calibrator = q.create_calibrator(MODEL, calibrate_method=method, extra_options=options)
    calibrator.collect_data(ListReader(FEEDS))
    found = calibrator.compute_data()
    assert found.calibration_method is method
    return {name: tuple(map(float, data.range_value)) for name, data in found.items()}


def test_lowest_and_highest() -> None:
    assert ranges() == {"x": (-3, 4), "h": (-2, 5), "y": (0, 25)}
    assert ranges(symmetric=True) == {"x": (-4, 4), "h": (-5, 5), "y": (-25, 25)}
    assert ranges(moving_average=True)["x"] == (-2, 2.5)


def test_averages_move_towards_later_calls() -> None:
    options = {"moving_average": True, "averaging_constant": 0.25}
    calibrator = q.create_calibrator(MODEL, ["Mul"], extra_options=options)
    for feed in FEEDS:
        calibrator.collect_data(ListReader([feed]))
    found = calibrator.compute_data()
    assert sorted(found) == ["h", "y"]
    assert tuple(map(float, found["h"].range_value)) == (-2 + 0.25 * 2, 2 + 0.25 * 3)


def test_percentiles_cut_what_is_rare() -> None:
    rare = [{"x": np.concatenate([np.linspace(-1, 1, 9998), [50, -70]]).astype(np.float32)}]
    for symmetric, bound in ((True, 1.1), (False, 1.1)):
        calibrator = q.create_calibrator(
            MODEL, ["Add"], calibrate_method=METHOD.Percentile,
            extra_options={"percentile": 99.9, "symmetric": symmetric},
        )  # fmt: skip
        calibrator.collect_data(ListReader(rare))
        low, high = calibrator.compute_data()["x"].range_value
        assert -bound < low < -0.9 and 0.9 < high < bound


def test_entropy_cuts_a_long_tail() -> None:
    random = np.random.default_rng(0)
    numbers = np.concatenate([random.standard_normal(200_000), [40.0]]).astype(np.float32)
    histogram = Histogram(numbers.min(), numbers.max(), 2048)
    histogram.add(numbers)
    low, high = entropy_range(histogram, 128)
    assert 3 < high < 15 and low == pytest.approx(-high, abs=0.1)


def test_a_histogram_by_hand() -> None:
    histogram = Histogram(np.float32(-2), np.float32(4), 8)
    histogram.add(np.array([-2, 0.5, 0.6, 4], np.float32))
    assert histogram.counts.tolist() == [0, 0, 1, 0, 2, 0, 0, 1]
    assert percentiles(histogram, 100) == (-4, 3)
    mean, deviation = mean_and_deviation(histogram)
    assert (mean, deviation) == (0.75, pytest.approx(3.1875**0.5))


def test_distribution() -> None:
    calibrator = q.create_calibrator(MODEL, calibrate_method=METHOD.Distribution)
    calibrator.collect_data(ListReader(FEEDS))
    mean, deviation = calibrator.compute_data()["x"].avg_std
    x = np.concatenate([f["x"] for f in FEEDS])
    assert float(mean) == pytest.approx(x.mean(), abs=0.01)
    assert float(deviation) == pytest.approx(x.std(), abs=0.01)


def test_ranges_are_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    calls = []

    class Reader(ListReader):
        def get_next(self) -> Any:
            calls.append(1)
            return super().get_next()

    for _ in range(2):
        q.quantize_static(MODEL, tmp_path / "q.onnx", Reader(FEEDS), calibration_cache_path=path)
    assert len(calls) == 3
    found = q.load_tensors_data(path)
    assert found["h"].range_value == (-2, 5) and found.calibration_method is METHOD.MinMax
    with pytest.raises(errors.InvalidArgument, match="Delete it"):
        q.quantize_static(
            MODEL, tmp_path / "q.onnx", calibration_cache_path=path,
            calibrate_method=METHOD.Entropy,
        )  # fmt: skip
    path.write_text("{")
    with pytest.raises(errors.InvalidArgument, match="no file of calibration data"):
        q.load_tensors_data(path)


@pytest.mark.parametrize(
    ("method", "options", "text"),
    [
        (METHOD.Percentile, {"percentile": 101}, "0 to 100"),
        (METHOD.MinMax, {"averaging_constant": 2}, "0 to 1"),
        (METHOD.MinMax, {"percentile": 9}, "percentile"),
        (METHOD.Entropy, {"num_bins": 64, "num_quantized_bins": 128}, "more bins"),
        (METHOD.Distribution, {"scenario": "p4"}, "same or p3"),
        ("MinMax", {}, "no such calibration method"),
    ],
)
def test_arguments_that_do_not_fit(method: Any, options: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        q.create_calibrator(MODEL, calibrate_method=method, extra_options=options)


def test_a_reader_is_whatever_has_get_next() -> None:
    class Mine:
        def get_next(self) -> None:
            return None

    assert issubclass(Mine, q.CalibrationDataReader)
    with pytest.raises(errors.InvalidArgument, match="no arrays by name"):
        q.create_calibrator(MODEL).collect_data(type("R", (), {"get_next": lambda s: [1]})())
