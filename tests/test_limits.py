"""How much one has to know of a class or a function at once: limits, and what is above them."""

from __future__ import annotations

import pytest

from tests.support import limits

FOLDERS = sorted(
    path.name for path in limits.PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"
)
MOST_METHODS, MOST_ATTRIBUTES, MOST_PARAMETERS = 25, 15, 6

_FACE = "onnxruntime's names, all of which programs may use; parts do the work"
_LANGUAGE = "a method for each instruction of the language"
_SCHEDULE = "every number that a kernel of a family is written from"
_NATIVE = "a record that native code reads, with the memory behind its addresses"
#: Classes that have more -> methods and attributes, over what they derive from, and why. They may
#: get less, but not more.
LARGE_CLASSES = {
    "InferenceSession": (51, 7, _FACE),
    "SessionOptions": (38, 0, _FACE),
    "OrtValue": (27, 1, _FACE),
    "Builder": (66, 5, _LANGUAGE),
    "InstructionBuilder": (43, 5, _LANGUAGE),
    "ThreadBuilder": (78, 6, _LANGUAGE),
    "FunctionEmitter": (38, 16, "LLVM's instructions, and control flow around them, share a state"),
    "NativeFunctions": (0, 18, "a table of functions, one attribute for each"),
    "Frame": (21, 16, _NATIVE),
    "PlanTables": (25, 28, _NATIVE),
    "Launches": (11, 25, _NATIVE),
    "CudaFrame": (31, 39, "`Frame`, and what one run has on a device, each read in all runs"),
    "RecordedFrame": (22, 19, "`Frame`, with room for notes"),
    "Arena": (18, 16, "the one lock of an arena guards all that it counts"),
    "PlanWriter": (27, 14, "a method for each thing that a plan is written from"),
    "Expression": (40, 19, "a method for each operation of an expression"),
    "AttentionKernel": (30, 35, "one kernel's loops and what each level has computed"),
    "AttentionTileKernel": (12, 37, "one kernel's loops and what each level has computed"),
    "Factor": (13, 22, "every number that copies of a factor are written from"),
    "TileSchedule": (17, 18, _SCHEDULE),
}

