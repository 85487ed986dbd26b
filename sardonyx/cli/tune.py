"""`sardonyx tune MODEL`: the settings with which a model runs fastest here."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from typing import TYPE_CHECKING

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.printable import printable
from sardonyx.cli.arguments import (
    MOST_THREADS,
    add_dimensions,
    add_seed,
    numbers_of,
    real,
    sizes_of,
    whole,
)
from sardonyx.cli.output import draw, say

if TYPE_CHECKING:
    from sardonyx.tools.tune.options import TuneOptions
    from sardonyx.tools.tune.outcome import Outcome

_ABOUT = """\
Measure a model with many settings (provider, threads, execution mode, optimisation level,
convolutions, kernels, precision, bound memory), each in a process of its own that takes turns with
one that has the defaults. Settings win only if they are better by more than noise in a last, fresh
comparison. Written to a folder: olive_result.json, settings.json, trials.svg, journal.jsonl.

Sessions use the settings with
  options.add_session_config_entry("session.settings_file", "MODEL.tune/settings.json")
or, all of a process, with SARDONYX_SETTINGS=MODEL.tune/settings.json.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, fed with what, which measure, what to search."""
    from sardonyx.tools.tune.options import DIMENSIONS

    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", nargs="?", help="the ONNX file")
    parser.add_argument("--model_path", metavar="MODEL", help="the same")
    parser.add_argument(
        "--budget", type=real(above=True), default=150.0, metavar="SECONDS",
        help="how long all of it may take (default: 150)",
    )  # fmt: skip
    parser.add_argument(
        "--output", "--result_path", metavar="FOLDER", help="for results (default: NAME.tune, here)"
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        help="settings.json elsewhere; other models' entries stay, other files are refused",
    )
    parser.add_argument("--resume", action="store_true", help="go on with FOLDER/journal.jsonl")
    fed = parser.add_argument_group("inputs; without any, random ones")
    fed.add_argument(
        "--inputs", "--sample_input_data_path", default="", metavar="PATH",
        help="a file .npz of arrays by name, or a folder with input_0.pb ... or test_data_set_0",
    )  # fmt: skip
    add_dimensions(fed)
    add_seed(fed)
    fed.add_argument("--warmup", "--warmup_num", type=whole(), default=2, help="runs before (2)")
    measure = parser.add_argument_group("measure; without --throughput, the least latency")
    measure.add_argument(
        "--throughput", "--throughput_tuning_enabled", action="store_true",
        help="most runs a second, with several callers and larger batches",
    )  # fmt: skip
    measure.add_argument(
        "--percentile", "--max_latency_percentile", type=real(0, 1), metavar="SHARE",
        help="of latencies: what is least (0.5), or with --throughput bounded (0.95)",
    )  # fmt: skip
    measure.add_argument(
        "--max-latency-ms", "--max_latency_ms", type=real(above=True), metavar="MS",
        help="with --throughput: the bound",
    )  # fmt: skip
    measure.add_argument(
        "--max-batch", "--dynamic_batching_size", type=whole(1), default=64, metavar="N",
        help="with --throughput: most copies of the inputs in a run (64)",
    )  # fmt: skip
    measure.add_argument(
        "--max-concurrency", "--threads_num", type=whole(0, MOST_THREADS), default=0, metavar="N",
        help="with --throughput: most callers at once (twice the processors)",
    )  # fmt: skip
    space = parser.add_argument_group("what is searched")
    space.add_argument(
        "--tolerance", type=real(), default=0.0, metavar="SHARE",
        help="try lower precision; errors may be this share of an output's largest number (0)",
    )  # fmt: skip
    space.add_argument(
        "-e",
        "--provider",
        "--providers",
        "--providers_list",
        dest="providers",
        metavar="LIST",
        help="such as cpu,cuda",
    )
    space.add_argument(
        "-x", "--threads", "--intra_thread_num_list", metavar="LIST", help="such as 1,2,4"
    )
    space.add_argument("--branches", "--inter_thread_num_list", metavar="LIST", help="such as 2,4")
    space.add_argument("--levels", "--ort_opt_level_list", metavar="LIST", help="such as 0,99")
    space.add_argument(
        "--modes", "--execution_mode_list", metavar="LIST", help="sequential,parallel"
    )
    space.add_argument("--skip", metavar="LIST", help=f"what to leave out: {','.join(DIMENSIONS)}")


def run(options: argparse.Namespace) -> int:
    """Tune and report; the exit status is 130 at Ctrl-C."""
    from sardonyx.tools.tune.tuner import tune

    progress = _Progress()
    try:
        found = tune(
            _model(options), _options(options), output=options.output,
            settings=options.settings, progress=progress,
        )  # fmt: skip
    finally:
        progress.clear()
    report = found.report
    for outcome in report.outcomes:
        say(_line(outcome))
    for note in report.notes:
        say(f"note: {note}")
    if report.final is not None:
        say(f"compared in the end: {_line(report.final)}")
    say(f"best: {report.best.name}")
    best = report.best.settings
    if best.io_bind or best.concurrency > 1 or best.batch_size > 1:
        say("binding, concurrency and batch are up to the program that runs the model")
    say(f"settings: {found.settings}    all results: {found.folder}")
    if report.is_interrupted:
        say("sardonyx: interrupted; go on with --resume", is_error=True)
        return 130
    return 0


def _line(outcome: Outcome) -> str:
    if not outcome.ratios:
        return f"{outcome.name:36s} {outcome.failure}"
    low, high = outcome.bounds
    times = outcome.latencies_ms()
    text = (
        f"{outcome.name:36s} {outcome.ratio:6.3f} of the defaults ({low:.3f} to {high:.3f})  "
        f"p50 {times['latency_p50']:.3f} ms  {outcome.items_per_second:.1f}/s"
    )
    if outcome.error_share:
        text += f"  error {outcome.error_share:.2g}"
    return text + ("  too slow" if outcome.is_slow else "")


class _Progress:
    """One line of a terminal that says what is being done; nothing elsewhere."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._shows = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._shows:
            width = shutil.get_terminal_size().columns - 1
            line = f"[{time.monotonic() - self._start:4.0f} s] {printable(text)}"[:width]
            draw(f"\r\x1b[K{line}")

    def clear(self) -> None:
        """Leave nothing of it."""
        if self._shows:
            draw("\r\x1b[K")


def _words(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _model(options: argparse.Namespace) -> str:
    if (options.model is None) == (options.model_path is None):
        raise InvalidArgument(message("tune", "Give a model, once"))
    return str(options.model or options.model_path)


def _options(given: argparse.Namespace) -> TuneOptions:
    from sardonyx.tools.tune.options import TuneOptions

    levels = None if given.levels == "all" else numbers_of(given.levels, "--levels")
    modes = _words(given.modes)
    return TuneOptions(
        budget_seconds=given.budget,
        throughput=given.throughput,
        percentile=given.percentile,
        max_latency_ms=given.max_latency_ms,
        tolerance=given.tolerance,
        providers=_words(given.providers),
        threads=numbers_of(given.threads, "--threads"),
        branches=numbers_of(given.branches, "--branches"),
        levels=(0, 99) if levels is None else levels,
        modes=("sequential", "parallel") if modes is None else modes,
        max_batch=given.max_batch,
        max_concurrency=given.max_concurrency,
        skip=frozenset(_words(given.skip) or ()),
        inputs=given.inputs,
        dims=sizes_of(given.dim),
        seed=given.seed,
        warmup=given.warmup,
        resume=given.resume,
    )
