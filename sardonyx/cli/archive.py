"""`sardonyx archive MODEL... --output FOLDER`: kernels compiled ahead of any session."""

from __future__ import annotations

import argparse
from pathlib import Path

from sardonyx.cli.output import say

_ABOUT = """\
Compile models, and keep their kernels in an archive. Sessions find kernels there by what they
compute, whichever model they are for: a model of such layers is made without LLVM, also on a
machine that has an empty cache, or none. Set SARDONYX_KERNELS to the folder. The package
sardonyx-kernels brings archives of published networks' kernels. An archive is machine code, for
this version of sardonyx and for processors with the target's instructions.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which models, where to, for which processor."""
    from sardonyx.compiler.targets import PROCESSORS

    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", nargs="+", help="ONNX files")
    parser.add_argument("--output", required=True, help="the folder of archives")
    parser.add_argument(
        "--target", choices=PROCESSORS, help="instructions to use (default: this machine's best)"
    )


def run(options: argparse.Namespace) -> int:
    """Compile, and report."""
    from sardonyx.compiler.archive_writer import ArchivedGraph, write_archive
    from sardonyx.compiler.targets import target_of
    from sardonyx.targets.target import host_target

    def told(graph: ArchivedGraph) -> None:
        say(f"{graph.name}: new kernels: {graph.made}, known: {graph.known}")

    target = host_target() if options.target is None else target_of(options.target)
    sources = [(path, path) for path in options.model]
    path = write_archive(Path(options.output), target, sources, told)
    say(f"{path}: {path.stat().st_size} bytes for {target}")
    return 0
