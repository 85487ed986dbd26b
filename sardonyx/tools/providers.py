"""Names of providers as tools take them: short ones, and those of onnxruntime."""

from __future__ import annotations

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.options import SessionOptions
from sardonyx.api.providers import CPU, meant
from sardonyx.base.devices import device_named
from sardonyx.base.errors import InvalidArgument, message

#: Short names of providers.
PROVIDERS = {"cpu": CPU, "cuda": CUDA}
_NO_FALLBACK = "session.disable_cpu_ep_fallback"


def short_name(name: str, where: str = "--provider") -> str:
    """`cpu` or `cuda`, of a provider's long name or of a name of its device, such as `gpu`.

    Raises:
        InvalidArgument: It is none; no other provider stands in.
    """
    device, number = device_named(name)
    for short, long in PROVIDERS.items():
        if (device == short and number is None) or device == long.lower():
            return short
    what = f"There is no provider {name!r} here, only {' and '.join(PROVIDERS)}"
    near = [short for short, long in PROVIDERS.items() if long == meant(name)]
    do = f"Did you mean {near[0]!r}?" if near else ""
    raise InvalidArgument(message(where, what, do=do))


def only(settings: SessionOptions, name: str) -> list[str]:
    """What a session takes as providers; it runs there, or making it fails.

    Raises:
        InvalidArgument: There is no such provider.
    """
    full = PROVIDERS[short_name(name)]
    if full != CPU:
        settings.add_session_config_entry(_NO_FALLBACK, "1")
    return [full]
