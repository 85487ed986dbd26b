"""`sardonyx run MODEL`: outputs' shapes and times."""

from __future__ import annotations

import argparse
import statistics
import time

from sardonyx.api.options import SessionOptions
from sardonyx.api.session import InferenceSession
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cli.inputs import add_input_arguments, make_inputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to run, on what, how often."""
    parser.add_argument("model", help="the ONNX file")
    add_input_arguments(parser)
    parser.add_argument("--repeat", type=int, default=20, help="timed runs")
    parser.add_argument("--timings", action="store_true", help="where load time went")
    parser.add_argument("--explain", action="store_true", help="kernels and their nodes")
    parser.add_argument("--verbose", action="store_true", help="with --explain: all details")


def run(options: argparse.Namespace) -> int:
    """Load, run, print."""
    if options.repeat < 1:
        raise InvalidArgument(message("--repeat", "It is not positive", got=str(options.repeat)))
    settings = SessionOptions()
    settings.intra_op_num_threads = options.threads
    start = time.perf_counter()
    session = InferenceSession(options.model, settings)
    loaded = time.perf_counter() - start
    feeds = make_inputs(session, options)
    results = session.run(None, feeds)
    times = []
    for _ in range(options.repeat):
        tick = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - tick)
    print(f"loaded in {loaded * 1e3:.1f} ms")
    if options.timings:
        for name, seconds in session.timings.items():
            print(f"    {name:12s} {seconds * 1e3:9.2f} ms")
    for name, value in feeds.items():
        print(f"input  {name}: {value.dtype}{list(value.shape)}")
    for node, value in zip(session.get_outputs(), results, strict=True):
        print(f"output {node.name}: {value.dtype}{list(value.shape)}")
    print(
        f"run: median {statistics.median(times) * 1e3:.3f} ms, least {min(times) * 1e3:.3f} ms, "
        f"most {max(times) * 1e3:.3f} ms over {len(times)}"
    )
    if options.explain:
        print(session.explain(verbose=options.verbose))
    return 0
