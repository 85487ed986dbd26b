"""Convolutions and attentions by cuDNN's graph API, through nvidia-cudnn-frontend.

A plan is made for each shape: taken from the disk cache, or built in the background while the
generated kernel does the work. How one is chosen among several is onnxruntime's option
`cudnn_conv_algo_search`: EXHAUSTIVE measures them, HEURISTIC takes what cuDNN thinks is the best,
DEFAULT the first that its simpler rules name. Where cuDNN is not always faster than the generated
kernel, that one is measured, too, or left the work by a rule. No plan is used that has not been
tried, see `proving`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from sardonyx.base.log import get_logger
from sardonyx.cuda.background import Background
from sardonyx.cuda.cudnn_attention import AttentionForm
from sardonyx.cuda.cudnn_convolution import ConvolutionForm
from sardonyx.cuda.device import Device
from sardonyx.cuda.expected import Reference
from sardonyx.cuda.libraries import LibrarySettings, Place, Work
from sardonyx.cuda.measuring import Loan, milliseconds
from sardonyx.cuda.proving import Trial
from sardonyx.cuda.rehearsal import Rehearsal
from sardonyx.plan.library import Offer
from sardonyx.runtime.cache import default_cache, digest, engine_digest
from sardonyx.runtime.storage import Array

_logger = get_logger("cuda")
_KIND = "cudnn"
#: Plans in the cache have been tried, and no axis has the stride 0.
_MADE = "tried against numbers, with strides"
_MEASURED = "EXHAUSTIVE"
#: Without `cudnn_conv_use_max_workspace`, as onnxruntime has it.
_SMALL_WORKSPACE = 32 << 20
#: Plans that are kept; the oldest goes first.
_MOST_PLANS = 1024
#: Our kernels begin while those in front of them end, cuDNN's afterwards; where the same one is
#: called again and again, as in a measurement, that shows but in part.
_GAP_MS = 0.0015
#: Plans that an exhaustive search measures.
_MOST_MEASURED = 12
#: What a cache entry says where cuDNN has no plan, or a slower one than the kernel.
_NOTHING, _SLOWER = b"none", b"slower"


class Form(Protocol):
    """One function of cuDNN's: what it takes, and its graphs."""

    def refusal(self, offer: Offer, exact: bool) -> str:
        """Why an offer is not taken; "" if it is.

        Args:
            offer: The offer.
            exact: Whether its numbers may not be rounded for tensor cores.
        """

    def competes(self, work: Work) -> bool:
        """Whether the generated kernel may be faster."""

    def is_worth(self, work: Work) -> bool:
        """Whether cuDNN is probably faster, where nothing is measured."""

    def pack(self, work: Work) -> dict[int, int]:
        """Addresses of the tensors of a graph; none if cuDNN cannot have these."""

    def operands(self, work: Work) -> dict[int, tuple[int, str]]:
        """How many elements the tensors of a graph have from first to last, and their types."""

    def result(self, work: Work) -> tuple[int, list[int], list[int]]:
        """Which of them is the result, its sizes and its strides."""

    def reference(self, work: Work) -> Reference | None:
        """What the result is, where the host can work it out."""

    def graph(self, cudnn: Any, handle: Any, work: Work) -> Any:
        """The graph, neither validated nor built.

        Raises:
            ValueError: There is none for these sizes.
        """


_FORMS: dict[str, Form] = {"convolution": ConvolutionForm(), "attention": AttentionForm()}


class _Slower(Exception):
    """The generated kernel is faster than every plan."""


class _Built:
    """A plan that is ready.

    Attributes:
        graph: cuDNN's; None if it has none for this shape, or a slower one than the kernel.
        workspace_bytes: What it needs.
    """

    def __init__(self, graph: Any, workspace_bytes: int) -> None:
        self.graph, self.workspace_bytes = graph, workspace_bytes


