"""The same as `onnxruntime_pybind11_state`, under the other name that onnxruntime has for it."""

from sardonyx.capi.onnxruntime_pybind11_state import *  # noqa: F403 - the list of names is in one place
from sardonyx.capi.onnxruntime_pybind11_state import __all__ as __all__
