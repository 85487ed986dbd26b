"""Numbers that the data decides: those out of range are faults, those at its ends are taken.

Each row has an operator, its input that is changed, a number that is out of range, the range as the
error says it, and numbers at its ends. onnxruntime 1.31.1 refuses and takes the same ones where it
has the operator on a processor, but for ends of masks and for WordConvEmbedding, which it lets
pass, and for labels of -1, which it ignores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.base import errors
from sardonyx.base.ranged import RANGED_NAMES

Array = np.ndarray[Any, np.dtype[Any]]

_random = np.random.default_rng(7)


def floats(*shape: int, dtype: Any = np.float32) -> Array:
    return _random.standard_normal(shape).astype(dtype)


def ids(*numbers: Any) -> Array:
    return np.array(numbers, np.int32)


def longs(*numbers: Any) -> Array:
    return np.array(numbers, np.int64)


@dataclass
class Case:
    """A node with feeds that it takes.

    Attributes:
        operator: Its type.
        inputs: In order; None where one is omitted.
        attributes: Of the node.
        outputs: How many it has.
        domain: The operator's; "" for the standard's.
        opset: Of the standard.
        constants: Inputs that are initializers.
    """

    operator: str
    inputs: dict[str, Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = "com.microsoft"
    opset: int = 20
    constants: tuple[str, ...] = ()

    def model(self) -> bytes:
        names = ["" if x is None else name for name, x in self.inputs.items()]
        results = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(
            self.operator, names, results, name="it", domain=self.domain, **self.attributes
        )
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in self.feeds.items()
        ]
        weights = [onnx.numpy_helper.from_array(self.inputs[name], name) for name in self.constants]
        shown = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph([node], "g", declared, shown, weights)
        opsets = [
            helper.make_opsetid("", self.opset),
            *(helper.make_opsetid(name, 1) for name in ("com.microsoft", "ai.onnx.ml")),
        ]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        written: bytes = made.SerializeToString()
        return written

    @property
    def feeds(self) -> dict[str, Any]:
        given = self.inputs.items()
        return {name: x for name, x in given if x is not None and name not in self.constants}


def grouped(length: int, room: int, **more: Any) -> Case:
    """GroupQueryAttention of a cache with so much room."""
    total = more.pop("total", room)
    inputs = {
        "query": floats(1, length, 32), "key": floats(1, length, 16),
        "value": floats(1, length, 16),
        "past_key": floats(1, 1, room, 16), "past_value": floats(1, 1, room, 16),
        "seqlens_k": ids(total - 1), "total_sequence_length": np.array(total, np.int32),
        "cos_cache": floats(room, 8), "sin_cache": floats(room, 8),
        "position_ids": more.pop("position_ids", None),
    }  # fmt: skip
    return Case("GroupQueryAttention", inputs, {"num_heads": 2, "kv_num_heads": 1, **more}, 3)


HALF = ml_dtypes.bfloat16
_PAGED = {
    "query": floats(4, 16, dtype=HALF), "key": floats(4, 8, dtype=HALF),
    "value": floats(4, 8, dtype=HALF), "key_cache": floats(3, 4, 1, 8, dtype=HALF),
    "value_cache": floats(3, 4, 1, 8, dtype=HALF), "cumulative_sequence_length": ids(0, 3, 4),
    "past_seqlens": ids(2, 5), "block_table": ids([0, 1], [2, 1]),
    "cos_cache": floats(8, 4, dtype=HALF), "sin_cache": floats(8, 4, dtype=HALF),
    "slot_mapping": None,
}  # fmt: skip
_HEADS = {"num_heads": 2, "kv_num_heads": 1}
_CHOSEN = {
    **{name: _PAGED[name] for name in list(_PAGED)[:8]}, "slot_mapping": None,
    "selected_indices": ids([0, 1], [0, 2], [1, 3], [4, 0]), "selected_counts": ids(2, 2, 1, 2),
    "auxiliary_key": floats(2, 6, 1, 8, dtype=HALF),
    "auxiliary_value": floats(2, 6, 1, 8, dtype=HALF), "auxiliary_lengths": ids(6, 5),
}  # fmt: skip
_PACKED = {
    "x": floats(5, 8), "weights": floats(8, 24), "bias": floats(24),
    "token_offset": ids([0, 1, 2], [3, 4, 5]), "cumulative_sequence_length": ids(0, 3, 5),
}  # fmt: skip
_HIDDEN = {
    "x": floats(2, 3, 8), "weights": floats(8, 24), "bias": floats(24), "mask_index": ids(3, 2),
}  # fmt: skip
_WORDS = {
    "input_ids": ids([0, 2, 1]), "segment_ids": ids([0, 1, 1]), "words": floats(6, 8),
    "positions": floats(5, 8), "segments": floats(2, 8), "gamma": floats(8), "beta": floats(8),
    "mask": None, "position_ids": ids([4, 0, 1]),
}  # fmt: skip
_BEAMS = {
    "query": floats(2, 1, 8), "key": floats(2, 1, 8), "value": floats(2, 1, 8), "bias": None,
    "key_padding_mask": None, "attention_bias": None, "past_key": floats(2, 2, 6, 4),
    "past_value": floats(2, 2, 6, 4), "past_sequence_length": ids(3),
    "cache_indirection": np.zeros((1, 2, 6), np.int32),
}  # fmt: skip
_BLOCKS = {
    "query": floats(1, 2, 32), "key": floats(1, 2, 16), "value": floats(1, 2, 16),
    "past_key": floats(1, 1, 8, 16), "past_value": floats(1, 1, 8, 16),
    "block_row_indices": ids([0, 1, 3]), "block_col_indices": ids([0, 0, 1, -1]),
    "total_sequence_length": ids(6), "key_total_sequence_lengths": ids(6),
}  # fmt: skip
_SPARSE = {
    "query": floats(1, 2, 32), "key": floats(1, 2, 16), "value": floats(1, 2, 16),
    "past_key": floats(1, 1, 8, 16), "past_value": floats(1, 1, 8, 16),
    "auxiliary_key": None, "auxiliary_value": None, "selected_indices": ids([0, 1], [0, 3]),
    "selected_counts": ids(2, 2), "seqlens_k": ids(5), "total_sequence_length": ids(6),
    "cos_cache": floats(8, 8), "sin_cache": floats(8, 8), "position_ids": longs([4, 5]),
}  # fmt: skip
CASES: dict[str, Case] = {
    "MaxUnpool": Case(
        "MaxUnpool", {"x": floats(1, 1, 2, 2), "I": longs(0, 5, 10, 15).reshape(1, 1, 2, 2)},
        {"kernel_shape": [2, 2], "strides": [2, 2]}, domain="",
    ),
    "ArrayFeatureExtractor": Case(
        "ArrayFeatureExtractor", {"x": floats(2, 4), "Y": longs(0, 3)}, domain="ai.onnx.ml",
    ),
    "GroupQueryAttention": grouped(1, 8),
    "GroupQueryAttention, several new": grouped(3, 8),
    "GroupQueryAttention, a prompt": grouped(4, 8, total=4),
    "GroupQueryAttention, positions": grouped(1, 8, do_rotary=1, position_ids=longs([7])),
    "DynamicSparseAttention":
        Case("DynamicSparseAttention", _SPARSE, {**_HEADS, "do_rotary": 1}, 3),
    "SparseAttention": Case("SparseAttention", _BLOCKS, {**_HEADS, "sparse_block_size": 4}, 3),
    "MultiHeadAttention": Case("MultiHeadAttention", _BEAMS, {"num_heads": 2}, 3),
    "MultiHeadAttention, a mask": Case(
        "MultiHeadAttention",
        {"query": floats(2, 3, 8), "key": floats(2, 3, 8), "value": floats(2, 3, 8), "bias": None,
         "mask_index": ids(3, 1)},
        {"num_heads": 2}),
    "DecoderMaskedMultiHeadAttention": Case(
        "DecoderMaskedMultiHeadAttention",
        {**{k: _BEAMS[k] for k in ("query", "key", "value")}, "mask_index": None, "bias": None,
         **{k: _BEAMS[k] for k in ("past_key", "past_value", "past_sequence_length")},
         "beam_width": ids(2), "cache_indirection": _BEAMS["cache_indirection"]},
        {"num_heads": 2, "past_present_share_buffer": 1}, 3),
    "Attention": Case("Attention", _HIDDEN, {"num_heads": 2}),
    "Attention, starts": Case(
        "Attention", {**_HIDDEN, "mask_index": ids(3, 2, 0, 1)}, {"num_heads": 2}),
    "QAttention": Case(
        "QAttention",
        {"x": np.ones((2, 3, 8), np.uint8), "weights": np.ones((8, 24), np.int8),
         "bias": floats(24), "xs": np.float32(0.1), "ws": np.float32(0.1), "mask_index": ids(3, 2)},
        {"num_heads": 2}),
    "PagedAttention": Case("PagedAttention", _PAGED, {**_HEADS, "do_rotary": 1}, 3),
    "PagedAttention, slots":
        Case("PagedAttention", {**_PAGED, "slot_mapping": ids(2, 3, -1, 11)}, _HEADS, 3),
    "SparsePagedAttention": Case(
        "SparsePagedAttention", _CHOSEN, {**_HEADS, "selected_kv_source": "auxiliary"}, 3),
    "PackedAttention": Case("PackedAttention", _PACKED, {"num_heads": 2}),
    "PackedMultiHeadAttention": Case(
        "PackedMultiHeadAttention",
        {"query": floats(5, 8), "key": floats(5, 8), "value": floats(5, 8), "bias": None,
         "token_offset": _PACKED["token_offset"],
         "cumulative_sequence_length": _PACKED["cumulative_sequence_length"]},
        {"num_heads": 2}),
    "RestorePadding":
        Case("RestorePadding", {"x": floats(5, 8), "token_offset": _PACKED["token_offset"]}),
    "RemovePadding":
        Case("RemovePadding", {"x": floats(2, 3, 8), "sequence_token_count": ids(3, 1)}, {}, 4),
    "RotaryEmbedding of onnxruntime": Case(
        "RotaryEmbedding",
        {"x": floats(1, 2, 3, 8), "position_ids": longs([0, 1, 6]), "cos": floats(7, 4),
         "sin": floats(7, 4)}),
    "RotaryEmbedding of onnxruntime, the first": Case(
        "RotaryEmbedding",
        {"x": floats(1, 2, 3, 8), "position_ids": longs(4), "cos": floats(7, 4),
         "sin": floats(7, 4)}),
    "RotaryEmbedding": Case(
        "RotaryEmbedding",
        {"x": floats(1, 2, 3, 8), "cos": floats(7, 4), "sin": floats(7, 4),
         "position_ids": longs([0, 1, 6])},
        domain="", opset=23),
    "MRotaryEmbedding": Case(
        "MRotaryEmbedding",
        {"x": floats(1, 2, 3, 8), "position_ids": np.zeros((3, 1, 3), np.int64),
         "cos": floats(7, 4), "sin": floats(7, 4)},
        {"mrope_section": [2, 1, 1]}),
    "EmbedLayerNormalization": Case("EmbedLayerNormalization", _WORDS, {}, 2),
    "MatMulNBits": Case(
        "MatMulNBits",
        {"A": floats(2, 32), "B": np.zeros((4, 2, 8), np.uint8), "scales": floats(8),
         "zero_points": None, "g_idx": np.repeat(ids(0, 1), 16)},
        {"K": 32, "N": 4, "bits": 4, "block_size": 16}),
    "CropAndResize": Case(
        "CropAndResize",
        {"x": floats(2, 1, 4, 4), "rois": np.array([[0, 0, 1, 1]], np.float32),
         "batch_indices": ids(1), "crop_size": ids(2, 2)}, constants=("crop_size",)),
    "WordConvEmbedding": Case(
        "WordConvEmbedding",
        {"Sequence": ids([1, 2, 3, 0]), "W": floats(3, 1, 2, 5), "B": floats(3), "C": floats(6, 5)},
        {"conv_window_size": 2, "embedding_size": 3, "char_embedding_size": 5}),
    "VarlenCausalConvWithState": Case(
        "VarlenCausalConvWithState",
        {"x": floats(5, 4), "w": floats(4, 1, 3), "cumulative_sequence_length": ids(0, 2, 5),
         "bias": None, "state": floats(2, 4, 2)}, {}, 2),
    "GatedDeltaNet": Case(
        "GatedDeltaNet",
        {"query": floats(5, 2, 4), "key": floats(5, 2, 4), "value": floats(5, 2, 4),
         "cu_seqlens": ids(0, 2, 5), "decay": -np.abs(floats(5, 2)), "beta": floats(5, 2)}, {}, 2),
    "Attention of the standard": Case(
        "Attention",
        {"q": floats(2, 2, 3, 4), "k": floats(2, 2, 5, 4), "v": floats(2, 2, 5, 4), "m": None,
         "pk": None, "pv": None, "nonpad_kv_seqlen": longs(5, 0)}, domain="", opset=24),
    "TensorScatter": Case(
        "TensorScatter",
        {"cache": floats(2, 6, 4), "update": floats(2, 2, 4), "write_indices": longs(0, 4)},
        {"axis": 1}, domain="", opset=24),
    "RoiAlign": Case(
        "RoiAlign",
        {"x": floats(2, 1, 4, 4), "rois": np.array([[0, 0, 2, 2]], np.float32),
         "batch_indices": longs(1)}, domain="", opset=16),
    "ReverseSequence": Case(
        "ReverseSequence", {"x": floats(4, 2), "sequence_lens": longs(4, 1)}, domain="", opset=10),
    "NegativeLogLikelihoodLoss": Case(
        "NegativeLogLikelihoodLoss", {"x": floats(2, 3), "labels": longs(0, 2)}, domain="",
        opset=13),
    "LSTM": Case(
        "LSTM",
        {"x": floats(4, 2, 3), "w": floats(1, 8, 3), "r": floats(1, 8, 2), "b": None,
         "sequence_lens": ids(4, 0)}, {"hidden_size": 2}, domain="", opset=14),
}  # fmt: skip


#: Case, input, place of the number, numbers out of the range, the range as errors say it, and
#: numbers at its ends that are taken.
ROWS: list[tuple[str, str, tuple[int, ...], tuple[int, ...], str, tuple[int, ...]]] = [
    ("MaxUnpool", "I", (0, 0, 1, 1), (-1, -16, 16), "0 to 15", (0, 15)),
    ("ArrayFeatureExtractor", "Y", (1,), (-1, -4, 4), "0 to 3", (0, 3)),
    ("GroupQueryAttention", "seqlens_k", (0,), (99, 8, -1, -5), "0 to 7", (0, 7)),
    ("GroupQueryAttention, several new", "seqlens_k", (0,), (99, 1), "2 to 7", (2, 7)),
    ("GroupQueryAttention, a prompt", "seqlens_k", (0,), (99, 8, -1), "0 to 7", (0, 3, 7)),
    ("GroupQueryAttention, positions", "position_ids", (0, 0), (8, -1), "0 to 7", (0, 7)),
    ("DynamicSparseAttention", "seqlens_k", (0,), (99, 0, -3), "1 to 7", (5,)),
    ("DynamicSparseAttention", "position_ids", (0, 1), (8, -1), "0 to 7", (0, 7)),
    ("DynamicSparseAttention", "selected_counts", (1,), (3, -1), "0 to 2", (0, 2)),
    ("DynamicSparseAttention", "selected_indices", (1, 0), (-1, -9), "0 to 7", (0, 5)),
    ("SparseAttention", "key_total_sequence_lengths", (0,), (7, 1, -4), "2 to 6", (2, 6)),
    ("SparseAttention", "block_row_indices", (0, 1), (5, -1), "0 to 4", (1,)),
    ("SparseAttention", "block_col_indices", (0, 2), (2, -2), "-1 to 1", (-1, 1)),
    ("MultiHeadAttention", "cache_indirection", (0, 0, 1), (2, -1), "0 to 1", (0, 1)),
    ("MultiHeadAttention, a mask", "mask_index", (0,), (4, -1), "0 to 3", (0, 3)),
    ("DecoderMaskedMultiHeadAttention", "cache_indirection", (0, 0, 1), (2, -1), "0 to 1", (1,)),
    ("DecoderMaskedMultiHeadAttention", "beam_width", (0,), (1, 3, -1), "2 to 2", (2,)),
    ("Attention", "mask_index", (1,), (4, -1), "0 to 3", (0, 3)),
    ("Attention, starts", "mask_index", (3,), (4, -1), "0 to 3", (0, 3)),
    ("QAttention", "mask_index", (1,), (4, -1), "0 to 3", (0, 3)),
    ("PagedAttention", "past_seqlens", (1,), (8, -1), "0 to 7", (0, 7)),
    ("PagedAttention", "block_table", (0, 0), (3, -2), "-1 to 2", (0, 2)),
    ("PagedAttention", "cumulative_sequence_length", (1,), (5, -1), "0 to 4", (1, 3)),
    ("PagedAttention, slots", "slot_mapping", (0,), (12, -2), "-1 to 11", (-1, 2)),
    ("SparsePagedAttention", "selected_counts", (0,), (3, -1), "0 to 2", (0, 2)),
    ("SparsePagedAttention", "auxiliary_lengths", (0,), (7, -1), "0 to 6", (0, 6)),
    ("PackedAttention", "cumulative_sequence_length", (1,), (4, -1), "0 to 3", (2, 3)),
    ("PackedAttention", "token_offset", (0, 1), (6, -1), "0 to 5", (0, 5)),
    ("PackedMultiHeadAttention", "cumulative_sequence_length", (1,), (4, -1), "0 to 3", (2, 3)),
    ("PackedMultiHeadAttention", "token_offset", (0, 1), (6, -1), "0 to 5", (0, 5)),
    ("RestorePadding", "token_offset", (0, 1), (6, -1), "0 to 5", (1, 5)),
    ("RemovePadding", "sequence_token_count", (1,), (4, -1), "0 to 3", (0, 3)),
    ("RotaryEmbedding of onnxruntime", "position_ids", (0, 1), (7, -1), "0 to 6", (0, 6)),
    ("RotaryEmbedding of onnxruntime, the first", "position_ids", (0,), (7,), "0 to 6", (0, 4)),
    ("RotaryEmbedding", "position_ids", (0, 1), (7, -1), "0 to 6", (0, 6)),
    ("MRotaryEmbedding", "position_ids", (1, 0, 2), (7, -1), "0 to 6", (0, 6)),
    ("EmbedLayerNormalization", "input_ids", (0, 1), (6, -1), "0 to 5", (0, 5)),
    ("EmbedLayerNormalization", "segment_ids", (0, 1), (2, -1), "0 to 1", (0, 1)),
    ("EmbedLayerNormalization", "position_ids", (0, 1), (5, -1), "0 to 4", (0, 4)),
    ("MatMulNBits", "g_idx", (3,), (2, -1), "0 to 1", (0, 1)),
    ("CropAndResize", "batch_indices", (0,), (2, -1), "0 to 1", (0, 1)),
    ("WordConvEmbedding", "Sequence", (0, 1), (6, -1), "0 to 5", (1, 5)),
    ("VarlenCausalConvWithState", "cumulative_sequence_length", (1,), (6, -1), "0 to 5", (0, 5)),
    ("GatedDeltaNet", "cu_seqlens", (1,), (6, -1), "0 to 5", (0, 5)),
    ("Attention of the standard", "nonpad_kv_seqlen", (1,), (6, -1), "0 to 5", (0, 5)),
    ("TensorScatter", "write_indices", (1,), (5, -1), "0 to 4", (0, 4)),
    ("RoiAlign", "batch_indices", (0,), (2, -1), "0 to 1", (0, 1)),
    ("ReverseSequence", "sequence_lens", (1,), (5, -1), "0 to 4", (0, 4)),
    ("NegativeLogLikelihoodLoss", "labels", (1,), (3, -1), "0 to 2", (0, 2)),
    ("LSTM", "sequence_lens", (1,), (5, -1), "0 to 4", (0, 4)),
]


def changed(case: Case, name: str, place: tuple[int, ...], number: int) -> dict[str, Any]:
    feeds = dict(case.feeds)
    feeds[name] = feeds[name].copy()
    feeds[name][place] = number
    return feeds


_sessions: dict[str, sardonyx.InferenceSession] = {}


def session_of(name: str) -> sardonyx.InferenceSession:
    if name not in _sessions:
        _sessions[name] = sardonyx.InferenceSession(CASES[name].model())
    return _sessions[name]


@pytest.mark.parametrize(
    ("name", "given", "place", "wrong", "expected", "right"),
    ROWS,
    ids=[f"{row[0]}: {row[1]}" for row in ROWS],
)
def test_numbers_out_of_range(
    name: str,
    given: str,
    place: tuple[int, ...],
    wrong: tuple[int, ...],
    expected: str,
    right: tuple[int, ...],
) -> None:
    case, session = CASES[name], session_of(name)
    want = session.run(None, case.feeds)
    for number in wrong:
        text = rf"\[node it\] {given} is out of range\. Expected {expected}, got {number}\."
        with pytest.raises(errors.IndexOutOfRange, match=text):
            session.run(None, changed(case, given, place, number))
    for number in right:
        session.run(None, changed(case, given, place, number))
    for got, before in zip(session.run(None, case.feeds), want, strict=True):
        assert got.tobytes() == before.tobytes()  # a fault leaves nothing behind


def test_positions_that_follow_from_lengths_are_checked_as_well() -> None:
    case = grouped(1, 8, do_rotary=1)
    for name in ("cos_cache", "sin_cache"):
        case.inputs[name] = case.inputs[name][:7]
    session = sardonyx.InferenceSession(case.model())
    session.run(None, changed(case, "seqlens_k", (0,), 6))
    with pytest.raises(errors.IndexOutOfRange, match="a rotary position .* 0 to 6, got 7"):
        session.run(None, case.feeds)


#: What is tested elsewhere, or computed: below; MaxRoiPool and AttnLSTM in their own files.
UNTESTED = {"a rotary position", "rois", "memory_seq_lens"}

#: Case, input, number: lengths in all, whose range follows from sizes.
TOTALS = [
    ("GroupQueryAttention", "total_sequence_length", 99),
    ("GroupQueryAttention", "total_sequence_length", 0),
    ("GroupQueryAttention", "total_sequence_length", -1),
    ("DynamicSparseAttention", "total_sequence_length", 99),
    ("SparseAttention", "total_sequence_length", -1),
    ("MultiHeadAttention", "past_sequence_length", 6),
    ("MultiHeadAttention", "past_sequence_length", -1),
    ("DecoderMaskedMultiHeadAttention", "past_sequence_length", 6),
]


@pytest.mark.parametrize(("name", "given", "number"), TOTALS)
def test_lengths_in_all(name: str, given: str, number: int) -> None:
    case = CASES[name]
    feeds = case.feeds | {given: np.full_like(case.feeds[given], number)}
    with pytest.raises(errors.InvalidArgument, match=r"node it"):
        session_of(name).run(None, feeds)


def test_each_name_is_of_an_input_that_is_tested() -> None:
    tested = {row[1] for row in ROWS}
    assert set(RANGED_NAMES) - tested == UNTESTED


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"])
@pytest.mark.parametrize("lanes", [1, 3, 37])
def test_vectors_say_which_number_and_which_range(level: str, lanes: int) -> None:
    """Ranges may differ from lane to lane: offsets rise from the one before."""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel[level]
    starts = np.arange(lanes + 1, dtype=np.int32)
    inputs = {
        "x": floats(lanes, 2), "w": floats(2, 1, 2), "cumulative_sequence_length": starts,
        "bias": None, "state": floats(lanes, 2, 1),
    }  # fmt: skip
    case = Case("VarlenCausalConvWithState", inputs, {}, 2)
    session = sardonyx.InferenceSession(case.model(), options)
    session.run(None, case.feeds)
    with pytest.raises(errors.IndexOutOfRange, match=f"Expected {lanes - 1} to {lanes}, got -7"):
        session.run(None, changed(case, "cumulative_sequence_length", (lanes,), -7))


def test_constants_out_of_range_are_faults_of_a_run() -> None:
    case = grouped(1, 8)
    case.constants = ("seqlens_k",)
    case.inputs["seqlens_k"] = ids(8)
    session = sardonyx.InferenceSession(case.model())
    with pytest.raises(errors.IndexOutOfRange, match="seqlens_k .* 0 to 7, got 8"):
        session.run(None, case.feeds)