class Cudnn:
    """See `libraries.Library`.

    Args:
        device: Where.
        settings: How plans are chosen, and what they may do.

    Raises:
        ImportError: The package, or cuDNN itself, is missing.
    """

    def __init__(self, device: Device, settings: LibrarySettings) -> None:
        import cudnn

        device.enter()
        self._cudnn, self._device = cudnn, device
        self._search = settings.convolution_search
        self._limit = None if settings.any_workspace else _SMALL_WORKSPACE
        self._tf32 = settings.tf32
        self.key = "" if self._tf32 else "exact"
        self._handle = cudnn.create_handle()
        self._lock = threading.Lock()
        self._plans: dict[object, _Built | None] = {}
        self.pending = self.version = self.searching = 0
        #: What the builder's thread works with: its handle and stream.
        self._tools: tuple[Any, Any] | None = None
        # What the package has made must go before its module does.
        self._builder = Background("sardonyx-cudnn", self._plans.clear)

    def refusal(self, offer: Offer) -> str:
        """See `Library.refusal`."""
        exact = self._is_exact(str(dict(offer.facts)["dtype"]))
        return _FORMS[offer.function].refusal(offer, exact)

    def _is_exact(self, dtype: str) -> bool:
        """Whether numbers may not be rounded for tensor cores."""
        return dtype == "float" and not self._tf32

    def run(self, work: Work, place: Place) -> bool:
        """See `Library.run`."""
        key = (work.call, work.numbers)
        if key not in self._plans:
            self._want(key, work, place)
            return False
        built = self._plans.get(key)
        if built is None or built.graph is None:
            return False
        pack = _FORMS[work.call.function].pack(work)
        if not pack:
            return False
        workspace = place.workspace(built.workspace_bytes) if built.workspace_bytes else 0
        with self._lock:
            self._cudnn.set_stream(handle=self._handle, stream=int(place.stream))
            built.graph.execute(pack, workspace, handle=self._handle)
        return True

    # -- plans --------------------------------------------------------------------------------

    def _want(self, key: object, work: Work, place: Place) -> None:
        """Have a plan made; None stands for it meanwhile."""
        form, rehearsal, is_measured = _FORMS[work.call.function], None, self._search == _MEASURED
        competes = form.competes(work)
        if competes and is_measured:
            rehearsal = place.rehearse()
        with self._lock:
            if key in self._plans:
                return
            while len(self._plans) >= _MOST_PLANS:
                # Its kernels go with it, so no graph may have them any more.
                del self._plans[next(iter(self._plans))]
                self.version += 1
            if competes and rehearsal is None and not form.is_worth(work):
                self._plans[key] = _Built(None, 0)
                return
            self._plans[key] = None
            self.pending += 1
        self._builder.do(lambda: self._build(key, work, rehearsal))

    def _build(self, key: object, work: Work, rehearsal: Rehearsal | None) -> None:
        self._device.enter()
        if self._tools is None:
            handle, stream = self._cudnn.create_handle(), self._device.lend_stream().handle
            self._cudnn.set_stream(handle=handle, stream=stream)
            self._tools = handle, stream
        try:
            built = self._cached(work, rehearsal, *self._tools)
        except _Slower as reason:
            _logger.debug("cuDNN is slower at %s %s: %s", work.call, work.numbers, reason)
            built = _Built(None, 0)
        except Exception as error:  # noqa: BLE001 - the library raises what it likes
            _logger.info("cuDNN has no plan for %s: %s", dict(work.call.facts), error)
            built = _Built(None, 0)
        with self._lock:
            if key in self._plans:
                self._plans[key] = built
            self.version += built.graph is not None
            self.pending -= 1

    def _cached(self, work: Work, rehearsal: Rehearsal | None, handle: Any, stream: Any) -> _Built:
        """A plan from the disk cache, or a new one that goes there."""
        cudnn, cache = self._cudnn, default_cache()
        own = "" if rehearsal is None else engine_digest()
        name = digest(
            _KIND, _MADE, cudnn.backend_version(), cudnn.__version__, self._device.name,
            self._search, self._limit, self._tf32, work.call.function, work.call.facts,
            work.numbers, own,
        )  # fmt: skip
        held = cache.read(name, _KIND)
        if held in (_NOTHING, _SLOWER):
            return _Built(None, 0)
        if held is not None:
            try:
                graph = cudnn.pygraph(handle=handle)
                graph.deserialize(handle, list(held))
                return _Built(graph, graph.get_workspace_size())
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is made again
                _logger.info("a plan of cuDNN's in the cache is not usable: %s", error)
        try:
            graph = _FORMS[work.call.function].graph(cudnn, handle, work)
            graph.validate()
            graph.build_operation_graph()
            self._choose(graph, work, rehearsal, handle, stream)
        except _Slower:
            cache.put(name, _KIND, _SLOWER)
            raise
        except (ValueError, cudnn.cudnnGraphNotSupportedError):
            cache.put(name, _KIND, _NOTHING)
            raise
        try:
            cache.put(name, _KIND, bytes(graph.serialize()))
        except Exception as error:  # noqa: BLE001 - not all plans can be written
            _logger.debug("a plan of cuDNN's is not kept: %s", error)
        return _Built(graph, graph.get_workspace_size())

    def _choose(
        self, graph: Any, work: Work, rehearsal: Rehearsal | None, handle: Any, stream: Any
    ) -> None:
        """Let the graph have one built plan."""
        cudnn = self._cudnn
        modes = cudnn.heur_mode
        chosen = modes.B if self._search == "DEFAULT" else modes.A
        if self._is_exact(work.dtype):
            notes = cudnn.numerical_note
            graph.deselect_numeric_notes([notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS])
        graph.create_execution_plans([chosen, modes.FALLBACK])
        if self._limit is not None:
            graph.deselect_workspace_greater_than(self._limit)
        graph.check_support()
        with Loan(self._device.capturing) as loan:
            form = _FORMS[work.call.function]
            trial = Trial(
                self._device, loan, stream, form.operands(work), *form.result(work),
                form.reference(work),
            )  # fmt: skip
            if self._search != _MEASURED:
                self._first(graph, trial, handle, loan, stream)
                return
            best, fastest = self._fastest(graph, trial, handle, loan, stream)
            if rehearsal is not None:
                kernel = rehearsal.prepare(loan, stream)
                own = milliseconds(kernel.launch, stream, self._device)
                if own <= fastest + _GAP_MS:
                    raise _Slower(f"{fastest:.4f} ms, the kernel {own:.4f} ms")
        graph.build_plan_at_index(best)

    def _first(self, graph: Any, trial: Trial, handle: Any, loan: Loan, stream: Any) -> None:
        """Build the first plan that does the work."""
        results: dict[int, Array | None] = {}
        index = -1
        for index, once in _plans(graph, trial, handle, loan, stream):
            try:
                results[index] = trial.result_of(once)
            except Exception as error:  # noqa: BLE001 - a plan that fails is none
                _logger.debug("plan %d of cuDNN's fails: %s", index, error)
                continue
            first = trial.first_right(results)
            if first is not None:
                break
        else:  # where it is not known what is right, there may be no other plan to compare with
            first = next(iter(trial.right(results)), None)
        if wrong := [k for k in results if first is None or k < first]:
            _logger.info("plans %s of cuDNN's have other results, or none", wrong)
        if first is None:
            raise RuntimeError("no plan is right")
        if first != index:  # the last one that was built is the graph's
            graph.build_plan_at_index(first)

    def _fastest(
        self, graph: Any, trial: Trial, handle: Any, loan: Loan, stream: Any
    ) -> tuple[int, float]:
        """Measure the first plans on memory of their own: the fastest that is right; its time."""
        times: dict[int, float] = {}
        results: dict[int, Array | None] = {}
        for index, once in _plans(graph, trial, handle, loan, stream):
            try:
                results[index] = trial.result_of(once)
                times[index] = milliseconds(once, stream, self._device)
            except Exception as error:  # noqa: BLE001 - a plan that fails is none
                _logger.debug("plan %d of cuDNN's fails: %s", index, error)
                results.pop(index, None)
        right = trial.right(results)
        if wrong := sorted(set(results).difference(right)):
            _logger.info("plans %s of cuDNN's have other results, or none", wrong)
        if not right:
            raise RuntimeError("no plan runs")
        best = min(right, key=times.__getitem__)
        return best, times[best]


def _plans(
    graph: Any, trial: Trial, handle: Any, loan: Loan, stream: Any
) -> Iterator[tuple[int, Callable[[], None]]]:
    """The first plans that can be built, each with what does its work once."""
    for index in range(min(graph.get_execution_plan_count(), _MOST_MEASURED)):
        try:
            graph.build_plan_at_index(index)
            workspace = loan.take(graph.get_workspace_size_plan_at_index(index), stream)
        except Exception as error:  # noqa: BLE001 - a plan that fails is none
            _logger.debug("plan %d of cuDNN's fails: %s", index, error)
            continue

        def once(index: int = index, workspace: int = workspace) -> None:
            graph.execute_plan_at_index(trial.places, workspace, index, handle=handle)

        yield index, once
