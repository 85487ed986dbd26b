"""`sardonyx run MODEL`: outputs' shapes and times."""

from __future__ import annotations

import argparse
import statistics
import time

from sardonyx.cli.arguments import whole
from sardonyx.cli.inputs import add_input_arguments, make_inputs, open_session
from sardonyx.cli.output import say, say_text
from sardonyx.tools.made_up import explained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, on what, how often."""
    parser.add_argument("model", help="the ONNX file")
    add_input_arguments(parser)
    parser.add_argument("--repeat", type=whole(1), default=20, help="timed runs")
    parser.add_argument("--timings", action="store_true", help="where load time went")
    parser.add_argument("--explain", action="store_true", help="kernels and their nodes")
    parser.add_argument("--verbose", action="store_true", help="with --explain: all details")


def run(options: argparse.Namespace) -> int:
    """Load, run, print."""
    start = time.perf_counter()
    session = open_session(options)
    loaded = time.perf_counter() - start
    feeds, sizes = make_inputs(session, options)
    with explained(sizes):
        results = session.run(None, feeds)
    times = []
    for _ in range(options.repeat):
        tick = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - tick)
    say(f"loaded in {loaded * 1e3:.1f} ms")
    if options.timings:
        for name, seconds in session.timings.items():
            say(f"    {name:12s} {seconds * 1e3:9.2f} ms")
    if sizes.chosen:
        say(sizes.told())
    for name, value in feeds.items():
        say(f"input  {name}: {value.dtype}{list(value.shape)}")
    for node, value in zip(session.get_outputs(), results, strict=True):
        say(f"output {node.name}: {value.dtype}{list(value.shape)}")
    say(
        f"run: median {statistics.median(times) * 1e3:.3f} ms, least {min(times) * 1e3:.3f} ms, "
        f"most {max(times) * 1e3:.3f} ms over {len(times)}"
    )
    if options.explain:
        say_text(session.explain(verbose=options.verbose))
    return 0
