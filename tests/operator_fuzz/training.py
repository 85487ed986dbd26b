"""Steps of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operator_fuzz.draw import Array, Draw
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.oracle import Use, reference

TRAINING = "ai.onnx.preview.training"


@makes("Adagrad Momentum Adam", domain=TRAINING, factor=16, absolute=8, steady=[0, 1])
def stepped(draw: Draw) -> Instance:
    rate, count = draw.fixed([], draw.type_of("T1"), 0.125, 1), draw.integer(1, 2)
    dtype = draw.type_of("T3")
    shapes = [draw.shape(0, 3) for _ in range(count)]
    step = np.asarray(draw.integer(0, 3), INT64)
    name = draw.schema.name
    states = {"Adagrad": 3, "Momentum": 3, "Adam": 4}[name]
    arrays = [
        draw.values(s, dtype, 0 if k == states - 1 else -3, 3)
        for k in range(states)
        for s in shapes
    ]
    attributes: dict[str, Any] = {"norm_coefficient": draw.maybe(0.125)}
    if name == "Adagrad":
        attributes |= {"decay_factor": draw.maybe(0.5), "epsilon": draw.maybe(0.25)}
    elif name == "Momentum":
        attributes = {
            "norm_coefficient": 0.125,
            "alpha": 0.75,
            "beta": 0.5,
            "mode": draw.pick(["standard", "nesterov"]),
        }
    else:
        attributes |= {
            "alpha": draw.maybe(0.75),
            "beta": draw.maybe(0.5),
            "epsilon": 0.25,
            "norm_coefficient_post": draw.maybe(0.25),
        }
    return Instance([rate, step, *arrays], attributes, [dtype] * (states - 1) * count)


@reference("Adagrad", domain=TRAINING)
def adagrad(use: Use, rate: Array, step: Array, *arrays: Array) -> Any:
    g, count = use.attributes, len(arrays) // 3
    now = float(rate) / (1 + int(step) * g["decay_factor"])
    xs, hs = [], []
    for x, gradient, h in zip(
        arrays[:count], arrays[count : 2 * count], arrays[2 * count :], strict=True
    ):
        gradient = g["norm_coefficient"] * x + gradient
        hs.append(h + gradient * gradient)
        xs.append(x - now * gradient / (np.sqrt(hs[-1]) + g["epsilon"]))
    return (*xs, *hs)


@reference("Momentum", domain=TRAINING)
def momentum(use: Use, rate: Array, step: Array, *arrays: Array) -> Any:
    g, count = use.attributes, len(arrays) // 3
    beta = g["beta"] if int(step) > 0 else 1.0
    xs, vs = [], []
    for x, gradient, v in zip(
        arrays[:count], arrays[count : 2 * count], arrays[2 * count :], strict=True
    ):
        gradient = g["norm_coefficient"] * x + gradient
        vs.append(g["alpha"] * v + beta * gradient)
        move = gradient + g["alpha"] * vs[-1] if g["mode"] == "nesterov" else vs[-1]
        xs.append(x - float(rate) * move)
    return (*xs, *vs)


@reference("Adam", domain=TRAINING)
def adam(use: Use, rate: Array, step: Array, *arrays: Array) -> Any:
    g, count = use.attributes, len(arrays) // 4
    parts = [arrays[k * count : (k + 1) * count] for k in range(4)]
    t = int(step)
    now = float(rate)
    if t > 0:
        now *= np.sqrt(1 - g["beta"] ** t) / (1 - g["alpha"] ** t)
    xs, vs, hs = [], [], []
    for x, gradient, v, h in zip(*parts, strict=True):
        gradient = g["norm_coefficient"] * x + gradient
        vs.append(g["alpha"] * v + (1 - g["alpha"]) * gradient)
        hs.append(g["beta"] * h + (1 - g["beta"]) * gradient * gradient)
        new = x - now * vs[-1] / (np.sqrt(hs[-1]) + g["epsilon"])
        xs.append((1 - g["norm_coefficient_post"]) * new)
    return (*xs, *vs, *hs)
