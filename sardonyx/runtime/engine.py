"""A compiled model that runs, with the other plans that some of its feeds need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from sardonyx.base import errors
from sardonyx.base.errors import (
    ContradictingSizes,
    EngineError,
    Fail,
    InvalidArgument,
    RuntimeException,
    SardonyxError,
    UndecidedBranch,
    UnexpectedOne,
    message,
)
from sardonyx.base.handlers import is_of_handler
from sardonyx.base.log import get_logger
from sardonyx.base.object_types import ObjectType
from sardonyx.base.resources import refusal
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.declared import ValueInfo
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.fed_ranks import FedShape, rank_of, shape_of, shape_of_computed
from sardonyx.runtime.inplace_append import Appender
from sardonyx.runtime.storage import HOST, DeviceArray, OutputPlacement, again, to_host
from sardonyx.runtime.try_run import TryRun, never
from sardonyx.store.model_record import ModelRecord

if TYPE_CHECKING:
    from sardonyx.plugins.claims import Claims
    from sardonyx.runtime.recording import Sink
    from sardonyx.runtime.variants import Variants
    from sardonyx.store.tuning_choices import Tuned

_logger = get_logger("session")
_Given = TypeVar("_Given")


class Engine:
    """One compiled model; any number of threads may run it.

    Attributes:
        record: What the session must know of the model.
        timings: Seconds by phase of loading.
        tuned: The results of tuning that it was compiled with.
        claims: What providers outside the package compute; None if there are none.
        try_run: The fast path; see `Executable.try_run`.
    """

    def __init__(
        self, record: ModelRecord, executable: Executable, timings: dict[str, float]
    ) -> None:
        self.record, self.executable, self.timings = record, executable, timings
        self.tuned: Tuned | None = None
        self.claims: Claims | None = None
        self._variants: Variants | None = None
        self._unrecorded = executable
        self._plain = record.output_places == list(range(len(record.outputs)))
        buffers = executable.facts.growable_buffers if self._plain and record.appended else None
        self._appender = (
            None if buffers is None else Appender(record, buffers, self._in_growable_buffers)
        )
        self.try_run = self._fast_path()

    def _fast_path(self) -> TryRun:
        """That of the executable, where its results are the engine's as they are."""
        is_on_host = self.executable.facts.memory_kind is HOST
        if self._plain and (is_on_host or self._appender is None):
            return self.executable.try_run
        return never

    def record_runs(self, sink: Sink | None) -> None:
        """Give `sink` a trace of every run that begins from now on; None ends that."""
        base = self._unrecorded
        self.executable = base if sink is None else base.recorded(self.record, sink)
        self.try_run = self._fast_path()
        if self._variants is not None:
            self._variants.record_runs(sink)

    def flush(self) -> None:
        """Give the sink of recorded runs those that are over and that it does not have yet."""
        for engine in (self, *self.variants.values()):
            engine.executable.flush()

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The feeds that a run must be given."""
        return self.record.inputs

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """What a run gives."""
        return self.record.outputs

    def run(
        self, feeds: Sequence[Any], cancel: CancelFlag | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """All outputs, given all inputs in order.

        Raises:
            InvalidArgument: A feed does not fit the model.
            RuntimeException: The model met data that it cannot work on.
            OutOfMemory: The run needs more memory than there is.
        """
        try:
            results = self.executable.run(feeds, cancel)
        except ContradictingSizes as error:
            return self._run_general(error, feeds, cancel)
        except MemoryError as error:
            _raise_named(error)
        if self._plain:
            return results
        found: list[np.ndarray[Any, Any]] = []
        used: set[int] = set()
        for place in self.record.output_places:
            found.append(results[place].copy() if place in used else results[place])
            used.add(place)
        return found

    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """`run`, with each output where it is wanted; feeds may lie on devices.

        Raises:
            InvalidArgument: Memory that is bound to an output does not fit.
        """
        if not wanted.is_captured:
            capture = self.executable.callers_capture(wanted)
            if capture is not None:
                with capture:
                    return self.run_to(feeds, replace(wanted, is_captured=True), cancel)
        if self._appender is not None and not wanted.is_captured:
            found = self._appender.run(
                feeds, wanted, lambda e, feeds, wanted: e.run_to(feeds, wanted, cancel)
            )
            if found is not None:
                return found
        places, plan_wanted = self.record.output_places, wanted
        if not self._plain:
            targets = [wanted.targets[places.index(k)] for k in range(max(places, default=-1) + 1)]
            plan_wanted = replace(wanted, targets=targets)
        try:
            results = self.executable.run_to(feeds, plan_wanted, cancel)
        except ContradictingSizes as error:
            return self._general_for(error, feeds, lambda e: e.run_to(feeds, wanted, cancel))
        except MemoryError as error:
            _raise_named(error)
        if self._plain:
            if self._appender is None or wanted.is_captured:
                return results
            return self._appender.wrapped(results, wanted)
        if wanted.is_captured and len(set(places)) < len(places):
            what = "One tensor is two outputs of the model, and a graph of the caller's has one"
            raise errors.NotImplemented(message("run", what))
        found = []
        for number, at in enumerate(places):
            is_first = places.index(at) == number
            found.append(results[at] if is_first else self._again(number, wanted, results[at]))
        return found

    @property
    def is_asynchronous(self) -> bool:
        """Whether `start` comes back before the run has happened."""
        return self._plain and self.executable.facts.is_asynchronous

    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """Begin a run as `run_to` does, for somebody to finish."""
        if not self._plain:  # one tensor is several outputs: copies wait
            return AsyncRun(self.run_to(feeds, replace(wanted, waits=True), cancel))
        begun: list[AsyncRun] = []

        def begin(
            executable: Executable, feeds: Sequence[Any], wanted: OutputPlacement
        ) -> list[Any]:
            begun.append(executable.start(feeds, wanted, cancel))
            return begun[-1].results

        appender = self._appender
        found = None if appender is None else appender.run(feeds, wanted, begin)
        try:
            if found is None:
                found = begin(self.executable, feeds, wanted)
                found = found if appender is None else appender.wrapped(found, wanted)
        except ContradictingSizes as error:
            return self._general_for(error, feeds, lambda e: e.start(feeds, wanted, cancel))
        begun[-1].results = found
        return begun[-1]

    def _again(self, number: int, wanted: OutputPlacement, result: Any) -> Any:
        """A tensor that is another output, too, where this one is wanted."""
        if not wanted.waits:
            self.settle()
        return again(self.outputs[number].name, wanted.targets[number], result)

    def settle(self) -> None:
        """Wait for runs that were not waited for; see `Executable.settle`."""
        for engine in (self, *list(self.variants.values())):
            engine.executable.settle()

    def run_into(
        self,
        feeds: Sequence[Any],
        outputs: Sequence[np.ndarray[Any, Any]],
        cancel: CancelFlag | None = None,
    ) -> None:
        """`run`, writing to arrays that exist: contiguous, and overlapping nothing."""
        if not self._plain:
            raise EngineError(message("run_into", "One tensor is two outputs of this model"))
        try:
            self.executable.run_into(feeds, outputs, cancel)
        except ContradictingSizes as error:
            results = self._run_general(error, feeds, cancel)
            for target, result in zip(outputs, results, strict=True):
                if target.shape != result.shape:
                    raise
                target[...] = result
        except MemoryError as error:
            _raise_named(error)

    @property
    def runs_in_place(self) -> bool:
        """Whether `run_into` is possible."""
        return self._plain

    def _run_general(
        self, error: ContradictingSizes, feeds: Sequence[Any], cancel: CancelFlag | None
    ) -> list[np.ndarray[Any, Any]]:
        """Run the variant that relies on no name, or on other ranks, when it is first needed."""
        return self._general_for(error, feeds, lambda engine: engine.run(feeds, cancel))

    def _general_for(
        self, error: ContradictingSizes, feeds: Sequence[Any], run: Callable[[Engine], _Given]
    ) -> _Given:
        try:
            general = self._general(error, feeds)
            if general is None:
                raise error
            return run(general)
        except InvalidArgument as later:
            is_for_it = isinstance(error, (UndecidedBranch, UnexpectedOne))
            if is_for_it or isinstance(later, RuntimeException):
                raise  # the plan for such feeds knows better, or took them
            raise error from None

    def _general(self, error: ContradictingSizes, feeds: Sequence[Any]) -> Engine | None:
        if self._variants is None:
            return None
        if isinstance(error, UnexpectedOne):
            return self._variants.with_one(error)
        if isinstance(error, UndecidedBranch):
            return self._variants.with_decisions(error)
        # Exporters write the shape of a number where they know nothing.
        ranks = {
            info.name: np.ndim(feed)
            for info, feed in zip(self.inputs, feeds, strict=True)
            if info.shape == () and not isinstance(info.dtype, ObjectType) and np.ndim(feed)
        }
        return self._variants.of_ranks(ranks, error) if ranks else self._variants.general(error)

    def with_inputs(self, names: tuple[str, ...]) -> Engine:
        """The engine in which these overridable initializers are inputs, after the others.

        Raises:
            Fail: The model's files were changed since the session was made.
        """
        if not names:
            return self
        found = self._variants.with_inputs(names) if self._variants is not None else None
        if found is None:
            what = f"The model's files were changed, so {', '.join(names)} cannot be fed"
            raise Fail(message("run", what, do="Make a new session"))
        return found

    def with_outputs(self, names: tuple[str, ...]) -> Engine:
        """The engine that computes these outputs alone, in the model's order.

        This one, where there is no such plan: a bundle has none, nor a model that was changed.
        """
        if self._variants is None or len(names) == len(self.outputs):
            return self
        return self._variants.of_outputs(names) or self

    def with_inner(self, names: tuple[str, ...]) -> Engine | None:
        """The engine that gives these values, outputs or inner ones; None if there is none.

        Raises:
            InvalidArgument: The model has no such value.
        """
        return None if self._variants is None else self._variants.of_inner(names)

    @property
    def variants(self) -> dict[str, Engine]:
        """Other plans of the same model that runs needed, by what they are for."""
        return {} if self._variants is None else self._variants.made

    def _in_growable_buffers(self) -> Executable | None:
        """What runs the plan that writes outputs behind the inputs that they continue."""
        found = self._variants.in_growable_buffers() if self._variants is not None else None
        return None if found is None or not found._plain else found.executable

    def use(self, variants: Variants) -> None:
        """Give the engine a way to make other plans of the same model."""
        self._variants = variants

    @property
    def regions(self) -> list[Engine]:
        """Those of the parts that a device runs."""
        made = [] if self.claims is None else self.claims.made
        return [c.region.engine for c in made if c.region is not None]

    def trim(self) -> None:
        """Give back the memory of intermediate values."""
        for engine in (self, *self.variants.values()):
            engine.executable.trim()
            for region in engine.regions:
                region.trim()


def _raise_named(error: MemoryError) -> NoReturn:
    """Raise what a run does where an array of NumPy's, or an object, gets no memory."""
    found = None if is_of_handler(error) else refusal("run", error)
    if found is None or isinstance(error, SardonyxError):
        raise error
    raise found from error


