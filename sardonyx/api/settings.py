"""Settings that `sardonyx tune` found, read from a file and used when a session is made.

A file has an entry for each model and device. The session-config entry `session.settings_file`
names it, or the variable SARDONYX_SETTINGS, for all sessions of a process.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from sardonyx.api import tuning_results
from sardonyx.api.cuda_options import CUDA
from sardonyx.api.providers import CPU
from sardonyx.api.tuning_rules import (
    CALLER,
    CONFIG,
    PROVIDERS,
    SESSION,
    check_names,
    check_rules,
)
from sardonyx.base.bounded_json import read_json
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.files import open_file, shown_path
from sardonyx.base.log import get_logger

if TYPE_CHECKING:
    from sardonyx.api.options import SessionOptions
    from sardonyx.store.tuning_choices import Tuned

_logger = get_logger("settings")

FORMAT = "sardonyx settings 1"
#: Of a file, what its digest is made of: the beginning, where the graph lies, and samples of the
#: rest, where weights do. Whoever trains a model again changes all of its weights.
_HEAD_BYTES, _SAMPLES, _SAMPLE_BYTES = 1 << 20, 256, 4096
_EXTRA = "extra_session_config"
_MOST_BYTES = 16 << 20
#: Of an entry: what is read, and what is there for people.
_NEEDED: Mapping[str, type] = {"model": str, "device": dict, "settings": dict}
_BESIDE = ("model_path", "version", "ratio_to_default")


@dataclass(frozen=True)
class Settings:
    """How a session is made, and how it is best run. The defaults are those of a session.

    Attributes:
        execution_provider: The provider that comes first.
        provider_options: Its options.
        session_options: Properties of `SessionOptions` that differ from their defaults.
        extra_session_config: Session-config entries.
        tuning_results: For `set_tuning_results`.
        io_bind: Whether outputs go to memory that is bound once; up to the caller.
        concurrency: Threads that call `run`; up to the caller.
        batch_size: Copies of the feeds in one run; up to the caller.
    """

    execution_provider: str = CPU
    provider_options: Mapping[str, str] = field(default_factory=dict)
    session_options: Mapping[str, int] = field(default_factory=dict)
    extra_session_config: Mapping[str, str] = field(default_factory=dict)
    tuning_results: tuple[Mapping[str, Any], ...] = ()
    io_bind: bool = False
    concurrency: int = 1
    batch_size: int = 1

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads; keys are those of Olive's tuned session parameters."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        options = dict(self.session_options) | {_EXTRA: dict(found.pop(_EXTRA))}
        found["provider_options"] = dict(self.provider_options)
        found["tuning_results"] = [dict(entry) for entry in self.tuning_results]
        return found | {"session_options": options}

    @classmethod
    def from_json(cls, found: Any, where: str = "settings") -> Settings:
        """What `to_json` gave, or somebody wrote: tuning alone, as `tuning_rules` lists it.

        Args:
            found: What JSON gave.
            where: What errors call it.

        Raises:
            InvalidArgument: It is no such thing, or sets something else; the text names that.
        """
        check_names(where, found, tuple(f.name for f in fields(cls)))
        given = dict(found)
        provider = given.pop("execution_provider", CPU)
        if not isinstance(provider, str) or provider not in PROVIDERS:
            what, expected = "Settings are of another provider", " or ".join(PROVIDERS)
            raise InvalidArgument(message(where, what, expected=expected, got=repr(provider)[:80]))
        own = given.pop("provider_options", {})
        check_rules(f"{where}, provider_options", own, PROVIDERS[provider])
        options = given.pop("session_options", None)
        check_names(f"{where}, session_options", options, (*SESSION, _EXTRA))
        options = dict(options)
        extra = options.pop(_EXTRA, {})
        check_rules(f"{where}, {_EXTRA}", extra, CONFIG)
        check_rules(f"{where}, session_options", options, SESSION)
        results = given.pop("tuning_results", [])
        tuning_results.check_entries(results)
        for entry in results:
            check_names(f"{where}, tuning_results", entry, tuning_results.FIELDS)
        check_rules(where, given, CALLER)
        return cls(provider, own, options, extra, tuple(results), **given)

    @property
    def key(self) -> str:
        """The same for equal settings."""
        return json.dumps(self.to_json(), sort_keys=True)

    def providers_for(self, given: Any, *, has_options: bool = False) -> Any:
        """Providers of a session whose caller named `given`; None where these do not fit.

        Args:
            given: What the caller named; None for nothing.
            has_options: Whether he gave options apart from them.
        """
        own = self.execution_provider, dict(self.provider_options)
        if given is None:
            return [own]
        names = [p if isinstance(p, str) else p[0] for p in given]
        if self.execution_provider not in names:
            return None
        return list(given) if has_options else [own if p == own[0] else p for p in given]


def settings_for(path: str, source: Any) -> Settings | None:
    """Those of a model on this machine; None, and a warning, if the file has none.

    Args:
        path: The file of settings.
        source: What a session is made of.

    Raises:
        NoSuchFile, InvalidArgument: There is no such file, or it is none of settings.
    """
    own, place = model_digest(source), device()
    entries = read(path)
    same_model = [e for e in entries if e["model"] == own]
    for entry in same_model:
        settings = Settings.from_json(entry["settings"], f"settings {path}")
        on_gpu = settings.execution_provider == CUDA
        known = place | ({"gpu": gpu_name()} if on_gpu else {})
        if all(entry["device"].get(name) == value for name, value in known.items()):
            return settings
    what = "this device" if same_model else "this model"
    expected = place if same_model else own
    others = [e["device"] if same_model else e["model"] for e in same_model or entries]
    _logger.warning(
        "%s", message(
            f"settings {path}", f"There are none for {what}: defaults are used",
            expected=str(expected), got=str(others), do="Run sardonyx tune here",
        ),
    )  # fmt: skip
    return None


def use(
    settings: Settings, options: SessionOptions, providers: Any, *, has_options: bool = False
) -> tuple[Any, Tuned | None]:
    """Fill in options; gives providers and kernels of a session whose caller named `providers`.

    What the caller set stays. Settings of a provider that he left out are not used at all.
    """
    chosen = settings.providers_for(providers, has_options=has_options)
    if chosen is None:
        what = f"They are of {settings.execution_provider}, which the session is not given"
        _logger.warning("%s", message("settings", f"{what}: defaults are used"))
        return providers, None
    options.fill(settings.session_options, settings.extra_session_config)
    _logger.info("tuned settings: %s", settings.to_json())
    results = [dict(entry) for entry in settings.tuning_results]
    return chosen, tuning_results.read(results, error_on_invalid=False)


def read(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The entries of a file of settings: `model`, `device`, `settings` and what was measured.

    Raises:
        NoSuchFile, InvalidArgument: There is no such file, or it is none of settings.
    """
    where = f"settings {shown_path(path)}"
    held = read_json(path, most_bytes=_MOST_BYTES)
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        got = repr(held.get("format") if isinstance(held, dict) else type(held).__name__)[:80]
        raise InvalidArgument(message(where, "No file of settings", expected=FORMAT, got=got))
    check_names(where, held, ("format", "entries"))
    entries = held.get("entries")
    if not isinstance(entries, list):
        raise InvalidArgument(message(where, "It has no list of entries"))
    for number, entry in enumerate(entries):
        check_names(f"{where}, entry {number}", entry, (*_NEEDED, *_BESIDE))
        for name, kind in _NEEDED.items():
            if not isinstance(entry.get(name), kind):
                what, got = f"The entry has no {name!r}", repr(entry.get(name))[:80]
                expected = "text" if kind is str else "an object"
                text = message(f"{where}, entry {number}", what, expected=expected, got=got)
                raise InvalidArgument(text)
    return entries


