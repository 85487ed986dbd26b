"""Signatures of operators; see signatures.py.

Written by `python -m tests.ops.make_signatures`.
"""

from __future__ import annotations

#: Domain -> rows.
TABLES = {
    "com.microsoft": """
Attention 1: input:T weights:T bias:T? mask_index:M? past:T? attention_bias:T?
    past_sequence_length:M? -> output:T present:T?; T=floats -double; M=int32
AttnLSTM 1: X:T W:T R:T B:T? sequence_lens:T1? initial_h:T? initial_c:T? P:T? QW:T? MW:T? V:T? M:T?
    memory_seq_lens:T1? AW:T? -> Y:T? Y_h:T? Y_c:T?; T=double float; T1=int32
BeamSearch 1: input_ids:F max_length:I min_length:I? num_beams:I num_return_sequences:I
    length_penalty:T? repetition_penalty:T? vocab_mask:M? prefix_vocab_mask:M? attention_mask:I?
    decoder_input_ids:I? logits_processor:I? -> sequences:I sequences_scores:T? scores:T?; F=float
    float16 int32; I=int32; T=float float16; M=int32
BiasAdd 1: X:T bias:T skip:T -> Y:T; T=float float16
BiasDropout 1: data:T bias:T residual:T? ratio:T1? training_mode:T2? -> output:T mask:T2?;
    T=floats; T1=floats; T2=bool
BiasGelu 1: A:T B:T -> C:T; T=floats
BiasSoftmax 1: data:T bias:T -> output:T; T=floats -bfloat16
BiasSplitGelu 1: X:T bias:T -> Y:T; T=float float16
BifurcationDetector 1: src_tokens:T cur_tokens:T prev_suffix_match_idx:T pred_tokens:T? -> tokens:T
    suffix_match_idx:T; T=int64
BitmaskBiasDropout 1: data:T bias:T residual:T? ratio:T1? training_mode:T2? -> output:T mask:T3?;
    T=floats; T1=floats; T2=bool; T3=uint32
BitmaskDropout 1: data:T ratio:T1? training_mode:T2? -> output:T mask:T3?; T=floats; T1=floats;
    T2=bool; T3=uint32
BranchwiseRMSNorm 1: X:T scale:M? -> Y:T; T=floats -double; M=floats -double
CDist 1: A:T B:T -> C:T; T=double float
CausalConvWithState 1: input:T weight:T bias:T? past_state:T? -> output:T present_state:T; T=floats
    -double
ComplexMul 1: A:T B:T -> C:T; T=floats -bfloat16
ComplexMulConj 1: A:T B:T -> C:T; T=floats -bfloat16
ConvTransposeWithDynamicPads 1: X:T W:T Pads:int64? B:T? -> Y:T; T=floats -bfloat16
CropAndResize 1: X:T1 rois:T1 batch_indices:T2 crop_size:T2 -> Y:T1; T1=floats -bfloat16; T2=int32
DecoderAttention 1: query:T key:T q_weight:T kv_weight:T bias:T key_padding_mask:B? key_cache:T?
    value_cache:T? static_kv:B use_past:B has_layer_state:B has_key_padding_mask:B -> output:T
    new_key_cache:T? new_value_cache:T?; T=float float16; B=bool
DecoderMaskedMultiHeadAttention 1: query:T key:T? value:T? mask_index:M? attention_bias:T?
    past_key:T? past_value:T? past_sequence_length:M? beam_width:M? cache_indirection:M? bias:T? ->
    output:T present_key:T? present_value:T? qk:QK?; T=float float16; M=int32; QK=float float16
DecoderMaskedSelfAttention 1: input:T weights:T bias:T mask_index:M? past:T attention_bias:T?
    past_sequence_length:M beam_width:M? cache_indirection:M? -> output:T present:T; T=float
    float16; M=int32
DequantizeLinear 1: x:T1 x_scale:T2 x_zero_point:T1? -> y:T2; T1=integers int4 uint4 -int64 -uint32
    -uint64; T2=float float16
DequantizeWithOrder 1: input:Q scale_input:S -> output:F; Q=int8; S=float; F=float float16
DynamicQuantizeLSTM 1: X:T W:T2 R:T2 B:T? sequence_lens:T1? initial_h:T? initial_c:T? P:T?
    W_scale:T W_zero_point:T2 R_scale:T R_zero_point:T2 -> Y:T? Y_h:T? Y_c:T?; T=float; T2=int8
    uint8; T1=int32
DynamicQuantizeMatMul 1: A:T1 B:T2 b_scale:T1 b_zero_point:T2? bias:T1? -> Y:T1; T1=float; T2=int8
    uint8
DynamicSparseAttention 1: query:T key:T? value:T? past_key:T? past_value:T? auxiliary_key:T?
    auxiliary_value:T? selected_indices:M selected_counts:M seqlens_k:M total_sequence_length:M
    cos_cache:T? sin_cache:T? position_ids:int64? q_norm_weight:T? k_norm_weight:T? head_sink:T? ->
    output:T present_key:T? present_value:T?; T=floats -double; M=int32
DynamicTimeWarping 1: input:F -> output:I; F=float; I=int32
EPContext 1: inputs:T* -> outputs:T*; T=numbers bool
EmbedLayerNormalization 1: input_ids:T1 segment_ids:T1? word_embedding:T position_embedding:T
    segment_embedding:T? gamma:T beta:T mask:T1? position_ids:T1? -> output:T mask_index:T1?
    embedding_sum:T?; T1=int32; T=float float16
EngramGate 1: key:T query:T value:T key_norm_scale:T query_norm_scale:T conv_norm_scale:T? ->
    output:T gated_value_normed:T?; T=floats -double
ExpandDims 1: X:T axis:int32 -> Y:T; T=tensors -bfloat16
FastGelu 1: X:T bias:T? -> Y:T; T=floats
FusedConv 1: X:T W:T B:T? Z:T? -> Y:T; T=floats -bfloat16
FusedGemm 1: A:T B:T C:T? -> Y:T; T=floats int32 int64 uint32 uint64 -bfloat16
FusedMatMul 1: A:T B:T -> Y:T; T=floats
FusedMatMulActivation 1: A:T B:T -> Y:T; T=floats
GatedAdd 1: X:T Y:T gate:T -> output:T; T=floats -double
GatedDeltaNet 1: query:T key:T? value:T? cu_seqlens:TI? decay:TS? beta:TS? initial_state:TS?
    a_log:TS? dt_bias:TS? capture_count:TI? state_update_active:TI? -> output:T final_state:TS?
    state_update:TS?; T=floats -double; TI=int32; TS=float
GatedRMSNorm 1: X:T scale:T gate:T -> Y:T; T=floats -double
GatedRelativePositionBias 1: query_layer:T query_bias:T rel_pos:T weight:T bias:T eco_a:T
    token_offset:M? -> output:T; T=float float16; M=int32
GatherBlockQuantized 1: data:T1 indices:Tind scales:T2 zero_points:T1? -> output:T2; T1=float8
    float4e2m1 int4 uint4 uint8; Tind=int32 int64; T2=floats -double
GatherND 1: data:T indices:Tind -> output:T; T=tensors -bfloat16; Tind=int32 int64
Gelu 1: X:T -> Y:T; T=floats
GemmFastGelu 1: X:T W:T bias:T? -> Y:T; T=floats -double
GemmFloat8 1: A:TA B:TB C:TC? scaleA:TS? scaleB:TS? scaleY:TS? -> Y:TR; TA=floats float8e4m3fn
    float8e5m2 -double; TB=floats float8e4m3fn float8e5m2 -double; TC=floats -double; TS=float;
    TR=floats float8e4m3fn float8e5m2 -double
GemmaRotaryEmbedding 1: emb:U q:T q_rot:T k:T k_rot:T -> output1:T output2:T; U=float; T=float16
GreedySearch 1: input_ids:I max_length:I min_length:I? repetition_penalty:T? vocab_mask:I?
    prefix_vocab_mask:I? attention_mask:I? -> sequences:I; I=int32; T=float
GridSample 1: X:T1 Grid:T1 -> Y:T2; T1=tensors -bfloat16; T2=floats -bfloat16
GroupNorm 1: X:T gamma:M beta:M -> Y:T; T=float float16; M=float float16
GroupQueryAttention 1: query:T key:T? value:T? past_key:T_CACHE? past_value:T_CACHE? seqlens_k:M
    total_sequence_length:M cos_cache:T? sin_cache:T? position_ids:int64? attention_bias:T?
    head_sink:T? k_scale:T_KV_SCALE? v_scale:T_KV_SCALE? q_norm_weight:T? k_norm_weight:T? ->
    output:T present_key:T_CACHE? present_value:T_CACHE? output_qk:T?; T=floats -double;
    T_CACHE=floats float8e4m3fn int8 uint8 -double; M=int32; T_KV_SCALE=float
HyperConnectionPostMix 1: streams:T block_output:T post_mix:M stream_mix:M? -> output:T; T=floats
    -double; M=floats -double
HyperConnectionPreMix 1: streams:T pre_mix:M -> output:T; T=floats -double; M=floats -double
Inverse 1: X:T -> Y:T; T=floats -bfloat16
Irfft 1: X:T -> Y:T; T=floats -bfloat16
IsAllFinite 1: input:V+ -> output:T; V=floats; T=bool
LinearAttention 1: query:T key:T value:T past_state:S? decay:T? beta:T? -> output:T
    present_state:S; T=floats -double; S=floats -double
LinearAttentionGate 1: a:T dt_bias:TF decay_scale:TF b:T? -> decay:T beta:T?; T=floats -double;
    TF=float
LongformerAttention 1: input:T weight:T bias:T mask:T global_weight:T global_bias:T global:G ->
    output:T; T=float float16; G=int32
MRotaryEmbedding 1: input:T position_ids:M cos_cache:T sin_cache:T -> output:T; T=floats -double;
    M=int64
MatMulBlockQuantizedFp4Weight 1: A:T B:T1 weight_scale:T2 weight_scale_2:T3 input_scale:T3? bias:T?
    -> Y:T; T=bfloat16 float16; T1=uint8; T2=uint8; T3=float
MatMulBlockQuantizedFp8Weight 1: A:T B:T1 b_scale:T2 a_scale:T2? bias:T? -> Y:T; T=bfloat16
    float16; T1=float8e4m3fn; T2=float
MatMulBnb4 1: A:T1 B:T2 absmax:T1 -> Y:T1; T1=floats -double; T2=uint8
MatMulFpQ4 1: A:T1 B:T2 B_shape:T3 -> Y:T1; T1=float; T2=uint8; T3=int64
MatMulInteger16 1: A:T1 B:T2 -> Y:T3; T1=int16 uint16; T2=int16 uint16; T3=int32 uint32
MatMulIntegerToFloat 1: A:T1 B:T2 a_scale:T3 b_scale:T3 a_zero_point:T1? b_zero_point:T2? bias:T3?
    -> Y:T3; T1=int8 uint8; T2=int8 uint8; T3=float float16
MatMulNBits 1: A:T1 B:T2 scales:T1 zero_points:T3? g_idx:T4? bias:T1? -> Y:T1; T1=floats -double;
    T2=uint8; T3=floats uint8 -double; T4=int32
MatMulNBitsMlp 1: A:T1 skip:T1? norm_scale:T1? gate_B:T2 gate_scales:T1 gate_bias:T1? up_B:T2
    up_scales:T1 up_bias:T1? -> Y:T1 input_skip_bias_sum:T1?; T1=floats -double; T2=uint8
MatMulNBitsQkv 1: A:T1 skip:T1? norm_scale:T1 q_B:T2 q_scales:T1 q_bias:T1? k_B:T2 k_scales:T1
    k_bias:T1? v_B:T2 v_scales:T1 v_bias:T1? -> Q:T1 K:T1 V:T1 input_skip_bias_sum:T1?; T1=floats
    -double; T2=uint8
MaxpoolWithMask 1: X:T M:int32 -> Y:T; T=float
MoE 1: input:T router_probs:T fc1_experts_weights:T fc1_experts_bias:T? fc2_experts_weights:T
    fc2_experts_bias:T? fc3_experts_weights:T? fc3_experts_bias:T? -> output:T; T=floats -double
MulInteger 1: A:T A_zero_point:T? B:T B_zero_point:T? -> C:T1; T=int8 uint8; T1=int32
MultiHeadAttention 1: query:T key:T? value:T? bias:T? key_padding_mask:M? attention_bias:T?
    past_key:T? past_value:T? past_sequence_length:M? cache_indirection:M? -> output:T
    present_key:T? present_value:T? qk:QK?; T=floats -double; M=int32; QK=floats -double
MurmurHash3 1: X:T1 -> Y:T2; T1=double float int32 int64 string uint32 uint64; T2=int32 uint32
NGramHashMapping 1: input_ids:M multipliers:M vocab_sizes:M past_ids:M? head_offsets:M?
    eos_token_id:M? segment_ids:int32? -> hash_ids:M present_ids:M?; M=int32 int64
NGramRepeatBlock 1: input_ids:Tid scores:T -> scores_out:T; Tid=int64; T=float
NhwcConv 1: X:T W:T B:T? -> Y:T; T=floats -bfloat16
NhwcFusedConv 1: X:T W:T B:T? Z:T? -> Y:T; T=float float16
NhwcMaxPool 1: x:T -> y:T; T=int8 uint8
PackedAttention 1: input:T weights:T bias:T token_offset:M cumulative_sequence_length:M
    attention_bias:T? -> output:T; T=float float16; M=int32
PackedMultiHeadAttention 1: query:T key:T? value:T? bias:T? token_offset:M
    cumulative_sequence_length:M attention_bias:T? -> output:T; T=float float16; M=int32
PackedSparseAttentionIndexer 1: query:T key:T? query_norm_weight:T key_norm_weight:T cos_cache:T
    sin_cache:T cumulative_sequence_lengths:M past_sequence_lengths:M gate:T? position_bias:T?
    head_weights:T? position_ids:I? past_key_state:T past_kv_buffer:T past_gate_buffer:T?
    past_state_lengths:M state_update_capture_count:M? state_update_active:M? -> selected_indices:M
    selected_counts:M present_key_state:T present_kv_buffer:T present_gate_buffer:T?
    present_state_lengths:M state_update:T?; T=floats -double; M=int32; I=int64
Pad 1: data:T pads:int64 value:T? -> output:T; T=floats -bfloat16
PagedAttention 1: query:T key:T? value:T? key_cache:T_CACHE value_cache:T_CACHE?
    cumulative_sequence_length:S past_seqlens:S block_table:S cos_cache:T? sin_cache:T?
    slot_mapping:S? head_sink:T? q_norm_weight:T? k_norm_weight:T? k_scale:T_KV_SCALE?
    v_scale:T_KV_SCALE? attention_metadata:S? -> output:T key_cache_out:T_CACHE?
    value_cache_out:T_CACHE?; T=bfloat16 float16; T_CACHE=bfloat16 float16 float8e4m3fn int8 uint8;
    S=int32; T_KV_SCALE=float
QAttention 1: input:T1 weight:T2 bias:T3 input_scale:T3 weight_scale:T3 mask_index:T4?
    input_zero_point:T1? weight_zero_point:T2? past:T3? -> output:T3 present:T3?; T1=int8 uint8;
    T2=int8 uint8; T3=float float16; T4=int32
QEmbedLayerNormalization 1: input_ids:T1 segment_ids:T1? word_embedding_quant:T2
    position_embedding_quant:T2 segment_embedding:T2? gamma_quant:T2 beta_quant:T2 mask:T1?
    word_embedding_scale:T position_embedding_scale:T segment_embedding_scale:T? gamma_scale:T
    beta_scale:T word_embedding_zero_point:T2 position_embedding_zero_point:T2
    segment_embedding_zero_point:T2? gamma_zero_point:T2 beta_zero_point:T2 -> layernorm_out:T
    mask_index_out:T1; T1=int32; T2=int8 uint8; T=float
QGemm 1: A:TA a_scale:T a_zero_point:TA B:TB b_scale:T b_zero_point:TB C:TC? y_scale:T?
    y_zero_point:TYZ? -> Y:TY; TA=int8 uint8; T=float; TB=int8 uint8; TC=int32; TYZ=int8 uint8;
    TY=float int8 uint8
QLinearAdd 1: A:T A_scale:float A_zero_point:T? B:T B_scale:float B_zero_point:T? C_scale:float
    C_zero_point:T? -> C:T; T=int8 uint8
QLinearAveragePool 1: X:T x_scale:float x_zero_point:T? y_scale:float y_zero_point:T? -> Y:T;
    T=int8 uint8
QLinearConcat 1: Y_scale:TF Y_zero_point:T8 inputs:TV* -> Y:T8; TF=float; T8=int8 uint8; TV=float
    int8 uint8
QLinearConv 1: x:T1 x_scale:float x_zero_point:T1 w:T2 w_scale:float w_zero_point:T2 y_scale:float
    y_zero_point:T3 B:T4? -> y:T3; T1=int8 uint8; T2=int8 uint8; T3=int8 uint8; T4=int32
QLinearGlobalAveragePool 1: X:T x_scale:float x_zero_point:T y_scale:float y_zero_point:T -> Y:T;
    T=int8 uint8
QLinearLeakyRelu 1: X:T X_scale:float X_zero_point:T? Y_scale:float Y_zero_point:T? -> Y:T; T=int8
    uint8
QLinearMul 1: A:T A_scale:float A_zero_point:T? B:T B_scale:float B_zero_point:T? C_scale:float
    C_zero_point:T? -> C:T; T=int8 uint8
QLinearReduceMean 1: data:T data_scale:float data_zero_point:T? reduced_scale:float
    reduced_zero_point:T? -> reduced:T; T=int8 uint8
QLinearSigmoid 1: X:T X_scale:float X_zero_point:T? Y_scale:float Y_zero_point:T? -> Y:T; T=int8
    uint8
QLinearSoftmax 1: X:T X_scale:float x_zero_point:T? y_scale:float y_zero_point:T -> Y:T; T=int8
    uint8
QLinearWhere 1: condition:B X:T x_scale:TF x_zero_point:T Y:T y_scale:TF y_zero_point:T z_scale:TF
    z_zero_point:T -> Z:T; B=bool; T=int8 uint8; TF=float
QMoE 1: input:T router_probs:T fc1_experts_weights:T1 fc1_scales:T2? fc1_experts_bias:T?
    fc2_experts_weights:T1 fc2_scales:T2? fc2_experts_bias:T? fc3_experts_weights:T1?
    fc3_scales:T2? fc3_experts_bias:T? fc1_zero_points:T1? fc2_zero_points:T1? fc3_zero_points:T1?
    router_weights:T? fc1_global_scale:T4? fc2_global_scale:T4? fc1_act_scale:T4? fc2_act_scale:T4?
    fc1_act_block_scale:T2? fc2_act_block_scale:T2? -> output:T; T=floats -double; T1=float8e4m3fn
    uint8; T2=floats float8e4m3fn float8e8m0 -double; T4=float
QOrderedGelu 1: X:Q scale_X:S scale_Y:S -> Y:Q; Q=int8; S=float
QOrderedLayerNormalization 1: X:Q scale_X:S scale:F B:F? scale_Y:S -> Y:Q; Q=int8; S=float; F=float
    float16
QOrderedMatMul 1: A:Q scale_A:S B:Q scale_B:S scale_Y:S bias:S? C:Q? scale_C:S? -> Y:Q; Q=int8;
    S=float
QuantizeLinear 1: x:T1 y_scale:T1 y_zero_point:T2? -> y:T2; T1=float float16; T2=int16 int4 int8
    uint16 uint4 uint8
QuantizeWithOrder 1: input:F scale_input:S -> output:Q; F=float float16; S=float; Q=int8
QuickGelu 1: X:T -> Y:T; T=floats
Range 1: start:T limit:T delta:T? -> Y:T; T=double float int16 int32 int64
ReduceSumInteger 1: data:T1 -> reduced:T2; T1=int8 uint8; T2=int32 uint32
RelativePositionBias 1: bias_table:T query_length:U key_length:U -> output:T; T=float float16;
    U=int64
RemovePadding 1: input:T sequence_token_count:M -> output:T token_offset:M cumulated_seq_len:M
    max_seq_len:M; T=float float16; M=int32
RestorePadding 1: input:T token_offset:M -> output:T; T=float float16; M=int32
Rfft 1: X:T -> Y:T; T=floats -bfloat16
RotaryEmbedding 1: input:T position_ids:M cos_cache:T sin_cache:T -> output:T; T=floats -double;
    M=int64
SampleOp 1: X:T -> Y:T; T=floats int32 int64 uint32 uint64 -bfloat16
Sampling 1: input_ids:I max_length:I min_length:I? repetition_penalty:T? vocab_mask:I?
    prefix_vocab_mask:I? attention_mask:I? presence_mask:I? seed:I? -> sequences:I
    filtered_logits:T?; I=int32; T=float
ScaledSiLU 1: X:T scale:M? -> Y:T; T=floats -double; M=floats -double
SkipGroupNorm 1: X:T gamma:M beta:M skip:T bias:T? -> Y:T S:T?; T=float float16; M=float float16
SkipLayerNormalization 1: input:T skip:T gamma:T beta:T? bias:T? -> output:T mean:U? inv_std_var:U?
    input_skip_bias_sum:T?; T=floats -double; U=float
SkipSimplifiedLayerNormalization 1: input:T skip:T gamma:T bias:T? -> output:T mean:U?
    inv_std_var:U? input_skip_bias_sum:T?; T=floats -double; U=float
SparseAttention 1: query:T key:T? value:T? past_key:T past_value:T block_row_indices:M
    block_col_indices:M total_sequence_length:M key_total_sequence_lengths:M cos_cache:T?
    sin_cache:T? -> output:T present_key:T present_value:T; T=floats -double; M=int32
SparseAttentionIndexer 1: query:T key:T? query_norm_weight:T key_norm_weight:T cos_cache:T
    sin_cache:T mask:TB? past_key:T gate:T? position_bias:T? head_weights:T? position_ids:I?
    past_sequence_length:M? past_proj_buffer:T? -> selected_indices:M present_key:T
    present_proj_buffer:T?; T=floats -double; TB=int64; I=int64; M=int32
SparsePagedAttention 1: query:T key:T? value:T? key_cache:T_CACHE value_cache:T_CACHE
    cumulative_sequence_length:S past_seqlens:S block_table:S slot_mapping:S? selected_indices:S
    selected_counts:S auxiliary_key:T? auxiliary_value:T? auxiliary_lengths:S? cos_cache:T?
    sin_cache:T? head_sink:T? q_norm_weight:T? k_norm_weight:T? k_scale:T_KV_SCALE?
    v_scale:T_KV_SCALE? attention_metadata:S? -> output:T key_cache_out:T_CACHE?
    value_cache_out:T_CACHE?; T=bfloat16 float16; T_CACHE=bfloat16 float16 int8; S=int32;
    T_KV_SCALE=float
SparseToDenseMatMul 1: A:T B:T1 -> Y:T1; T=double float int32 int64 sparse_tensor uint32 uint64;
    T1=double float int32 int64 uint32 uint64
Tokenizer 1: X:T -> Y:T; T=string
TorchEmbedding 1: weight:T indices:int64 padding_idx:int64? scale_grad_by_freq:bool? -> Y:T;
    T=numbers
TransposeMatMul 1: A:T B:T -> Y:T; T=floats
Trilu 1: X:T k:int64? -> Y:T; T=numbers bool
UnfoldTensor 1: input:T -> output:T; T=tensors
Unique 1: x:T -> y:T idx:int64 counts:int64; T=tensors -bfloat16
VarlenCausalConvWithState 1: input:T weight:T cumulative_sequence_length:M bias:T? initial_state:T
    capture_count:M? -> output:T final_state:T state_update:T?; T=floats -double; M=int32
VarlenNGramHashMapping 1: input_ids:M multipliers:M vocab_sizes:M cumulative_sequence_length:S
    past_ids:M? head_offsets:M? eos_token_id:M? segment_ids:int32? past_segment_ids:S?
    capture_count:S? -> hash_ids:M present_ids:M? present_segment_ids:S? state_update:M?; M=int32
    int64; S=int32
WhisperBeamSearch 1: input_ids:F max_length:I min_length:I? num_beams:I num_return_sequences:I
    length_penalty:T? repetition_penalty:T? vocab_mask:M? prefix_vocab_mask:M? attention_mask:I?
    decoder_input_ids:I? logits_processor:I? cross_qk_layer_head:I? extra_decoding_ids:I?
    temperature:T? -> sequences:I sequences_scores:T? scores:T? cross_qk:V? non_speech_probs:T?;
    F=float float16 int32; I=int32; T=float float16; M=int32; V=float
WordConvEmbedding 1: Sequence:T W:T1 B:T1 C:T1 -> Y:T1; T=int32; T1=float
""",
}
