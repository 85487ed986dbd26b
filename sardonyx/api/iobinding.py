"""`IOBinding`: inputs and outputs in memory that the caller chose, on any device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.api.feeds import as_array, check_shared, target_of
from sardonyx.api.memory import OrtDevice, OrtMemoryInfo, memory_of
from sardonyx.api.ortvalue import OrtValue, numpy_type
from sardonyx.api.ortvalue_vector import OrtValueVector
from sardonyx.api.parts import runs_of
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.api.shown import facts
from sardonyx.api.spelling import nearest
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, RuntimeException, message
from sardonyx.base.texts import counted
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.declared import ValueInfo
from sardonyx.runtime.overlaps import check_apart
from sardonyx.runtime.storage import (
    Array,
    DeviceArray,
    MemoryKind,
    OutputPlacement,
    Tensor,
    to_host,
)
from sardonyx.runtime.try_run import KeptItems

if TYPE_CHECKING:
    from sardonyx.api.session_model import LoadedModel
    from sardonyx.runtime.engine import Engine


class IOBinding:
    """Binds values to names; everything bound is kept alive until it is cleared.

    A binding may be used again and again, by one thread at a time. Memory that is bound to an
    output may be longer along the first axis than the output, or have one axis alone; `get_outputs`
    says what shape that had.

    Args:
        session: The session whose inputs and outputs are bound.
    """

    @names_misfits
    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._runs = runs_of(session)
        record = self._runs.loaded.engine.record
        self._input_info = {v.name: v for v in (*record.inputs, *record.overridable)}
        self._output_info = {v.name: v for v in record.outputs}
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Tensor | MemoryKind | None] = {}
        self._results: dict[str, Any] = {}
        self._plan: _Plan | None = None

    def __repr__(self) -> str:
        own: Mapping[str, Any] = self.__dict__
        bound = (
            f"{len(own.get(f'_{kind}s', ()))} of {counted(len(own.get(f'_{kind}_info', ())), kind)}"
            for kind in ("input", "output")
        )
        return facts(self, *bound)

    def _known(self, name: str, table: dict[str, ValueInfo], what: str) -> ValueInfo:
        if name not in table:
            raise InvalidArgument(
                message("IOBinding", f"The model has no {what} {name!r}", do=nearest(name, table))
            )
        return table[name]

    @property
    def _iobinding(self) -> SessionIOBinding:
        """The same bindings, as the compiled class inside onnxruntime's has them."""
        same = object.__new__(SessionIOBinding)
        same.__dict__ = self.__dict__
        return same

    def _known_input(self, name: str) -> ValueInfo:
        return self._known(name, self._input_info, "input")

    # -- inputs -------------------------------------------------------------------------------

    @names_misfits
    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Feed an array; later changes to its contents are seen by later runs."""
        held = as_array(arr_on_cpu, self._known_input(name))
        check_shared(f"input {name}", held)
        self._inputs[name] = held
        self._plan = None

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Feed the memory of a value, or of another library's array, wherever it lies.

        Each run waits, on the device, for what that library has under way on it.
        """
        self.bind_cpu_input(name, ortvalue)

    @names_misfits
    def bind_input(
        self,
        name: str,
        device_type: str | OrtDevice | OrtMemoryInfo,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Feed memory by its address; the caller keeps it alive, and its contents up to date.

        Args:
            name: The input's.
            device_type: `"cpu"`, `"cuda"` (or `"gpu"`), `"cudapinned"` (memory of the host that a
                GPU reaches), in small or capital letters, or an object that says where it lies.
            device_id: The device's number; 0 where it stands behind the name: `"cuda:1"`.
            element_type: A NumPy type, or ONNX's number of one.
            shape: Sizes of axes.
            buffer_ptr: The address.

        Raises:
            InvalidArgument: There is no memory of that kind at the address, or it is smaller, as
                far as is known: see `OrtValue.ortvalue_from_address`.
        """
        held = OrtValue.ortvalue_from_address(
            buffer_ptr, shape, element_type, device_type, device_id
        )
        self.bind_cpu_input(name, held)

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()
        self._plan = None

    def synchronize_inputs(self) -> None:
        """Wait until what is under way on the inputs' devices has happened."""
        for kind in {a.kind for a in self._inputs.values() if isinstance(a, DeviceArray)}:
            kind.synchronize()

    # -- outputs ------------------------------------------------------------------------------

    @names_misfits
    def bind_output(
        self,
        name: str,
        device_type: str | OrtDevice | OrtMemoryInfo = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in new memory, or at an address that the caller keeps alive.

        Without a shape, each run gives new memory of the device. With a shape, or with an address,
        there must be an element type, too; with both and no address, memory is allocated now, for
        all runs. Devices are named as for `bind_input`.

        Raises:
            InvalidArgument: Something of this is missing; of an address as for `bind_input`.
        """
        memory = memory_of(device_type, device_id)
        self._known(name, self._output_info, "output")
        is_host = memory.name == "cpu" and memory.memory_name == "Cpu"
        target: Tensor | MemoryKind | None = None if is_host else memory
        if shape is not None and element_type is not None:
            if buffer_ptr is None:
                target = memory.empty(tuple(map(int, shape)), numpy_type(element_type))
            else:
                target = OrtValue.ortvalue_from_address(
                    buffer_ptr, shape, element_type, device_type, device_id
                )._tensor()
        elif shape is not None or element_type is not None or buffer_ptr is not None:
            raise InvalidArgument(
                message(f"output {name}", "Memory needs an element type and a shape")
            )
        self._outputs[name] = target
        self._plan = None

    @names_misfits
    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Have an output written to the memory of a value, or of another library's array."""
        info = self._known(name, self._output_info, "output")
        self._outputs[name] = target_of(ortvalue, info)
        self._plan = None

    def clear_binding_outputs(self) -> None:
        """Forget all outputs."""
        self._outputs.clear()
        self._results.clear()
        self._plan = None

    def synchronize_outputs(self) -> None:
        """Wait for runs that were not waited for.

        Raises:
            RuntimeException: One of them met data that it cannot work on.
        """
        self._runs.loaded.engine.settle()

    def get_outputs(self) -> list[OrtValue]:
        """What the last run gave, in the order of binding.

        After a run that nobody waited for, arrays of the processor are complete after
        `synchronize_outputs` alone.
        """
        return [OrtValue(self._results[n]) for n in self._outputs if n in self._results]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """What the last run gave, in the order of binding."""
        return OrtValueVector(self.get_outputs())

    def copy_outputs_to_cpu(self) -> list[Array]:
        """What the last run gave, as arrays; waits for it."""
        self.synchronize_outputs()
        return [to_host(self._results[n]) for n in self._outputs if n in self._results]

    # -- the run ------------------------------------------------------------------------------

    def run(self, run_options: RunOptions | None = None, *, stream: Any = None) -> None:
        """Run the session once with what is bound.

        Raises:
            InvalidArgument: An input or every output is not bound, bound memory does not fit, or
                outputs overlap.
        """
        plan = self._plan
        fed: Mapping[str, Any] = self._inputs
        if run_options is not None:
            fed = self._runs.checked(run_options).with_adapters(fed)
        if fed is not self._inputs:
            plan = self._prepare({n: as_array(v, self._known_input(n)) for n, v in fed.items()})
        elif plan is None or plan.loaded is not self._runs.loaded:
            plan = self._plan = self._prepare(fed)
        if run_options is None:
            self._run(plan, None, OutputPlacement(plan.targets, stream))
        else:
            with run_options.limit() as cancel, run_options.graph():
                waits = not run_options.is_left
                self._run(plan, cancel, OutputPlacement(plan.targets, stream, waits))
        self._runs.after_run(run_options)

    def try_run(self) -> bool:
        """`run`, if the fast path does it; else False, and nothing is done.

        See `runtime.try_run.TryRun`.

        Raises:
            InvalidArgument: An input or every output is not bound.
        """
        plan = self._plan
        if plan is None or plan.loaded is not self._runs.loaded:
            plan = self._plan = self._prepare(self._inputs)
        if not plan.is_repeatable:
            return False
        found = plan.engine.try_run(plan.feeds, plan.outputs)
        if found is None:
            return False
        if plan.in_place:
            self._results = plan.results
        else:
            self._take(found)
        return True

    def _take(self, results: Sequence[Any]) -> None:
        named = zip(self._runs.loaded.output_names, results, strict=True)
        self._results = {name: found for name, found in named if name in self._outputs}

    def _run(self, plan: _Plan, cancel: CancelFlag | None, wanted: OutputPlacement) -> None:
        if plan.in_place:
            try:
                plan.engine.run_into(plan.feeds, plan.targets, cancel)
            except RuntimeException:
                raise  # the memory is taken, the data is not
            except InvalidArgument:
                # Memory may be larger than the output.
                plan.in_place = plan.is_repeatable = False
            else:
                self._results = plan.results
                return
        self._runs.check_stream(wanted.stream)
        self._take(plan.engine.run_to(plan.feeds, wanted, cancel))

    def _prepare(self, inputs: Mapping[str, Any]) -> _Plan:
        """What a run needs of the bindings, which holds until one of them changes."""
        loaded = self._runs.loaded
        session_engine = loaded.engine
        fed = tuple(v.name for v in session_engine.record.overridable if v.name in inputs)
        engine = session_engine.with_inputs(fed)
        names = [v.name for v in engine.inputs]
        missing = [n for n in names if n not in inputs]
        if missing:
            text = f"Inputs {missing} are not bound"
            raise InvalidArgument(message("run_with_iobinding", text))
        if not self._outputs:
            raise InvalidArgument(message("run_with_iobinding", "No output is bound"))
        check_apart(self._outputs.items())
        feeds = KeptItems(inputs[n] for n in names)
        # What is not bound stays where it is.
        unbound = None if loaded.is_on_host else engine.executable.facts.memory_kind
        listed = loaded.output_names  # a name may be there twice
        targets = KeptItems(self._outputs.get(n, unbound) for n in listed)
        bound = [t for t in targets if isinstance(t, np.ndarray)]
        in_place = (
            engine.runs_in_place
            and self._runs.loaded.is_on_host
            and len(bound) == len(listed)
            and all(t.flags.c_contiguous and t.flags.aligned for t in bound)
            and not _overlap([f for f in feeds if isinstance(f, np.ndarray)], bound)
        )
        results = dict(zip(listed, bound, strict=True)) if in_place else {}
        outputs: KeptItems | None = targets
        is_repeatable = not loaded.gives_memory_back
        if loaded.is_on_host and not in_place:
            outputs = None  # all are new, or some are copied
            is_new = engine is session_engine and all(t is None for t in targets)
            is_repeatable = is_repeatable and is_new
        return _Plan(loaded, engine, feeds, targets, in_place, results, outputs, is_repeatable)


@dataclass(slots=True)
class _Plan:
    """What a binding runs, and where to: as long as nothing of it is bound anew.

    Attributes:
        outputs: What the fast path is told of outputs.
        is_repeatable: Whether the fast path may do the run.
    """

    loaded: LoadedModel
    engine: Engine
    feeds: KeptItems
    targets: KeptItems
    in_place: bool
    results: dict[str, Array]
    outputs: KeptItems | None
    is_repeatable: bool


def _overlap(feeds: Sequence[Array], targets: Sequence[Array]) -> bool:
    """Whether a target may share memory with a feed or with another target."""
    for number, target in enumerate(targets):
        others = (*feeds, *targets[:number])
        if any(np.may_share_memory(target, other) for other in others):
            return True
    return False


class SessionIOBinding(IOBinding):
    """`IOBinding` as onnxruntime's compiled class has it: devices are objects.

    Args:
        session: A session, or what its `_sess` gave.
    """

    def __init__(self, session: Any) -> None:
        super().__init__(getattr(session, "_session", session))

    def bind_input(self, name: str, device_type: Any, *rest: Any) -> None:
        """Feed an array, or memory: (name, array) or (name, device, type, shape, address)."""
        if not rest:
            self.bind_cpu_input(name, device_type)
        else:
            super().bind_input(name, *_place(device_type), *rest)

    def bind_output(self, name: str, device_type: Any = "cpu", *rest: Any) -> None:
        """Ask for an output: (name, device) or (name, device, type, shape, address)."""
        super().bind_output(name, *_place(device_type), *rest)

    def get_outputs(self) -> OrtValueVector:
        """What the last run gave, in the order of binding."""
        return OrtValueVector(super().get_outputs())


def _place(device: Any) -> tuple[Any, ...]:
    """A device and its number; after a name a number follows."""
    return (device, 0) if isinstance(device, OrtDevice | OrtMemoryInfo) else (device,)
