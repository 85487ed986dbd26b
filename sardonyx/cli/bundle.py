"""`sardonyx bundle MODEL OUTPUT`: a model compiled ahead of time."""

from __future__ import annotations

import argparse
import os

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cli.arguments import add_dimensions, sizes_of
from sardonyx.cli.output import say

_ABOUT = """\
Compile a model into one file: plan, machine code, packed weights. A session opens it like a model,
at once: without optimising or compiling, without llvmlite, and without a folder to write to. The
file is for this version of sardonyx and for processors with the same instructions as this one (or
those of --cpu). It is machine code: run only bundles whose maker you trust.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, where to, for which processor."""
    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", nargs="?", help="the ONNX file")
    parser.add_argument(
        "output", nargs="?", help="the bundle; sessions take names that end with .sardonyx as such"
    )
    parser.add_argument(
        "--cpu", choices=("avx512", "avx2", "sse", "neon"),
        help="instructions to use, not beyond this machine's (default: the best)",
    )  # fmt: skip
    add_dimensions(parser, "size of a dimension, by its name or as INPUT.AXIS")
    parser.add_argument(
        "--any-sizes", action="store_true",
        help="also for inputs whose sizes contradict the names that the model gives them",
    )  # fmt: skip
    parser.add_argument(
        "--parallel", action="store_true", help="for sessions with ORT_PARALLEL, too"
    )
    parser.add_argument("--check", metavar="BUNDLE", help="verify every byte of a bundle instead")


def run(options: argparse.Namespace) -> int:
    """Compile or verify, and report."""
    _check_files(options)
    if options.check is not None:
        return _check(options.check)
    if options.cpu is not None:
        os.environ["SARDONYX_CPU"] = options.cpu
    from sardonyx.compiler.bundle_writer import bundle_file
    from sardonyx.compiler.options import EngineOptions

    wanted = EngineOptions(
        free_dimension_overrides=_sizes(options), branches=0 if options.parallel else None
    )
    made = bundle_file(options.model, options.output, wanted, any_sizes=options.any_sizes)
    say(f"{options.output}: {made.size_bytes} bytes, {made.kernels} kernels for {made.target}")
    further = [name for name in made.plans if name]
    if further:
        say(f"further plans: {', '.join(further)}")
    return 0


def _check_files(options: argparse.Namespace) -> None:
    from sardonyx.tools.targets import check_targets

    if options.check is not None and options.model is not None:
        raise InvalidArgument(message("--check", "It takes one bundle, and no model"))
    if options.check is None and (options.model is None or options.output is None):
        raise InvalidArgument(message("bundle", "Give a model and a file to write"))
    if options.check is None:
        check_targets(options.model, options.output)


def _sizes(options: argparse.Namespace) -> dict[str, int]:
    """Sizes by name; those of dimensions that the model does not have, sessions only warn of."""
    from sardonyx.loader.load import load
    from sardonyx.tools.optimizer.model import sizes_by_name

    sizes = sizes_of(options.dim)
    return sizes_by_name(load(options.model), sizes) if sizes else {}


def _check(path: str) -> int:
    from sardonyx.store.bundle import Bundle

    with Bundle(path) as bundle:
        bundle.verify_all()
        say(f"{path}: whole, for {bundle.header['target']}, {bundle.identity}")
    return 0
