"""What a session asks of the engine."""

from __future__ import annotations

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

    threads: int = 0
    branches: int | None = None
    share: int = 0
    setup: ThreadSetup | None = None
    optimization_level: int = 99
    without: frozenset[str] = frozenset()
    free_dimension_overrides: dict[str, int] = field(default_factory=dict)
    denoted_sizes: dict[str, int] = field(default_factory=dict)
    use_cache: bool = True
    folder: str | None = None
    initializers: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    data_files: dict[str, bytes] = field(default_factory=dict)
    fed: tuple[str, ...] = ()
    fetched: tuple[str, ...] = ()
    cancel: CancelFlag | None = None
    load_seconds: float | None = None
    memory_limit_bytes: int | None = None
    budget: Budget | None = None
    least_level: int = 0
    logid: str = ""
    general: bool = False
    provider: Provider | None = None
    ranks: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, FedShape] = field(default_factory=dict)
    decided: bool = False
    ones: frozenset[str] = frozenset()
    winograd: bool = True
    bf16_products: bool = False
    in_growable_buffers: bool = False
    tuned: Tuned | None = None
    choices: Choices | None = None
    plugins: Plugins = field(default_factory=lambda: Plugins())

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
        """What of it changes the compiled model."""
        sizes = sorted(self.free_dimension_overrides.items())
        contents = [
            (name, array.shape, str(array.dtype), digest(np.ascontiguousarray(array).tobytes()))
            for name, array in sorted(self.initializers.items())
        ]
        return repr(
            (
                bool(self.optimization_level),
                sorted(self.without),
                sizes,
                sorted(self.denoted_sizes.items()),
                self.folder,
                contents,
                [(name, digest(data)) for name, data in sorted(self.data_files.items())],
                self.fed,
                self.fetched,
                self.general,
                sorted(self.ranks.items()),
                sorted(self.shapes.items()),
                self.decided,
                sorted(self.ones),
                self.winograd,
                self.bf16_products,
                self.branches is not None,
                self.in_growable_buffers,
                self.flushes_denormals,
            )  # fmt: skip
        )
