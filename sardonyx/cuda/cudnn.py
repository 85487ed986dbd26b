"""Convolutions by cuDNN's graph API, through nvidia-cudnn-frontend.

A plan is made for each shape: taken from the disk cache, or built in the background while the
generated kernel does the work. How one is chosen among several is onnxruntime's option
`cudnn_conv_algo_search`: EXHAUSTIVE measures them, HEURISTIC takes what cuDNN thinks is the best,
DEFAULT the first that its simpler rules name.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from sardonyx.base.log import get_logger
from sardonyx.cuda.background import Background
from sardonyx.cuda.device import Device
from sardonyx.cuda.libraries import SIZES, LibrarySettings, Place, Work
from sardonyx.cuda.measuring import Loan, milliseconds
from sardonyx.plan.library import Offer
from sardonyx.plan.library_convolution import convolution_numbers
from sardonyx.runtime.cache import default_cache, digest

_logger = get_logger("cuda")
_KIND = "cudnn"
#: Without `cudnn_conv_use_max_workspace`, as onnxruntime has it.
_SMALL_WORKSPACE = 32 << 20
#: Plans that are kept; the oldest goes first.
_MOST_PLANS = 1024
#: Plans that an exhaustive search measures.
_MOST_MEASURED = 12
_IMAGE, _FILTERS, _OUT, _BIAS, _RESIDUAL = range(1, 6)
_TYPES = {"float": "FLOAT", "double": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}
#: What a cache entry says where cuDNN has no plan.
_NOTHING = b"none"


class _Built:
    """A plan that is ready.

    Attributes:
        graph: cuDNN's; None if it has none for this shape.
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
        facts = dict(offer.facts)
        if facts["dtype"] not in _TYPES:
            return f"cuDNN has no convolutions of {facts['dtype']}"
        finished = facts["bias"] or facts["residual"] or facts["activation"]
        if finished and (facts["dtype"] == "double" or self._is_exact(str(facts["dtype"]))):
            return "cuDNN adds to results of tensor cores alone"
        return ""

    def _is_exact(self, dtype: str) -> bool:
        """Whether numbers may not be rounded for tensor cores."""
        return dtype == "float" and not self._tf32

    def run(self, work: Work, place: Place) -> bool:
        """See `Library.run`."""
        key = (work.call, work.numbers)
        if key not in self._plans:
            self._want(key, work)
            return False
        built = self._plans.get(key)
        if built is None or built.graph is None:
            return False
        workspace = place.workspace(built.workspace_bytes) if built.workspace_bytes else 0
        pack = {_IMAGE: work.left, _FILTERS: work.right, _OUT: work.out}
        if work.bias:
            pack[_BIAS] = work.bias
        if work.residual:
            pack[_RESIDUAL] = work.residual
        with self._lock:
            self._cudnn.set_stream(handle=self._handle, stream=int(place.stream))
            built.graph.execute(pack, workspace, handle=self._handle)
        return True

    # -- plans --------------------------------------------------------------------------------

    def _want(self, key: object, work: Work) -> None:
        """Have a plan made; None stands for it meanwhile."""
        with self._lock:
            if key in self._plans:
                return
            while len(self._plans) >= _MOST_PLANS:
                # Its kernels go with it, so no graph may have them any more.
                del self._plans[next(iter(self._plans))]
                self.version += 1
            self._plans[key] = None
            self.pending += 1
        self._builder.do(lambda: self._build(key, work))

    def _build(self, key: object, work: Work) -> None:
        self._device.enter()
        if self._tools is None:
            handle, stream = self._cudnn.create_handle(), self._device.lend_stream().handle
            self._cudnn.set_stream(handle=handle, stream=stream)
            self._tools = handle, stream
        try:
            built = self._cached(work, *self._tools)
        except Exception as error:  # noqa: BLE001 - the library raises what it likes
            _logger.info("cuDNN has no plan for %s: %s", dict(work.call.facts), error)
            built = _Built(None, 0)
        with self._lock:
            if key in self._plans:
                self._plans[key] = built
            self.version += built.graph is not None
            self.pending -= 1

    def _cached(self, work: Work, handle: Any, stream: Any) -> _Built:
        """A plan from the disk cache, or a new one that goes there."""
        cudnn, cache = self._cudnn, default_cache()
        name = digest(
            _KIND, cudnn.backend_version(), cudnn.__version__, self._device.name, self._search,
            self._limit, self._tf32, work.call.facts, work.numbers,
        )  # fmt: skip
        held = cache.read(name, _KIND)
        if held == _NOTHING:
            return _Built(None, 0)
        if held is not None:
            try:
                graph = cudnn.pygraph(handle=handle)
                graph.deserialize(handle, list(held))
                return _Built(graph, graph.get_workspace_size())
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is made again
                _logger.info("a plan of cuDNN's in the cache is not usable: %s", error)
        try:
            graph = self._graph(work, handle)
            self._choose(graph, work, handle, stream)
        except (ValueError, cudnn.cudnnGraphNotSupportedError):
            cache.put(name, _KIND, _NOTHING)
            raise
        try:
            cache.put(name, _KIND, bytes(graph.serialize()))
        except Exception as error:  # noqa: BLE001 - not all plans can be written
            _logger.debug("a plan of cuDNN's is not kept: %s", error)
        return _Built(graph, graph.get_workspace_size())

    def _graph(self, work: Work, handle: Any) -> Any:
        """The convolution with what is added to it, for cuDNN."""
        cudnn = self._cudnn
        spatial = int(str(work.call["spatial"]))
        n = dict(zip(convolution_numbers(spatial), work.numbers, strict=True))
        kind = getattr(cudnn.data_type, _TYPES[work.dtype])
        result = getattr(cudnn.data_type, _TYPES[work.result])
        compute = cudnn.data_type.DOUBLE if work.dtype == "double" else cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=kind, intermediate_data_type=compute, compute_data_type=compute,
            handle=handle,
        )  # fmt: skip

        def each(name: str) -> list[int]:
            return [n[f"{name}_{axis}"] for axis in range(spatial)]

        # cuDNN's images have two spatial axes at least.
        filler = [1] if spatial == 1 else []
        filters = [n["filters"], n["channels"], *filler, *each("filter")]
        image = graph.tensor(
            name="image", uid=_IMAGE, data_type=kind,
            dim=[n["n"], n["channels"], *filler, *each("size")],
            stride=_filled(n["image_n"], n["image_channel"], each("image_step"), each("size")),
        )  # fmt: skip
        weights = graph.tensor(
            name="filters", uid=_FILTERS, data_type=kind, dim=filters,
            stride=_channels_last(filters),
        )  # fmt: skip
        before = each("pad")
        after = [self._after(n, axis) for axis in range(spatial)]
        value = graph.conv_fprop(
            image=image, weight=weights, pre_padding=[*([0] * len(filler)), *before],
            post_padding=[*([0] * len(filler)), *after], stride=[*filler, *each("stride")],
            dilation=[*filler, *each("dilation")], compute_data_type=compute,
        )  # fmt: skip
        out = [n["n"], n["filters"], *filler, *each("out")]
        steps = _filled(n["out_n"], n["out_filter"], each("out_step"), each("out"))
        rank = len(out)
        if work.bias:
            shape = [1, n["filters"], *[1] * (rank - 2)]
            bias = graph.tensor(
                name="bias", uid=_BIAS, data_type=result, dim=shape, stride=_channels_last(shape)
            )
            value = graph.add(a=value, b=bias, compute_data_type=compute)
        if work.residual:
            residual = graph.tensor(
                name="residual", uid=_RESIDUAL, data_type=result, dim=out, stride=steps
            )
            value = graph.add(a=value, b=residual, compute_data_type=compute)
        if work.activation:
            value = graph.relu(input=value, compute_data_type=compute)
        value.set_output(True).set_uid(_OUT).set_data_type(result).set_dim(out).set_stride(steps)
        graph.validate()
        graph.build_operation_graph()
        return graph

    @staticmethod
    def _after(n: Mapping[str, int], axis: int) -> int:
        """Padding behind the image, so that there are as many windows as are wanted.

        Raises:
            ValueError: Windows end too far before the image does.
        """
        stride, pad = n[f"stride_{axis}"], n[f"pad_{axis}"]
        reach = n[f"dilation_{axis}"] * (n[f"filter_{axis}"] - 1) + 1
        needed = (n[f"out_{axis}"] - 1) * stride + reach - n[f"size_{axis}"] - pad
        for after in (pad, max(0, needed)):  # the same on both sides is the better known case
            if (n[f"size_{axis}"] + pad + after - reach) // stride + 1 == n[f"out_{axis}"]:
                return after
        raise ValueError("the image is longer than its windows reach")

    def _choose(self, graph: Any, work: Work, handle: Any, stream: Any) -> None:
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
        if self._search != "EXHAUSTIVE":
            graph.build_plans()
            return
        with Loan(self._device.capturing) as loan:
            best = self._fastest(graph, work, handle, stream, loan)
        graph.build_plan_at_index(best)

    def _fastest(self, graph: Any, work: Work, handle: Any, stream: Any, loan: Loan) -> int:
        """Measure the first plans on memory of their own."""
        spatial = int(str(work.call["spatial"]))
        size = max(SIZES[work.dtype], SIZES[work.result])
        n = dict(zip(convolution_numbers(spatial), work.numbers, strict=True))
        out = _extent(n, spatial, "out", "out")
        filters = n["filters"] * n["channels"]
        for axis in range(spatial):
            filters *= n[f"filter_{axis}"]
        sizes = {_IMAGE: _extent(n, spatial, "image", "size"), _FILTERS: filters, _OUT: out}
        if work.bias:
            sizes[_BIAS] = n["filters"]
        if work.residual:
            sizes[_RESIDUAL] = out
        pack = {name: loan.take(count * size, stream) for name, count in sizes.items()}
        times: dict[int, float] = {}
        for index in range(min(graph.get_execution_plan_count(), _MOST_MEASURED)):
            try:
                graph.build_plan_at_index(index)
                workspace = loan.take(graph.get_workspace_size_plan_at_index(index), stream)

                def once(index: int = index, workspace: int = workspace) -> None:
                    graph.execute_plan_at_index(pack, workspace, index, handle=handle)

                times[index] = milliseconds(once, stream, self._device)
            except Exception as error:  # noqa: BLE001 - a plan that fails is none
                _logger.debug("plan %d of cuDNN's fails: %s", index, error)
        if not times:
            raise RuntimeError("no plan runs")
        return min(times, key=times.__getitem__)


def _extent(n: Mapping[str, int], spatial: int, what: str, sizes: str) -> int:
    """Elements from the first to the last of an image."""
    channel = "image_channel" if what == "image" else "out_filter"
    channels = n["channels"] if what == "image" else n["filters"]
    last = (n["n"] - 1) * n[f"{what}_n"] + (channels - 1) * n[channel]
    for axis in range(spatial):
        last += (n[f"{sizes}_{axis}"] - 1) * n[f"{what}_step_{axis}"]
    return last + 1


def _filled(first: int, channel: int, steps: list[int], sizes: list[int]) -> list[int]:
    """Strides, with one for the axis of size 1 that an image of one spatial axis gets."""
    filler = [steps[0] * sizes[0]] if len(steps) == 1 else []
    return [first, channel, *filler, *steps]


def _channels_last(dims: list[int]) -> list[int]:
    strides = [0] * len(dims)
    step = 1
    for axis in (1, *range(len(dims) - 1, 1, -1), 0):
        strides[axis] = step
        step *= dims[axis]
    return strides
