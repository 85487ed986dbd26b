"""Keys of session and run configurations: which act, which change nothing, which are refused.

A key that is not here warns with the nearest one. A hint that asks for another thing than what is
done anyway is noted in the log, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sardonyx.api.spelling import nearest
from sardonyx.api.warned import warn
from sardonyx.base import errors
from sardonyx.base.errors import WrongType, message
from sardonyx.base.notes import note


@dataclass(frozen=True, slots=True)
class Key:
    """What a configuration key means here.

    Attributes:
        effect: `acts`, `hint` (results do not depend on it) or `refused`.
        reason: What it does, or why it does nothing.
        done: Values that ask for what is done anyway. Empty with `acts`: any value.
    """

    effect: str
    reason: str
    done: tuple[str, ...] = ()


def _hint(reason: str, *done: str) -> Key:
    return Key("hint", reason, done)


def _refused(reason: str, *done: str) -> Key:
    return Key("refused", reason, done)


#: Processors for each thread but the caller's, such as `1,2;3-4`, counted from 1.
AFFINITY_KEY = "session.intra_op_thread_affinities"
#: Whether and how long threads wait awake.
SPIN_KEY, SPIN_TIME_KEY = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"
#: Whether kernels take denormal numbers for zeros.
DENORMAL_KEY = "session.set_denormal_as_zero"
#: Threads claim the (number of threads * this)-th part of the blocks of a kernel that are left.
BLOCK_BASE_KEY = "session.dynamic_block_base"
#: Whether sessions share the arenas that were registered for their device.
SHARED_KEY = "session.use_env_allocators"
#: A file of settings that `sardonyx tune` wrote.
SETTINGS_KEY = "session.settings_file"

#: `BUNDLE` lets sessions open bundles by any name, `ONNX` none.
FORMAT_KEY, BUNDLE_FORMAT = "session.load_model_format", "BUNDLE"

_NO_INTER_OP = "branches run on the threads of kernels"
_NO_SPIN = "threads wait without spinning between runs"
_AS_WRITTEN = "operators are computed as they are written"
_NO_CONTEXTS = "compiled code is kept in the cache, not in models"
_ONE_MODEL = "a provider has all that it can compute, in the order of `providers`"
_ORT_FORMAT = "it concerns the .ort format"

SESSION_KEYS: dict[str, Key] = {
    "session.disable_cpu_ep_fallback": Key("acts", "a provider that cannot start is an error"),
    "session.model_external_initializers_file_folder_path": Key("acts", "where weights lie"),
    "session.memory_limit_bytes": Key("acts", "the most memory that the session may hold"),
    "session.load_timeout_seconds": Key("acts", "how long making the session may take"),
    SETTINGS_KEY: Key("acts", "what `sardonyx tune` found is used for what is left as it was"),
    "session.disable_winograd": Key("acts", "whether all convolutions are direct sums"),
    "session.allow_bfloat16_products": Key(
        "acts", "whether factors of products in float32 may be rounded to bfloat16"
    ),
    "session.record_ep_graph_assignment_info": Key("acts", "which nodes a provider has"),
    SPIN_KEY: Key(
        "acts", "threads wait awake for a millisecond, not 30 microseconds, before they sleep"
    ),
    "session.inter_op.allow_spinning": _hint(_NO_INTER_OP, "0", "1"),
    SPIN_TIME_KEY: Key("acts", "how long threads wait awake before they sleep, 0.1 s at most"),
    "session.inter_op.spin_duration_us": _hint(_NO_INTER_OP),
    "session.intra_op.spin_backoff_max": _hint(_NO_SPIN),
    "session.inter_op.spin_backoff_max": _hint(_NO_INTER_OP),
    "session.force_spinning_stop": _hint(_NO_SPIN, "0", "1"),
    AFFINITY_KEY: Key("acts", "which processors each thread but the caller's may use"),
    BLOCK_BASE_KEY: Key("acts", "how fine the blocks are that threads claim of what is left"),
    SHARED_KEY: Key("acts", "arenas of devices that sessions share"),
    "session.use_device_allocator_for_initializers": _hint(
        "weights of a device lie in the session's arena, others in memory of their own", "0"
    ),
    "session.disable_prepacking": _hint("weights are packed before the first run", "0"),
    "session.prepack.enable_parallel": _hint("packing uses all threads", "1"),
    "session.max_shape_override": _hint("memory follows the shapes of each run", ""),
    "session.graph_optimizations_loop_level": _hint("passes run until nothing changes"),
    "session.disable_aot_function_inlining": _hint("functions are always inlined", "0"),
    "session.disable_quant_qdq": _hint(_AS_WRITTEN, "0", "1"),
    "session.disable_double_qdq_remover": _hint(_AS_WRITTEN, "0", "1"),
    "session.disable_qdq_constant_folding": _hint(_AS_WRITTEN, "0", "1"),
    "session.enable_quant_qdq_cleanup": _hint(_AS_WRITTEN, "0", "1"),
    "session.enable_dq_matmulnbits_fusion": _hint(_AS_WRITTEN, "0", "1"),
    "session.qdq_matmulnbits_accuracy_level": _hint(_AS_WRITTEN),
    "session.qdq_matmulnbits_block_size": _hint(_AS_WRITTEN),
    "session.qdqisint8allowed": _hint(_AS_WRITTEN, "0", "1"),
    "session.x64quantprecision": _hint("int8 products never saturate", "0", "1"),
    "session.strict_shape_type_inference": _hint("what a file declares wrongly is corrected", "0"),
    "session.allow_released_opsets_only": _hint("known versions are accepted", "0"),
    "session.use_deterministic_compute": _hint("the same feeds give the same bits", "0", "1"),
    "session.resource_cuda_partitioning_settings": _hint(_ONE_MODEL, ""),
    "session.layer_assignment_settings": _hint(_ONE_MODEL, ""),
    "session.node_partition_config_file": _hint(_ONE_MODEL, ""),
    "optimization.enable_gelu_approximation": _hint("GELU is exact as it is written", "0"),
    "optimization.enable_cast_chain_elimination": _hint(_AS_WRITTEN, "0"),
    "optimization.disable_specified_optimizers": Key(
        "acts", "which steps are left out: see the table of optimisers"
    ),
    "optimization.constant_folding_max_output_size_in_bytes": _hint("constants are always folded"),
    "mlas.use_lut_gemm": _hint("kernels are compiled for the model"),
    "mlas.qnbit.force_fp32": _hint("kernels are compiled for the model"),
    "mlas.disable_kleidiai": _hint("kernels are compiled for the model"),
    "session.enable_static_workspace_preallocation": _hint(
        "memory follows the shapes of each run", "0"
    ),
    "ep.cuda.fpa_intb_gemm": _hint("kernels are compiled for the model"),
    "ep.cuda.fpa_intb_profile_m": _hint("kernels are compiled for the model"),
    "ep.cuda.gemm_tactic_cache_prefix": _hint("what libraries chose is kept in the cache"),
    "ep.cuda.gqa_workspace_max_total_sequence_length": _hint(
        "memory follows the shapes of each run"
    ),
    "session.use_memory_mapped_ort_model": _hint(_ORT_FORMAT, "0"),
    "session.use_ort_model_bytes_directly": _hint(_ORT_FORMAT, "0"),
    "session.use_ort_model_bytes_for_initializers": _hint(_ORT_FORMAT, "0"),
    FORMAT_KEY: _refused("only ONNX and bundles are read", "", "ONNX", BUNDLE_FORMAT),
    "session.save_model_format": _refused("only ONNX is written", "", "ONNX"),
    DENORMAL_KEY: Key("acts", "kernels of the processor take denormal numbers for zeros"),
    "session.save_external_prepacked_constant_initializers": _refused(_NO_CONTEXTS, "0"),
    "session.optimized_model_external_initializers_file_name": Key(
        "acts", "where weights of `optimized_model_filepath` go"
    ),
    "session.optimized_model_external_initializers_min_size_in_bytes": Key(
        "acts", "which weights go there"
    ),
    "session.collect_node_memory_stats_to_file": _refused("see InferenceSession.explain", ""),
    "session.disable_model_compile": _refused("a model is always compiled", "0"),
    "ep.context_enable": _refused(_NO_CONTEXTS, "0"),
    "ep.context_file_path": _refused(_NO_CONTEXTS, ""),
    "ep.context_embed_mode": _hint(_NO_CONTEXTS, "0"),
    "ep.share_ep_contexts": _hint(_NO_CONTEXTS, "0"),
}

RUN_KEYS: dict[str, Key] = {
    "memory.enable_memory_arena_shrinkage": Key("acts", "gives memory back after the run"),
    "run.timeout_seconds": Key("acts", "how long the run may take"),
    "disable_synchronize_execution_providers": Key(
        "acts", "a run on a device whose results stay there may still be under way at the return"
    ),
    "gpu_graph_id": Key("acts", "which graphs of a device runs become, -1 for none"),
}


def check_entry(kind: str, key: object, value: object, known: Mapping[str, Key]) -> None:
    """Accept an entry, note it, or refuse it.

    Args:
        kind: `session` or `run`, for texts.
        key: The entry's key.
        value: Its value.
        known: The table of that kind.

    Raises:
        InvalidArgument: Key or value are not text.
        NotImplemented: The value asks for something that is not supported.
    """
    if not isinstance(key, str) or not isinstance(value, str):
        kinds = f"{type(key).__name__}, {type(value).__name__}"
        raise WrongType(
            message(f"{kind} config", "Key and value must be text", expected="str, str", got=kinds)
        )
    found = known.get(key)
    if found is None:
        text = message(f"{kind} config", f"The key {key!r} has no effect", do=nearest(key, known))
        warn(text)
    elif found.effect == "refused" and value not in found.done:
        raise errors.NotImplemented(
            message(f"{kind} config {key}", f"It is not supported: {found.reason}", got=repr(value))
        )
    elif found.effect == "hint" and value not in found.done:
        note(f"{kind} config {key} = {value!r}", found.reason)
