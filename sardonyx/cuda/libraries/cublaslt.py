"""Matrix products by cuBLASLt, through nvmath-python's bindings.

cuBLASLt's matrices have their columns one behind the other, so `out = left * right` is asked for as
`out^T = right^T * left^T`. An algorithm is chosen once for each shape: the one that cuBLASLt thinks
is the fastest, until those that it thinks are nearly as fast have been measured, in the background.
It is tried before it is used, except where a caller captures a shape that was never run. Runs wait
for some trials; the others are made in the background, and kernels do the work meanwhile.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from sardonyx.base.errors import SardonyxError
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.cuda.driver.capturing import is_captured
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.libraries.background import Background
from sardonyx.cuda.libraries.cublaslt_products import (
    TYPES,
    WORKSPACE_BYTES,
    Product,
    Products,
    alignment_of,
)
from sardonyx.cuda.libraries.libraries import CallPlace, LibrarySettings, LibraryWork
from sardonyx.cuda.libraries.measuring import CALLS, Loan, milliseconds
from sardonyx.cuda.libraries.product_trials import trial_of
from sardonyx.plan.vendor_offers import Offer
from sardonyx.runtime.storage import Array
from sardonyx.store.cache import default_cache, digest

_logger = get_logger("cuda")
_KIND = "cublaslt"
#: Algorithms in the cache have been tried.
_TRIED = "tried against numbers"

_MOST_SHAPES = 4096
#: Algorithms that are measured for a shape, how long each may take, and what another must gain.
_MOST_MEASURED = 10
_MEASURED_MS = 0.5
_WORTH = 0.97
#: Runs wait for trials until these have taken so long together. The time is granted anew when
#: there was none for so long.
_TRIED_SECONDS, _ROW_SECONDS = 0.005, 0.1
#: The same where kernels have to be compiled first: about what one module takes.
_COMPILED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _Case:
    """A product that is new here.

    Attributes:
        product: What runs will call.
        work: The call that asked for it first.
        alignments: Of left, right, result and residual, in bytes.
        name: Of its algorithm in the cache.
    """

    product: Product
    work: LibraryWork
    alignments: tuple[int, ...]
    name: str


class CublasLt:
    """See `libraries.Library`.

    Args:
        device: Where.
        settings: Whether products of float may be rounded to TF32.

    Raises:
        ImportError: The package is missing.
    """

    key = ""

    def __init__(self, device: Device, settings: LibrarySettings) -> None:
        from nvmath.bindings import cublasLt

        self._lt = cublasLt
        with device.entered():
            self._calls = Products(cublasLt, tf32=settings.tf32)
        self._tf32, self._searches, self._device = settings.tf32, settings.product_search, device
        self.version = self.searching = 0
        #: How long runs waited for trials in a row, and when the last one ended.
        self._waited, self._tried = 0.0, 0.0
        #: Whether anything was improved since the version changed.
        self._improved = False
        self._lock = threading.Lock()
        self._stream: Any = None
        self._searcher = Background("sardonyx-cublaslt", lambda: None)
        #: None: cuBLASLt does not do it, or not yet.
        self._products: dict[object, list[Product] | None] = {}
        #: Keys of those that are prepared in the background.
        self._preparing: set[object] = set()

    @property
    def pending(self) -> int:
        """See `Library.pending`."""
        return len(self._preparing)

    def refusal(self, offer: Offer) -> str:
        """See `Library.refusal`."""
        facts = dict(offer.facts)
        if facts["dtype"] not in TYPES:
            return f"cuBLASLt has no products of {facts['dtype']}"
        if facts["activation"] == "gelu" and facts["dtype"] not in ("float16", "bfloat16"):
            return "cuBLASLt has Gelu behind products of half floats alone"
        return ""

    def run(self, work: LibraryWork, place: CallPlace) -> bool:
        """See `Library.run`."""
        alignments = tuple(map(alignment_of, (work.left, work.right, work.out, work.residual)))
        key = (work.call, work.numbers, alignments)
        try:
            products = self._products[key]
        except KeyError:
            products = self._planned(key, work, alignments, place)
        if products is None:
            return False
        workspace = place.workspace(WORKSPACE_BYTES)
        for product in products:
            self._calls.call(product, work, workspace, int(place.stream))
        return True

    def _is_captured(self, place: CallPlace) -> bool:
        return is_captured(self._device.stream_of(int(place.stream)))

    # -- shapes -------------------------------------------------------------------------------

    def _planned(
        self, key: object, work: LibraryWork, alignments: tuple[int, ...], place: CallPlace
    ) -> list[Product] | None:
        """The calls of a command at sizes that are new; None if there are none, or none yet."""
        products = self._calls.plan(work, alignments)
        if products is not None and len(products) == 1:
            case = _Case(products[0], work, alignments, self._name_of(work, alignments))
            if self._is_known(case):
                pass
            elif self._is_captured(place):
                # For this graph alone: nothing can be tried, or waited for, in a capture.
                self._prepare_later(key, case)
                return self._calls.plan(work, alignments)
            elif self._may_wait(place):
                began = time.monotonic()
                if not self._prepare(case):
                    products = None
                self._tried = time.monotonic()
                self._waited += self._tried - began
            else:
                return self._prepare_later(key, case)
        with self._lock:
            self._put(key, products)
        return products

    def _put(self, key: object, products: list[Product] | None) -> None:
        """Keep products; the oldest make room. The lock is held."""
        while len(self._products) >= _MOST_SHAPES:
            del self._products[next(iter(self._products))]
        self._products[key] = products

    def _may_wait(self, place: CallPlace) -> bool:
        """Whether a run may wait for one more trial."""
        if time.monotonic() - self._tried > _ROW_SECONDS:
            self._waited = 0.0
        if self._waited < _TRIED_SECONDS:
            return True
        # Compiling the kernel that would do the work meanwhile takes longer than some trials.
        return self._waited < _COMPILED_SECONDS and not place.is_ready()

    # -- measuring ----------------------------------------------------------------------------

    def _name_of(self, work: LibraryWork, alignments: tuple[int, ...]) -> str:
        return digest(
            _KIND, _TRIED, self._lt.get_version(), self._device.name, self._tf32, self._searches,
            work.call.facts, work.numbers, alignments,
        )  # fmt: skip

    def _is_known(self, case: _Case) -> bool:
        """Let a product have the algorithm that was found for it before, if one was."""
        held = default_cache().read(case.name, _KIND)
        if held is None or len(held) != self._lt.matmul_heuristic_result_dtype.itemsize:
            return False
        case.product.use(np.frombuffer(held, self._lt.matmul_heuristic_result_dtype).copy())
        return True

    def _prepare(self, case: _Case) -> bool:
        """Let a product have an algorithm that was tried; False if none is right.

        A faster one may be found in the background.
        """
        wrong: list[Any] = []
        try:
            algorithm = self._first_right(case, wrong)
        except Exception as error:  # noqa: BLE001 - a capture would use what stays unknown, untried
            _logger.info("an algorithm of cuBLASLt's is not tried: %s", error)
            if wrong:  # the product has one of these
                return False
        else:
            if algorithm is None:
                return False
            case.product.use(algorithm)
            if not self._searches:
                default_cache().put(case.name, _KIND, algorithm.tobytes())
        self._improve_later(case)
        return True

    def _prepare_later(self, key: object, case: _Case) -> list[Product] | None:
        """Have a product prepared in the background; gives what another thread has found."""
        with self._lock:
            if key in self._products:
                return self._products[key]
            self._put(key, None)
            if key in self._preparing:  # dropped and asked for again
                return None
            self._preparing.add(key)

        def prepare() -> None:
            is_right = False
            try:
                self._device.enter()
                is_right = self._prepare(case)
            finally:  # the thread logs what was raised; the command's kernel does the work
                self._prepared(key, case.product if is_right else None)

        if not self._searcher.do(prepare):
            with self._lock:
                self._preparing.discard(key)
        return None

    def _prepared(self, key: object, product: Product | None) -> None:
        """Let runs use a product; None if none is right."""
        with self._lock:
            self._preparing.discard(key)
            if product is not None and key in self._products:
                self._products[key] = [product]
            # Once for all of them: the graphs of other sizes are made anew, too. Also where nothing
            # is right: a graph may have been captured with what was not tried.
            if not self._preparing:
                self.version += 1

    def _improve_later(self, case: _Case) -> None:
        if not self._searches:
            return
        with self._lock:
            self.searching += 1
        if not self._searcher.do(lambda: self._improve(case), can_wait=True):
            with self._lock:
                self.searching -= 1

    def _first_right(self, case: _Case, wrong: list[Any]) -> Any | None:
        """The first algorithm that does the work, on memory of its own; None if none does.

        Args:
            case: The product, which has the last of them that was tried.
            wrong: Gets those that do not.
        """
        product, calls = case.product, self._calls
        lent = self._device.lend_stream()
        stream = lent.handle
        try:
            with Loan(self._device.capturing) as loan:
                workspace = loan.take(WORKSPACE_BYTES, stream)
                trial, each = trial_of(case.work, self._device, loan, stream, is_measured=False)
                for count in (1, _MOST_MEASURED):
                    for algorithm in calls.algorithms(product, case.alignments, count)[count > 1 :]:
                        product.use(algorithm)
                        result = trial.result_of(
                            lambda: calls.call(product, next(each), workspace, stream)
                        )
                        if trial.right({0: result}):
                            return algorithm
                        wrong.append(algorithm)
                        _logger.info("an algorithm of cuBLASLt's has another result, or none")
        finally:
            self._device.take_back(lent)
        return None

    def _improve(self, case: _Case) -> None:
        product, is_better = case.product, False
        try:
            self._device.enter()
            if self._stream is None:
                self._stream = self._device.lend_stream()
            found = self._calls.algorithms(product, case.alignments, _MOST_MEASURED)
            best = self._fastest(found, case) if len(found) > 1 else 0
            if found and best is not None:
                default_cache().put(case.name, _KIND, found[best].tobytes())
            is_better = bool(best)
            if best:
                with product.lock:
                    product.use(found[best])
        except (SardonyxError, self._lt.cuBLASLtError) as error:  # without memory for that, say
            _logger.info("algorithms of cuBLASLt are not measured: %s", error)
        finally:
            with self._lock:
                self.searching -= 1
                self._improved = is_better or self._improved
                if self._improved and not self.searching:
                    self._improved = False
                    self.version += 1

    def _fastest(self, found: list[Any], case: _Case) -> int | None:
        """Which algorithm is the fastest that is right, measured on memory of its own, if any."""
        stream = self._stream.handle
        planned = self._calls.plan(case.work, case.alignments)
        if not planned:
            return 0
        (product,) = planned
        with Loan(self._device.capturing) as loan:
            workspace = loan.take(WORKSPACE_BYTES, stream)
            trial, each = trial_of(case.work, self._device, loan, stream, is_measured=True)

            def once() -> None:
                self._calls.call(product, next(each), workspace, stream)

            times: dict[int, float] = {}
            results: dict[int, Array | None] = {}
            calls = CALLS
            for number, algorithm in enumerate(found):
                product.use(algorithm)
                try:
                    result = trial.result_of(once)
                    times[number] = milliseconds(once, stream, self._device, calls)
                except Exception as error:  # noqa: BLE001 - an algorithm that fails is none
                    _logger.debug("algorithm %d of cuBLASLt's fails: %s", number, error)
                    continue
                results[number] = result
                calls = max(2, min(CALLS, round(_MEASURED_MS / max(times[number], 1e-3))))
        right = trial.right(results)
        if wrong := sorted(set(results).difference(right)):
            _logger.info("algorithms %s of cuBLASLt's have other results, or none", wrong)
        if not right:
            return None
        best = min(right, key=times.__getitem__)
        first = times[0] if 0 in right else float("inf")
        return best if times.get(best, 0) < _WORTH * first else 0