def device(provider: str = CPU) -> dict[str, Any]:
    """What settings hold for: the processor, how many there are, the GPU if it is used."""
    from sardonyx.base.processors import usable_processors
    from sardonyx.targets.target import host_target, this_machine

    target, caches = host_target(), this_machine().caches
    own: dict[str, Any] = {
        "target": target.name,
        "features": target.features,
        "caches_bytes": [caches.l1d_bytes, caches.l2_bytes, caches.l3_bytes],
        "processors": usable_processors(),
    }
    return own | {"gpu": gpu_name()} if provider == CUDA else own


def gpu_name() -> str:
    """The first GPU's name; "" where there is none."""
    from sardonyx.api.providers import cuda_is_missing

    if cuda_is_missing():
        return ""
    from sardonyx.cuda.driver.device import device as gpu

    return str(gpu(0).name)


def model_digest(source: Any) -> str:
    """Tells models from each other: of the size, the beginning and samples of what follows.

    Raises:
        NoSuchFile, InvalidArgument, Fail: See `files.open_file`.
    """
    found = hashlib.blake2b(digest_size=16)
    for part in _parts(source):
        found.update(part)
    return found.hexdigest()


def _parts(source: Any) -> Iterator[bytes]:
    if isinstance(source, (str, os.PathLike)):
        with open_file(source) as file:
            size = os.fstat(file.fileno()).st_size
            yield str(size).encode()
            for start, count in _places(size):
                file.seek(start)
                yield file.read(count)
        return
    data = source.SerializeToString() if hasattr(source, "SerializeToString") else source
    held = memoryview(data)
    yield str(len(held)).encode()
    for start, count in _places(len(held)):
        yield bytes(held[start : start + count])


def _places(size: int) -> Iterator[tuple[int, int]]:
    yield 0, _HEAD_BYTES
    rest = size - _HEAD_BYTES
    if 0 < rest <= _SAMPLES * _SAMPLE_BYTES:
        yield _HEAD_BYTES, rest
    elif rest > 0:
        last = rest - _SAMPLE_BYTES
        for number in range(_SAMPLES):
            yield _HEAD_BYTES + last * number // (_SAMPLES - 1), _SAMPLE_BYTES
