"""What `extra_options` may say: a table of names, types and defaults."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger

_logger = get_logger("quantization")


def _option(name: str, kind: type | tuple[type, ...], default: Any) -> Any:
    if isinstance(default, list | dict):
        made = type(default)
        return field(default_factory=made, metadata={"name": name, "kind": kind})
    return field(default=default, metadata={"name": name, "kind": kind})


_NUMBER = (int, float)


@dataclass(frozen=True)
class Options:
    """The extra options, under names of their own; each field's metadata has onnxruntime's name.

    Attributes:
        activation_symmetric: Ranges of activations are made symmetric.
        restricted_asymmetric: Zero points of uint8 activations are 0 or 128.
        weight_symmetric: Ranges of weights are; None where the type decides.
        force: Quantise operators that only move data even where their input is a float.
        constant_factor_only: Leave products of two computed factors alone; None where the mode
            decides.
        pair_at_weight: Keep weights as floats, before a QuantizeLinear.
        bare_outputs: Operators whose outputs stay floats.
        dedicated_pairs: Give each reader of a tensor a QuantizeLinear of its own.
        channel_axes: Axis of channels, by operator.
        range_symmetric: Calibration makes ranges symmetric; None where the method decides.
        moving_average: Calibration averages ranges of batches.
        averaging_constant: How far each batch after the first moves the average.
        percentile: How much of a tensor lies inside its range, for that method.
        stride: How many items of calibration data are taken at a time.
        bins: Number of bins of a histogram; None where the method decides.
        levels: Number of codes that the entropy method reckons with.
        quantise_bias: Whether biases become codes of 32 bits.
        contrib: Use com.microsoft's QuantizeLinear and DequantizeLinear.
        least_range: Smallest width of a range.
        overrides: Parameters of single tensors, by name.
        keep_activations: Keep Relu and Clip where the range of codes says the same.
        no_widening: Leave scales of weights as they are where a bias does not fit in 32 bits.
        block: Elements in a block of weights; 0 for whole channels or tensors.
        subgraphs: Quantise nodes inside branches and loops, too.
        prepare: Fold constants and batch normalisations first.
    """

    activation_symmetric: bool = _option("ActivationSymmetric", bool, False)
    restricted_asymmetric: bool = _option("ActivationRestrictedAsymmetric", bool, False)
    weight_symmetric: bool | None = _option("WeightSymmetric", (bool, type(None)), None)
    force: bool = _option("ForceQuantizeNoInputCheck", bool, False)
    constant_factor_only: bool | None = _option("MatMulConstBOnly", (bool, type(None)), None)
    pair_at_weight: bool = _option("AddQDQPairToWeight", bool, False)
    bare_outputs: list[str] = _option("OpTypesToExcludeOutputQuantization", (list, tuple, set), [])
    dedicated_pairs: bool = _option("DedicatedQDQPair", bool, False)
    channel_axes: dict[str, int] = _option("QDQOpTypePerChannelSupportToAxis", dict, {})
    range_symmetric: bool | None = _option("CalibTensorRangeSymmetric", (bool, type(None)), None)
    moving_average: bool = _option("CalibMovingAverage", bool, False)
    averaging_constant: float = _option("CalibMovingAverageConstant", _NUMBER, 0.01)
    percentile: float = _option("CalibPercentile", _NUMBER, 99.999)
    stride: int | None = _option("CalibStridedMinMax", (int, type(None)), None)
    bins: int | None = _option("CalibNumBins", (int, type(None)), None)
    levels: int = _option("CalibNumQuantizedBins", int, 128)
    quantise_bias: bool = _option("QuantizeBias", bool, True)
    contrib: bool = _option("UseQDQContribOps", bool, False)
    least_range: float | None = _option("MinimumRealRange", (int, float, type(None)), None)
    overrides: dict[str, list[dict[str, Any]]] = _option("TensorQuantOverrides", dict, {})
    keep_activations: bool = _option("QDQKeepRemovableActivations", bool, False)
    no_widening: bool = _option("QDQDisableWeightAdjustForInt32Bias", bool, False)
    block: int = _option("BlockSize", int, 0)
    subgraphs: bool = _option("EnableSubgraph", bool, False)
    prepare: bool = _option("PreProcess", bool, True)


#: Options that say how something else works that is not needed here.
_HINTS = {
    "CalibMaxIntermediateOutputs": "calibration holds no tensors between batches",
    "SmoothQuantAlpha": "it only has a meaning with SmoothQuant",
    "SmoothQuantFolding": "it only has a meaning with SmoothQuant",
}
#: Options that change results in a way that is not made here, with what to do instead.
_REFUSED = {
    "SmoothQuant": "Use per_channel=True, or exclude the nodes whose activations have outliers",
    "extra.Sigmoid.nnapi": "Give the output's scale and zero_point in TensorQuantOverrides",
}


def options_of(extra: Mapping[str, Any] | None) -> Options:
    """Check extra options.

    Raises:
        InvalidArgument: There is no such option, or its value is of the wrong type.
        NotImplemented: The option is one of onnxruntime's that is not supported.
    """
    known = {f.metadata["name"]: f for f in fields(Options)}
    given: dict[str, Any] = {}
    for name, value in (extra or {}).items():
        if name in known:
            kind = known[name].metadata["kind"]
            is_number = isinstance(value, bool) and kind in (int, _NUMBER)
            if not isinstance(value, kind) or is_number:
                raise InvalidArgument(
                    message(
                        "extra_options",
                        f"{name} has the wrong type",
                        expected=_words(kind),
                        got=repr(value),
                    )
                )
            given[known[name].name] = value
        elif name in _HINTS:
            _logger.warning("extra_options: %s has no effect here: %s", name, _HINTS[name])
        elif name in _REFUSED:
            if value:
                what = f"{name} is not supported"
                raise errors.NotImplemented(message("extra_options", what, do=_REFUSED[name]))
        else:
            raise InvalidArgument(
                message("extra_options", f"There is no option {name!r}", do=_near(name, known))
            )
    return _checked(Options(**given))


def _checked(options: Options) -> Options:
    if not 0 < options.percentile <= 100:
        what = "CalibPercentile is out of range"
        raise InvalidArgument(
            message("extra_options", what, expected="0 to 100", got=str(options.percentile))
        )
    for name, value in (("CalibNumBins", options.bins), ("CalibStridedMinMax", options.stride)):
        if value is not None and value < 1:
            raise InvalidArgument(message("extra_options", f"{name} is not positive"))
    if options.block < 0:
        raise InvalidArgument(message("extra_options", "BlockSize is negative"))
    return options


def _words(kind: type | tuple[type, ...]) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join("None" if k is type(None) else k.__name__ for k in kinds)


def _near(name: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {close[0]!r}?" if close else "The known ones are in docs/quantization.md"
