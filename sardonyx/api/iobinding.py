"""`IOBinding`: inputs and outputs in memory that the caller chose."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.api.feeds import as_array
from sardonyx.api.options import RunOptions
from sardonyx.api.ortvalue import Array, OrtValue, need_cpu
from sardonyx.api.session import InferenceSession
from sardonyx.api.spelling import nearest
from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.declared import ValueInfo


class IOBinding:
    """Binds values to names; everything bound is kept alive until it is cleared.

    Args:
        session: The session whose inputs and outputs are bound.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        engine = session._engine
        self._engine = engine
        self._input_info = {v.name: v for v in engine.inputs}
        self._output_info = {v.name: v for v in engine.outputs}
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: dict[str, Array] = {}

    def _known(self, name: str, table: dict[str, ValueInfo], what: str) -> ValueInfo:
        if name not in table:
            raise InvalidArgument(
                message("IOBinding", f"The model has no {what} {name!r}", do=nearest(name, table))
            )
        return table[name]

    # -- inputs -------------------------------------------------------------------------------

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Feed an array; later changes to its contents are seen by later runs."""
        self._inputs[name] = as_array(arr_on_cpu, self._known(name, self._input_info, "input"))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Feed the memory of a value."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Feed memory by its address; the caller keeps it alive."""
        need_cpu(device_type, device_id)
        self.bind_cpu_input(name, _at_address(element_type, shape, buffer_ptr))

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    def synchronize_inputs(self) -> None:
        """Memory of the processor is always up to date."""

    # -- outputs ------------------------------------------------------------------------------

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in new memory, or at an address that the caller keeps alive."""
        need_cpu(device_type, device_id)
        self._known(name, self._output_info, "output")
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise InvalidArgument(
                message(f"output {name}", "An address needs an element type and a shape")
            )
        self._outputs[name] = _at_address(element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written to the memory of a value."""
        self._known(name, self._output_info, "output")
        self._outputs[name] = ortvalue.numpy()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_outputs(self) -> None:
        """A run on the processor has ended when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """What the last run gave, in the order of binding."""
        return [OrtValue(self._results[n]) for n in self._outputs if n in self._results]

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[Array]:
        """What the last run gave, as arrays."""
        return [self._results[n] for n in self._outputs if n in self._results]

    # -- the run ------------------------------------------------------------------------------

    def run(self, run_options: RunOptions | None = None) -> None:
        """Run the session once with what is bound.

        Raises:
            ValueError: An input is not bound.
            InvalidArgument: Bound memory does not fit.
        """
        missing = [n for n in self._input_info if n not in self._inputs]
        if missing:
            raise ValueError(message("run_with_iobinding", f"Inputs {missing} are not bound"))
        given = [self._inputs[n] for n in self._input_info]
        cancel = run_options.cancel_flag if run_options is not None else None
        held = [self._outputs.get(n) for n in self._output_info]
        plain = self._engine.record.output_places == list(range(len(held)))
        if plain and held and all(h is not None and h.flags.c_contiguous for h in held):
            self._engine.executable.run_into(given, held, cancel)  # type: ignore[arg-type]
            self._results = dict(zip(self._output_info, held, strict=True))  # type: ignore[arg-type]
            return
        results = self._engine.run(given, cancel)
        for name, result in zip(self._output_info, results, strict=True):
            target = self._outputs.get(name)
            if target is not None:
                if target.shape != result.shape or target.dtype != result.dtype:
                    raise InvalidArgument(
                        message(
                            f"output {name}", "The bound memory does not fit",
                            expected=f"{result.dtype}{list(result.shape)}",
                            got=f"{target.dtype}{list(target.shape)}",
                        )
                    )  # fmt: skip
                target[...] = result
                result = target
            self._results[name] = result


SessionIOBinding = IOBinding


def _at_address(element_type: Any, shape: Sequence[int], address: int) -> Array:
    """An array on memory at an address that the caller answers for."""
    if isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool):
        kind = dtypes.BY_ONNX_ID[int(element_type)].numpy
    else:
        kind = np.dtype(element_type)
    count = int(np.prod(shape, dtype=np.int64)) if len(shape) else 1
    if address == 0 and count:
        raise InvalidArgument(message("IOBinding", "The address is zero"))
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    whole: Array = np.frombuffer(memoryview(raw), np.uint8)
    return whole.view(kind).reshape(tuple(shape))
