"""`sardonyx quantize MODEL OUT`: a model of codes, and how far it is from the float model."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sardonyx.api.options import SessionOptions
from sardonyx.api.session import InferenceSession
from sardonyx.base.errors import InvalidArgument, NoSuchFile, message
from sardonyx.cli.arguments import add_dimensions, add_seed, add_threads, sizes_of, whole
from sardonyx.cli.inputs import make_inputs
from sardonyx.cli.output import say
from sardonyx.tools.made_up import explained
from sardonyx.tools.targets import check_targets

_MODES = {
    "dynamic": "weights become 8-bit codes; activations are rounded in each run, with no samples",
    "static": "weights and activations become codes, with ranges found on samples (--data)",
    "int4": "weights of MatMul nodes become 4-bit codes in blocks; activations stay floats",
    "int8-blocks": "the same with 8 bits",
}
_TYPES = ("int8", "uint8", "int16", "uint16", "int4", "uint4")
_METHODS = ("minmax", "entropy", "percentile")

_EPILOG = """modes:
  {modes}

Choose static for convolutional nets, dynamic for transformers and recurrent nets, int4 for language
models whose weights are what costs time. Codes lose accuracy: look at the report, and if it is not
good enough try --per-channel, other samples, or leave nodes out with --exclude.

example:
  sardonyx quantize resnet50.onnx resnet50.int8.onnx --mode static --data samples/ --per-channel
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to quantise, how, and what to compare on."""
    modes = "\n  ".join(f"{name:12} {text}" for name, text in _MODES.items())
    parser.epilog = _EPILOG.format(modes=modes)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("model", type=Path, help="the float model, an ONNX file")
    add("output", type=Path, metavar="OUT", help="the file to write")
    add("--mode", choices=_MODES, default="dynamic", help="see below; default dynamic")
    add(
        "--data",
        default="random",
        metavar="FOLDER",
        help="sample inputs: a folder of .npz files (arrays by input name), of .npy files, or of "
        "ONNX test data (input_0.pb); or `random`, which is good for a first try only",
    )
    add("--samples", type=whole(1), default=16, metavar="N", help="random inputs; default 16")
    add_seed(parser)
    add_dimensions(parser)
    add_threads(parser)
    add(
        "--format",
        choices=("qdq", "qoperator"),
        help="static: floats between codes, which any engine fuses (default), or operators on "
        "codes; int4: DequantizeLinear, or MatMulNBits (default)",
    )
    add("--per-channel", action="store_true", help="a scale for each channel of a weight")
    add("--reduce-range", action="store_true", help="7 bits, for processors without VNNI")
    add("--activation-type", choices=_TYPES, help="codes of activations; default uint8")
    add("--weight-type", choices=_TYPES, help="codes of weights; default int8")
    add("--calibration", choices=_METHODS, default="minmax", help="how ranges are found")
    add("--op-types", type=_names, metavar="A,B", help="operators to quantise; default all")
    add("--nodes", type=_names, metavar="A,B", help="names of the only nodes to quantise")
    add("--exclude", type=_names, metavar="A,B", help="names of nodes to leave alone")
    add("--block-size", type=whole(1), default=32, metavar="N", help="of int4 and int8-blocks")
    add("--symmetric", action="store_true", help="zero is the middle code of weights")
    add(
        "--accuracy-level",
        type=whole(0, 4),
        metavar="0..4",
        help="of int4; 4 rounds activations, too",
    )
    add("--external-data", action="store_true", help="large constants in a file beside OUT")
    add("--no-report", action="store_true", help="do not compare the two models")


def run(options: argparse.Namespace) -> int:
    """Quantise, compare, print."""
    if options.data != "random" and not Path(options.data).exists():
        raise NoSuchFile(message("--data", f"There is no file or folder {options.data}"))
    sizes_of(options.dim)  # before anything else is done
    wrong = _contradiction(options)
    if wrong:
        raise InvalidArgument(message("arguments", wrong, do="See sardonyx quantize --help"))
    side = f"{options.output}.data" if options.external_data else None
    check_targets(options.model, options.output, side)
    _check_names(options)
    feeds = _feeds(options) if options.mode == "static" or not options.no_report else []
    _quantise(options, feeds)
    say(
        f"{options.output}: {_size(options.output)}, the float model has {_size(options.model)}\n"
        f"{_counted(options.output)}"
    )
    if not options.no_report:
        _report(options, feeds)
    return 0


def _size(path: Path) -> str:
    """What a model takes on disk, with its external data."""
    side = Path(f"{path}.data")
    count = os.path.getsize(path) + (os.path.getsize(side) if side.exists() else 0)
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} KB"


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _contradiction(options: argparse.Namespace) -> str:
    """What is wrong with the arguments taken together, or nothing."""
    blocks = options.mode in ("int4", "int8-blocks")
    if options.mode != "static" and options.activation_type:
        return f"--activation-type has no meaning with --mode {options.mode}"
    if options.mode == "dynamic" and options.format:
        return "--format has no meaning with --mode dynamic"
    if blocks and (options.weight_type or options.per_channel or options.reduce_range):
        what = "--weight-type, --per-channel and --reduce-range have"
        return f"{what} no meaning with --mode {options.mode}"
    if blocks and options.nodes:
        return f"--nodes has no meaning with --mode {options.mode}"
    if not blocks and options.accuracy_level is not None:
        return f"--accuracy-level has no meaning with --mode {options.mode}"
    return ""


def _session(options: argparse.Namespace) -> InferenceSession:
    settings = SessionOptions()
    settings.intra_op_num_threads = options.threads
    return InferenceSession(options.model, settings)


def _feeds(options: argparse.Namespace) -> list[Mapping[str, Any]]:
    from sardonyx.quantization.samples import read_samples

    session = _session(options)
    names = [i.name for i in session.get_inputs()]
    if not names and options.mode == "static":
        what = "The model has no inputs, so that there is nothing to find ranges with"
        raise InvalidArgument(message("--mode static", what, do="Use --mode dynamic or int4"))
    if options.data != "random":
        return read_samples(Path(options.data), names)
    text = "random inputs say little about real ones: give samples with --data"
    say(f"note: {text}", is_error=True)
    options.inputs = None
    first = options.seed
    found: list[Mapping[str, Any]] = []
    for number in range(options.samples):
        options.seed = first + number
        feeds, sizes = make_inputs(session, options)
        found.append(feeds)
        if number:
            continue
        if sizes.chosen:
            say(f"note: {sizes.told()}", is_error=True)
        with explained(sizes, "--data FOLDER"):  # before anything is written
            session.run(None, feeds)
    return found


def _check_names(options: argparse.Namespace) -> None:
    from sardonyx.loader.load import load
    from sardonyx.quantization.model import check_node_names

    graph = load(options.model)
    check_node_names(graph, options.nodes or [], "--nodes")
    check_node_names(graph, options.exclude or [], "--exclude")
    held = {node.op_type for node in graph.walk()}
    for name in options.op_types or []:
        if name not in held:
            what = f"The model has no operator {name!r}"
            raise InvalidArgument(message("--op-types", what, expected=", ".join(sorted(held))))


def _quantise(options: argparse.Namespace, feeds: list[Mapping[str, Any]]) -> None:
    from sardonyx import quantization as q
    from sardonyx.quantization.calibration_data import ListReader

    types = {t: q.QuantType[f"Q{t.replace('u', 'U').replace('int', 'Int')}"] for t in _TYPES}
    common: dict[str, Any] = {
        "op_types_to_quantize": options.op_types,
        "nodes_to_exclude": options.exclude,
    }
    if options.mode in ("int4", "int8-blocks"):
        form = q.QuantFormat.QDQ if options.format == "qdq" else q.QuantFormat.QOperator
        quantizer = q.MatMulNBitsQuantizer(
            options.model,
            4 if options.mode == "int4" else 8,
            options.block_size,
            options.symmetric,
            options.accuracy_level,
            quant_format=form,
            **common,
        )
        quantizer.process()
        quantizer.model.save_model_to_file(options.output, options.external_data)
        return
    common |= {
        "per_channel": options.per_channel,
        "reduce_range": options.reduce_range,
        "nodes_to_quantize": options.nodes,
        "weight_type": types[options.weight_type or "int8"],
        "use_external_data_format": options.external_data,
        "extra_options": {"WeightSymmetric": True} if options.symmetric else {},
    }
    if options.mode == "dynamic":
        q.quantize_dynamic(options.model, options.output, **common)
        return
    methods = {name.lower(): method for name, method in q.CalibrationMethod.__members__.items()}
    q.quantize_static(
        options.model,
        options.output,
        ListReader(feeds),
        q.QuantFormat.QOperator if options.format == "qoperator" else q.QuantFormat.QDQ,
        activation_type=types[options.activation_type or "uint8"],
        calibrate_method=methods[options.calibration],
        **common,
    )


def _counted(path: Path) -> str:
    """Operators that work on codes, by count."""
    from collections import Counter

    from sardonyx.loader.load import load

    marks = ("Q", "MatMulNBits", "GatherBlockQuantized", "DynamicQuantize", "Dequantize")
    ends = ("Integer",)
    nodes = [n.op_type for n in load(path).walk()]
    found = Counter(n for n in nodes if n.startswith(marks) or n.endswith(ends))
    listed = ", ".join(f"{name} {count}" for name, count in found.most_common())
    return f"operators on codes: {listed or 'none - nothing could be quantised'}"


def _report(options: argparse.Namespace, feeds: list[Mapping[str, Any]]) -> None:
    from sardonyx.quantization.report import compare_models

    settings = SessionOptions()
    settings.intra_op_num_threads = options.threads
    found = compare_models(options.model, options.output, feeds, settings)
    say(f"against the float model, {len(feeds)} samples:")
    for entry in found:
        say(f"  {entry}")