_CALLERS = "arguments that programs give by name"
_CODES = "options of a quantisation, which its configurations give by name"
_HOT = "called for every message of a file: a record for each would cost more than reading it"
_OPERATOR = "inputs and attributes of one operator, which its specification lists"
#: Functions that take more, each with its reason. Lowerings take what their operator has.
LONG_PARAMETER_LISTS = {
    "api/compiling.py:ModelCompiler:__init__": _CALLERS,
    "api/generation/generate.py:generate": _CALLERS,
    "api/memory.py:OrtMemoryInfo:create_v2": _CALLERS,
    "api/ortvalue.py:OrtValue:ortvalue_from_address": _CALLERS,
    "api/session.py:InferenceSession:run_async": _CALLERS,
    "tools/convert/convert.py:convert": _CALLERS,
    "tools/optimizer/model.py:optimize_model": _CALLERS,
    "quantization/block_configs.py:DefaultWeightOnlyQuantConfig:__init__": _CALLERS,
    "quantization/calibrate.py:MinMaxCalibrater:__init__": _CALLERS,
    "quantization/calibrate.py:create_calibrator": _CALLERS,
    "quantization/configs.py:DynamicQuantConfig:__init__": _CALLERS,
    "quantization/configs.py:QuantConfig:__init__": _CALLERS,
    "quantization/configs.py:StaticQuantConfig:__init__": _CALLERS,
    "quantization/configs.py:get_qdq_config": _CALLERS,
    "quantization/matmul_nbits_quantizer.py:MatMulNBitsQuantizer:__init__": _CALLERS,
    "quantization/quantize.py:quantize_dynamic": _CALLERS,
    "quantization/quantize.py:quantize_static": _CALLERS,
    "quantization/shape_inference.py:quant_pre_process": _CALLERS,
    "quantization/arithmetic.py:parameters_of_range": _CODES,
    "quantization/arithmetic.py:parameters_of_weights": _CODES,
    "host/ngrams.py:count": "attributes of TfIdfVectorizer, which a plan names",
    "ir/node.py:Node:__init__": "what a file says of a node",
    "tensor/tensor.py:buffer": "facts about an array, of which each caller gives one or two",
    "loader/wire.py:_enter": _HOT,
    "loader/wire.py:_fields": _HOT,
    "ops/contrib/attention.py:attend": _OPERATOR,
    "ops/contrib/attention.py:attend_projected": _OPERATOR,
    "ops/contrib/experts.py:_packed": _OPERATOR,
    "ops/contrib/indexer.py:_tokens": _OPERATOR,
    "ops/contrib/indexer_packed.py:_entries": _OPERATOR,
    "ops/contrib/indexer_packed.py:_updates": _OPERATOR,
    "ops/contrib/packed.py:_attend_packed": _OPERATOR,
    "ops/contrib/paged.py:written_tokens": _OPERATOR,
    "ops/generation/decoders.py:Decoder:_inputs": _OPERATOR,
    "ops/generation/generation.py:_beam_search": _OPERATOR,
    "ops/ml/linear.py:_check_pairs": _OPERATOR,
    "ops/ml/tree_votes.py:votes_of": _OPERATOR,
    "ops/onnx/convolution.py:convolve": _OPERATOR,
    "ops/onnx/indexing.py:policy_of": _OPERATOR,
    "ops/onnx/linear_attention.py:linear_attention": _OPERATOR,
    "ops/onnx/normalisation.py:layer_norm": _OPERATOR,
    "ops/onnx/quantise.py:quantise": _OPERATOR,
    "cuda/libraries/proving.py:Trial:__init__": "operands of a trial, which has no other record",
    "cuda/memory/rectangles.py:copy_rectangles": "two strided arrays without their objects",
    "cuda/memory/values.py:CudaArray:__init__": "what is known of an array, by name",
    "runtime/pool.py:_serve": "what a thread must keep, and nothing else of its pool",
    "kernel/expressions/expression.py:Expression:__init__": "what a loop level knows, by name",
    "kernel/gpu/split_k_attention.py:SplitKAttention:__init__": "a part of one kernel",
    "kernel/gpu/tile_fragments.py:Fragments:__init__": "a part of two kernels, with switches",
    "kernel/language/instructions.py:InstructionBuilder:__init__": "facts of a program, by name",
    "kernel/language/instructions.py:InstructionBuilder:load": "facts of an instruction, by name",
    "kernel/language/instructions.py:InstructionBuilder:store": "facts of an instruction, by name",
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_classes_are_small(folder: str) -> None:
    for cls in limits.classes_in(folder):
        methods, attributes = len(limits.methods_of(cls)), len(limits.attributes_of(cls))
        most = LARGE_CLASSES.get(cls.__name__, (MOST_METHODS, MOST_ATTRIBUTES))
        what = f"{cls.__qualname__} has {methods} methods, {attributes} attributes"
        assert methods <= most[0] and attributes <= most[1], f"{what}: make parts of some"


@pytest.mark.parametrize("folder", FOLDERS)
def test_parameter_lists_are_short(folder: str) -> None:
    for where, function, is_method in limits.functions_in(folder):
        if where not in LONG_PARAMETER_LISTS and not limits.is_lowering(function):
            names = limits.parameters_of(function, is_method=is_method)
            assert len(names) <= MOST_PARAMETERS, f"{where}: make a record of some of {names}"


def test_exceptions_are_needed() -> None:
    """Each is there, and above a limit."""
    classes = {cls.__name__: cls for folder in FOLDERS for cls in limits.classes_in(folder)}
    for name in LARGE_CLASSES:
        methods, attributes = limits.methods_of(classes[name]), limits.attributes_of(classes[name])
        assert len(methods) > MOST_METHODS or len(attributes) > MOST_ATTRIBUTES, name
    long = {
        where
        for folder in FOLDERS
        for where, function, is_method in limits.functions_in(folder)
        if len(limits.parameters_of(function, is_method=is_method)) > MOST_PARAMETERS
    }
    assert LONG_PARAMETER_LISTS.keys() <= long
