"""`sardonyx view FILE [OTHER]`: a profile or a model as a web page."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sardonyx.cli.arguments import add_dimensions, add_provider, sizes_of, whole
from sardonyx.cli.output import say
from sardonyx.tools.targets import check_targets

_ABOUT = """\
Write a web page about a profile of sardonyx or of onnxruntime, or about a model, which is run on
random inputs and profiled. The page is one file, and works without a network: operators and nodes
as areas, the timeline with threads and streams, memory and who holds it, which kernel computes
each node and why it ends there, and a table of calls. Of two files it shows the differences.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which files, where to write, how to run a model."""
    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", help="a profile (.json) or a model (.onnx)")
    parser.add_argument("other", nargs="?", help="another one, to compare with the first")
    parser.add_argument(
        "--output", "-o", metavar="FILE.html", help="the page (default: the first file's name)"
    )
    parser.add_argument("--open", action="store_true", help="show the page in a browser")
    models = parser.add_argument_group("of models")
    add_dimensions(
        models, "size of a dimension, by its name or as INPUT.AXIS (chosen, and told on the page)"
    )
    models.add_argument("--runs", type=whole(1), default=5, help="runs to profile (default: 5)")
    add_provider(models)


def run(options: argparse.Namespace) -> int:
    """Write the page."""
    from sardonyx.tools.view import write_page

    sources = [options.file] + ([options.other] if options.other else [])
    target = Path(options.output or f"{Path(options.file).name.removesuffix('.html')}").absolute()
    if not options.output:
        target = target.with_suffix(".html")
    for source in sources:
        check_targets(source, target)
    write_page(
        target, *sources, dims=sizes_of(options.dim), runs=options.runs,
        provider=options.provider,
    )  # fmt: skip
    say(f"{os.path.relpath(target)}: {target.stat().st_size / 1e6:.1f} MB")
    if options.open:
        import webbrowser

        if not webbrowser.open(target.as_uri()):
            say("sardonyx view: no browser was found", is_error=True)
    return 0
