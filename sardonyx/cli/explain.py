"""`sardonyx explain MODEL`: kernels, fusions, copies, memory, what became of nodes."""

from __future__ import annotations

import argparse
import json

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cli.arguments import add_dimensions, add_provider, add_threads, sizes_of
from sardonyx.cli.inputs import open_session
from sardonyx.cli.output import say, say_text
from sardonyx.compiler.targets import TARGETS
from sardonyx.tools.explain import ModelExplanation, explain_model
from sardonyx.tools.perf.settings import LEVELS


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
    add("--why", metavar="NODE", help="one node alone: kernel, fusion, layout, time")
    add("--target", choices=TARGETS, help="with --why: what to compile for (this machine)")
    add(
        "--measure",
        action="store_true",
        help="with --why: run the model, and compare its kernels with what the machine can do",
    )
    add_dimensions(parser)
    add_provider(parser)
    add_threads(parser)
    add("-o", "--level", type=int, choices=LEVELS, default=99, help="of optimisation (99)")


def run(options: argparse.Namespace) -> int:
    """Make a session and explain it; see `_print`."""
    sizes = sizes_of(options.dim)
    _check(options)
    if options.why is not None:
        from sardonyx.tools.why import why_text  # it needs what else comes from the cache

        text = why_text(
            options.model, options.why, known=sizes, level=options.level, target=options.target,
            measured=options.threads if options.measure else None,
        )  # fmt: skip
        say_text(text)
        return 0
    session = open_session(options, options.level)
    found = explain_model(
        options.model, session, sizes=sizes, run=not options.no_run, verbose=options.verbose
    )
    if options.json:
        say_text(json.dumps(found.to_json(), indent=1))
    else:
        _print(found, options.nodes or options.verbose)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that would have no effect.

    Raises:
        InvalidArgument: There is one.
    """
    if options.why is None:
        if options.target is not None:
            what = "It says what one node is compiled for"
            raise InvalidArgument(message("--target", what, do="Name the node with --why"))
        if options.measure:
            what = "It measures the kernels of one node"
            raise InvalidArgument(message("--measure", what, do="Name the node with --why"))
        return
    if options.measure and options.target is not None:
        what = "Kernels are measured on this machine, and --target names what to compile for"
        raise InvalidArgument(message("--measure", what, do="Leave one of the two out"))
    given = {
        "--nodes": options.nodes, "--verbose": options.verbose, "--json": options.json,
        "--no-run": options.no_run, "--provider": options.provider != "cpu",
        "--threads": options.threads and not options.measure,
    }  # fmt: skip
    wrong = ", ".join(name for name, is_given in given.items() if is_given)
    if wrong:
        what = f"A node is explained without a session, so {wrong} would have no effect"
        do = "Leave it out; --target names a GPU"
        raise InvalidArgument(message("--why", what, do=do))


def _print(found: ModelExplanation, with_nodes: bool) -> None:
    say_text(found.text)
    if found.sizes and not found.run:
        say()
        say(f"{found.sizes}")
    if found.run:
        say()
        say(f"not run on made-up inputs, so sizes may be unknown: {found.run}")
    if found.fusions:
        say()
        say("fusions (kernels that compute several nodes):")
        for operators, count in found.fusions.items():
            say(f"{count:4d} {operators}")
    without = sum(found.reasons.values())
    if without:
        say()
        say(f"nodes without a kernel: {without} of {len(found.nodes)}")
        for reason, count in found.reasons.items():
            say(f"{count:4d} {reason}")
    if with_nodes:
        say()
        say("nodes:")
        for node in found.nodes:
            where = ", ".join(node.kernels) or f"no kernel: {node.reason}"
            say(f"  {node.operator} {node.name} -> {where}")
