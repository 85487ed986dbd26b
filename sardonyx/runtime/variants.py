"""Other plans of a model, for feeds that its own plan does not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sardonyx.base import decisions, errors
from sardonyx.base.errors import (
    ContradictingSizes,
    InvalidArgument,
    InvalidGraph,
    SardonyxError,
    UndecidedBranch,
    UnexpectedOne,
    message,
)
from sardonyx.base.forks import RenewedLock
from sardonyx.base.log import get_logger, scope

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine
    from sardonyx.runtime.fed_ranks import FedShape
    from sardonyx.runtime.recording import Sink

_logger = get_logger("session")

#: Plans for ranks and sizes of feeds that an engine keeps; the oldest go first.
_MOST_KEPT = 16


class Variants:
    """Other plans of a model, each compiled when a run first needs it.

    Args:
        make: Compiles one, given options that differ; None when that is not possible any more.
        may_be_general: Whether there may be feeds that only a general plan takes.
        log: The least level that is logged, and the session's name in the log.
    """

    def __init__(
        self,
        make: Callable[..., Engine | None],
        may_be_general: bool,
        log: tuple[int, str] = (0, ""),
    ) -> None:
        self._maker, self._may_be_general, self._log = make, may_be_general, log
        self._sink: Sink | None = None
        self._made: dict[str, Engine | None] = {}
        self._by_feeds: dict[str, Engine | SardonyxError] = {}
        self._lock = RenewedLock()

    def _make(self, **changes: Any) -> Engine | None:
        made = self._maker(**changes)
        if made is not None and self._sink is not None:
            made.record_runs(self._sink)
        return made

    def _make_or_none(self, what: str, **changes: Any) -> Engine | None:
        try:
            return self._make(**changes)
        except SardonyxError as reason:
            _logger.warning("There is no %s: %s", what, reason)
            return None

    def record_runs(self, sink: Sink | None) -> None:
        """See `Engine.record_runs`; further plans are recorded from the start."""
        with self._lock:
            self._sink = sink
            for engine in list(self.made.values()):
                engine.record_runs(sink)

    @property
    def made(self) -> dict[str, Engine]:
        """What was compiled, by what it is for."""
        every = [*self._made.items(), *self._by_feeds.items()]
        return {p: e for p, e in every if e is not None and not isinstance(e, SardonyxError)}

    def general(self, error: ContradictingSizes) -> Engine | None:
        """The plan for feeds that contradict dimension names."""
        if not self._may_be_general:
            return None
        purpose = "contradicting sizes"
        with self._lock, scope(*self._log):
            if purpose not in self._made:
                _logger.warning("%s A more general plan is compiled for such feeds.", error)
                self._made[purpose] = self._make_or_none("more general plan", general=True)
            return self._made[purpose]

    def in_growable_buffers(self) -> Engine | None:
        """The plan that writes outputs behind the inputs that they continue."""
        purpose = "outputs that continue inputs"
        if purpose not in self._made:
            with self._lock, scope(*self._log):
                if purpose not in self._made:
                    _logger.info("A plan is compiled for %s.", purpose)
                    self._made[purpose] = self._make_or_none(
                        f"plan for {purpose}", in_growable_buffers=True
                    )
        return self._made[purpose]

    def with_inputs(self, names: tuple[str, ...]) -> Engine | None:
        """The plan in which these overridable initializers are inputs."""
        purpose = f"feeds of {', '.join(names)}"
        with self._lock, scope(*self._log):
            if purpose not in self._made:
                _logger.info("A plan is compiled for %s.", purpose)
                self._made[purpose] = self._make(fed=names)
            return self._made[purpose]

    def of_ranks(
        self,
        ranks: dict[str, int],
        error: ContradictingSizes | None = None,
        shapes: Mapping[str, FedShape] | None = None,
    ) -> Engine | None:
        """The plan for inputs of these ranks; `error` says that others are declared.

        Other tensors that decide how many axes there are have these `shapes`.

        Raises:
            InvalidArgument: The model cannot take them.
            NotImplemented: With these ranks it needs something that is not supported.
        """
        given = [f"{name} of rank {rank}" for name, rank in ranks.items()]
        for name, (_, dims) in (shapes or {}).items():
            what = f"length {dims[0]}" if len(dims) == 1 else f"shape {list(dims)}"
            is_decision = decisions.is_decision(name)
            given.append(decisions.in_words(name, dims[0]) if is_decision else f"{name} of {what}")
        purpose = ", ".join(given)
        return self._for_feeds(purpose, error, ranks=ranks, shapes=dict(shapes or {}))

    def of_outputs(self, names: tuple[str, ...]) -> Engine | None:
        """The plan that computes these outputs alone; None if there is none."""
        try:
            return self._for_feeds(f"{', '.join(names)} alone", None, fetched=names)
        except SardonyxError as reason:
            _logger.info("All outputs are computed: %s", reason)
            return None

    def of_inner(self, names: tuple[str, ...]) -> Engine | None:
        """The plan that gives values of these names, outputs or inner ones.

        Raises:
            InvalidArgument: The model has no such value.
        """
        return self._for_feeds(f"the values {', '.join(names)}", None, fetched=names)

    def with_one(self, error: UnexpectedOne) -> Engine | None:
        """The plan for feeds that make a size 1, so that Squeeze drops an axis.

        Raises:
            InvalidArgument: The model cannot take them.
            NotImplemented: With such sizes it needs something that is not supported.
        """
        purpose = f"feeds for which {error.condition} is 0"
        return self._for_feeds(purpose, error, ones=frozenset((error.condition,)))

    def with_decisions(self, error: UndecidedBranch) -> Engine | None:
        """The plan for feeds that take a branch in which data decides how many axes there are.

        Raises:
            InvalidArgument: The model cannot take them.
            NotImplemented: With such sizes it needs something that is not supported.
        """
        return self._for_feeds("branches that are decided first", error, decided=True)

    def _for_feeds(
        self, purpose: str, error: ContradictingSizes | None, **changes: Any
    ) -> Engine | None:
        # Looked up without the lock: runs go on while a plan for other feeds is compiled.
        found = self._by_feeds.get(purpose)
        if found is None:
            with self._lock, scope(*self._log):
                found = self._by_feeds.get(purpose) or self._made_for(purpose, error, changes)
        if isinstance(found, SardonyxError):
            raise type(found)(*found.args)
        return found

    def _made_for(
        self, purpose: str, error: ContradictingSizes | None, changes: dict[str, Any]
    ) -> Engine | SardonyxError | None:
        if error is None:
            _logger.info("A plan is compiled for %s.", purpose)
        else:
            _logger.warning("%s Another plan is compiled, for %s.", error, purpose)
        found: Engine | SardonyxError | None
        try:
            found = self._make(**changes)
        except InvalidGraph as reason:
            found = InvalidArgument(message("run", f"The model cannot take {purpose}: {reason}"))
        except errors.NotImplemented as reason:
            found = errors.NotImplemented(
                message("run", f"There is no plan for {purpose}: {reason}")
            )
        while len(self._by_feeds) >= _MOST_KEPT:
            del self._by_feeds[next(iter(self._by_feeds))]
        if found is not None:
            self._by_feeds[purpose] = found
        return found
