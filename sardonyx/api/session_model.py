"""The model of a session: how it was asked for, and as it was compiled last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sardonyx.api.config_keys import SETTINGS_KEY
from sardonyx.api.cuda_options import CUDA
from sardonyx.api.making import make_engine
from sardonyx.api.model_config import take_model_config
from sardonyx.api.options import SessionOptions
from sardonyx.api.output_names import OutputNames
from sardonyx.api.providers import CPU, choose, preferred, streams_of
from sardonyx.api.spelling import nearest
from sardonyx.base import knobs
from sardonyx.base.log import get_logger
from sardonyx.base.notes import note
from sardonyx.base.records import dataclass
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.storage import HOST, MemoryKind

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine
    from sardonyx.store.tuning_choices import Tuned

_logger = get_logger("session")
_Providers = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A compiled model, with what runs ask of it in each call.

    Attributes:
        engine: Runs it.
        names: Of the inputs that a run must be given.
        output_names: Of all outputs; a name may be there twice.
        asked: Where outputs stand that are asked for by name.
        every: The places of all outputs.
        kind: The memory that results are in.
        is_on_host: Whether that is the processor's.
        gives_memory_back: Whether nothing is held between runs.
        follows_tensors: Whether calls with tensors of torch run in torch's stream.
    """

    engine: Engine
    names: tuple[str, ...]
    output_names: list[str]
    asked: OutputNames
    every: list[int]
    kind: MemoryKind
    is_on_host: bool
    gives_memory_back: bool
    follows_tensors: bool


class SessionModel:
    """What a session runs; its parts see the same one. It may be compiled anew.

    Args:
        source: A path, bytes, or a `ModelProto`.
        options: The session's own. They get what the model, or a file of settings, says of them.
        further: Arguments of the session that have no place among the options.

    Attributes:
        source: As given.
        options: As given.
        providers: Names with their options; those that compute come first.
        loaded: The model as it was compiled last; it is there after `compile`.
    """

    loaded: LoadedModel

    def __init__(self, source: Any, options: SessionOptions, further: Mapping[str, Any]) -> None:
        self.source, self.options = source, options
        self.providers: _Providers = {}
        self._streams: Any = None
        if further.get("disabled_optimizers"):
            options.disable_optimizers(further["disabled_optimizers"])
        take_model_config(source, options, bool(further.get("read_config_from_model")))

    @property
    def engine(self) -> Engine:
        """What runs the model."""
        return self.loaded.engine

    @property
    def is_file(self) -> bool:
        """Whether the model has a path."""
        return isinstance(self.source, (str, os.PathLike))

    def first_compile(
        self, providers: Any, provider_options: Any, cancel: CancelFlag | None
    ) -> None:
        """`compile`, with providers and kernels of a file of settings if one is named."""
        tuned = None
        path = self.options.config(SETTINGS_KEY) or knobs.get("SARDONYX_SETTINGS")
        if path:
            from sardonyx.api.settings import settings_for, use

            settings = settings_for(path, self.source)
            if settings is not None:
                has_options = provider_options is not None
                providers, tuned = use(settings, self.options, providers, has_options=has_options)
        self.compile(providers, provider_options, cancel, tuned)

    def compile(
        self,
        providers: Any,
        provider_options: Any,
        cancel: CancelFlag | None = None,
        tuned: Tuned | None = None,
    ) -> None:
        """Compile the model for these providers; if that fails, it stays what it was.

        Raises:
            InvalidArgument: There is no provider of a name.
        """
        may_fall_back = self.options.config("session.disable_cpu_ep_fallback") != "1"
        chosen = choose(providers, provider_options, may_fall_back=may_fall_back)
        streams = streams_of(providers, provider_options)
        self._use(chosen, cancel, tuned)
        self._streams = streams

    def tune(self, tuned: Tuned) -> None:
        """Compile the model for the same providers, with these kernels."""
        self._use(self.providers, None, tuned)

    def _use(self, chosen: _Providers, cancel: CancelFlag | None, tuned: Tuned | None) -> None:
        used = preferred(chosen)
        idle = {name: given for name, given in chosen.items() if name not in used}
        for name in idle:
            note(f"the provider {name}", f"{CPU} is named before it, and runs all of a model")
        engine = make_engine(self.source, self.options, used, cancel, tuned)
        if CUDA not in used and knobs.get("SARDONYX_NVTX"):
            note("SARDONYX_NVTX", "the session runs on the processor, whose kernels have no ranges")
        self.loaded = _loaded(engine, self.options)
        self.providers = {**used, **idle}
        self._warn_of_dimensions()

    def _warn_of_dimensions(self) -> None:
        """Warn of sizes that were given for dimensions which the model does not have."""
        record = self.loaded.engine.record
        used = {
            f"{v.name}.{axis}" if d is None else d
            for v in (*record.inputs, *record.overridable)
            for axis, d in enumerate(v.shape)
        }
        for name in self.options.free_dimension_overrides:
            if name not in used:
                text = "No dimension of an input is called %r: its size has no effect. %s"
                _logger.warning(text, name, nearest(name, {d for d in used if isinstance(d, str)}))
        denoted = {d.lower() for d in record.denotations}
        for name in self.options.denoted_sizes:
            if name.lower() not in denoted:
                text = "No dimension of an input stands for %r: its size has no effect. %s"
                _logger.warning(text, name, nearest(name, record.denotations))


def _loaded(engine: Engine, options: SessionOptions) -> LoadedModel:
    names = [v.name for v in engine.record.outputs]
    facts = engine.executable.facts
    kind = facts.memory_kind
    return LoadedModel(
        engine,
        names=tuple(v.name for v in engine.record.inputs),
        output_names=names,
        asked=OutputNames(names),
        every=list(range(len(names))),
        kind=kind,
        is_on_host=kind is HOST,
        gives_memory_back=kind is HOST and not options.enable_cpu_mem_arena,
        follows_tensors=facts.follows_tensors,
    )
