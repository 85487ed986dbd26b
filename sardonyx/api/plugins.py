"""Providers outside the package: found by entry points, made with options, asked for a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sardonyx.api.cuda_options import CUDA
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.forks import compiling
from sardonyx.base.log import get_logger

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from sardonyx.compiler.options import EngineOptions
    from sardonyx.plugins.provider import ProviderDevice
    from sardonyx.plugins.registered import Plugin, Plugins

_logger = get_logger("provider")

#: Entry points of this group name what makes a provider; their names are those of providers.
GROUP = "sardonyx.providers"
#: Names of providers of the package itself, which no other can take.
_OWN = ("CPUExecutionProvider", CUDA)
_TYPES = ("CPU", "GPU", "NPU")


def plugin_names() -> list[str]:
    """Names of the providers that other installed packages bring; none of them is loaded."""
    return list(_entry_points())


def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if entry.name not in _OWN:
            found.setdefault(entry.name, entry)  # the first distribution on the path has the name
    return found


def plugin_devices() -> list[tuple[str, str, ProviderDevice]]:
    """Name and version of each provider outside the package, with each of its devices.

    One that cannot be loaded, or whose devices are none, has no devices here; the log says so.
    """
    with compiling:
        from sardonyx.plugins.provider import ProviderDevice

    found = []
    for name, entry in _entry_points().items():
        try:
            given = getattr(entry.load(), "devices", lambda: [ProviderDevice()])
            devices = list(given())
            wrong = [
                d for d in devices if not isinstance(d, ProviderDevice) or d.type not in _TYPES
            ]
            if wrong:
                raise TypeError(f"this is no ProviderDevice of a type in {_TYPES}: {wrong[0]!r}")
        except Exception as error:
            text = "the provider %r has no devices: %s: %s"
            _logger.warning(text, name, type(error).__name__, error)
            continue
        version = entry.dist.version if entry.dist is not None else ""
        found += [(name, version, device) for device in devices]
    return found


def make_plugins(
    providers: dict[str, dict[str, str]], *, may_fall_back: bool, before: str | None = None
) -> Plugins:
    """The providers outside the package among those asked for, with the options that they read.

    Args:
        providers: Names with options; options become those that the provider says. One that refuses
            to start is taken out, with a warning.
        may_fall_back: Whether another may stand in for it.
        before: Those that come before this provider alone.

    Raises:
        InvalidArgument: A provider does not know an option, or a value.
        EPFail: One cannot be loaded, or refuses and nobody may stand in.
    """
    with compiling:
        from sardonyx.plugins.registered import Plugin, Plugins

    names = [name for name in providers if name not in _OWN]
    if before in providers:
        order = list(providers)
        names = [name for name in names if order.index(name) < order.index(str(before))]
    made: list[Plugin] = []
    for name in names:
        provider = _made(name, providers[name], may_fall_back)
        if provider is None:
            del providers[name]
            continue
        providers[name] = {str(k): str(v) for k, v in provider.options.items()}
        made.append(Plugin(name, provider))
    return Plugins(tuple(made), may_fall_back)


def with_plugins(options: EngineOptions, plugins: Plugins) -> EngineOptions:
    """Options of an engine whose parts these providers may claim."""
    plain = replace(
        options, initializers={}, data_files={}, fed=(), fetched=(), cancel=None,
        load_seconds=None, provider=None, ranks={}, shapes={}, free_dimension_overrides={},
        denoted_sizes={}, budget=None,
    )  # fmt: skip

    def on_processor(model: bytes) -> Callable[[Sequence[Any]], list[Any]]:
        from sardonyx.compiler.drive import create_engine

        return create_engine(model, plain).run

    return replace(options, plugins=replace(plugins, on_processor=on_processor))


def _made(name: str, options: Mapping[str, str], may_fall_back: bool) -> Any:
    with compiling:
        from sardonyx.plugins.provider import Refused

    try:
        return _entry_points()[name].load()(dict(options))
    except Refused as refusal:
        text = message("InferenceSession", f"The provider {name!r} cannot start: {refusal}")
        if not may_fall_back:
            raise errors.EPFail(text) from refusal
        _logger.warning(text)
        return None
    except (ValueError, KeyError, InvalidArgument) as error:
        what = f"The provider does not take its options: {error}"
        raise InvalidArgument(message(name, what, got=repr(dict(options)))) from error
    except Exception as error:
        what = f"The provider cannot be loaded: {type(error).__name__}: {error}"
        raise errors.EPFail(message(name, what)) from error
