"""A model that was optimised: what onnxruntime.transformers' OnnxModel is there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Mapping
from contextlib import nullcontext
from typing import Any

from sardonyx.api.spelling import nearest
from sardonyx.base import errors
from sardonyx.base.dtypes import INT32, INT64
from sardonyx.base.errors import InvalidArgument, installing, message
from sardonyx.base.log import get_logger
from sardonyx.compiler import model_interface
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.loader.load import load
from sardonyx.loader.writer import write
from sardonyx.ops.core.lower import lower
from sardonyx.passes.infer import infer
from sardonyx.passes.pipeline import optimise
from sardonyx.tensor.assumptions import SEVERAL, undecided_broadcasts
from sardonyx.tools.optimizer.attention import AttentionOptions, attention
from sardonyx.tools.optimizer.diffusion import diffusion
from sardonyx.tools.optimizer.embedding import EMBEDDING
from sardonyx.tools.optimizer.gelu import APPROXIMATION, BIAS_GELU, GELU, GEMM_FAST_GELU
from sardonyx.tools.optimizer.grouped import grouped
from sardonyx.tools.optimizer.half import HalfOptions, convert_to_half
from sardonyx.tools.optimizer.norms import BIAS_SKIP, LAYER_NORM, SKIP
from sardonyx.tools.optimizer.options import FusionOptions, check_model_type
from sardonyx.tools.optimizer.rotary import ROTARY
from sardonyx.tools.optimizer.rules import Rule, RuleReport, run
from sardonyx.tools.optimizer.simplify import refresh, simplify

_logger = get_logger("optimize")
#: Operators that fusion makes, in the order in which they are reported.
FUSED_OPERATORS = (
    "EmbedLayerNormalization",
    "Attention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "RotaryEmbedding",
    "Gelu",
    "FastGelu",
    "QuickGelu",
    "BiasGelu",
    "GemmFastGelu",
    "LayerNormalization",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "GroupNorm",
    "SkipGroupNorm",
    "BiasSplitGelu",
    "BiasAdd",
    "NhwcConv",
)
#: Options of onnxruntime's conversion that change what types values get.
_REFUSED_OF_HALF = (
    "force_fp16_initializers", "force_fp16_inputs", "use_bfloat16_as_blocked_nodes_dtype"
)  # fmt: skip
#: What reasons begin with of assumptions that a valid run may contradict.
_GUESSED = ("If: ", "slice: ", SEVERAL)
#: Levels of onnxruntime: none, basic, and those beyond, which are one here.
LEVELS = (0, 1, 2, 3, 99)


class OptimizedModel:
    """A graph with what was done to it; the methods have onnxruntime's names.

    Attributes:
        graph: The graph.
        report: What the rules made, and where they had a reason not to.
    """

    def __init__(self, graph: Graph, report: RuleReport | None = None) -> None:
        self.graph = graph
        self.report = report or RuleReport()

    @property
    def model(self) -> Any:
        """The model as onnx's `ModelProto`.

        Raises:
            NotImplemented: The package onnx is not installed.
        """
        return onnx_package("a ModelProto").load_from_string(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The model as a file's bytes.

        Raises:
            InvalidArgument: It has 2 GiB or more.
        """
        return write(self.graph)

    def save_model_to_file(
        self,
        output_path: str | os.PathLike[str],
        use_external_data_format: bool = False,
        all_tensors_to_one_file: bool = True,
    ) -> None:
        """Write the model; nothing appears at the path before it is complete.

        Args:
            output_path: The file.
            use_external_data_format: Weights go to the file of that name + ".data". Those of a
                model of 2 GiB and more do in any case.
            all_tensors_to_one_file: There is no other way.

        Raises:
            InvalidArgument: A file for each tensor is asked for.
        """
        if not all_tensors_to_one_file:
            what = "Weights are written to one file, not to one each"
            raise InvalidArgument(message("save_model_to_file", what))
        write(self.graph, output_path, True if use_external_data_format else None)

    def convert_float_to_float16(
        self, use_symbolic_shape_infer: bool = True, **options: Any
    ) -> int:
        """Convert to half floats.

        Args:
            use_symbolic_shape_infer: Taken; types are always inferred.
            options: Those of `HalfOptions`. Of onnxruntime's, those that ask for what is not done
                are refused.

        Returns:
            The number of nodes that compute in half floats now.

        Raises:
            InvalidArgument: There is no such option, or it is refused, or a name does not exist.
        """
        options.pop("disable_shape_infer", None)
        for name in _REFUSED_OF_HALF:
            if options.pop(name, None):
                what = f"{name} is not supported: types follow operators' signatures"
                raise InvalidArgument(message("convert_float_to_float16", what))
        try:
            chosen = HalfOptions(**options)
        except TypeError as error:
            raise InvalidArgument(message("convert_float_to_float16", str(error))) from None
        count = convert_to_half(self.graph, chosen)
        infer(self.graph)
        return count

    def change_graph_inputs_to_int32(self) -> int:
        """Let inputs of int64 be int32; gives their number."""
        graph = self.graph
        found = [value for value in graph.inputs if value.dtype is INT64]
        for value in found:
            readers = value.uses
            value.dtype, value.declared = INT32, None
            wide = graph.new_value(f"{value.name}_int64", INT64, value.shape)
            needed = False
            for reader, place in readers:
                if reader.op_type == "Cast" and reader.attributes.get("to") == INT32.onnx_id:
                    graph.replace_uses(reader.output, value)
                    continue
                inputs = list(reader.inputs)
                inputs[place] = wide
                needed = True
                reader.graph.set_inputs(reader, inputs)  # type: ignore[union-attr]
            if needed:
                first = next(iter(graph.nodes), None)
                cast = Node("Cast", "", (value,), (wide,), {"to": INT64.onnx_id})
                graph.add_node(cast, before=first)
        refresh(graph)
        return len(found)

    def get_operator_statistics(self, include_domain: bool = False) -> dict[str, int]:
        """How many nodes of each operator there are, graphs inside nodes included."""
        counts = Counter(
            f"{node.domain}:{node.op_type}" if include_domain and node.domain else node.op_type
            for node in self.graph.walk()
        )
        return dict(counts)

    def get_fused_operator_statistics(self) -> dict[str, int]:
        """How many nodes of each operator there are that fusion makes."""
        counts = self.get_operator_statistics()
        return {name: counts.get(name, 0) for name in FUSED_OPERATORS}

    def is_fully_optimized(self, fused_op_count: Mapping[str, int] | None = None) -> bool:
        """Whether everything that a transformer of BERT's kind has was fused."""
        counts = fused_op_count or self.get_fused_operator_statistics()

        def total(*names: str) -> int:
            return sum(counts.get(name, 0) for name in names)

        layers = total("Attention", "MultiHeadAttention", "GroupQueryAttention")
        gelus = total("Gelu", "BiasGelu", "FastGelu")
        norms = total("LayerNormalization", "SkipLayerNormalization")
        simple = total("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
        embedded = total("EmbedLayerNormalization") > 0
        return embedded and 0 < layers == gelus and max(norms, simple) >= 2 * layers


def onnx_package(what: str) -> Any:
    """The package onnx.

    Args:
        what: What it is needed for.

    Raises:
        NotImplemented: It is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise errors.NotImplemented(
            message(what, "The package onnx is needed", do=installing("tools"))
        ) from None
    return onnx


def open_model(
    source: Any,
    *,
    folder: str | os.PathLike[str] | None = None,
    free_dimensions: Mapping[str, int] | None = None,
    initializers: Mapping[str, Any] | None = None,
    data_files: Mapping[str, bytes] | None = None,
) -> Graph:
    """A graph to be written again, dimensions of its inputs replaced by numbers.

    Args:
        source: What `loader.load` takes.
        folder: Where the files with external data are; by default beside the model.
        free_dimensions: Numbers for named dimensions.
        initializers: Contents for initializers, by name.
        data_files: Contents of files with external data, by their names in the model.

    Raises:
        InvalidArgument: No input has such a dimension, or the number is none.
    """
    graph = load(
        source, folder=folder, allow_missing_data=bool(initializers), data_files=data_files
    )
    model_interface.replace_initializers(graph, dict(initializers or {}))
    set_dimensions(graph, free_dimensions or {})
    return graph


def sizes_by_name(graph: Graph, numbers: Mapping[str, int]) -> dict[str, int]:
    """Sizes by the names of dimensions, of sizes by name or as INPUT.AXIS.

    Raises:
        InvalidArgument: No input has such a dimension, the number is none, or one contradicts
            another.
    """
    free = [
        (repr(d), f"{v.name}.{axis}")
        for v in graph.inputs
        for axis, d in enumerate(v.shape or ())
        if not isinstance(d, int)
    ]
    names = {name for name, _ in free}
    by_place = {place: name for name, place in free}
    found: dict[str, int] = {}
    for given, number in numbers.items():
        name = given if given in names else by_place.get(given, "")
        if not name:
            what, near = f"No input has a dimension {given!r}", nearest(given, {*names, *by_place})
            raise InvalidArgument(message("free dimension", what, do=near))
        if not isinstance(number, int) or number < 1:
            what = f"The size of {given!r} must be 1 or more"
            raise InvalidArgument(message("free dimension", what, got=str(number)))
        if found.setdefault(name, number) != number:
            what = f"{given} is {name!r}, which has two sizes: {found[name]} and {number}"
            raise InvalidArgument(message("free dimension", what))
    return found


def set_dimensions(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Give dimensions of the inputs their numbers.

    Args:
        graph: The graph.
        sizes: Numbers by the dimension's name, or as INPUT.AXIS, which holds for all dimensions of
            the same name.

    Raises:
        InvalidArgument: See `sizes_by_name`.
    """
    numbers = sizes_by_name(graph, sizes)
    for value in graph.inputs:
        if value.shape is not None:
            value.shape = tuple(
                d if isinstance(d, int) else numbers.get(repr(d), d) for d in value.shape
            )


def optimize_graph(
    graph: Graph,
    level: int = 99,
    fusions: FusionOptions | None = None,
    without: Container[str] = (),
) -> OptimizedModel:
    """Optimise a graph in place, in ONNX's terms.

    Args:
        graph: What `open_model` gives.
        level: One of `LEVELS`: 0 changes nothing; all others are one.
        fusions: Which operators of com.microsoft to make; None for none.
        without: Passes and steps of `simplify` that are left out.

    Raises:
        InvalidArgument: There is no such level.
    """
    if level not in LEVELS:
        raise InvalidArgument(
            message("optimize", "No such level", expected=f"one of {LEVELS}", got=str(level))
        )
    report = RuleReport()
    if not level and fusions is None:
        return OptimizedModel(graph, report)
    guessed = ""
    for context in (nullcontext, undecided_broadcasts):
        with context():
            guessed = _guesses(graph)
            if not guessed:
                optimise(graph, 1, without=without)
                simplify(graph, merge=False, without=without)
                if fusions is not None:
                    for rules in _fusions(fusions):
                        run(graph, rules, report)
                    refresh(graph, without)
                simplify(graph, without=without)
                return OptimizedModel(graph, report)
    report.refused["optimisation", guessed] += 1
    _logger.warning("the graph is left as it is: %s", guessed)
    return OptimizedModel(graph, report)


def _guesses(graph: Graph) -> str:
    """What shapes rely on that only a run decides, "" for nothing.

    A session checks such things in each run, and has another plan. A file has not. That sizes of
    one name are equal is taken for granted, and what else would be an error in any engine.
    """
    trial = graph.clone()
    optimise(trial, 0)
    reasons = lower(trial).assumptions.values()
    return next((reason for reason in reasons if reason.startswith(_GUESSED)), "")


def _fusions(chosen: FusionOptions) -> list[list[Rule]]:
    """The rules that options ask for, in their order."""
    heads = AttentionOptions(
        chosen.num_heads, chosen.hidden_size, chosen.use_multi_head_attention,
        chosen.no_attention_mask, chosen.use_raw_attention_mask, chosen.use_mask_index,
    )  # fmt: skip
    grouping = chosen.enable_attention and not (chosen.num_heads or chosen.hidden_size)
    steps: list[tuple[bool, list[Rule]]] = [
        (chosen.enable_layer_norm, LAYER_NORM),
        (chosen.enable_gelu, GELU),
        (chosen.enable_rotary_embeddings, ROTARY),
        (grouping, grouped(no_mask=chosen.no_attention_mask)),
        (chosen.enable_attention, attention(heads)),
        (chosen.enable_embed_layer_norm, EMBEDDING),
        (chosen.enable_skip_layer_norm, SKIP),
        (chosen.enable_bias_gelu, BIAS_GELU),
        (chosen.enable_bias_skip_layer_norm, BIAS_SKIP),
        (chosen.enable_gelu_approximation, APPROXIMATION),
        (chosen.enable_gemm_fast_gelu, GEMM_FAST_GELU),
    ]
    chosen_rules = [rules for enabled, rules in steps if enabled]
    return chosen_rules + (diffusion(chosen) if chosen.use_gpu else [])


def optimize_model(
    input: Any,  # noqa: A002 - onnxruntime's name
    model_type: str = "bert",
    num_heads: int = 0,
    hidden_size: int = 0,
    optimization_options: FusionOptions | None = None,
    opt_level: int | None = None,
    use_gpu: bool = False,
    only_onnxruntime: bool = False,
    verbose: bool = False,
    *,
    provider: str | None = None,
    free_dimensions: Mapping[str, int] | None = None,
) -> OptimizedModel:
    """onnxruntime.transformers.optimizer.optimize_model; the model's type is not needed.

    Args:
        input: A path, bytes, or a ModelProto.
        model_type: Checked and not used: fusions are found by structure.
        num_heads: Fuse only attentions of so many heads; 0 for any.
        hidden_size: Fuse only attentions of so many channels; 0 for any.
        optimization_options: Which fusions to look for; by default all.
        opt_level: One of `LEVELS`; by default 1.
        use_gpu: Make operators, too, that onnxruntime has for GPUs alone.
        only_onnxruntime: Fuse nothing.
        verbose: Taken; see `OptimizedModel.report`.
        provider: Taken; what is made holds for every provider.
        free_dimensions: Numbers for named dimensions of the inputs.

    Raises:
        InvalidArgument: An argument does not fit.
    """
    check_model_type(model_type)
    if num_heads < 0 or hidden_size < 0 or (num_heads and hidden_size % num_heads):
        what = f"{hidden_size} channels cannot be shared by {num_heads} heads"
        raise InvalidArgument(message("optimize_model", what))
    graph = open_model(input, free_dimensions=free_dimensions)
    options = None if only_onnxruntime else optimization_options or FusionOptions(model_type)
    if options is not None:
        options.num_heads = num_heads or options.num_heads
        options.hidden_size = hidden_size or options.hidden_size
        options.use_gpu = use_gpu or options.use_gpu
    return optimize_graph(graph, 1 if opt_level is None else opt_level, options)
