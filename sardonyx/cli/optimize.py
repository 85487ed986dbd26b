"""`sardonyx optimize MODEL OUTPUT`: the optimised graph as an ONNX file."""

from __future__ import annotations

import argparse
import os

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cli.arguments import add_dimensions, sizes_of, whole
from sardonyx.cli.output import say
from sardonyx.tools.targets import check_targets

_ABOUT = """\
Write a model whose graph is simplified: constants folded, equal values merged, nodes that change
nothing removed, batch norms and paddings taken into convolutions. The file runs in any engine.
With --fuse, layers of transformers become operators of com.microsoft (attention, normalisations,
GELUs, embeddings), which onnxruntime and sardonyx have. They are found by structure: the model's
type need not be given. All flags of onnxruntime.transformers.optimizer are known.
"""
_LEVELS = (0, 1, 2, 3, 99)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, what to do to it, where to write it."""
    from sardonyx.tools.optimizer.options import MODEL_TYPES, FusionOptions

    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", nargs="?", help="the ONNX file")
    parser.add_argument("written", nargs="?", metavar="output", help="the file to write")
    parser.add_argument("--input", metavar="MODEL", help="the same as the first argument")
    parser.add_argument("--output", metavar="OUTPUT", help="the same as the second argument")
    parser.add_argument(
        "--level", "--opt_level", type=int, choices=_LEVELS, default=99,
        help="0 leaves the graph as it is; all others do the same (99)",
    )  # fmt: skip
    parser.add_argument("--fuse", action="store_true", help="make operators of com.microsoft")
    parser.add_argument("--float16", action="store_true", help="weights and nodes in half floats")
    parser.add_argument(
        "--op_block_list",
        nargs="+",
        metavar="OPERATOR",
        help="with --float16: these stay in floats",
    )
    parser.add_argument(
        "--node_block_list", nargs="+", default=(), metavar="NODE",
        help="with --float16: nodes of these names stay in floats",
    )  # fmt: skip
    parser.add_argument(
        "--keep_io_types", nargs="*", metavar="NAME",
        help="with --float16: inputs and outputs of these names stay in floats (no name: all)",
    )  # fmt: skip
    add_dimensions(parser, "size of a dimension, by its name or as INPUT.AXIS")
    parser.add_argument(
        "--external-data", nargs="?", type=whole(), const=1024, metavar="BYTES",
        help="weights of so many bytes (1024) go to OUTPUT.data; models above 2 GB do anyway",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="say what was not fused, and why")
    names = parser.add_argument_group("of onnxruntime.transformers.optimizer; those ask for --fuse")
    names.add_argument("--model_type", choices=MODEL_TYPES, help="not needed")
    names.add_argument(
        "--num_heads", type=whole(), default=0, help="fuse attentions of so many heads"
    )
    names.add_argument("--hidden_size", type=whole(), default=0, help="and of so many channels")
    FusionOptions.add_arguments(names)  # type: ignore[arg-type]  # a group adds arguments, too
    names.add_argument("--input_int32", action="store_true", help="inputs of int64 become int32")
    names.add_argument("--use_gpu", action="store_true", help="operators that only GPUs have, too")
    names.add_argument("--provider", help="not needed: what is made holds for all")
    names.add_argument("--only_onnxruntime", action="store_true", help="fuse nothing")
    names.add_argument(
        "--use_external_data_format", action="store_true", help="the same as --external-data"
    )


def run(options: argparse.Namespace) -> int:
    """Optimise, write, report."""
    from sardonyx.api.spelling import nearest
    from sardonyx.loader.writer import write
    from sardonyx.tools.optimizer.model import open_model, optimize_graph
    from sardonyx.tools.optimizer.options import FusionOptions

    source = _one(options.model, options.input, "a model")
    target = _one(options.written, options.output, "a file to write")
    fusions = FusionOptions.parse(options)
    if options.hidden_size % (options.num_heads or 1):
        what = f"{options.hidden_size} channels cannot be shared by {options.num_heads} heads"
        raise InvalidArgument(message("--num_heads", what))
    if options.only_onnxruntime and options.fuse:
        raise InvalidArgument(message("--fuse", "It contradicts --only_onnxruntime"))
    _check_half(options)
    check_targets(source, target, f"{target}.data")
    graph = open_model(source, free_dimensions=sizes_of(options.dim))
    before = len(list(graph.walk()))
    wanted = (options.fuse or _asks_to_fuse(options)) and not options.only_onnxruntime
    model = optimize_graph(graph, options.level, fusions if wanted else None)
    halves = 0
    if options.float16:
        held = {node.op_type for node in model.graph.walk()}
        for name in options.op_block_list or ():
            if name not in held:
                what = f"--op_block_list: the model has no operator {name!r}, so nothing changes"
                say(f"note: {what}. {nearest(name, held)}".rstrip(". "), is_error=True)
        keep = options.keep_io_types
        # onnxruntime's own command keeps all inputs and outputs.
        kept = True if not keep and (keep is not None or options.model_type) else keep or False
        halves = model.convert_float_to_float16(
            keep_io_types=kept,
            op_block_list=options.op_block_list,
            node_block_list=options.node_block_list,
        )
    if options.input_int32:
        model.change_graph_inputs_to_int32()
    external = options.external_data
    if external is None and options.use_external_data_format:
        external = 1024
    write(model.graph, target, external)
    after = len(list(model.graph.walk()))
    say(f"{target}: {os.path.getsize(target)} bytes, {after} nodes ({before} before)")
    if options.float16:
        say(f"{halves} nodes compute in half floats")
    if wanted:
        fused = {n: c for n, c in model.get_fused_operator_statistics().items() if c}
        say("fused operators:" if fused else "fused operators: none")
        for name, count in fused.items():
            say(f"  {name}: {count}")
    if options.verbose:
        for (name, reason), count in sorted(model.report.refused.items()):
            say(f"  {count} times no {name}: {reason}")
    return 0


def _one(first: str | None, second: str | None, what: str) -> str:
    if (first is None) == (second is None):
        raise InvalidArgument(message("optimize", f"Give {what}, once"))
    return first or second or ""


def _asks_to_fuse(options: argparse.Namespace) -> bool:
    from sardonyx.tools.optimizer.options import SWITCHES

    names = ("model_type", "num_heads", "hidden_size", *SWITCHES)
    return any(getattr(options, name) for name in names)


def _check_half(options: argparse.Namespace) -> None:
    if options.float16:
        return
    for name in ("op_block_list", "node_block_list", "keep_io_types"):
        if getattr(options, name) not in (None, ()):
            raise InvalidArgument(message(f"--{name}", "It needs --float16"))
