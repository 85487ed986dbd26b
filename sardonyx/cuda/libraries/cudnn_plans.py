"""How cuDNN's plans are made: asked for, tried, measured, and kept in the disk cache.

The option `cudnn_conv_algo_search` says how one is chosen among several: EXHAUSTIVE measures them,
HEURISTIC takes what cuDNN thinks is the best, DEFAULT the first that its simpler rules name. No
plan is used that has not been tried, see `proving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from sardonyx.base.log import get_logger
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.libraries.cudnn_attention import AttentionForm
from sardonyx.cuda.libraries.cudnn_convolution import ConvolutionForm
from sardonyx.cuda.libraries.expected import Reference
from sardonyx.cuda.libraries.libraries import LibrarySettings, LibraryWork
from sardonyx.cuda.libraries.measuring import Loan, milliseconds
from sardonyx.cuda.libraries.proving import Trial
from sardonyx.cuda.libraries.rehearsal import Rehearsal
from sardonyx.plan.vendor_offers import Offer
from sardonyx.runtime.storage import Array
from sardonyx.store.cache import default_cache, digest, engine_digest

_logger = get_logger("cuda")
_KIND = "cudnn"
#: Plans in the cache have been tried, and no axis has the stride 0.
_MADE = "tried against numbers, with strides"
_MEASURED = "EXHAUSTIVE"
#: Without `cudnn_conv_use_max_workspace`, as onnxruntime has it.
_SMALL_WORKSPACE = 32 << 20
#: Our kernels begin while those in front of them end, cuDNN's afterwards; where the same one is
#: called again and again, as in a measurement, that shows but in part.
_GAP_MS = 0.0015
#: Plans that an exhaustive search measures.
_MOST_MEASURED = 12
#: What a cache entry says where cuDNN has no plan, or a slower one than the kernel.
_NOTHING, _SLOWER = b"none", b"slower"


class PlanForm(Protocol):
    """One function of cuDNN's: what it takes, and its graphs."""

    def refusal(self, offer: Offer, exact: bool) -> str:
        """Why an offer is not taken; "" if it is.

        Args:
            offer: The offer.
            exact: Whether its numbers may not be rounded for tensor cores.
        """

    def competes(self, work: LibraryWork) -> bool:
        """Whether the generated kernel may be faster."""

    def is_worth(self, work: LibraryWork) -> bool:
        """Whether cuDNN is probably faster, where nothing is measured."""

    def pack(self, work: LibraryWork) -> dict[int, int]:
        """Addresses of the tensors of a graph; none if cuDNN cannot have these."""

    def operands(self, work: LibraryWork) -> dict[int, tuple[int, str]]:
        """How many elements the tensors of a graph have from first to last, and their types."""

    def result(self, work: LibraryWork) -> tuple[int, list[int], list[int]]:
        """Which of them is the result, its sizes and its strides."""

    def reference(self, work: LibraryWork) -> Reference | None:
        """What the result is, where the host can work it out."""

    def graph(self, cudnn: Any, handle: Any, work: LibraryWork) -> Any:
        """The graph, neither validated nor built.

        Raises:
            ValueError: There is none for these sizes.
        """


def forms(settings: LibrarySettings) -> dict[str, PlanForm]:
    """The functions, as a session wants them."""
    always = settings.attention == "cudnn"
    return {"convolution": ConvolutionForm(), "attention": AttentionForm(always)}


class _Slower(Exception):
    """The generated kernel is faster than every plan."""


class BuiltPlan:
    """A plan that is ready, or that there is none.

    Attributes:
        graph: cuDNN's; None if it has none for this shape, or a slower one than the kernel.
        workspace_bytes: What it needs.
        index: Its number among the graph's plans; -1 for none, and where that is not known.
    """

    def __init__(self, graph: Any = None, workspace_bytes: int = 0, index: int = -1) -> None:
        self.graph, self.workspace_bytes, self.index = graph, workspace_bytes, index


#: How a graph's plan is chosen: it is given the graph and an operand of each kind, gives a number.
_Choice = Callable[[Any, Trial, Loan], int]


