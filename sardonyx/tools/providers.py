"""Names of providers as tools take them: short ones, and those of onnxruntime."""

from __future__ import annotations

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.options import SessionOptions
from sardonyx.api.providers import CPU
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message

#: Short names of providers.
PROVIDERS = {"cpu": CPU, "cuda": CUDA}
_NO_FALLBACK = "session.disable_cpu_ep_fallback"


def short_name(name: str) -> str:
    """`cpu` or `cuda`, of either name of a provider.

    Raises:
        InvalidArgument: It is none; no other provider stands in.
    """
    for short, long in PROVIDERS.items():
        if name.lower() in (short, long.lower()):
            return short
    what = f"There is no provider {name!r} here, only {' and '.join(PROVIDERS)}"
    known = (*PROVIDERS, *PROVIDERS.values())
    near = nearest(name, known)
    raise InvalidArgument(message("--provider", what, do=near if near.endswith("?") else ""))


def only(settings: SessionOptions, name: str) -> list[str]:
    """What a session takes as providers; it runs there, or making it fails.

    Raises:
        InvalidArgument: There is no such provider.
    """
    full = PROVIDERS[short_name(name)]
    if full != CPU:
        settings.add_session_config_entry(_NO_FALLBACK, "1")
    return [full]
