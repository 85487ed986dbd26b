"""MaxpoolWithMask against loops that do what onnxruntime's kernel does, and against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph
from tests.support.contrib import check_contrib, contrib_model

NAME = "MaxpoolWithMask"
LEAST = np.finfo(np.float32).min
Array = Any


def _expected(x: Array, mask: Array, facts: dict[str, Any]) -> Array:
    kernel, rank = facts["kernel_shape"], x.ndim - 2
    strides = facts.get("strides", [1] * rank)
    pads = facts.get("pads", [0] * 2 * rank)
    space, flat = x.shape[2:], mask.reshape(-1)
    planes = mask.shape[0] * mask.shape[1]
    outputs = [
        (space[a] + pads[a] + pads[a + rank] - kernel[a]) // strides[a] + 1 for a in range(rank)
    ]
    result = np.full((*x.shape[:2], *outputs), LEAST, np.float32)
    for n, c, *o in np.ndindex(*result.shape):
        start = (n * x.shape[1] + c) * int(np.prod(space)) % planes
        for row in np.ndindex(*kernel[:-1]):
            for tap in range(kernel[-1]):
                at = [
                    o[a] * strides[a] - pads[a] + t for a, t in enumerate((*row, tap))
                ]  # fmt: skip
                if not all(0 <= i < d for i, d in zip(at, space, strict=True)):
                    continue
                place = int(np.ravel_multi_index(at, space))
                if (place > 0 or rank == 1) and flat[start + place] == 0:
                    break
                if x[(n, c, *at)] > result[(n, c, *o)]:
                    result[(n, c, *o)] = x[(n, c, *at)]
    return result


CASES: list[tuple[tuple[int, ...], tuple[int, int], dict[str, Any]]] = [
    ((1, 1, 4, 4), (1, 1), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 3, 5, 7), (1, 1), {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}),
    ((2, 3, 5, 7), (1, 3), {"kernel_shape": [2, 3], "pads": [0, 1, 1, 2]}),
    ((3, 2, 3, 5), (3, 2), {"kernel_shape": [2, 2]}),
    ((2, 2, 9), (1, 1), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}),
    ((1, 2, 3, 4, 5), (1, 2), {"kernel_shape": [2, 2, 3], "strides": [1, 2, 1]}),
]


@pytest.mark.parametrize("shape, planes, facts", CASES, ids=str)
@pytest.mark.parametrize("hidden", [0.0, 0.3, 1.0])
def test_masks(
    shape: tuple[int, ...], planes: tuple[int, int], facts: dict[str, Any], hidden: float
) -> None:
    random = np.random.default_rng(3)
    x = random.standard_normal(shape).astype(np.float32)
    mask = (random.random((*planes, *shape[2:])) >= hidden).astype(np.int32) * 5
    expected = [_expected(x, mask, facts)]
    for symbolic in (False, True):
        check_contrib(NAME, [x, mask], facts, expected, symbolic=symbolic)


def test_nan_and_infinities() -> None:
    x = np.array([[[[1, np.nan, 3, np.nan, np.nan, -np.inf, -np.inf, np.inf]]]], np.float32)
    mask = np.ones(x.shape, np.int32)
    facts = {"kernel_shape": [1, 2], "strides": [1, 2]}
    expected = np.array([[[[1, 3, LEAST, np.inf]]]], np.float32)
    check_contrib(NAME, [x, mask], facts, [expected])


def test_no_images() -> None:
    x, mask = np.zeros((0, 2, 4, 4), np.float32), np.ones((1, 1, 4, 4), np.int32)
    facts = {"kernel_shape": [2, 2]}
    check_contrib(NAME, [x, mask], facts, [np.zeros((0, 2, 3, 3))], engine=False)


@pytest.mark.parametrize(
    "shape, mask, facts, text",
    [
        ((1, 1, 4, 4), (4, 4), {"kernel_shape": [2, 2]}, "as many axes as the images. Expected 4"),
        ((1, 1, 4, 4), (1, 1, 4, 3), {"kernel_shape": [2, 2]}, "The space of the mask"),
        ((1, 4), (1, 4), {"kernel_shape": [2]}, "no spatial axes"),
        ((1, 1, 4, 4), (1, 1, 4, 4), {}, "kernel_shape"),
        ((1, 1, 4, 4), (1, 1, 4, 4), {"kernel_shape": [2]}, "kernel"),
    ],
)
def test_bad_graphs(
    shape: tuple[int, ...], mask: tuple[int, ...], facts: dict[str, Any], text: str
) -> None:
    inputs = [np.zeros(shape, np.float32), np.ones(mask, np.int32)]
    model = contrib_model(NAME, inputs, facts, 1)
    with pytest.raises(InvalidGraph, match=f"node it .{NAME}.*{text}"):
        sardonyx.InferenceSession(model.SerializeToString())
