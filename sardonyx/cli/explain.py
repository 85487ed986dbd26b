"""`sardonyx explain MODEL`: kernels, fusions, copies, memory, and what became of each node."""

from __future__ import annotations

import argparse
import json
import sys

from sardonyx.api.enums import GraphOptimizationLevel
from sardonyx.api.options import SessionOptions
from sardonyx.api.session import InferenceSession
from sardonyx.base.errors import InvalidArgument
from sardonyx.cli.optimize import sizes_of
from sardonyx.tools.explain import Explanation, explain_model
from sardonyx.tools.perf.settings import LEVELS, PROVIDERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, run how, printed how."""
    add = parser.add_argument
    add("model", help="the ONNX file")
    add("--nodes", action="store_true", help="each node: its kernel, or why it has none")
    add("--verbose", action="store_true", help="all details, and the nodes")
    add("--json", action="store_true", help="print JSON")
    add(
        "--no-run",
        action="store_true",
        help="do not run the model once on made-up inputs: sizes and memory stay unknown",
    )
    add(
        "-f",
        "--free-dim",
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N",
        help="size of a dimension in that run (1), by name or as INPUT.AXIS",
    )
    add("-e", "--provider", choices=PROVIDERS, default="cpu", help="where it runs (cpu)")
    add("-o", "--level", type=int, choices=LEVELS, default=99, help="of optimisation (99)")
    add("-x", "--threads", type=int, default=0, metavar="N", help="threads of a run (all)")


def run(options: argparse.Namespace) -> int:
    """Make a session and explain it; the exit status is 2 if arguments are at fault."""
    settings = SessionOptions()
    try:
        sizes = sizes_of([text.replace(":", "=") for text in options.free_dim])
        settings.intra_op_num_threads = options.threads
    except InvalidArgument as error:
        print(f"sardonyx explain: {error}", file=sys.stderr)
        return 2
    settings.graph_optimization_level = GraphOptimizationLevel(options.level)
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = InferenceSession(options.model, settings, providers=[PROVIDERS[options.provider]])
    found = explain_model(
        options.model, session, sizes=sizes, run=not options.no_run, verbose=options.verbose
    )
    if options.json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        _print(found, options.nodes or options.verbose)
    return 0


def _print(found: Explanation, with_nodes: bool) -> None:
    print(found.text)
    if found.run:
        print(f"\nnot run on made-up inputs, so sizes may be unknown: {found.run}")
    if found.fusions:
        print("\nfusions (kernels that compute several nodes):")
        for operators, count in found.fusions.items():
            print(f"{count:4d} {operators}")
    without = sum(found.reasons.values())
    if without:
        print(f"\nnodes without a kernel: {without} of {len(found.nodes)}")
        for reason, count in found.reasons.items():
            print(f"{count:4d} {reason}")
    if with_nodes:
        print("\nnodes:")
        for node in found.nodes:
            where = ", ".join(node.kernels) or f"no kernel: {node.reason}"
            print(f"  {node.operator} {node.name} -> {where}")
