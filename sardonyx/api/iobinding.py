"""`IOBinding`: inputs and outputs in memory that the caller chose."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.api.devices import need_cpu
from sardonyx.api.feeds import as_array
from sardonyx.api.ortvalue import Array, OrtValue, OrtValueVector, numpy_type
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.declared import ValueInfo

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine


class IOBinding:
    """Binds values to names; everything bound is kept alive until it is cleared.

    Args:
        session: The session whose inputs and outputs are bound.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        record = session._engine.record
        self._input_info = {v.name: v for v in (*record.inputs, *record.overridable)}
        self._output_info = {v.name: v for v in record.outputs}
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: dict[str, Array] = {}
        self._plan: _Plan | None = None

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
        self._plan = None

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
        self._plan = None

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
        """Ask for an output: in new memory, or at an address that the caller keeps alive.

        With a shape, or with an address, there must be an element type, too; with both and no
        address, memory is allocated now, for all runs.
        """
        need_cpu(device_type, device_id)
        self._known(name, self._output_info, "output")
        target: Array | None = None
        if shape is not None and element_type is not None:
            if buffer_ptr is None:
                target = OrtValue.ortvalue_from_shape_and_type(shape, element_type).numpy()
            else:
                target = _at_address(element_type, shape, buffer_ptr)
        elif shape is not None or element_type is not None or buffer_ptr is not None:
            raise InvalidArgument(
                message(f"output {name}", "Memory needs an element type and a shape")
            )
        self._outputs[name] = target
        self._plan = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written to the memory of a value."""
        self._known(name, self._output_info, "output")
        self._outputs[name] = ortvalue.numpy()
        self._plan = None

    def clear_binding_outputs(self) -> None:
        """Forget all outputs."""
        self._outputs.clear()
        self._results.clear()
        self._plan = None

    def synchronize_outputs(self) -> None:
        """A run on the processor has ended when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """What the last run gave, in the order of binding."""
        return [OrtValue(self._results[n]) for n in self._outputs if n in self._results]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """What the last run gave, in the order of binding."""
        return OrtValueVector(self.get_outputs())

    def copy_outputs_to_cpu(self) -> list[Array]:
        """What the last run gave, as arrays."""
        return [self._results[n] for n in self._outputs if n in self._results]

    # -- the run ------------------------------------------------------------------------------

    def run(self, run_options: RunOptions | None = None) -> None:
        """Run the session once with what is bound.

        Raises:
            InvalidArgument: An input or every output is not bound, or bound memory does not fit.
        """
        plan = self._plan
        if plan is None or plan.session_engine is not self._session._engine:
            plan = self._plan = self._prepare()
        if run_options is None:
            self._run(plan, None)
        else:
            with run_options.limit() as cancel:
                self._run(plan, cancel)
        self._session._after_run(run_options)

    def _run(self, plan: _Plan, cancel: CancelFlag | None) -> None:
        if plan.in_place:
            plan.engine.run_into(plan.feeds, plan.targets, cancel)
            self._results = plan.results
        else:
            results = plan.engine.run(plan.feeds, cancel)
            self._results = {
                name: _written(name, self._outputs[name], result)
                for name, result in zip(self._session._output_names, results, strict=True)
                if name in self._outputs
            }

    def _prepare(self) -> _Plan:
        """What a run needs of the bindings, which holds until one of them changes."""
        session_engine = self._session._engine
        fed = tuple(v.name for v in session_engine.record.overridable if v.name in self._inputs)
        engine = session_engine.with_inputs(fed)
        names = [v.name for v in engine.inputs]
        missing = [n for n in names if n not in self._inputs]
        if missing:
            text = f"Inputs {missing} are not bound"
            raise InvalidArgument(message("run_with_iobinding", text))
        if not self._outputs:
            raise InvalidArgument(message("run_with_iobinding", "No output is bound"))
        feeds = [self._inputs[n] for n in names]
        targets = [t for n in self._output_info if (t := self._outputs.get(n)) is not None]
        in_place = (
            engine.runs_in_place
            and len(targets) == len(self._output_info)
            and all(t.flags.c_contiguous and t.flags.aligned for t in targets)
            and not _overlap(feeds, targets)
        )
        results = dict(zip(self._output_info, targets, strict=True)) if in_place else {}
        return _Plan(session_engine, engine, feeds, targets, in_place, results)


@dataclass(frozen=True, slots=True)
class _Plan:
    session_engine: Engine
    engine: Engine
    feeds: list[Array]
    targets: list[Array]
    in_place: bool
    results: dict[str, Array]


def _overlap(feeds: list[Array], targets: list[Array]) -> bool:
    """Whether a target may share memory with a feed or with another target."""
    for number, target in enumerate(targets):
        others = (*feeds, *targets[:number])
        if any(np.may_share_memory(target, other) for other in others):
            return True
    return False


def _written(name: str, target: Array | None, result: Array) -> Array:
    """The result, in the memory that is bound if there is any."""
    if target is None:
        return result
    if target.shape != result.shape or target.dtype != result.dtype or not target.flags.writeable:
        raise InvalidArgument(
            message(
                f"output {name}", "The bound memory does not fit",
                expected=f"{result.dtype}{list(result.shape)}, writable",
                got=f"{target.dtype}{list(target.shape)}",
            )
        )  # fmt: skip
    target[...] = result
    return target


SessionIOBinding = IOBinding


def _at_address(element_type: Any, shape: Sequence[int], address: int) -> Array:
    """An array on memory at an address that the caller answers for."""
    kind = numpy_type(element_type)
    count = int(np.prod(shape, dtype=np.int64)) if len(shape) else 1
    if address == 0 and count:
        raise InvalidArgument(message("IOBinding", "The address is zero"))
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    whole: Array = np.frombuffer(memoryview(raw), np.uint8)
    return whole.view(kind).reshape(tuple(shape))
