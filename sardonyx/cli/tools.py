"""`sardonyx tools NAME MODEL OUTPUT`: small changes of an ONNX file."""

from __future__ import annotations

import argparse
import os

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cli.arguments import MOST_BYTES, add_dimensions, numbers_of, sizes_of, whole
from sardonyx.cli.output import say
from sardonyx.tools.targets import check_targets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which tool, which files."""
    tools = parser.add_subparsers(dest="tool", required=True, metavar="NAME")

    def tool(name: str, text: str) -> argparse.ArgumentParser:
        made = tools.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        made.add_argument("model", help="the ONNX file")
        made.add_argument("output", help="the file to write")
        return made

    tool("remove-initializer-from-input", "weights cease to be inputs, which a caller may override")
    fix = tool("fix-shapes", "dimensions of inputs become numbers, outputs follow")
    add_dimensions(fix, "of that name, or as INPUT.AXIS")
    fix.add_argument("--dim_param", metavar="NAME", help="of that name, with --dim_value")
    fix.add_argument("--dim_value", type=whole(1, 2**63 - 1), metavar="N")
    fix.add_argument("--input_name", metavar="NAME", help="of that input, with --input_shape")
    fix.add_argument("--input_shape", metavar="1,3,224,224")
    update = tool("update-opset", "newer versions of ONNX's operators (needs sardonyx[tools])")
    update.add_argument(
        "--opset", type=whole(1, 1000), default=15, help="version to update to (15)"
    )
    split = tool("split-external", "weights go to a file of their own beside the model")
    split.add_argument(
        "--threshold", type=whole(0, MOST_BYTES), default=1024, help="bytes from which they do"
    )
    split.add_argument("--location", metavar="FILE", help="that file's name (OUTPUT.data)")
    strip = tool("strip-weights", "weights are left out, to be given when a session is made")
    strip.add_argument(
        "--threshold", type=whole(0, MOST_BYTES), default=1024, help="bytes from which they are"
    )


def run(options: argparse.Namespace) -> int:
    """Change the model and report."""
    from sardonyx.tools import models

    source, target = options.model, options.output
    check_targets(source, target)
    if options.tool == "remove-initializer-from-input":
        names = models.remove_initializers_from_inputs(source, target)
        say(f"{target}: {len(names)} initializers were inputs, and no longer are")
    elif options.tool == "fix-shapes":
        dims, inputs = _shapes(options)
        shapes = models.fix_shapes(source, target, dims=dims, inputs=inputs)
        say(f"{target}: its inputs and outputs are now")
        for name, shape in shapes.items():
            say(f"{name}: {shape}")
    elif options.tool == "update-opset":
        old, new, _ = models.update_opset(source, target, options.opset)
        say(f"{target}: version {new} of ONNX's operators ({old} before)")
    elif options.tool == "split-external":
        size = models.split_external(source, target, options.threshold, options.location)
        beside = options.location or f"{os.path.basename(target)}.data"
        say(f"{target}: {os.path.getsize(target)} bytes, {size} in {beside}")
    else:
        names = models.strip_weights(source, target, options.threshold)
        say(f"{target}: {os.path.getsize(target)} bytes, without {len(names)} weights")
        if names:
            say("sessions take them by SessionOptions.add_external_initializers")
    return 0


def _shapes(options: argparse.Namespace) -> tuple[dict[str, int], dict[str, list[int]]]:
    dims = sizes_of(options.dim)
    if (options.dim_param is None) != (options.dim_value is None):
        raise InvalidArgument(message("fix-shapes", "--dim_param and --dim_value go together"))
    if (options.input_name is None) != (options.input_shape is None):
        raise InvalidArgument(message("fix-shapes", "--input_name and --input_shape go together"))
    if options.dim_param is not None:
        dims = sizes_of([*options.dim, f"{options.dim_param}={options.dim_value}"])
    inputs = {}
    if options.input_name is not None:
        shape = numbers_of(options.input_shape, "--input_shape", 1, 2**63 - 1)
        inputs[options.input_name] = list(shape or ())
    if not dims and not inputs:
        raise InvalidArgument(message("fix-shapes", "Give --dim, or --input_name and its shape"))
    return dims, inputs
