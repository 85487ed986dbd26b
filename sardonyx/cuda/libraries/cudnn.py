"""Convolutions and attentions by cuDNN's graph API, through nvidia-cudnn-frontend.

A plan is made for each shape: taken from the disk cache, or built in the background while the
generated kernel does the work. Where plans are measured, that takes seconds for a model: until all
shapes have had theirs, runs use the plans that cuDNN names first. Where cuDNN is not always faster
than the generated kernel, that one is measured, too, or left the work by a rule.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import partial

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.libraries.background import Background
from sardonyx.cuda.libraries.cudnn_plans import BuiltPlan, PlanMaker, forms
from sardonyx.cuda.libraries.libraries import CallPlace, LibrarySettings, LibraryWork
from sardonyx.cuda.libraries.rehearsal import Rehearsal
from sardonyx.plan.vendor_offers import Offer

#: Plans that are kept; the oldest goes first.
_MOST_PLANS = 1024
#: So many better plans are worth new graphs though others are still being measured.
_MANY_IMPROVED = 32


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

        self._cudnn, self._maker = cudnn, PlanMaker(cudnn, device, settings)
        self._forms = forms(settings)
        self.key = ("" if settings.tf32 else "exact") + settings.attention
        self._handle = cudnn.create_handle()
        self._lock = threading.Lock()
        self._plans: dict[object, BuiltPlan | None] = {}
        #: Plans that others took the place of: there may be graphs that have their kernels.
        self._replaced: deque[BuiltPlan] = deque(maxlen=_MOST_PLANS)
        self.pending = self.version = self.searching = 0
        #: Whether there are plans that were not there when the version changed.
        self._is_new = False
        #: How many plans were replaced since then.
        self._improved = 0
        # What the package has made must go before its module does.
        self._builder = Background("sardonyx-cudnn", self._forget)

    def _forget(self) -> None:
        self._plans.clear()
        self._replaced.clear()

    def refusal(self, offer: Offer) -> str:
        """See `Library.refusal`."""
        exact = self._maker.is_exact(str(dict(offer.facts)["dtype"]))
        return self._forms[offer.function].refusal(offer, exact)

    def run(self, work: LibraryWork, place: CallPlace) -> bool:
        """See `Library.run`."""
        key = (work.call, work.numbers)
        if key not in self._plans:
            self._want(key, work, place)
            return False
        built = self._plans.get(key)
        if built is None or built.graph is None:
            return False
        pack = self._forms[work.call.function].pack(work)
        if not pack:
            return False
        workspace = place.workspace(built.workspace_bytes) if built.workspace_bytes else 0
        with self._lock:
            self._cudnn.set_stream(handle=self._handle, stream=int(place.stream))
            built.graph.execute(pack, workspace, handle=self._handle)
        return True

    def _want(self, key: object, work: LibraryWork, place: CallPlace) -> None:
        """Have a plan made; None stands for it meanwhile."""
        form, rehearsal = self._forms[work.call.function], None
        competes = form.competes(work)
        if competes and self._maker.measures:
            rehearsal = place.rehearse()
        with self._lock:
            if key in self._plans:
                return
            while len(self._plans) >= _MOST_PLANS:
                # Its kernels go with it, so no graph may have them any more.
                del self._plans[next(iter(self._plans))]
                self.version += 1
            if competes and rehearsal is None and not form.is_worth(work):
                self._plans[key] = BuiltPlan()
                return
            self._plans[key] = None
            self.pending += 1
        if not self._builder.do(lambda: self._build(key, work, rehearsal)):
            with self._lock:
                self.pending -= 1

    def _build(self, key: object, work: LibraryWork, rehearsal: Rehearsal | None) -> None:
        """Have what runs can use now; the rest is done when nobody waits for that any more."""
        built, searches = BuiltPlan(), False
        try:
            built, searches = self._made(work, rehearsal)
        finally:  # the thread logs what was raised; the command's kernel does the work
            is_searched = self._put(key, built, searches=searches)
        search = partial(self._search, key, work, rehearsal, built)
        if is_searched and not self._builder.do(search, can_wait=True):
            with self._lock:
                self.searching -= 1

    def _put(self, key: object, built: BuiltPlan, *, searches: bool) -> bool:
        """Let runs use a plan; gives whether a better one is still wanted."""
        with self._lock:
            # A plan that was dropped and asked for again may be there already, and in use.
            is_wanted = key in self._plans and self._plans[key] is None
            if is_wanted:
                self._plans[key] = built
                self._is_new = self._is_new or built.graph is not None
            self.pending -= 1
            # Once for all of them: the graphs of other sizes are made anew, too.
            if self._is_new and not self.pending:
                self._is_new = False
                self.version += 1
            self.searching += searches and is_wanted
        return searches and is_wanted

    def _made(self, work: LibraryWork, rehearsal: Rehearsal | None) -> tuple[BuiltPlan, bool]:
        """What runs can use at once, and whether there may be something better."""
        maker = self._maker
        maker.enter()
        built = maker.kept(work, rehearsal)
        if built is not None:
            return built, False
        if rehearsal is not None and not self._forms[work.call.function].is_worth(work):
            return BuiltPlan(), True
        built = maker.first(work, rehearsal) or BuiltPlan()
        return built, maker.measures and built.graph is not None

    def _search(
        self, key: object, work: LibraryWork, rehearsal: Rehearsal | None, first: BuiltPlan
    ) -> None:
        """Replace a plan by one that is faster.

        The version changes when all are done, or many: for each, the graphs of all runs would be
        captured again.
        """
        best = None
        try:
            best = self._maker.fastest(work, rehearsal)
        finally:  # the thread logs what was raised; what there was stays
            with self._lock:
                # Another one is there if this one was dropped, and asked for again: it has a
                # search.
                is_there = self._plans.get(key) is first
                if best is not None and best.index != first.index and is_there:
                    self._replaced.append(first)
                    self._plans[key] = best
                    self._improved += 1
                self.searching -= 1
                if self._improved >= (_MANY_IMPROVED if self.searching else 1):
                    self._improved = 0
                    self.version += 1