class PlanMaker:
    """Makes plans, in one thread.

    Args:
        cudnn: The package.
        device: Where.
        settings: How plans are chosen, and what they may do.

    Attributes:
        measures: Whether plans are measured.
    """

    def __init__(self, cudnn: Any, device: Device, settings: LibrarySettings) -> None:
        self._cudnn, self._device = cudnn, device
        self._search = settings.convolution_search
        self.measures = self._search == _MEASURED
        self._limit = None if settings.any_workspace else _SMALL_WORKSPACE
        self._tf32 = settings.tf32
        self._forms = forms(settings)
        #: The thread's handle, and its stream.
        self._handle: Any = None
        self._stream: Any = None
        #: Number of the plan that was built last, which is the graph's.
        self._last = -1

    def enter(self) -> None:
        """To be called by the thread, before anything else is."""
        self._device.enter()
        if self._handle is None:
            handle, self._stream = self._cudnn.create_handle(), self._device.lend_stream().handle
            self._cudnn.set_stream(handle=handle, stream=self._stream)
            self._handle = handle

    def is_exact(self, dtype: str) -> bool:
        """Whether numbers may not be rounded for tensor cores."""
        return dtype == "float" and not self._tf32

    def kept(self, work: LibraryWork, rehearsal: Rehearsal | None) -> BuiltPlan | None:
        """What the disk cache says of such work; None if that is nothing."""
        held = default_cache().read(self._name(work, rehearsal), _KIND)
        if held in (_NOTHING, _SLOWER):
            return BuiltPlan()
        if held is None:
            return None
        try:
            graph = self._cudnn.pygraph(handle=self._handle)
            graph.deserialize(self._handle, list(held))
            return BuiltPlan(graph, graph.get_workspace_size())
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is made again
            _logger.info("a plan of cuDNN's in the cache is not usable: %s", error)
            return None

    def first(self, work: LibraryWork, rehearsal: Rehearsal | None) -> BuiltPlan | None:
        """The first plan that does the work, kept unless all are measured; None if that failed."""
        return self._made(work, rehearsal, self._first, is_kept=not self.measures)

    def fastest(self, work: LibraryWork, rehearsal: Rehearsal | None) -> BuiltPlan | None:
        """The plan that is measured to be the fastest, which is kept; None if that failed.

        Args:
            work: What it is to do.
            rehearsal: The kernel that does the same, where that may be faster.
        """

        def choose(graph: Any, trial: Trial, loan: Loan) -> int:
            best, least = self._fastest(graph, trial, loan)
            if rehearsal is not None:
                kernel = rehearsal.prepare(loan, self._stream)
                own = milliseconds(kernel.launch, self._stream, self._device)
                if own <= least + _GAP_MS:
                    raise _Slower(f"{least:.4f} ms, the kernel {own:.4f} ms")
            return best

        return self._made(work, rehearsal, choose, is_kept=True)

    def _name(self, work: LibraryWork, rehearsal: Rehearsal | None) -> str:
        """Of a cache entry."""
        own = "" if rehearsal is None else engine_digest()
        return digest(
            _KIND, _MADE, self._cudnn.backend_version(), self._cudnn.__version__,
            self._device.name, self._search, self._limit, self._tf32, work.call.function,
            work.call.facts, work.numbers, own,
        )  # fmt: skip

    def _made(
        self, work: LibraryWork, rehearsal: Rehearsal | None, choose: _Choice, *, is_kept: bool
    ) -> BuiltPlan | None:
        """A plan of a new graph, or that there is none; None if making one failed."""
        cudnn, cache, name = self._cudnn, default_cache(), self._name(work, rehearsal)
        try:
            graph = self._forms[work.call.function].graph(cudnn, self._handle, work)
            graph.validate()
            graph.build_operation_graph()
            index = self._chosen(graph, work, choose)
            built = BuiltPlan(graph, graph.get_workspace_size(), index)
        except _Slower as reason:
            _logger.debug("cuDNN is slower at %s %s: %s", work.call, work.numbers, reason)
            cache.put(name, _KIND, _SLOWER)
            return BuiltPlan()
        except Exception as error:  # noqa: BLE001 - the library raises what it likes
            _logger.info("cuDNN has no plan for %s: %s", dict(work.call.facts), error)
            if not isinstance(error, (ValueError, cudnn.cudnnGraphNotSupportedError)):
                return None
            cache.put(name, _KIND, _NOTHING)
            return BuiltPlan()
        if is_kept:
            try:
                cache.put(name, _KIND, bytes(graph.serialize()))
            except Exception as error:  # noqa: BLE001 - not all plans can be written
                _logger.debug("a plan of cuDNN's is not kept: %s", error)
        return built

    def _chosen(self, graph: Any, work: LibraryWork, choose: _Choice) -> int:
        """Let the graph have one built plan: its number."""
        cudnn = self._cudnn
        modes = cudnn.heur_mode
        rules = modes.B if self._search == "DEFAULT" else modes.A
        if self.is_exact(work.dtype):
            notes = cudnn.numerical_note
            graph.deselect_numeric_notes([notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS])
        graph.create_execution_plans([rules, modes.FALLBACK])
        if self._limit is not None:
            graph.deselect_workspace_greater_than(self._limit)
        graph.check_support()
        with Loan(self._device.capturing) as loan:
            form = self._forms[work.call.function]
            trial = Trial(
                self._device, loan, self._stream, form.operands(work), *form.result(work),
                form.reference(work),
            )  # fmt: skip
            index = choose(graph, trial, loan)
        if index != self._last:
            graph.build_plan_at_index(index)
        return index

    def _first(self, graph: Any, trial: Trial, loan: Loan) -> int:
        """The first plan that does the work.

        Raises:
            RuntimeError: None does.
        """
        results: dict[int, Array | None] = {}
        for index, once in self._plans(graph, trial, loan):
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
        return first

    def _fastest(self, graph: Any, trial: Trial, loan: Loan) -> tuple[int, float]:
        """The fastest plan that is right, measured on memory of its own; its time.

        Raises:
            RuntimeError: None is right.
        """
        times: dict[int, float] = {}
        results: dict[int, Array | None] = {}
        for index, once in self._plans(graph, trial, loan):
            try:
                results[index] = trial.result_of(once)
                times[index] = milliseconds(once, self._stream, self._device)
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
        self, graph: Any, trial: Trial, loan: Loan
    ) -> Iterator[tuple[int, Callable[[], None]]]:
        """The first plans that can be built, each with what does its work once."""
        for index in range(min(graph.get_execution_plan_count(), _MOST_MEASURED)):
            try:
                graph.build_plan_at_index(index)
                self._last = index
                workspace = loan.take(graph.get_workspace_size_plan_at_index(index), self._stream)
            except Exception as error:  # noqa: BLE001 - a plan that fails is none
                _logger.debug("plan %d of cuDNN's fails: %s", index, error)
                continue

            def once(index: int = index, workspace: int = workspace) -> None:
                graph.execute_plan_at_index(trial.places, workspace, index, handle=self._handle)

            yield index, once
