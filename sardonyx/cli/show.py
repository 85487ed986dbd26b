"""`sardonyx show MODEL --stage ...`: what a model looks like on its way to machine code."""

from __future__ import annotations

import argparse

from sardonyx.cli.output import say_text
from sardonyx.compiler.stages import DEFAULT_DEVICE, STAGES, stage_text
from sardonyx.compiler.targets import TARGETS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, which stage, for what."""
    parser.add_argument("model", help="the ONNX file")
    parser.add_argument("--stage", choices=STAGES, default="graph", help="which one (graph)")
    parser.add_argument("--after", metavar="PASS", help="with --stage graph: after this pass")
    parser.add_argument(
        "--target",
        choices=TARGETS,
        help=f"what to compile for, whatever runs here (this machine; for ptx {DEFAULT_DEVICE})",
    )


def run(options: argparse.Namespace) -> int:
    """Print the stage."""
    say_text(stage_text(options.model, options.stage, options.after, options.target))
    return 0
