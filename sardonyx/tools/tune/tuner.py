"""The whole search: inputs, trials, the final comparison, files of results."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sardonyx.api import settings as stored
from sardonyx.api.providers import available
from sardonyx.api.settings import Settings
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import Fail, InvalidArgument, message
from sardonyx.base.files import check_file
from sardonyx.base.processors import usable_processors
from sardonyx.loader.external_writer import replacing
from sardonyx.tools.tune.bench import ProcessBench
from sardonyx.tools.tune.inputs import Facts, examine
from sardonyx.tools.tune.journal import Journal
from sardonyx.tools.tune.options import TuneOptions
from sardonyx.tools.tune.outcome import DEFAULT, Outcome, Report
from sardonyx.tools.tune.plot import drawing
from sardonyx.tools.tune.results import check_place, result_json, write_json, write_settings
from sardonyx.tools.tune.search import Search, TrialBench

#: How many of the best settings may be compared with the defaults in the end.
_FINALISTS = 2
#: How many comparisons may be begun, as some may fail.
_FINALS = 5
RESULT, SETTINGS, JOURNAL, PLOT = (
    "olive_result.json", "settings.json", "journal.jsonl", "trials.svg",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What `tune` gives.

    Attributes:
        report: All trials, and what won.
        result: What was written as `olive_result.json`.
        folder: Where files were written.
        settings: The file of settings, for `session.settings_file`.
    """

    report: Report
    result: dict[str, Any]
    folder: Path
    settings: Path


class FinalBench(TrialBench, Protocol):
    """A bench that also compares what was found with the defaults."""

    def final(self, settings: Settings) -> Outcome:
        """Settings in turns with the defaults, both in fresh processes."""


def tune(
    model: str | os.PathLike[str],
    options: TuneOptions | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    settings: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Found:
    """Find the settings with which a model runs fastest on this machine.

    Trials are processes of their own that take turns with one that has the defaults. An interrupt
    (Ctrl-C) ends the search; what was found until then is written.

    Args:
        model: The model's file.
        options: What to search, for how long, by which measure.
        output: The folder for results; by default the model's name + ".tune", here.
        settings: The file of settings; by default one in that folder. Entries of other models
            and devices stay in it.
        progress: Told in a few words what is being done.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model or its inputs cannot be read.
        InvalidArgument: The inputs do not fit the model, an option makes no sense, or `settings`
            is a file of something else.
        Fail: The model does not run with default settings.
    """
    path, wanted = os.fspath(model), options or TuneOptions()
    providers = _providers(wanted)
    check_file(path)
    if settings:
        check_place(Path(settings))
    feeds, facts = examine(path, wanted)
    folder = Path(output) if output else Path(f"{Path(path).stem}.tune")
    _check_folder(folder)
    shared = Path(tempfile.mkdtemp(prefix="sardonyx-tune-"))
    try:
        data = pickle.dumps(feeds)
        (shared / "feeds").write_bytes(data)
        bench = ProcessBench(path, shared, wanted, facts, progress or _silent)
        try:
            header = _header(path, wanted, data)
            journal = Journal(folder / JOURNAL, header, bench, wanted.resume)
            report = search(bench, journal, wanted, facts, providers)
        finally:
            bench.close()
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    result = result_json(path, report, wanted, providers)
    place = Path(settings) if settings else folder / SETTINGS
    write_json(folder / RESULT, result)
    write_settings(place, path, report.best)
    title = f"{Path(path).name}: {report.best.name}"
    with replacing(str(folder / PLOT)) as file:
        file.write(drawing(report.outcomes, report.best, title).encode())
    return Found(report, result, folder, place)


def search(
    bench: FinalBench,
    journal: Journal,
    options: TuneOptions,
    facts: Facts,
    providers: tuple[str, ...],
    processors: int = 0,
) -> Report:
    """Search and compare.

    Raises:
        KeyboardInterrupt: There was one before anything was found.
        Fail: The model does not run with default settings.
    """
    found = Search(journal, options, facts, processors or usable_processors(), providers)
    report = Report(outcomes=found.outcomes, notes=found.notes)
    if facts.sizes:
        report.notes.append(facts.sizes)
    try:
        found.run()
        if not found.outcomes or not found.outcomes[0].works:
            raise Fail(message("tune", "The model does not run with default settings"))
        _conclude(report, found.best, bench)
    except KeyboardInterrupt:
        if not found.outcomes:
            raise
        report.is_interrupted = True
        first = found.outcomes[0]
        # Nobody compared them in the end: what is chosen has to be better without doubt.
        report.best = found.best if found.best.is_surely_better() else first
    return report


def _conclude(report: Report, best: Outcome, bench: FinalBench) -> None:
    """The best settings win if they are better in a fresh comparison; else the defaults do."""
    first = report.best = report.outcomes[0]
    others = [o for o in report.outcomes if o.is_surely_better()]
    ranked = [best, *sorted(others, key=lambda o: o.ratio)]
    keys = [DEFAULT.key]
    compared = 0
    for outcome in ranked:
        if outcome.settings.key in keys or compared >= _FINALISTS or len(keys) > _FINALS:
            continue
        keys.append(outcome.settings.key)
        final = bench.final(outcome.settings)
        if not final.works:
            # It was not compared: another one is, in its place.
            report.notes.append(f"{outcome.name} failed in the final comparison: {final.failure}")
            continue
        compared += 1
        report.final = replace(final, error_share=outcome.error_share)
        if final.is_surely_better() or (first.is_slow and final.beats(first)):
            report.best = report.final
            return
        report.notes.append(f"{outcome.name} was not better than the defaults in the end")


def _check_folder(folder: Path) -> None:
    """Refuse a folder for results that cannot be one, before anything is measured.

    Raises:
        InvalidArgument: It is a file, or cannot be made or written to.
    """
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        what = f"Results cannot be written there: {there} is no folder, or is write-protected"
        raise InvalidArgument(message(str(folder), what))


def _providers(options: TuneOptions) -> tuple[str, ...]:
    """Those to try.

    Raises:
        InvalidArgument: One that was named is not there.
    """
    there = available()
    if options.providers is None:
        return tuple(there)
    found = []
    for name in options.providers:
        full = next((p for p in there if name.lower() in (p.lower(), _short(p))), None)
        if full is None:
            names = [_short(p) for p in there]
            what = f"The provider {name!r} is not here"
            expected = ", ".join(names)
            raise InvalidArgument(
                message("--providers", what, expected=expected, do=nearest(name, names))
            )
        found.append(full)
    return tuple(found)


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider").lower()


def _header(model: str, options: TuneOptions, feeds: bytes) -> dict[str, Any]:
    """What answers depend on: another search's are none of this one's."""
    measure = asdict(options)
    for name in ("budget_seconds", "resume", "inputs", "dims", "seed", "skip"):
        del measure[name]
    return {
        "model": stored.model_digest(model),
        "device": stored.device(),
        "feeds": hashlib.blake2b(feeds, digest_size=16).hexdigest(),
        "options": {k: list(v) if isinstance(v, tuple) else v for k, v in measure.items()},
    }


def _silent(_: str) -> None:
    """Say nothing."""
