"""Results of tuning as a session gives and takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sardonyx.api.providers import CPU
from sardonyx.api.version import __version__
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger

if TYPE_CHECKING:
    from sardonyx.store.tuning_choices import Tuned

_logger = get_logger("tuning")
FIELDS = ("ep", "results", "validators")


def written(tuned: Tuned | None) -> list[dict[str, Any]]:
    """Results for somebody to keep: an entry with `ep`, `results` and `validators`."""
    if tuned is None:
        return []
    return [{"ep": CPU, "results": tuned.to_numbers(), "validators": _validators()}]


def read(results: Any, error_on_invalid: bool) -> Tuned | None:
    """What `written` gave; None if there is nothing for this machine.

    Raises:
        InvalidArgument: They are no results of tuning.
        Fail: They are of another machine or version, and `error_on_invalid` is set.
    """
    from sardonyx.store.tuning_choices import Tuned

    check_entries(results)
    for entry in results:
        if entry["ep"] != CPU:
            _logger.warning("results of %s are not used: only %s has any", entry["ep"], CPU)
            continue
        tuned = Tuned.from_numbers(entry["results"])
        own, given = _validators(), entry["validators"]
        if own == given:
            return tuned
        text = message("tuning", "These results do not fit", expected=str(own), got=repr(given))
        if error_on_invalid:
            raise errors.Fail(text)
        _logger.warning("%s They are not used.", text)
    return None


def check_entries(results: Any) -> None:
    """Refuse what is no list of entries.

    Raises:
        InvalidArgument: It is none, or an entry lacks a field.
    """
    if isinstance(results, list) and all(
        isinstance(e, Mapping) and all(f in e for f in FIELDS) for e in results
    ):
        return
    what = "Results of tuning are a list of mappings"
    text = message("tuning", what, expected=", ".join(FIELDS), got=repr(results)[:80])
    raise InvalidArgument(text)


def _validators() -> dict[str, str]:
    from sardonyx.store.cache import engine_digest
    from sardonyx.targets.target import host_target

    return {
        "SARDONYX_VERSION": __version__,
        "ENGINE": engine_digest(),
        "TARGET": host_target().key,
    }
