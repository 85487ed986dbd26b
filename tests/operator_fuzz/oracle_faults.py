"""Where onnx.reference is wrong, fails, or knows less than the standard, with the standard's words.

For each of these a NumPy reference stands beside the operator's generator. A test looks the quoted
words up in the text of the schema; entries without a quotation are of operators that onnx.reference
refuses or computes in float32 only.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """An operator of which onnx.reference cannot be the oracle.

    Attributes:
        names: Operators, separated by spaces.
        version: One that the quoted text is of.
        what: What goes wrong.
        words: What the standard says.
    """

    names: str
    version: int
    what: str
    words: str = ""
    domain: str = ""


FAULTS = (
    Fault(
        "Slice",
        13,
        "A start before the axis gives nothing for negative steps, as NumPy's do",
        "or to range `[0, dims[axes[i]]-1]` for negative stepping",
    ),
    Fault(
        "Shape",
        21,
        "An end before the first axis counts from the back a second time",
        "Note that axes will be clamped to the range [0, r]",
    ),
    Fault(
        "Unsqueeze",
        11,
        "Axes are inserted one after the other, in the order given",
        "The order of values in `axes` does not matter and can come in any order.",
    ),
    Fault(
        "GlobalMaxPool",
        22,
        "A spatial axis is dropped or left over",
        "This is equivalent to MaxPool with kernel size equal to the spatial dimension",
    ),
    Fault("Pad", 13, "Negative pads raise", "padding elements to add or remove (if negative)"),
    Fault(
        "Loop",
        16,
        "What iterations give is joined along the first axis, not along a new one",
        "user_defined_vals[i] = user_defined_val",
    ),
    Fault(
        "Col2Im",
        18,
        "One spatial axis raises",
        "The operator rearranges column blocks back into a multidimensional image",
    ),
    Fault("TfIdfVectorizer", 0, "Rows shorter than the shortest gram raise"),
    Fault("FlexAttention Attention", 0, "The root of the scale is taken in float32"),
    Fault(
        "Attention",
        23,
        "With a softcap, what mode 0 shows of the scores is capped",
        "If set to `0`, qk_matmul_output is the output of qk matmul.",
    ),
    Fault(
        "Mean",
        13,
        "A first input that is broadcast raises",
        "Element-wise mean of each of the input tensors (with Numpy-style broadcasting support).",
    ),
    Fault(
        "GatherElements",
        13,
        "Indices shorter than the data on other axes raise",
        "Its output shape is the same as the shape of `indices`",
    ),
    Fault(
        "Unique",
        11,
        "Unsorted results with an axis, or of strings, raise or are out of order",
        "or optionally in the order of the first occurrence of the values in the input",
    ),
    Fault(
        "Softmax LogSoftmax Hardmax",
        1,
        "Former versions are computed along one axis",
        "then input will be coerced into a 2-dimensional tensor",
    ),
    Fault(
        "Erf",
        13,
        "Doubles are computed in float32",
        "Computes the error function of the given input tensor element-wise.",
    ),
    Fault(
        "Selu", 1, "Former versions get the newest defaults", "y = gamma * (alpha * e^x - alpha)"
    ),
    Fault(
        "HardSwish",
        14,
        "1 / 6 is rounded to float32 in the function's body",
        "where alpha = 1/6 and beta = 0.5",
    ),
    Fault(
        "Gelu",
        20,
        "Constants are rounded to float32 in the function's body",
        "where the gaussian error linear units function, $y = 0.5 * x * (1 + erf(x/sqrt(2)))$",
    ),
    Fault(
        "GroupNormalization MeanVarianceNormalization AffineGrid",
        0,
        "The function's body computes in float32, or mixes types, where doubles are fed",
    ),
    Fault(
        "LayerNormalization RMSNormalization", 0, "Statistics are of another type than the input"
    ),
    Fault(
        "ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin ReduceSum ReduceMean ReduceL1 ReduceL2 "
        "ReduceProd ReduceSumSquare",
        18,
        "Omitted axes, and those of former versions, raise",
        "reduction over all axes if 'noop_with_empty_axes' is false",
    ),
    Fault(
        "Clip Reshape Softsign InstanceNormalization NonMaxSuppression CastLike Concat Tile Split",
        0,
        "Former versions, omitted inputs or defaults that are written out raise",
    ),
    Fault(
        "RoiAlign",
        10,
        "Former versions are computed with `half_pixel`",
        "the value of the sampled locations are computed directly through bilinear interpolation",
    ),
    Fault("GridSample", 0, "Places are rounded to float32, whatever the type of the grid"),
    Fault("GridSample", 16, "Former names of modes are unknown", "bilinear"),
    Fault(
        "ConvTranspose",
        22,
        "Pads of SAME_UPPER and SAME_LOWER are swapped or left over",
        "pad the input so that `output_shape[i] = input_shape[i] * strides[i]`",
    ),
    Fault(
        "MaxPool AveragePool LpPool",
        22,
        "Windows that begin in the padding at the end are kept",
        "if ceil_mode is enabled",
    ),
    Fault("Scan", 9, "Directions and axes other than 0 raise", "1 indicates reverse direction"),
    Fault(
        "StringNormalizer",
        10,
        "Empty strings go without being stop words",
        "If all elements in X are dropped, the output will be the empty value of string tensor",
    ),
    Fault(
        "Resize",
        13,
        "pytorch_half_pixel puts an axis of one element at -0.5",
        "x_original = length_resized > 1 ? (x_resized + 0.5) / scale - 0.5 : 0",
    ),
    Fault(
        "BatchNormalization",
        15,
        "Running statistics are of the type of the input",
        "running_mean = input_mean * momentum + current_mean * (1 - momentum)",
    ),
    Fault("DeformConv", 0, "Right, but slower than a campaign can bear"),
)


class Choice(NamedTuple):
    """A case that generators leave out, since the engine does as onnxruntime does on purpose."""

    name: str
    what: str


CHOICES = (
    Choice("GridSample", "Cubic: each neighbour is clamped to the border, not the place itself"),
    Choice("DictVectorizer", "The result is a row, not a vector; so is CastMap's"),
    Choice("Resize", "align_corners divides by a fractional length, as the standard's cases do"),
    Choice("Squeeze", "An empty list of axes is no list: all axes of size 1 go"),
    Choice("ConvTranspose", "SAME pads are never negative: the output stays shorter"),
    Choice("Softmax", "The former default axis 1 of a vector is refused"),
)

#: Operators without a generator, and why.
WITHOUT = {
    ("", "Bernoulli"): "random: tests/engine/test_random.py",
    ("", "Multinomial"): "random: tests/engine/test_random.py",
    ("", "RandomNormal"): "random: tests/engine/test_random.py",
    ("", "RandomNormalLike"): "random: tests/engine/test_random.py",
    ("", "RandomUniform"): "random: tests/engine/test_random.py",
    ("", "RandomUniformLike"): "random: tests/engine/test_random.py",
    ("", "ImageDecoder"): "decodes files: tests/engine/test_images.py",
    ("", "Optional"): "optionals are no outputs of models: tests/engine/test_sequences.py",
    ("", "OptionalGetElement"): "see Optional",
    ("", "OptionalHasElement"): "see Optional",
    ("ai.onnx.ml", "SVMClassifier"): "the standard says too little: tests/engine/test_ml_linear.py",
    ("ai.onnx.preview.training", "Gradient"): "tests/engine/test_gradients.py",
}
