"""What a session asks of the engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.records import dataclass
from sardonyx.plugins.registered import Plugins
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.fed_ranks import FedShape
from sardonyx.runtime.provider import Provider
from sardonyx.runtime.thread_setup import ThreadSetup
from sardonyx.store.cache import digest

if TYPE_CHECKING:
    from sardonyx.selection.variants import Choices
    from sardonyx.store.tuning_choices import Tuned


_By = Callable[[Any], object]


def _same(value: Any) -> object:
    return value


def _items(value: dict[str, Any]) -> object:
    return sorted(value.items())


def _contents(value: dict[str, np.ndarray[Any, Any]]) -> object:
    return [
        (name, array.shape, str(array.dtype), digest(np.ascontiguousarray(array).tobytes()))
        for name, array in sorted(value.items())
    ]


def _digests(value: dict[str, bytes]) -> object:
    return [(name, digest(data)) for name, data in sorted(value.items())]


def _is_given(value: Any) -> object:
    return value is not None


def _flushes(setup: ThreadSetup | None) -> object:
    return setup is not None and setup.flushes_denormals


def keyed(default: Any = None, *, by: _By = _same, factory: Callable[[], Any] | None = None) -> Any:
    """A field that decides on compiled code; `by` gives what of its value is in the key."""
    if factory is not None:
        return field(default_factory=factory, metadata={"key": by})
    return field(default=default, metadata={"key": by})


def keyless(default: Any = None, *, factory: Callable[[], Any] | None = None) -> Any:
    """A field that decides on how a model is made, or runs, or whose part the caller adds."""
    if factory is not None:
        return field(default_factory=factory, metadata={"key": None})
    return field(default=default, metadata={"key": None})


@dataclass(slots=True)
class EngineOptions:
    """What a session asks of the engine.

    Attributes:
        threads: Threads of a run, the caller included; 0 for as many as there are processors.
        branches: How many independent branches of the graph may run at once, 0 for as many as there
            are threads; None for one after the other.
        share: A thread takes the `share`-th part of what is left of its portion of the blocks; 0
            for the default.
        setup: Where threads come from; None for those that sessions share.
        optimization_level: 0 leaves the graph as it is, and fuses nothing.
        without: Passes, and optional steps of planning, that are left out.
        free_dimension_overrides: Sizes for dimensions, by name.
        denoted_sizes: The same, by what they stand for.
        use_cache: Whether the disk cache may be read and written.
        folder: Where files with weights lie, instead of beside the model.
        initializers: Contents in place of the model's own, by name.
        data_files: Contents of files with weights, by their names in the model.
        fed: Overridable initializers that are inputs; the others are constants.
        fetched: Names of the outputs that are computed; () for all.
        cancel: Ends the making of the engine when it is set.
        load_seconds: The same after so long; None for no limit.
        memory_limit_bytes: The most memory that the session may hold; None for the machine's.
        budget: Counts memory already; set for further plans of one session.
        least_level: The least level that is logged, as in `logging`.
        logid: What records of the log have as `logid`.
        provider: What runs it; None for the processor.
        general: Rely on no dimension's name, and leave broadcasts to the run: a slower plan for
            feeds that the first one refuses.
        ranks: Those of inputs whose rank the model does not declare.
        shapes: Types and shapes of tensors that decide how many axes there are, likewise. Those
            inside the model are inputs then.
        decided: Whether it is known which branches are taken before there is a plan for them, where
            data decides inside how many axes there are.
        ones: Conditions whose sizes are taken as 1, where Squeeze without axes asks.
        winograd: Whether convolutions may be computed with fewer, but less exact, products.
        bf16_products: Whether factors of products in float32 are rounded to bfloat16.
        in_growable_buffers: Whether outputs that continue an input are written behind it.
        tuned: Results of tuning to use; None for those of this machine.
        choices: Which kernels are built otherwise than the cost model would; None for what results
            of tuning say.
        plugins: Providers outside the package; such a session is in no cache.
    """

    threads: int = keyless(0)
    branches: int | None = keyed(None, by=_is_given)
    share: int = keyless(0)
    setup: ThreadSetup | None = keyed(None, by=_flushes)
    optimization_level: int = keyed(99, by=bool)
    without: frozenset[str] = keyed(frozenset(), by=sorted)
    free_dimension_overrides: dict[str, int] = keyed(factory=dict, by=_items)
    denoted_sizes: dict[str, int] = keyed(factory=dict, by=_items)
    use_cache: bool = keyless(True)
    folder: str | None = keyed(None)
    initializers: dict[str, np.ndarray[Any, Any]] = keyed(factory=dict, by=_contents)
    data_files: dict[str, bytes] = keyed(factory=dict, by=_digests)
    fed: tuple[str, ...] = keyed(())
    fetched: tuple[str, ...] = keyed(())
    cancel: CancelFlag | None = keyless(None)
    load_seconds: float | None = keyless(None)
    memory_limit_bytes: int | None = keyless(None)
    budget: Budget | None = keyless(None)
    least_level: int = keyless(0)
    logid: str = keyless("")
    general: bool = keyed(False)
    provider: Provider | None = keyless(None)
    ranks: dict[str, int] = keyed(factory=dict, by=_items)
    shapes: dict[str, FedShape] = keyed(factory=dict, by=_items)
    decided: bool = keyed(False)
    ones: frozenset[str] = keyed(frozenset(), by=sorted)
    winograd: bool = keyed(True)
    bf16_products: bool = keyed(False)
    in_growable_buffers: bool = keyed(False)
    tuned: Tuned | None = keyless(None)
    choices: Choices | None = keyless(None)
    plugins: Plugins = keyless(factory=lambda: Plugins())

    @property
    def is_first(self) -> bool:
        """Whether this is the plan that a session begins with, rather than one for some feeds."""
        is_other = self.ranks or self.shapes or self.fetched or self.decided
        return self.is_for_ranks and not is_other

    @property
    def is_for_ranks(self) -> bool:
        """Whether it is such a plan, or differs from one in ranks of feeds or outputs alone."""
        return not any((self.general, self.fed, self.ones, self.in_growable_buffers))

    @property
    def flushes_denormals(self) -> bool:
        """Whether kernels read and write zeros in place of denormal numbers."""
        return self.setup is not None and self.setup.flushes_denormals

    def traits(self) -> dict[str, Any]:
        """What decides on a bundle's plans, and a session may ask for again."""
        return {
            "fuses": bool(self.optimization_level),
            "sizes": dict(sorted(self.free_dimension_overrides.items())),
            "denoted": dict(sorted(self.denoted_sizes.items())),
            "without": sorted(self.without),
            "winograd": self.winograd,
            "halves": self.bf16_products,
            "branches": self.branches is not None,
            "denormals": not self.flushes_denormals,
        }

    def key(self) -> str:
        """What of it changes the compiled model: what fields declare by `keyed`."""
        return repr([by(getattr(self, name)) for name, by in _KEYED])


#: Field -> what of its value is in the key. A field that says neither is an error of the import.
_KEYED = tuple(
    (f.name, f.metadata["key"]) for f in dataclasses.fields(EngineOptions) if f.metadata["key"]
)
