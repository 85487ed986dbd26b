"""Files of results: OLive's JSON, and settings that sessions load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sardonyx.api import settings as stored
from sardonyx.api.version import __version__
from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.base.files import check_target
from sardonyx.base.log import get_logger
from sardonyx.base.processors import usable_processors
from sardonyx.loader.external_writer import replacing
from sardonyx.tools.tune.options import TuneOptions
from sardonyx.tools.tune.outcome import DEFAULT, Outcome, Report

_logger = get_logger("tune")

#: The name that OLive gives to the defaults.
_PRETUNING = "pretuning"


def result_json(
    model: str, report: Report, options: TuneOptions, providers: Sequence[str]
) -> dict[str, Any]:
    """The fields of OLive's `olive_result.json`, and what it has no fields for."""
    works = [outcome for outcome in report.outcomes if outcome.works]
    return {
        "model_path": model,
        "tuning_ort_version": __version__,
        "core_num": usable_processors(),
        "quantization_enabled": "False",
        "transformer_enabled": "False",
        "transformer_args": None,
        "pretuning_test_name": _PRETUNING,
        "tested_eps": list(providers),
        "successful_eps": sorted({o.settings.execution_provider for o in works}),
        "best_test_name": _name(report.best),
        "total_tests_num": len(report.outcomes),
        "all_tuning_results": [_entry(outcome) for outcome in report.outcomes],
        "throughput_tuning_enabled": options.throughput,
        "percentile": options.share,
        "max_latency_ms": options.max_latency_ms,
        "interrupted": report.is_interrupted,
        "notes": list(report.notes),
        "final_comparison": None if report.final is None else _entry(report.final),
        "best_settings": report.best.settings.to_json(),
    }


def _name(outcome: Outcome) -> str:
    return _PRETUNING if outcome.settings.key == DEFAULT.key else outcome.name


def _entry(outcome: Outcome) -> dict[str, Any]:
    settings = outcome.settings.to_json()
    measured = bool(outcome.ratios)
    return {
        "test_name": _name(outcome),
        "latency_ms": outcome.latencies_ms(),
        "throughput": round(outcome.items_per_second, 5),
        "execution_provider": settings["execution_provider"],
        "provider_options": settings["provider_options"],
        "session_options": settings["session_options"],
        "env_vars": {},
        "io_bind": settings["io_bind"],
        "concurrency": settings["concurrency"],
        "batch_size": settings["batch_size"],
        "ratio_to_pretuning": round(outcome.ratio, 5) if measured else None,
        "ratio_interval": [round(x, 5) for x in outcome.bounds] if measured else None,
        "pairs": len(outcome.ratios),
        "load_seconds": round(outcome.load_seconds, 3),
        "error": outcome.error_share,
        "exceeds_latency": outcome.is_slow,
        "failure": outcome.failure,
    }


def write_json(path: Path, value: Any) -> None:
    """Write a file that is complete or not there."""
    with replacing(str(path)) as file:
        file.write(json.dumps(value, indent=2).encode() + b"\n")


def check_place(path: Path) -> None:
    """Refuse a file of settings that was named and cannot be one, before anything is measured.

    Raises:
        InvalidArgument: It is a folder, has none, or is a file of something else.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InvalidArgument(message(str(path), "Settings cannot be written there"))
    check_target(path)
    if path.exists():
        stored.read(path)


def write_settings(path: Path, model: str, best: Outcome) -> None:
    """Put the settings into a file of them, in place of those for the same model and device."""
    place = stored.device(best.settings.execution_provider)
    entry = {
        "model": stored.model_digest(model),
        "model_path": Path(model).name,
        "device": place,
        "version": __version__,
        "ratio_to_default": round(best.ratio, 5) if best.ratios else 1.0,
        "settings": best.settings.to_json(),
    }
    entries = []
    if path.is_file():
        try:
            entries = stored.read(path)
        except SardonyxError as error:
            _logger.warning("the file is written anew: %s", error)
    own = entry["model"], _on(place)
    kept = [e for e in entries if (e["model"], _on(e["device"])) != own]
    write_json(path, {"format": stored.FORMAT, "entries": [*kept, entry]})


def _on(device: dict[str, Any]) -> dict[str, Any]:
    """The machine: one has one entry, whichever provider won."""
    return {name: value for name, value in device.items() if name != "gpu"}
