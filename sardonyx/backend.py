"""ONNX's backend interface, as `onnxruntime.backend` has it: prepare a model, run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.api.options import SessionOptions
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message


class OnnxRuntimeBackendRep:
    """A model that is ready to run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """Outputs, given one array, a list of arrays in the model's order, or a dict by name.

        Raises:
            InvalidArgument: There are too many inputs, or an option of the run is unknown.
        """
        options = RunOptions()
        for name, value in kwargs.items():
            setattr(options, name, value)
        names = [i.name for i in self._session.get_inputs()]
        if not isinstance(inputs, Mapping):
            given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) > len(names):
                raise InvalidArgument(
                    message(
                        "backend", "Too many inputs", expected=str(len(names)), got=str(len(given))
                    )
                )
            inputs = dict(zip(names, given, strict=False))
        return self._session.run(None, inputs, options)


class OnnxRuntimeBackend:
    """The functions of this module, as ONNX's tests expect them: on a class."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether there is such a device; whether the model runs shows when it is prepared."""
        return device is None or cls.supports_device(device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is such a device: `CPU` is."""
        return device.partition(":")[0].upper() == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """A path, bytes, a `ModelProto` or a session, ready to run.

        Raises:
            InvalidArgument: There is no such device, or an option of the session is unknown.
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
        for name, value in kwargs.items():
            setattr(options, name, value)
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
