"""Inputs of a model for the command line: from a file, or random ones that are valid."""

from __future__ import annotations

import argparse
import zipfile
import zlib
from typing import Any

import numpy as np

from sardonyx.api.session import InferenceSession
from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.tools.feeds import random_feeds


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that say what to feed."""
    parser.add_argument("--inputs", metavar="FILE.npz", help="arrays by input name")
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="size of a named dimension (1)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of random inputs")
    parser.add_argument("--threads", type=int, default=0, help="threads of a run (all)")


def make_inputs(session: InferenceSession, options: argparse.Namespace) -> dict[str, Any]:
    """Arrays for every input: those of --inputs, else random ones."""
    if options.inputs:
        return read_arrays(options.inputs)
    sizes = {}
    names = {d for i in session.get_inputs() for d in i.shape if isinstance(d, str)}
    for text in options.dim:
        name, _, size = text.rpartition("=")
        if not size.isdigit():
            raise InvalidArgument(message("--dim", "It is not NAME=SIZE", got=text))
        if name not in names:
            what = f"No input has a dimension {name!r}"
            raise InvalidArgument(message("--dim", what, do=nearest(name, names)))
        sizes[name] = int(size)
    return random_feeds(session.get_inputs(), sizes, options.seed)


def read_arrays(path: str) -> dict[str, Any]:
    """The arrays of a .npz file, by name.

    Raises:
        InvalidArgument: It is none.
    """
    try:
        held = np.load(path)
        if isinstance(held, np.lib.npyio.NpzFile):
            with held:
                return dict(held)
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        pass  # of the file, or of an array in it: damaged, or of Python's objects
    raise InvalidArgument(message("--inputs", "It is no .npz file of arrays", got=path))
