"""Sessions and inputs of the command line: from a file, or random ones that are valid."""

from __future__ import annotations

import argparse
from typing import Any

from sardonyx.api.enums import GraphOptimizationLevel
from sardonyx.api.options import SessionOptions
from sardonyx.api.session import InferenceSession
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cli.arguments import add_dimensions, add_provider, add_seed, add_threads, sizes_of
from sardonyx.loader import arrays
from sardonyx.tools.feeds import random_feeds
from sardonyx.tools.made_up import Sizes, check_sizes, input_sizes
from sardonyx.tools.providers import only

#: Nobody chose these.
_NONE = Sizes({}, {})


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say what to feed, and where to run."""
    parser.add_argument("--inputs", metavar="FILE.npz", help="arrays by input name")
    add_dimensions(parser)
    add_seed(parser)
    add_threads(parser)
    add_provider(parser)


def open_session(options: argparse.Namespace, level: int = 99) -> InferenceSession:
    """A session of the model, with the threads and the provider that flags say.

    Raises:
        EPFail: The provider is not there; no other one stands in.
    """
    settings = SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.graph_optimization_level = GraphOptimizationLevel(level)
    providers = only(settings, options.provider)
    return InferenceSession(options.model, settings, providers=providers)


def make_inputs(
    session: InferenceSession, options: argparse.Namespace
) -> tuple[dict[str, Any], Sizes]:
    """Arrays for every input, those of --inputs or random ones; and what sizes were chosen.

    Raises:
        InvalidArgument: There is no such file of arrays, or no such dimension.
    """
    if options.inputs:
        return read_arrays(options.inputs), _NONE
    given, nodes = sizes_of(options.dim), session.get_inputs()
    check_sizes(nodes, given)
    return random_feeds(nodes, given, options.seed), input_sizes(nodes, given)


def read_arrays(path: str) -> dict[str, Any]:
    """The arrays of a .npz file, by name.

    Raises:
        NoSuchFile, InvalidArgument, Fail: There is none, or it is something else.
    """
    held = arrays.read_arrays(path)
    if isinstance(held, dict):
        return held
    raise InvalidArgument(message("--inputs", "It is no .npz file of arrays", got=path))
