"""`sardonyx convert SOURCE OUTPUT`: models of other frameworks to ONNX, each checked."""

from __future__ import annotations

import argparse
import re
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cli.arguments import add_seed, real, whole
from sardonyx.cli.inputs import read_arrays
from sardonyx.cli.output import say_text

_ABOUT = """\
Write a model of PyTorch, TensorFlow, scikit-learn, LightGBM or XGBoost as an ONNX file, then run
the same inputs in both and compare. The exit status is 0 only if they agree.

SOURCE is a file (.pt2 of torch.export, .keras, .h5, a SavedModel's folder, .txt of LightGBM, .json
or .ubj of XGBoost, .pkl, .joblib), or package.module:name of a model or of a function that makes
one:

  sardonyx convert torchvision.models:resnet18 resnet18.onnx --input x=1x3x224x224 --free x.0=batch
  sardonyx convert booster.txt booster.onnx
"""
_INPUT = re.compile(r"([^=]+)=([0-9]+(?:x[0-9]+)*)(?::(\w+))?")
_FREE = re.compile(r"(.+)\.([0-9]+)=(\w+)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, where to, with which inputs."""
    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("source", help="a model's file, or package.module:name")
    parser.add_argument("output", help="the ONNX file to write")
    parser.add_argument("--from", dest="framework", metavar="FRAMEWORK", help="if it is not clear")
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=1x3x224x224[:TYPE]",
        help="an argument of the model, in order; random if it is a float, else zeros",
    )  # fmt: skip
    parser.add_argument("--inputs", metavar="FILE.npz", help="arrays by name instead")
    parser.add_argument(
        "--free", action="append", default=[], metavar="NAME.AXIS=DIM",
        help="an axis that may have other sizes later, and the dimension's name",
    )  # fmt: skip
    parser.add_argument("--opset", type=whole(1, 1000), help="version of ONNX's operators")
    parser.add_argument("--tolerance", type=real(), default=1e-4, help="relative error allowed")
    add_seed(parser)
    parser.add_argument(
        "--trust-pickle", action="store_true", help="read pickles, which may run any code"
    )


def run(options: argparse.Namespace) -> int:
    """Convert and compare; the exit status is 1 if outputs differ."""
    from sardonyx.tools.convert import convert

    report = convert(
        options.source, options.output, inputs=_inputs(options), framework=options.framework,
        opset=options.opset, free=_free(options.free), tolerance=options.tolerance,
        seed=options.seed, trust_pickle=options.trust_pickle,
    )  # fmt: skip
    say_text(str(report))
    return 0 if report.is_right else 1


def _inputs(options: argparse.Namespace) -> dict[str, Any] | None:
    if options.inputs:
        return read_arrays(options.inputs)
    random, found = np.random.default_rng(options.seed), {}
    for text in options.input:
        parts = _INPUT.fullmatch(text)
        dtype = dtypes.BY_NAME.get((parts and parts[3]) or "float")
        if parts is None or dtype is None:
            expected = "NAME=1x3x224x224, or with a type: NAME=1x128:int64"
            raise InvalidArgument(message("--input", "It is no input", expected=expected, got=text))
        shape = tuple(map(int, parts[2].split("x")))
        try:
            made = random.standard_normal(shape) if dtype.is_float else np.zeros(shape)
            found[parts[1]] = made.astype(dtype.numpy)
        except (MemoryError, ValueError, OverflowError) as error:
            what = f"No array of its sizes can be made up ({error})"
            raise InvalidArgument(message("--input", what, got=text)) from None
    return found or None


def _free(texts: list[str]) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for text in texts:
        parts = _FREE.fullmatch(text)
        if parts is None:
            expected = "NAME.AXIS=DIM, such as x.0=batch"
            raise InvalidArgument(message("--free", "It is no axis", expected=expected, got=text))
        found.setdefault(parts[1], {})[int(parts[2])] = parts[3]
    return found
