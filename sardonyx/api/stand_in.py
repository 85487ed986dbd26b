"""sardonyx under onnxruntime's name, for programs that cannot be edited."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from sardonyx.api.iobinding import IOBinding, SessionIOBinding
from sardonyx.api.options import SessionOptions
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.base.errors import SardonyxError, also, as_onnxruntime
from sardonyx.host.sparse_tensor import SparseTensor

#: The version of onnxruntime whose face this is; what programs see that ask for its version.
ONNXRUNTIME_VERSION = "1.31.1"
_NAME = "onnxruntime"
#: Names with underscores that a copy of a module has, too.
_KEPT = ("__all__", "__getattr__")
#: Modules of sardonyx that onnxruntime has, too.
_PARTS = (
    "",
    ".backend",
    ".backend.backend",
    ".backend.backend_rep",
    ".capi",
    ".capi._pybind_state",
    ".capi.onnxruntime_pybind11_state",
    ".capi.onnxruntime_inference_collection",
    ".capi.onnxruntime_validation",
    ".datasets",
    ".quantization",
    ".quantization.calibrate",
    ".quantization.matmul_nbits_quantizer",
    ".quantization.quant_utils",
    ".quantization.quantize",
    ".quantization.shape_inference",
    ".transformers",
    ".transformers.fusion_options",
    ".transformers.io_binding_helper",
    ".transformers.optimizer",
)


class StandIn:
    """Finds onnxruntime's modules, and its distribution, for Python's import system."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The place of a module of that name: one of sardonyx, or none."""
        if fullname.partition(".")[0] != _NAME:
            return None
        part = fullname.removeprefix(_NAME)
        if part not in _PARTS:
            return None
        spec = ModuleSpec(fullname, self, origin=f"sardonyx{part}")  # type: ignore[arg-type]  # a loader by its methods, not its base
        if any(other.startswith(f"{part}.") for other in _PARTS):
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """A module with the names of sardonyx's own."""
        own = importlib.import_module(f"sardonyx{spec.name.removeprefix(_NAME)}")
        made = types.ModuleType(spec.name, own.__doc__)
        names = {k: v for k, v in vars(own).items() if not k.startswith("__") or k in _KEPT}
        made.__dict__.update(names, __file__=own.__file__)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Import what is always there."""
        if module.__name__ == _NAME:
            for name in ("__version__", "version"):
                module.__dict__[name] = ONNXRUNTIME_VERSION
            module.__dict__["package_name"] = _NAME
            importlib.import_module(f"{_NAME}.capi")

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """The distribution `onnxruntime`, if that is what is asked for."""
        if context.name is not None and context.name.lower() == _NAME:
            yield _distribution()


def _distribution() -> Any:
    from importlib.metadata import Distribution

    class OnnxRuntime(Distribution):
        def read_text(self, filename: str) -> str | None:
            if filename != "METADATA":
                return None
            return f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {ONNXRUNTIME_VERSION}\n"

        def locate_file(self, path: Any) -> Any:
            return path

    return OnnxRuntime()


#: Calls whose faults onnxruntime's compiled module raises as RuntimeError.
_RAISING_RUNTIME_ERRORS: dict[type, tuple[str, ...]] = {
    IOBinding: (
        "bind_cpu_input",
        "bind_input",
        "bind_ortvalue_input",
        "bind_output",
        "bind_ortvalue_output",
        "copy_outputs_to_cpu",
        "get_outputs",
    ),
    SessionIOBinding: ("bind_input", "bind_output", "get_outputs"),
    OrtValue: (
        "ortvalue_from_numpy",
        "ortvalue_from_numpy_with_onnx_type",
        "ortvalue_from_shape_and_type",
        "ort_value_from_sparse_tensor",
        "as_sparse_tensor",
        "from_dlpack",
        "numpy",
        "to_dlpack",
        "update_inplace",
    ),
    SparseTensor: ("sparse_coo_from_numpy", "sparse_csr_from_numpy"),
    SessionOptions: (
        "add_external_initializers",
        "add_initializer",
        "add_session_config_entry",
        "get_session_config_entry",
    ),
    RunOptions: ("add_run_config_entry", "get_run_config_entry"),
    InferenceSession: ("run_with_iobinding", "set_providers"),
}


def _raise_runtime_errors(kind: type, name: str) -> None:
    held = inspect.getattr_static(kind, name)
    function = held.__func__ if isinstance(held, staticmethod | classmethod) else held

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SardonyxError as error:
            if not isinstance(error, TypeError):
                also(error, RuntimeError)
            raise

    setattr(kind, name, call if function is held else type(held)(call))


def install_as_onnxruntime() -> None:
    """Make `import onnxruntime` give sardonyx, from now on and in this process.

    The exceptions then derive from `Exception` alone, as onnxruntime's do, but where onnxruntime
    itself raises a built-in: ValueError for an input that is not fed, TypeError for arguments of a
    wrong type, RuntimeError from bindings, values on devices and options' entries.
    """
    finders: Sequence[Any] = sys.meta_path
    if any(isinstance(finder, StandIn) for finder in finders):
        return
    as_onnxruntime()
    for kind, names in _RAISING_RUNTIME_ERRORS.items():
        for name in names:
            _raise_runtime_errors(kind, name)
    for name in [n for n in sys.modules if n.partition(".")[0] == _NAME]:
        del sys.modules[name]
    sys.meta_path.insert(0, StandIn())
