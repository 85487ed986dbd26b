"""The functions of `onnxruntime.backend`, on a class as ONNX's tests expect them."""

from __future__ import annotations

from typing import Any

from sardonyx.api.options import SessionOptions
from sardonyx.api.session import InferenceSession
from sardonyx.backend.backend_rep import OnnxRuntimeBackendRep, set_options
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message

#: Options of sessions that may be given, as in onnxruntime; others write files.
_SESSION_OPTIONS = (
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode",
    "execution_order", "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads",
    "log_severity_level", "log_verbosity_level", "logid", "use_deterministic_compute",
    "use_per_session_threads",
)  # fmt: skip


class OnnxRuntimeBackend:
    """The functions of this module, as ONNX's tests expect them: on a class."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether there is such a device; whether the model runs shows when it is prepared."""
        return device is None or cls.supports_device(device)

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:
        """True, and no reason why not: operators of newer sets are taken as they are in ours."""
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is such a device: `CPU` is."""
        return device.partition(":")[0].upper() == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """A path, bytes, a `ModelProto` or a session, ready to run.

        Raises:
            InvalidArgument: There is no such device, or an option is none that may be set.
        """
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if device is not None and not cls.supports_device(device):
            raise InvalidArgument(
                message("backend", "There is no such device", expected="CPU", got=device)
            )
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        options = SessionOptions()
        set_options(options, kwargs, _SESSION_OPTIONS)
        return OnnxRuntimeBackendRep(InferenceSession(model, options))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any
    ) -> list[Any]:
        """Prepare a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, **kwargs: Any) -> list[Any]:
        """Not supported: a node alone says nothing of operator versions.

        Raises:
            NotImplemented: Always.
        """
        raise errors.NotImplemented(message("backend", "A node alone cannot be run"))


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device
