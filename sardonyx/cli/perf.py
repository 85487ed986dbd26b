"""`sardonyx perf MODEL [RESULT]`: how long requests take, as onnxruntime_perf_test reports it."""

from __future__ import annotations

import argparse
import os

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.printable import printable_lines
from sardonyx.cli.output import say, say_text
from sardonyx.cli.parser import Parser
from sardonyx.cli.perf_arguments import add_perf_arguments, settings_of
from sardonyx.cli.progress import Bar
from sardonyx.store.bundle import is_bundle
from sardonyx.tools.perf.bench import Bench
from sardonyx.tools.perf.measuring import compared, measured
from sardonyx.tools.perf.result import Comparison, Measurement, check_result, write_result
from sardonyx.tools.targets import check_targets

#: Turns of each engine, unless a flag says how many.
_ROUNDS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of onnxruntime_perf_test."""
    add_perf_arguments(parser)
    if isinstance(parser, Parser):
        parser.is_intermixed = True


def run(options: argparse.Namespace) -> int:
    """Measure and report; the exit status is 1 if outputs are wrong."""
    if options.list_ep_devices:
        return _devices()
    settings = settings_of(options)
    if not options.model:
        raise InvalidArgument(message("perf", "Name a model's file"))
    if options.load_only and options.against:
        raise InvalidArgument(message("--against", "It does not go with -n"))
    if options.against and is_bundle(options.model):
        what = "It is a bundle, which other engines do not read"
        do = "Give the ONNX file that it was made of"
        raise InvalidArgument(message(options.model, what, do=do))
    _check_targets(options)
    found: Measurement | Comparison
    if options.load_only:
        bench = Bench(options.model, settings)
        _print(Measurement(options.model, settings, load_s=bench.load_s).lines()[:1])
        return 0
    try:
        with Bar(os.path.basename(options.model)) as bar:
            if options.against:
                found = compared(
                    options.model, settings, options.against, options.rounds or _ROUNDS,
                    lambda part, done: bar.show(part, f"{done} requests"),
                )  # fmt: skip
            else:
                found = measured(
                    options.model, settings, False,
                    lambda part, done: bar.show(part, f"{done} requests"),
                )  # fmt: skip
    except KeyboardInterrupt:
        if settings.profile and not options.against:
            text = "writing the profile of requests so far; Ctrl-C again leaves it out"
            say(f"sardonyx perf: {text}", is_error=True)
        raise
    if options.result:
        write_result(found, options.result)
    if isinstance(found, Comparison):
        return _report_comparison(found, options)
    _report_inputs(found)
    _print(found.lines())
    if options.statistics or not options.result:
        _print(found.statistics_lines())
    if found.profile:
        say(f"Profile: {found.profile}")
    return _report_mismatches(found)


def _report_comparison(found: Comparison, options: argparse.Namespace) -> int:
    _report_inputs(found.ours)
    status = 0
    for side in (found.ours, found.theirs):
        say()
        say(f"{side.settings.engine}")
        _print(side.lines())
        if options.statistics or not options.result:
            _print(side.statistics_lines())
        status = max(status, _report_mismatches(side))
    if found.ours.profile:
        say(f"Profile: {found.ours.profile}")
    ours, theirs = found.ours.settings.engine, found.theirs.settings.engine
    least, most = min(found.ratios), max(found.ratios)
    say()
    say(f"{theirs} / {ours}, time of a request in each of {len(found.ratios)} rounds:")
    say(" ".join(f"{ratio:.3f}" for ratio in found.ratios))
    say(f"Median ratio: {found.ratio:.3f} ({least:.3f} to {most:.3f}; above 1 {ours} is faster)")
    return status


def _report_inputs(found: Measurement) -> None:
    for name, text in found.inputs.items():
        say(f"Input {name}: {text}")
    if found.sizes:
        say(found.sizes[0].upper() + found.sizes[1:])
    say(f"Inputs from: {', '.join(found.data_sets)}")
    if found.checked:
        say(f"Outputs as expected: {found.checked - len(found.mismatches)} of {found.checked}")


def _report_mismatches(found: Measurement) -> int:
    for text in found.mismatches:
        say(f"sardonyx perf: {found.settings.engine}: {text}", is_error=True)
    return 1 if found.mismatches else 0


def _check_targets(options: argparse.Namespace) -> None:
    """Refuse places that files cannot go to, before anything is measured."""
    written, data = options.optimized_model or None, options.opt_data
    beside = os.path.join(os.path.dirname(written), data) if written and data else None
    check_targets(options.model, options.result, written, beside)
    if options.result:
        check_result(options.result)


def _devices() -> int:
    from sardonyx.api.devices import get_ep_devices

    for number, device in enumerate(get_ep_devices()):
        say(f"{number}: {device.ep_name} {device.ep_options or ''}".rstrip())
    return 0


def _print(lines: list[str]) -> None:
    say_text(printable_lines(lines))
