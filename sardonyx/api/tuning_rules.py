"""What files may ask of sessions: options by name, each with the values that it may have.

A file of settings changes how fast a model runs, and no more. So options that open, write or call
something, or lift a limit, are not here, and what is not here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sardonyx.api.config_keys import BLOCK_BASE_KEY
from sardonyx.api.cuda_options import CUDA
from sardonyx.api.optimizers import ACTING, GROUPED
from sardonyx.api.optimizers import KEY as OPTIMIZERS_KEY
from sardonyx.api.providers import CPU
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.records import dataclass

#: More threads, or callers, than any machine has processors.
MOST_THREADS = 4096
_MOST_BLOCKS, _MOST_BATCH = 1024, 1 << 20


@dataclass(frozen=True, slots=True)
class OptionRule:
    """What an option may be.

    Attributes:
        fits: Whether a value read from JSON is one.
        valid: Those values, in words.
    """

    fits: Callable[[Any], bool]
    valid: str


def whole(least: int, most: int) -> OptionRule:
    """A whole number, and no truth."""
    return OptionRule(lambda v: type(v) is int and least <= v <= most, f"{least} to {most}")


def _one_of(*values: Any) -> OptionRule:
    kind = type(values[0])
    words = ", ".join(map(repr, values))
    return OptionRule(lambda v: type(v) is kind and v in values, words)


def _optimizers(value: Any) -> bool:
    names = value.split(";") if isinstance(value, str) else [""]
    return all(name.strip() in ACTING or name.strip() in GROUPED for name in names)


def _number_text(value: Any) -> bool:
    fits = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 5
    return fits and int(value) <= _MOST_BLOCKS


_SWITCH = _one_of("0", "1")
_THREADS = whole(0, MOST_THREADS)

#: Properties of `SessionOptions`.
SESSION: Mapping[str, OptionRule] = {
    "intra_op_num_threads": _THREADS,
    "inter_op_num_threads": _THREADS,
    "execution_mode": _one_of(0, 1),
    "graph_optimization_level": _one_of(0, 1, 2, 3, 99),
}
#: Session-config entries.
CONFIG: Mapping[str, OptionRule] = {
    BLOCK_BASE_KEY: OptionRule(_number_text, f"a number from 0 to {_MOST_BLOCKS}, as text"),
    "session.disable_winograd": _SWITCH,
    "session.allow_bfloat16_products": _SWITCH,
    OPTIMIZERS_KEY: OptionRule(_optimizers, "names of onnxruntime's optimisers, with ; between"),
}
#: Options of providers, by the provider.
PROVIDERS: Mapping[str, Mapping[str, OptionRule]] = {CPU: {}, CUDA: {"use_tf32": _SWITCH}}
#: What the caller of the session is told.
CALLER: Mapping[str, OptionRule] = {
    "io_bind": _one_of(False, True),
    "concurrency": whole(1, MOST_THREADS),
    "batch_size": whole(1, _MOST_BATCH),
}


def check_rules(where: str, given: Any, rules: Mapping[str, OptionRule]) -> None:
    """Refuse options that are not in a list, and values that they may not have.

    Raises:
        InvalidArgument: One is such, and the text names it; or `given` is no object.
    """
    check_names(where, given, rules)
    for name, value in given.items():
        if not rules[name].fits(value):
            text = message(
                where, f"{name!r} has a value that it may not have there",
                expected=rules[name].valid, got=repr(value)[:80],
            )  # fmt: skip
            raise InvalidArgument(text)


def check_names(where: str, given: Any, known: Mapping[str, Any] | tuple[str, ...]) -> None:
    """Refuse what is no object of JSON, and keys that are not known.

    Raises:
        InvalidArgument: It is such, and the text names the key.
    """
    if not isinstance(given, Mapping):
        got = type(given).__name__
        raise InvalidArgument(message(where, "It is no object of JSON", got=got))
    for name in given:
        if name not in known:
            what = f"{str(name)[:80]!r} may not be set there"
            do = nearest(str(name)[:80], known) or "Leave it out"
            raise InvalidArgument(message(where, what, do=do))
