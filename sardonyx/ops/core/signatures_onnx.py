"""Signatures of operators; see signatures.py.

Written by `python -m tests.ops.make_signatures`.
"""

from __future__ import annotations

#: Domain -> rows.
TABLES = {
    "": """
Abs 1: X:T -> Y:T; T=numbers
Acos 7: input:T -> output:T; T=floats
Acosh 9: input:T -> output:T; T=floats
Add 1: A:T B:T -> C:T; T=numbers
Affine 1: X:T -> Y:T; T=floats -bfloat16
AffineGrid 20: theta:T1 size:T2 -> grid:T1; T1=floats; T2=int64
And 1: A:T B:T -> C:T1; T=bool; T1=bool
ArgMax 1: data:T -> reduced:int64; T=numbers
ArgMin 1: data:T -> reduced:int64; T=numbers
Asin 7: input:T -> output:T; T=floats
Asinh 9: input:T -> output:T; T=floats
Atan 7: input:T -> output:T; T=floats
Atanh 9: input:T -> output:T; T=floats
Attention 23: Q:T1 K:T1 V:T2 attn_mask:U? past_key:T1? past_value:T2? -> Y:T1 present_key:T1?
    present_value:T2? qk_matmul_output:T1?; T1=floats; T2=floats; U=numbers bool
Attention 24: Q:T1 K:T1 V:T2 attn_mask:U? past_key:T1? past_value:T2? nonpad_kv_seqlen:int64? ->
    Y:T1 present_key:T1? present_value:T2? qk_matmul_output:T1?; T1=floats; T2=floats; U=numbers
    bool
AveragePool 1: X:T -> Y:T; T=floats
BatchNormalization 1: X:T scale:T B:T mean:T var:T -> Y:T mean:T? var:T? saved_mean:T?
    saved_var:T?; T=floats
BatchNormalization 14: X:T scale:T B:T input_mean:U input_var:U -> Y:T running_mean:U?
    running_var:U?; T=floats; U=floats
BatchNormalization 15: X:T scale:T1 B:T1 input_mean:T2 input_var:T2 -> Y:T running_mean:T2?
    running_var:T2?; T=floats; T1=floats; T2=floats
Bernoulli 15: input:T1 -> output:T2; T1=floats; T2=numbers bool
BitCast 26: input:T1 -> output:T2; T1=all -string; T2=all -string
BitShift 11: X:T Y:T -> Z:T; T=integers
BitwiseAnd 18: A:T B:T -> C:T; T=integers
BitwiseNot 18: X:T -> Y:T; T=integers
BitwiseOr 18: A:T B:T -> C:T; T=integers
BitwiseXor 18: A:T B:T -> C:T; T=integers
BlackmanWindow 17: size:T1 -> output:T2; T1=int32 int64; T2=numbers
Cast 1: input:T1 -> output:T2; T1=all float6e2m3 float6e3m2 -complex128 -complex64; T2=all
    float6e2m3 float6e3m2 -complex128 -complex64
CastLike 15: input:T1 target_type:T2 -> output:T2; T1=all -complex128 -complex64; T2=all
    -complex128 -complex64
CausalConvWithState 27: input:T weight:T bias:T? past_state:T? -> output:T present_state:T;
    T=floats -double
Ceil 1: X:T -> Y:T; T=floats
Celu 12: X:T -> Y:T; T=floats
CenterCropPad 18: input_data:T shape:Tind -> output_data:T; T=tensors; Tind=int32 int64
Clip 1: input:T -> output:T; T=numbers
Clip 11: input:T min:T? max:T? -> output:T; T=numbers
Col2Im 18: input:T image_shape:int64 block_shape:int64 -> output:T; T=tensors
Compress 9: input:T condition:T1 -> output:T; T=tensors; T1=bool
Concat 1: inputs:T+ -> concat_result:T; T=tensors
ConcatFromSequence 11: input_sequence:S -> concat_result:T; S=seq; T=tensors -bfloat16
Constant 1:  -> output:T; T=all
ConstantOfShape 9: input:T1 -> output:T2; T1=int64; T2=all -complex128 -complex64 -string
Conv 1: X:T W:T B:T? -> Y:T; T=floats
ConvInteger 10: x:T1 w:T2 x_zero_point:T1? w_zero_point:T2? -> y:T3; T1=int8 uint8; T2=int8 uint8;
    T3=int32
ConvTranspose 1: X:T W:T B:T? -> Y:T; T=floats
Cos 7: input:T -> output:T; T=floats
Cosh 9: input:T -> output:T; T=floats
Crop 1: input:T -> output:T; T=floats -bfloat16
CumProd 26: x:T axis:T2 -> y:T; T=floats int32 int64 uint32 uint64; T2=int32 int64
CumSum 11: x:T axis:T2 -> y:T; T=floats int32 int64 uint32 uint64; T2=int32 int64
DFT 17: input:T1 dft_length:T2? -> output:T1; T1=floats; T2=int32 int64
DFT 20: input:T1 dft_length:T2? axis:int64? -> output:T1; T1=floats; T2=int32 int64
DeformConv 19: X:T W:T offset:T B:T? mask:T? -> Y:T; T=floats
DepthToSpace 1: input:T -> output:T; T=tensors
DequantizeLinear 10: x:T x_scale:float x_zero_point:T? -> y:float; T=int32 int8 uint8
DequantizeLinear 19: x:T1 x_scale:T2 x_zero_point:T1? -> y:T2; T1=float8 float4e2m1 float6e2m3
    float6e3m2 int16 int2 int32 int4 int8 uint16 uint2 uint4 uint8; T2=floats float8e8m0 -double
DequantizeLinear 23: x:T1 x_scale:T2 x_zero_point:T1? -> y:T3; T1=float8 float4e2m1 float6e2m3
    float6e3m2 int16 int2 int32 int4 int8 uint16 uint2 uint4 uint8; T2=floats float8e8m0 -double;
    T3=floats -double
Det 11: X:T -> Y:T; T=floats
Div 1: A:T B:T -> C:T; T=numbers
Dropout 1: data:T -> output:T mask:T?; T=floats float8e4m3fn float8e4m3fnuz float8e5m2
    float8e5m2fnuz
Dropout 10: data:T -> output:T mask:T1?; T=floats float8e4m3fn float8e4m3fnuz float8e5m2
    float8e5m2fnuz; T1=floats bool float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz
Dropout 12: data:T ratio:T1? training_mode:T2? -> output:T mask:T2?; T=floats float8e4m3fn
    float8e4m3fnuz float8e5m2 float8e5m2fnuz; T1=floats float8e4m3fn float8e4m3fnuz float8e5m2
    float8e5m2fnuz; T2=bool
DynamicQuantizeLinear 11: x:T1 -> y:T2 y_scale:float y_zero_point:T2; T1=float; T2=uint8
DynamicSlice 1: data:T starts:Tind ends:Tind axes:Tind? -> output:T; T=tensors -bfloat16;
    Tind=int32 int64
Einsum 12: Inputs:T+ -> Output:T; T=numbers
Elu 1: X:T -> Y:T; T=floats
Equal 1: A:T B:T -> C:T1; T=numbers bool string; T1=bool
Erf 9: input:T -> output:T; T=numbers
Exp 1: input:T -> output:T; T=floats
Expand 8: input:T shape:int64 -> output:T; T=tensors
EyeLike 9: input:T1 -> output:T2; T1=numbers bool; T2=numbers bool
Flatten 1: input:T -> output:T; T=all
Floor 1: X:T -> Y:T; T=floats
GRU 1: X:T W:T R:T B:T? sequence_lens:T1? initial_h:T? -> Y:T? Y_h:T; T=floats; T1=int32
GRU 3: X:T W:T R:T B:T? sequence_lens:T1? initial_h:T? -> Y:T? Y_h:T?; T=floats; T1=int32
GRUUnit 1: hidden_prev:T gates:T seq_lengths:T t:T -> hidden:T; T=floats -bfloat16
Gather 1: data:T indices:Tind -> output:T; T=tensors; Tind=int32 int64
GatherElements 11: data:T indices:Tind -> output:T; T=tensors; Tind=int32 int64
GatherND 11: data:T indices:int64 -> output:T; T=tensors
Gelu 20: X:T -> Y:T; T=floats
Gemm 1: A:T B:T C:T -> Y:T; T=floats int32 int64 uint32 uint64
Gemm 11: A:T B:T C:T? -> Y:T; T=floats int32 int64 uint32 uint64
GivenTensorFill 1: shape:T? -> X:T; T=floats -bfloat16
GlobalAveragePool 1: X:T -> Y:T; T=floats
GlobalLpPool 1: X:T -> Y:T; T=floats
GlobalMaxPool 1: X:T -> Y:T; T=floats
Greater 1: A:T B:T -> C:T1; T=numbers; T1=bool
GreaterOrEqual 12: A:T B:T -> C:T1; T=numbers; T1=bool
GridSample 16: X:T1 grid:T2 -> Y:T1; T1=tensors; T2=floats
GroupNormalization 18: X:T scale:T bias:T -> Y:T; T=floats
HammingWindow 17: size:T1 -> output:T2; T1=int32 int64; T2=numbers
HannWindow 17: size:T1 -> output:T2; T1=int32 int64; T2=numbers
HardSigmoid 1: X:T -> Y:T; T=floats
HardSwish 14: X:T -> Y:T; T=floats
Hardmax 1: input:T -> output:T; T=floats
Identity 1: input:T -> output:T; T=tensors
Identity 14: input:V -> output:V; V=all optional seq
If 1: cond:B -> outputs:V*; B=bool; V=all optional seq
ImageDecoder 20: encoded_stream:T1 -> image:T2; T1=uint8; T2=uint8
ImageScaler 1: input:T -> output:T; T=floats -bfloat16
InstanceNormalization 1: input:T scale:T B:T -> output:T; T=floats
IsInf 10: X:T1 -> Y:T2; T1=floats float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz; T2=bool
IsNaN 9: X:T1 -> Y:T2; T1=floats float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz; T2=bool
LRN 1: X:T -> Y:T; T=floats
LSTM 1: X:T W:T R:T B:T? sequence_lens:T1? initial_h:T? initial_c:T? P:T? -> Y:T? Y_h:T? Y_c:T?;
    T=floats; T1=int32
LayerNormalization 1: X:T Scale:V B:V? -> Y:V Mean:U? InvStdDev:U?; T=floats; V=floats; U=floats
    -float16
LayerNormalization 17: X:T Scale:T B:T? -> Y:T Mean:U? InvStdDev:U?; T=floats; U=bfloat16 float
LeakyRelu 1: X:T -> Y:T; T=floats
Less 1: A:T B:T -> C:T1; T=numbers; T1=bool
LessOrEqual 12: A:T B:T -> C:T1; T=numbers; T1=bool
LinearAttention 27: query:T key:T value:T past_state:S? decay:T? beta:T? -> output:T
    present_state:S; T=floats -double; S=floats -double
Log 1: input:T -> output:T; T=floats
LogSoftmax 1: input:T -> output:T; T=floats
Loop 1: M:I? cond:B? v_initial:V* -> v_final_and_scan_outputs:V*; I=int64; B=bool; V=all optional
    seq
LpNormalization 1: input:T -> output:T; T=floats
LpPool 1: X:T -> Y:T; T=floats
MatMul 1: A:T B:T -> Y:T; T=floats int32 int64 uint32 uint64
MatMulInteger 10: A:T1 B:T2 a_zero_point:T1? b_zero_point:T2? -> Y:T3; T1=int8 uint8; T2=int8
    uint8; T3=int32
Max 1: data_0:T+ -> max:T; T=numbers
MaxPool 1: X:T -> Y:T; T=floats int8 uint8
MaxPool 8: X:T -> Y:T Indices:I?; T=floats int8 uint8; I=int64
MaxRoiPool 1: X:T rois:T -> Y:T; T=floats
MaxUnpool 9: X:T1 I:T2 output_shape:T2? -> output:T1; T1=floats; T2=int64
Mean 1: data_0:T+ -> mean:T; T=floats
MeanVarianceNormalization 1: X:T -> Y:T; T=floats
MelWeightMatrix 17: num_mel_bins:T1 dft_length:T1 sample_rate:T1 lower_edge_hertz:T2
    upper_edge_hertz:T2 -> output:T3; T1=int32 int64; T2=floats; T3=numbers
MemcpyFromHost 1: X:T -> Y:T; T=tensors float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz seq
    -string
MemcpyToHost 1: X:T -> Y:T; T=tensors float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz seq
    -string
Min 1: data_0:T+ -> min:T; T=numbers
Mish 18: X:T -> Y:T; T=floats
Mod 10: A:T B:T -> C:T; T=numbers
Mul 1: A:T B:T -> C:T; T=numbers
Multinomial 7: input:T1 -> output:T2; T1=floats; T2=int32 int64
Neg 1: X:T -> Y:T; T=floats int16 int32 int64 int8
NegativeLogLikelihoodLoss 12: input:T target:Tind weight:T? -> loss:T; T=floats; Tind=int32 int64
NonMaxSuppression 10: boxes:float scores:float max_output_boxes_per_class:int64?
    iou_threshold:float? score_threshold:float? -> selected_indices:int64
NonZero 9: X:T -> Y:int64; T=tensors
Not 1: X:T -> Y:T; T=bool
OneHot 9: indices:T1 depth:T2 values:T3 -> output:T3; T1=numbers -bfloat16; T2=numbers -bfloat16;
    T3=tensors
Optional 15: input:V? -> output:O; V=all float6e2m3 float6e3m2 seq; O=optional
OptionalGetElement 15: input:O -> output:V; O=all float6e2m3 float6e3m2 optional seq; V=all
    float6e2m3 float6e3m2 seq
OptionalHasElement 15: input:O -> output:B; O=all float6e2m3 float6e3m2 optional seq; B=bool
OptionalHasElement 18: input:O? -> output:B; O=all float6e2m3 float6e3m2 optional seq; B=bool
Or 1: A:T B:T -> C:T1; T=bool; T1=bool
PRelu 1: X:T slope:T -> Y:T; T=floats int32 int64 uint32 uint64
Pad 1: data:T -> output:T; T=all
Pad 11: data:T pads:int64 constant_value:T? -> output:T; T=all
Pad 18: data:T pads:int64 constant_value:T? axes:Tind? -> output:T; T=all; Tind=int32 int64
ParametricSoftplus 1: X:T -> Y:T; T=floats -bfloat16
Pow 1: X:T Y:T -> Z:T; T=floats int32 int64
Pow 12: X:T Y:T1 -> Z:T; T=floats int32 int64; T1=numbers
QLinearConv 10: x:T1 x_scale:float x_zero_point:T1 w:T2 w_scale:float w_zero_point:T2 y_scale:float
    y_zero_point:T3 B:T4? -> y:T3; T1=int8 uint8; T2=int8 uint8; T3=int8 uint8; T4=int32
QLinearMatMul 10: a:T1 a_scale:float a_zero_point:T1 b:T2 b_scale:float b_zero_point:T2
    y_scale:float y_zero_point:T3 -> y:T3; T1=float8 int8 uint8; T2=float8 int8 uint8; T3=float8
    int8 uint8
QLinearMatMul 21: a:T1 a_scale:TS a_zero_point:T1 b:T2 b_scale:TS b_zero_point:T2 y_scale:TS
    y_zero_point:T3 -> y:T3; T1=float8 int8 uint8; TS=floats -double; T2=float8 int8 uint8;
    T3=float8 int8 uint8
QuantizeLinear 10: x:T1 y_scale:float y_zero_point:T2? -> y:T2; T1=floats int32 -double; T2=float8
    bfloat16 float float16 float8e8m0 int16 int32 int4 int8 uint16 uint4 uint8
QuantizeLinear 19: x:T1 y_scale:T1 y_zero_point:T2? -> y:T2; T1=floats int32 -double; T2=float8
    bfloat16 float float16 float8e8m0 int16 int32 int4 int8 uint16 uint4 uint8
QuantizeLinear 23: x:T1 y_scale:T2 y_zero_point:T3? -> y:T3; T1=floats int32 -double; T2=floats
    float8e8m0 int32 -double; T3=float8 float4e2m1 float6e2m3 float6e3m2 int16 int2 int4 int8
    uint16 uint2 uint4 uint8
RMSNormalization 23: X:T scale:V -> Y:V; T=floats; V=floats
RNN 1: X:T W:T R:T B:T? sequence_lens:T1? initial_h:T? -> Y:T? Y_h:T?; T=floats; T1=int32
RandomNormal 1:  -> output:T; T=floats
RandomNormalLike 1: input:T1 -> output:T2; T1=tensors; T2=floats
RandomUniform 1:  -> output:T; T=floats
RandomUniformLike 1: input:T1 -> output:T2; T1=tensors; T2=floats
Range 11: start:T limit:T delta:T -> output:T; T=floats int16 int32 int64
Reciprocal 1: X:T -> Y:T; T=floats
ReduceL1 1: data:T -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceL1 18: data:T axes:int64? -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceL2 1: data:T -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceL2 18: data:T axes:int64? -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceLogSum 1: data:T -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceLogSum 18: data:T axes:int64? -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceLogSumExp 1: data:T -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceLogSumExp 18: data:T axes:int64? -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceMax 1: data:T -> reduced:T; T=numbers bool -int16 -uint16
ReduceMax 18: data:T axes:int64? -> reduced:T; T=numbers bool -int16 -uint16
ReduceMean 1: data:T -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceMean 18: data:T axes:int64? -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceMin 1: data:T -> reduced:T; T=numbers bool -int16 -uint16
ReduceMin 18: data:T axes:int64? -> reduced:T; T=numbers bool -int16 -uint16
ReduceProd 1: data:T -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceProd 18: data:T axes:int64? -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceSum 1: data:T -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceSum 13: data:T axes:int64? -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceSumSquare 1: data:T -> reduced:T; T=floats int32 int64 uint32 uint64
ReduceSumSquare 18: data:T axes:int64? -> reduced:T; T=floats int32 int64 uint32 uint64
RegexFullMatch 20: X:T1 -> Y:T2; T1=string; T2=bool
Relu 1: X:T -> Y:T; T=floats int16 int32 int64 int8
Reshape 1: data:T -> reshaped:T; T=all
Reshape 5: data:T shape:int64 -> reshaped:T; T=all
Resize 10: X:T scales:float -> Y:T; T=tensors -bfloat16
Resize 11: X:T1 roi:T2 scales:float sizes:int64? -> Y:T1; T1=tensors; T2=floats -bfloat16
Resize 13: X:T1 roi:T2? scales:float? sizes:int64? -> Y:T1; T1=tensors; T2=floats -bfloat16
ReverseSequence 10: input:T sequence_lens:int64 -> Y:T; T=tensors
RoiAlign 10: X:T1 rois:T1 batch_indices:T2 -> Y:T1; T1=floats; T2=int64
RotaryEmbedding 23: X:T cos_cache:T sin_cache:T position_ids:M? -> Y:T; T=floats -double; M=int64
Round 11: X:T -> Y:T; T=floats
STFT 17: signal:T1 frame_step:T2 window:T1? frame_length:T2? -> output:T1; T1=floats; T2=int32
    int64
Scale 1: input:T -> output:T; T=floats -bfloat16
ScaledTanh 1: input:T -> output:T; T=floats -bfloat16
Scan 8: sequence_lens:I? initial_state_and_scan_inputs:V* -> final_state_and_scan_outputs:V*;
    I=int64; V=all
Scan 9: initial_state_and_scan_inputs:V* -> final_state_and_scan_outputs:V*; V=all
Scatter 9: data:T indices:Tind updates:T -> output:T; T=tensors -bfloat16; Tind=int32 int64
ScatterElements 11: data:T indices:Tind updates:T -> output:T; T=tensors; Tind=int32 int64
ScatterND 11: data:T indices:int64 updates:T -> output:T; T=tensors
Selu 1: X:T -> Y:T; T=floats
SequenceAt 11: input_sequence:S position:I -> tensor:T; S=seq; I=int32 int64; T=tensors -bfloat16
SequenceConstruct 11: inputs:T+ -> output_sequence:S; T=tensors -bfloat16; S=seq
SequenceEmpty 11:  -> output:S; S=seq
SequenceErase 11: input_sequence:S position:I? -> output_sequence:S; S=seq; I=int32 int64
SequenceInsert 11: input_sequence:S tensor:T position:I? -> output_sequence:S; S=seq; T=tensors
    -bfloat16; I=int32 int64
SequenceLength 11: input_sequence:S -> length:I; S=seq; I=int64
Shape 1: data:T -> shape:T1; T=all; T1=int64
Shrink 9: input:T -> output:T; T=numbers -bfloat16
Sigmoid 1: X:T -> Y:T; T=floats
Sign 9: input:T -> output:T; T=numbers
SimplifiedLayerNormalization 1: X:T scale:V -> Y:V inv_std_var:U?; T=floats; V=floats; U=double
    float
Sin 7: input:T -> output:T; T=floats
Sinh 9: input:T -> output:T; T=floats
Size 1: data:T -> size:T1; T=all; T1=int64
Slice 1: data:T -> output:T; T=tensors
Slice 10: data:T starts:Tind ends:Tind axes:Tind? steps:Tind? -> output:T; T=tensors; Tind=int32
    int64
Softmax 1: input:T -> output:T; T=floats
SoftmaxCrossEntropyLoss 12: scores:T labels:Tind weights:T? -> output:T log_prob:T?; T=floats;
    Tind=int32 int64
Softplus 1: X:T -> Y:T; T=floats
Softsign 1: input:T -> output:T; T=floats
SpaceToDepth 1: input:T -> output:T; T=tensors
Split 1: input:T split:T? -> outputs...:T+; T=tensors
Split 2: input:T -> outputs:T+; T=tensors
Split 13: input:T split:int64? -> outputs:T+; T=tensors
SplitToSequence 11: input:T split:I? -> output_sequence:S; T=tensors; I=int32 int64; S=seq
Sqrt 1: X:T -> Y:T; T=floats
Squeeze 1: data:T -> squeezed:T; T=all
Squeeze 13: data:T axes:int64? -> squeezed:T; T=all
StringConcat 20: X:T Y:T -> Z:T; T=string
StringNormalizer 10: X:string -> Y:string
StringSplit 20: X:T1 -> Y:T2 Z:T3; T1=string; T2=string; T3=int64
Sub 1: A:T B:T -> C:T; T=numbers
Sum 1: data_0:T+ -> sum:T; T=floats
SwiGLU 28: A:T B:T -> Y:T; T=floats
Swish 24: X:T -> Y:T; T=floats
Tan 7: input:T -> output:T; T=floats
Tanh 1: input:T -> output:T; T=floats
TensorScatter 24: past_cache:T update:T write_indices:int64? -> present_cache:T; T=all -int2 -uint2
TfIdfVectorizer 9: X:T -> Y:T1; T=int32 int64 string; T1=float
ThresholdedRelu 1: X:T -> Y:T; T=floats
Tile 1: input:T tiles:T axis:T -> output:T; T=tensors
Tile 6: input:T repeats:T1 -> output:T; T=tensors; T1=int64
TopK 1: X:T -> Values:T Indices:I; T=numbers; I=int64
TopK 10: X:T K:int64 -> Values:T Indices:I; T=numbers; I=int64
Transpose 1: data:T -> transposed:T; T=all
Trilu 14: input:T k:int64? -> output:T; T=tensors
Unique 11: X:T -> Y:T indices:int64? inverse_indices:int64? counts:int64?; T=tensors
Unsqueeze 1: data:T -> expanded:T; T=all
Unsqueeze 13: data:T axes:int64 -> expanded:T; T=all
Upsample 1: X:T -> Y:T; T=tensors -bfloat16
Upsample 9: X:T scales:float -> Y:T; T=tensors -bfloat16
Where 9: condition:B X:T Y:T -> output:T; B=bool; T=tensors
Xor 1: A:T B:T -> C:T1; T=bool; T1=bool
""",
}
