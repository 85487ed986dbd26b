"""How long a model takes: onnxruntime_perf_test's job; `sardonyx perf` is its command."""

from sardonyx.tools.perf.measuring import measure, measure_against
from sardonyx.tools.perf.result import Comparison, Measurement, write_result
from sardonyx.tools.perf.settings import PerfSettings

__all__ = [
    "Comparison",
    "Measurement",
    "PerfSettings",
    "measure",
    "measure_against",
    "write_result",
]