class UnrankedEngine(Engine):
    """A model with inputs of unknown rank: runs the plan for the ranks of its feeds.

    Tensors whose shape decides how many axes there are count as such inputs: see `compiler.ranks`.
    Those inside the model are computed first, by a plan of their own.
    """

    def __init__(
        self, record: ModelRecord, executable: Executable, timings: dict[str, float]
    ) -> None:
        super().__init__(record, executable, timings)
        names = [info.name for info in record.inputs]
        self._unranked = [names.index(name) for name in record.unranked if name in names]
        self._inner = tuple(name for name in record.unranked if name not in names)

    def run(
        self, feeds: Sequence[Any], cancel: CancelFlag | None = None
    ) -> list[np.ndarray[Any, Any]]:
        """See `Engine.run`. The first feeds of their ranks wait until a plan is compiled."""
        engine, given = self._of_ranks(feeds, cancel)
        return engine.run(given, cancel)

    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """See `Engine.run_to`."""
        engine, given = self._of_ranks(feeds, cancel)
        return engine.run_to(given, wanted, cancel)

    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """See `Engine.start`."""
        engine, given = self._of_ranks(feeds, cancel)
        return engine.start(given, wanted, cancel)

    def run_into(
        self,
        feeds: Sequence[Any],
        outputs: Sequence[np.ndarray[Any, Any]],
        cancel: CancelFlag | None = None,
    ) -> None:
        """See `Engine.run_into`."""
        engine, given = self._of_ranks(feeds, cancel)
        engine.run_into(given, outputs, cancel)

    @property
    def runs_in_place(self) -> bool:
        """No: whether a plan does is known when there is one."""
        return False

    def _fast_path(self) -> TryRun:
        """None: there is no plan of its own."""
        return never

    def _of_ranks(
        self, feeds: Sequence[Any], cancel: CancelFlag | None
    ) -> tuple[Engine, Sequence[Any]]:
        """The engine for feeds, and what it takes: inner values behind the feeds."""
        found, inner = None, list[Any]()
        ranks, shapes = dict[str, int](), dict[str, FedShape]()
        for place in self._unranked:
            info, feed = self.inputs[place], feeds[place]
            if info.shape:
                shapes[info.name] = shape_of(feed, info)
            else:
                ranks[info.name] = rank_of(feed, info)
        if self._variants is not None and self._inner:
            first = self._variants.of_inner(self._inner)
            if first is not None:
                here = [to_host(x) if isinstance(x, DeviceArray) else x for x in feeds]
                inner = first.run(here, cancel)
                for name, array in zip(self._inner, inner, strict=True):
                    shapes[name] = shape_of_computed(array, name)
        if self._variants is not None and len(inner) == len(self._inner):
            found = self._variants.of_ranks(ranks, None, shapes)
        if found is None:
            what = "The model's files were changed, so no plan for these ranks can be made"
            raise Fail(message("run", what, do="Make a new session"))
        return found, [*feeds, *inner] if inner else feeds
