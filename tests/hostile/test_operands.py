"""Operands of onnxruntime's operators that lead outside of others: refused, never read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidArgument, InvalidGraph, RuntimeException
from tests.support.ops import one_node_model

RNG = np.random.default_rng(11)
REFUSALS = (InvalidGraph, InvalidArgument, RuntimeException)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*values: int) -> Any:
    return np.array(values, np.int32)


def experts(router: int = 4, first: int = 4, second: int = 4, columns: int = 16) -> list[Any]:
    return [floats(5, 16), floats(5, router), floats(first, 32, columns), None,
            floats(second, 16, 32)]  # fmt: skip


def codes(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def packed_experts(*zeros: int) -> list[Any]:
    layers = [codes(4, 32, 8), floats(4, 32), None, codes(4, 16, 16), floats(4, 16)]
    return [floats(5, 16), floats(5, 4), *layers, *[None] * 4, codes(*zeros)]


def blocks(lengths: tuple[int, int]) -> list[Any]:
    rows, columns = np.array([[0, 1, 3]], np.int32), np.array([[0, 0, 1]], np.int32)
    return [floats(2, 4, 32), floats(2, 4, 32), floats(2, 4, 32), floats(2, 2, 4, 16),
            floats(2, 2, 4, 16), rows, columns, whole(8), whole(*lengths)]  # fmt: skip


SPARSE = {"num_heads": 2, "kv_num_heads": 2, "sparse_block_size": 4}
ROTARY = {"num_heads": 2, "kv_num_heads": 2, "do_rotary": 1}


def grouped(positions: tuple[int, int]) -> list[Any]:
    ids = np.zeros(positions, np.int64)
    return [floats(2, 4, 32), floats(2, 4, 32), floats(2, 4, 32), None, None, whole(3, 3),
            whole(4), floats(9, 8), floats(9, 8), ids]  # fmt: skip


#: Operator, operands, attributes.
OUTSIDE: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("MoE", experts(router=5), {"k": 2}),
    ("MoE", experts(second=3), {"k": 2}),
    ("MoE", experts(columns=17), {"k": 2}),
    ("QMoE", packed_experts(4, 15), {"k": 2}),
    ("QMoE", packed_experts(3, 16), {"k": 2}),
    ("SparseAttention", blocks((8, 1 << 20)), SPARSE),
    ("SparseAttention", blocks((8, -(1 << 20))), SPARSE),
    ("GroupQueryAttention", grouped((1, 4)), ROTARY),
    ("GroupQueryAttention", grouped((2, 1)), ROTARY),
    ("RelativePositionBias", [floats(0, 3), np.array(4), np.array(4)], {"max_distance": 8}),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("op", "operands", "attributes"), OUTSIDE)
def test_what_leads_outside(
    op: str, operands: list[Any], attributes: dict[str, Any], symbolic: bool
) -> None:
    outputs = 3 if "Attention" in op else 1
    model = one_node_model(
        op, operands, attributes, 1, outputs, domain="com.microsoft", symbolic=symbolic
    )
    feeds = {f"x{k}": x for k, x in enumerate(operands) if x is not None}
    with pytest.raises(REFUSALS, match=r"^\[") as caught:
        sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    assert "wrong type" not in str(caught.value) and "missing" not in str(caught.value)


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("both", [0, 1])
def test_distances_that_no_bucket_was_made_for(distance: int, both: int) -> None:
    table = floats(8, 2)
    operands = [table, np.array([9]), np.array([9])]
    attributes = {"max_distance": distance, "is_bidirectional": both}
    model = one_node_model("RelativePositionBias", operands, attributes, 1, domain="com.microsoft")
    feeds = {f"x{k}": x for k, x in enumerate(operands)}
    result = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    heads = table.reshape(2, 8)
    assert result.shape == (1, 2, 9, 9)
    assert all(np.isin(result[0, h], heads[h]).all() for h in range(2))
