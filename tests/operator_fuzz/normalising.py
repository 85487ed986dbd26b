"""Normalisations, losses and other functions of whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operator_fuzz.draw import Array, Draw
from tests.operator_fuzz.instance import Const, Fed, Instance, Still, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.oracle import Use, reference


def _channels(draw: Draw, least: int = 2) -> list[int]:
    return [draw.size(1, 3), draw.size(1, 4), *draw.shape(least - 2, 3, low=1, high=4)]


@makes("BatchNormalization", factor=16)
def batch(draw: Draw) -> Instance:
    shape = _channels(draw, 4 if draw.version < 7 else 2)
    count = shape[1]
    dtype = draw.input_type(0)
    names = ["T", "T1", "T2"]
    kinds = [draw.types.get(n, dtype) for n in names]
    if draw.version == 14:
        kinds = [kinds[0], kinds[0], draw.types["U"]]
    x = draw.reals(shape, dtype)
    scale, shift = draw.reals([count], kinds[1]), draw.reals([count], kinds[1])
    mean = draw.reals([count], kinds[2])
    variance = np.abs(draw.reals([count], kinds[2])) + np.asarray(0.5, kinds[2])
    attributes: dict[str, Any] = {"epsilon": draw.maybe(0.01), "momentum": draw.maybe(0.75)}
    outputs: list[Any] = [dtype]
    if draw.version < 7:
        attributes["is_test"] = 1
        attributes["spatial"] = draw.maybe(1)
    elif draw.version < 9:
        attributes["spatial"] = draw.maybe(1)
    elif draw.version >= 14 and draw.chance(0.4):
        attributes["training_mode"] = 1
        outputs = [dtype, kinds[2], kinds[2]]
    if draw.version == 1:
        attributes["consumed_inputs"] = [0, 0, 0, 1, 1]
    return Instance([x, scale, shift, mean, variance], attributes, outputs)


@reference("BatchNormalization")
def batch_norm(use: Use, x: Array, scale: Array, shift: Array, mean: Array, variance: Array) -> Any:
    """Running statistics in training are of the population."""
    g = use.attributes
    along = (-1, *[1] * (x.ndim - 2))
    axes = (0, *range(2, x.ndim))
    if g.get("training_mode", 0):
        own_mean, own_variance = x.mean(axes), x.var(axes)
        m = g["momentum"]
        running = mean * m + own_mean * (1 - m), variance * m + own_variance * (1 - m)
        mean, variance = own_mean, own_variance
    found = (x - mean.reshape(along)) / np.sqrt(variance.reshape(along) + g["epsilon"])
    found = found * scale.reshape(along) + shift.reshape(along)
    return (found, *running) if g.get("training_mode", 0) else found


@makes("InstanceNormalization", factor=16)
def instance(draw: Draw) -> Instance:
    shape = _channels(draw, 3)
    dtype = draw.input_type(0)
    attributes: dict[str, Any] = {"epsilon": draw.maybe(0.01)}
    if draw.version == 1:
        attributes["consumed_inputs"] = draw.maybe([0, 0, 0])
    inputs = [
        draw.reals(shape, dtype),
        draw.reals([shape[1]], dtype),
        draw.reals([shape[1]], dtype),
    ]
    return Instance(inputs, attributes)


@reference("InstanceNormalization")
def instance_norm(use: Use, x: Array, scale: Array, shift: Array) -> Array:
    axes, along = tuple(range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
    off = x - x.mean(axes, keepdims=True)
    found = off / np.sqrt(np.square(off).mean(axes, keepdims=True) + use.attributes["epsilon"])
    return found * scale.reshape(along) + shift.reshape(along)


@makes("LayerNormalization", factor=16)
@makes("RMSNormalization", factor=16, coarse=True)  # the first stage ends in the input's type
def layer(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    axis = draw.axis(len(shape))
    kind = draw.type_of("V") if "V" in draw.types else draw.type_of("T")
    if draw.schema.name == "LayerNormalization":
        kind = draw.type_of("T")
    inner = shape[axis % len(shape) :]
    x, scale = draw.reals(shape, draw.type_of("T")), draw.reals(inner, kind)
    attributes = {"axis": draw.maybe(axis) if axis == -1 else axis, "epsilon": draw.maybe(0.01)}
    if draw.schema.name == "RMSNormalization":
        return Instance([x, scale], attributes, [kind])
    return Instance(
        [x, scale, draw.reals(inner, kind) if draw.chance(0.6) else None],
        attributes,
        [kind] + [np.dtype(np.float32)] * 2 * draw.integer(0, 1),
    )


@reference("LayerNormalization")
def layer_norm(use: Use, x: Array, scale: Array, shift: Array | None = None) -> Any:
    axes = tuple(range(use.attributes["axis"] % x.ndim, x.ndim))
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + use.attributes["epsilon"])
    found = (x - mean) * inverse * scale
    return found if shift is None else found + shift, mean, inverse


@makes("GroupNormalization", factor=16)
def group(draw: Draw) -> Instance:
    groups = draw.integer(1, 3)
    shape = _channels(draw, 3)
    shape[1] = groups * draw.integer(1, 3)
    dtype = draw.type_of("T")
    inputs = [
        draw.reals(shape, dtype),
        draw.reals([shape[1]], dtype),
        draw.reals([shape[1]], dtype),
    ]
    return Instance(inputs, {"num_groups": groups, "epsilon": draw.maybe(0.01)})


@reference("GroupNormalization")
def group_norm(use: Use, x: Array, scale: Array, shift: Array) -> Array:
    groups = x.reshape(x.shape[0], use.attributes["num_groups"], -1)
    off = groups - groups.mean(2, keepdims=True)
    found = off / np.sqrt(np.square(off).mean(2, keepdims=True) + use.attributes["epsilon"])
    along = (-1, *[1] * (x.ndim - 2))
    return found.reshape(x.shape) * scale.reshape(along) + shift.reshape(along)


@reference("RMSNormalization")
def rms(use: Use, x: Array, scale: Array) -> Array:
    axes = tuple(range(use.attributes["axis"] % x.ndim, x.ndim))
    root = np.sqrt(np.square(x).mean(axes, keepdims=True) + use.attributes["epsilon"])
    return x / root * scale


@makes("LpNormalization")
def lp(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    x = draw.values(shape, draw.input_type(0), 0.125, 4)
    attributes = {"axis": draw.maybe(draw.axis(len(shape))), "p": draw.maybe(draw.integer(1, 2))}
    return Instance([x], attributes)


# Of squares a mean squared is taken; of two elements that nearly agree, the mean's rounding shows.
@makes("MeanVarianceNormalization", factor=32, absolute=64)
def mean_variance(draw: Draw) -> Instance:
    shape = draw.shape(4, 4, low=2, high=5)
    axes = draw.maybe(draw.pick([[0, 2, 3], [1], [2, 3], [0, 1, 2, 3]]))
    return Instance([draw.reals(shape, draw.input_type(0))], {"axes": axes})


@reference("MeanVarianceNormalization")
def centred(use: Use, x: Array) -> Array:
    """(X - EX) / sqrt(E(X - EX)^2), with 1e-9 added to the root as the function does."""
    axes = tuple(use.attributes.get("axes", (0, 2, 3)))
    off = x - x.mean(axes, keepdims=True)
    return off / (np.sqrt(np.square(off).mean(axes, keepdims=True)) + 1e-9)


@makes("Dropout", exact=True)
def dropped(draw: Draw) -> Instance:
    x = draw.reals(draw.shape(0, 4), draw.type_of("T"))
    kind = draw.types["T"] if draw.version < 10 else np.dtype(bool)
    outputs = [x.dtype, kind] if draw.chance(0.4) and draw.version >= 10 else [x.dtype]
    if draw.version < 12:
        return Instance(
            [x], {"ratio": draw.maybe(0.25), "is_test": 1 if draw.version < 7 else None}, outputs
        )
    ratio = draw.maybe(np.asarray(0.25, draw.type_of("T1")))
    training = draw.maybe(np.asarray(False))
    if training is None or draw.chance(0.3):
        return Instance([x, ratio, training], {}, outputs)
    return Instance([x, np.asarray(0, draw.type_of("T1")), Fed(np.asarray(True))], {}, outputs)


@reference("Dropout")
def kept(use: Use, x: Array, ratio: Any = None, training: Any = None) -> Any:
    return x, np.ones(x.shape, bool)


@makes("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", factor=16)
def loss(draw: Draw) -> Instance:
    classes = draw.integer(1, 4)
    shape = [draw.size(1, 4), classes, *draw.shape(0, 2, low=1, high=3)]
    x = draw.reals(shape, draw.type_of("T"))
    target = draw.indices([shape[0], *shape[2:]], classes, draw.type_of("Tind"), False)
    weight = draw.values([classes], draw.type_of("T"), 0.5, 2) if draw.chance(0.5) else None
    ignore = draw.integer(0, classes - 1) if draw.chance(0.4) and classes > 1 else None
    if ignore is not None:
        target.reshape(-1)[0] = (ignore + 1) % classes
    reduction = draw.pick(["none", "sum", "mean"])
    attributes = {
        "reduction": draw.maybe(reduction) if reduction == "mean" else reduction,
        "ignore_index": ignore,
    }
    outputs: list[Any] = [x.dtype]
    if draw.schema.name == "SoftmaxCrossEntropyLoss" and draw.chance(0.4):
        outputs.append(x.dtype)
    return Instance([x, target, weight], attributes, outputs)


@reference("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss")
def losses(use: Use, x: Array, target: Array, weight: Array | None = None) -> Any:
    g = use.attributes
    logs = x
    if use.node.op_type == "SoftmaxCrossEntropyLoss":
        shifted = x - x.max(1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    weight = np.ones(x.shape[1]) if weight is None else weight
    weights = weight[target] * (target != g.get("ignore_index"))
    found = -np.take_along_axis(logs, np.expand_dims(target, 1), 1).squeeze(1) * weights
    if g["reduction"] != "none":
        total = found.sum()
        found = np.asarray(total / weights.sum() if g["reduction"] == "mean" else total)
    return found, logs


@makes("Range")
def ranged(draw: Draw) -> Instance:
    dtype = draw.type_of("T")
    low, step = draw.fixed([], dtype, -3, 3), draw.pick([1, 2, -1, 3])
    step = abs(step) if dtype.kind == "u" else step
    count = draw.size(0, 6)
    start = int(np.asarray(low, np.float64)) + (30 if step < 0 else 0)
    numbers = [start, start + step * count, step]
    return Instance([np.asarray(n).astype(dtype) for n in numbers])


@reference("Range")
def range_of(use: Use, start: Array, limit: Array, step: Array) -> Array:
    wide = [np.float64(v) for v in (start, limit, step)]
    count = max(int(np.ceil((wide[1] - wide[0]) / wide[2])), 0)
    found = wide[0] + np.arange(count) * wide[2]
    return found.astype(start.dtype) if start.dtype.kind in "iu" else found


@makes("BlackmanWindow HannWindow HammingWindow", absolute=8)
def window(draw: Draw) -> Instance:
    size = np.asarray(draw.size(1, 12), draw.type_of("T1"))
    kind = draw.type_of("T2")
    if kind.kind not in "f":
        kind = np.dtype(np.float32)
    to = kind if kind != np.float32 else draw.maybe(kind)
    return Instance(
        [size], {"periodic": draw.maybe(draw.integer(0, 1)), "output_datatype": to}, [kind]
    )


_WINDOWS = {
    "BlackmanWindow": (0.42, 0.5, 0.08),
    "HannWindow": (0.5, 0.5, 0),
    "HammingWindow": (25 / 46, 21 / 46, 0),
}


@reference("BlackmanWindow HannWindow HammingWindow")
def window_of(use: Use, size: Array) -> Array:
    count = int(size)
    over = count if use.attributes["periodic"] else count - 1
    angle = 2 * np.pi * np.arange(count) / max(over, 1)
    a, b, c = _WINDOWS[use.node.op_type]
    return a - b * np.cos(angle) + c * np.cos(2 * angle)


@makes("DFT", factor=24, absolute=4, steady=[1, 2])
def transform(draw: Draw) -> Instance:
    shape = draw.shape(1, 3, low=1, high=8)
    inverse = draw.integer(0, 1)
    onesided = 0 if inverse else draw.integer(0, 1)
    parts = 1 if onesided or draw.chance(0.5) else 2
    x = draw.reals([draw.size(1, 3), *shape, parts], draw.type_of("T1"))
    length = np.asarray(draw.integer(1, 9), draw.type_of("T2")) if draw.chance(0.3) else None
    rank = x.ndim
    axis = draw.integer(1, rank - 2)
    axis = axis - rank if draw.chance(0.3) and draw.version >= 20 else axis
    attributes = {"inverse": inverse or draw.maybe(0), "onesided": onesided or draw.maybe(0)}
    x = Still(x)
    if draw.version < 20:
        return Instance([x, length], {**attributes, "axis": axis})
    return Instance([x, length, Const(np.asarray(axis, INT64))], attributes)


@reference("DFT")
def fourier(use: Use, x: Array, length: Any = None, axis: Any = None) -> Array:
    g = use.attributes
    along = (
        g["axis"] if axis is None and "axis" in g else -2 if axis is None else int(axis)
    ) % x.ndim
    values = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    count = values.shape[along] if length is None else int(length)
    found = (np.fft.ifft if g["inverse"] else np.fft.fft)(values, count, along)
    if g["onesided"]:
        found = np.take(found, np.arange(count // 2 + 1), along)
    return np.stack([found.real, found.imag], -1)


@makes("STFT", factor=24, absolute=4, steady=[1, 3])
def short_time(draw: Draw) -> Instance:
    frame, step = draw.integer(2, 8), draw.integer(1, 4)
    onesided = draw.integer(0, 1)
    signal = draw.reals([draw.size(1, 2), draw.size(frame, 20), 1], draw.type_of("T1"))
    window = draw.values([frame], signal.dtype, 0.25, 2) if draw.chance(0.6) else None
    given = np.asarray(frame, draw.type_of("T2")) if window is None or draw.chance(0.5) else None
    return Instance(
        [Still(signal), np.asarray(step, draw.type_of("T2")), window, given],
        {"onesided": onesided if not onesided else draw.maybe(1)},
    )


@reference("STFT")
def frames(use: Use, signal: Array, step: Any, window: Any = None, frame: Any = None) -> Array:
    size = len(window) if frame is None else int(frame)
    window = np.ones(size) if window is None else window
    count = (signal.shape[1] - size) // int(step) + 1
    cut = np.stack([signal[:, k * int(step) : k * int(step) + size, 0] for k in range(count)], 1)
    found = np.fft.fft(cut * window, axis=-1)
    if use.attributes["onesided"]:
        found = found[..., : size // 2 + 1]
    return np.stack([found.real, found.imag], -1)


@makes("MelWeightMatrix", steady=[0, 1, 2, 3, 4])
def mel(draw: Draw) -> Instance:
    whole, real = draw.type_of("T1"), draw.type_of("T2")
    real = real if real.kind == "f" else np.dtype(np.float32)
    to = draw.type_of("T3")
    to = to if to.kind == "f" else np.dtype(np.float32)
    numbers = [draw.integer(2, 8), draw.pick([16, 32, 50]), draw.pick([8192, 16000])]
    edges = [draw.integer(0, 100) + 0.5, draw.integer(3000, 4000) + 0.25]
    inputs = [np.asarray(n, whole) for n in numbers] + [np.asarray(e).astype(real) for e in edges]
    return Instance(inputs, {"output_datatype": to if to.name != "float32" else None}, [to])


@makes("FlexAttention", domain="ai.onnx.preview", factor=24, absolute=8)
def flexible(draw: Draw) -> Instance:
    dtype = draw.type_of("T1")
    batch, groups, kv, queries, keys = (draw.size(1, k) for k in (2, 1, 2, 4, 4))
    width, depth = draw.integer(1, 4), draw.integer(1, 4)
    q = draw.reals([batch, kv * groups, queries, width], dtype)
    k = draw.reals([batch, kv, keys, width], dtype)
    v = draw.reals([batch, kv, keys, depth], dtype)
    return Instance([q, k, v], {"scale": draw.maybe(0.25)})


@reference("FlexAttention", domain="ai.onnx.preview")
def flex(use: Use, q: Array, k: Array, v: Array) -> Array:
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scale = use.attributes.get("scale", 1 / np.sqrt(q.shape[-1]))
    scores = q @ k.swapaxes(-1, -2) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
