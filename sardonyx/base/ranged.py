"""What numbers in the data are called whose ranges a run checks."""

from __future__ import annotations

#: Inputs of operators, as errors name them. Codes of faults follow from the order.
RANGED_NAMES: tuple[str, ...] = (
    "I",
    "Sequence",
    "Y",
    "a rotary position",
    "auxiliary_lengths",
    "batch_indices",
    "beam_width",
    "block_col_indices",
    "block_row_indices",
    "block_table",
    "cache_indirection",
    "cu_seqlens",
    "cumulative_sequence_length",
    "g_idx",
    "input_ids",
    "key_total_sequence_lengths",
    "labels",
    "mask_index",
    "memory_seq_lens",
    "nonpad_kv_seqlen",
    "past_seqlens",
    "position_ids",
    "rois",
    "segment_ids",
    "selected_counts",
    "selected_indices",
    "seqlens_k",
    "sequence_lens",
    "sequence_token_count",
    "slot_mapping",
    "token_offset",
    "write_indices",
)
