"""Attentions as graphs of cuDNN's: one kernel, whose scores are not written to memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.base import sizes
from sardonyx.cuda.libraries.cudnn_convolution import TYPES
from sardonyx.cuda.libraries.expected import Reference
from sardonyx.cuda.libraries.libraries import LibraryWork
from sardonyx.plan.vendor_attention import ATTENTION
from sardonyx.plan.vendor_offers import Offer

_QUERIES, _KEYS, _VALUES, _OUT, _BIAS = range(1, 6)
#: Each operand: its name in `ATTENTION`, and its last two axes.
_OPERANDS = {
    _QUERIES: ("left", "rows", "depth"), _KEYS: ("right", "keys", "depth"),
    _VALUES: ("values", "keys", "width"), _OUT: ("out", "rows", "width"),
}  # fmt: skip
_LINES = {"left": "row", "right": "key", "values": "key", "out": "row"}
#: Our kernel is faster at 12 heads x 256 x 256 (4.4 us, cuDNN's 7.0), and slower at 12 x 512 x 512
#: (12.6, 9.3) and at 32 x 12 x 128 x 128 (12.7, 10.2).
_MANY_SCORES, _MANY_KEYS = 6_000_000, 512
#: It was always faster for fewer, unless heads share keys (32 x 12 x 64 x 64 has 1.6 million).
_FEW_SCORES = 1_000_000
#: cuDNN reads so many bytes at once, and says that it does not look whether they lie so.
_ALIGNMENT = 16


class AttentionForm:
    """See `cudnn.Form`.

    Args:
        always: Whether cuDNN does what it can, though our kernel may be faster.
    """

    def __init__(self, always: bool = False) -> None:
        self._always = always

    def refusal(self, offer: Offer, exact: bool) -> str:
        """See `cudnn.Form.refusal`."""
        facts, n = dict(offer.facts), dict(zip(ATTENTION, offer.numbers, strict=True))
        if facts["dtype"] not in ("float16", "bfloat16"):
            return f"cuDNN has no attention of {facts['dtype']}"
        if facts["bias"] and facts["causal"] == "last":
            return "cuDNN adds nothing to scores of keys that are counted from the last"
        scores = sizes.product(n[name] for name in ("batch", "heads", "rows", "keys"))
        are_few = isinstance(scores, int) and scores < _FEW_SCORES
        if are_few and n["heads"] == n["key_heads"] and not self._always:
            return "cuDNN's attention is slower for so few scores"
        return ""

    def competes(self, work: LibraryWork) -> bool:
        """See `cudnn.Form.competes`."""
        return not self._always

    def is_worth(self, work: LibraryWork) -> bool:
        """See `cudnn.Form.is_worth`: where an H200 showed that it is."""
        n = dict(zip(ATTENTION, work.numbers, strict=True))
        if n["heads"] > n["key_heads"]:
            return True
        scores = n["batch"] * n["heads"] * n["rows"] * n["keys"]
        return scores >= _MANY_SCORES or (n["rows"] > 1 and n["keys"] >= _MANY_KEYS)

    def pack(self, work: LibraryWork) -> dict[int, int]:
        """See `cudnn.Form.pack`."""
        found = {_QUERIES: work.left, _KEYS: work.right, _VALUES: work.values, _OUT: work.out}
        if work.bias:
            found[_BIAS] = work.bias
        return {} if any(address % _ALIGNMENT for address in found.values()) else found

    def operands(self, work: LibraryWork) -> dict[int, tuple[int, str]]:
        """See `cudnn.Form.operands`."""
        n = dict(zip(ATTENTION, work.numbers, strict=True))
        found = {uid: (_extent(*_shape(n, uid)), work.dtype) for uid in _OPERANDS}
        if work.bias:
            found[_BIAS] = (_extent(*_bias_shape(n)), str(work.call["bias_type"]))
        return found

    def result(self, work: LibraryWork) -> tuple[int, list[int], list[int]]:
        """See `cudnn.Form.result`."""
        return _OUT, *_shape(dict(zip(ATTENTION, work.numbers, strict=True)), _OUT)

    def reference(self, work: LibraryWork) -> Reference | None:
        """See `cudnn.Form.reference`: plans are compared with each other."""
        return None

    def graph(self, cudnn: Any, handle: Any, work: LibraryWork) -> Any:
        """See `cudnn.Form.graph`."""
        n = dict(zip(ATTENTION, work.numbers, strict=True))
        kind, wide = getattr(cudnn.data_type, TYPES[work.dtype]), cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide, handle=handle
        )
        tensors = {}
        for uid in (_QUERIES, _KEYS, _VALUES):
            dims, strides = _shape(n, uid)
            tensors[uid] = graph.tensor(
                name=_OPERANDS[uid][0], uid=uid, data_type=kind, dim=dims, stride=strides
            )
        options: dict[str, Any] = {}
        if work.bias:
            dims, strides = _bias_shape(n)
            options["bias"] = graph.tensor(
                name="bias", uid=_BIAS, dim=dims, stride=strides,
                data_type=getattr(cudnn.data_type, TYPES[str(work.call["bias_type"])]),
            )  # fmt: skip
        causal = work.call["causal"]
        if causal:
            corner = cudnn.diagonal_alignment
            options["diagonal_alignment"] = (
                corner.TOP_LEFT if causal == "first" else corner.BOTTOM_RIGHT
            )
            options["diagonal_band_right_bound"] = 0
        out, _ = graph.sdpa(
            name="attention", q=tensors[_QUERIES], k=tensors[_KEYS], v=tensors[_VALUES],
            generate_stats=False, attn_scale=float(str(work.call["scale"])), **options,
        )  # fmt: skip
        dims, strides = _shape(n, _OUT)
        out.set_output(True).set_uid(_OUT).set_data_type(kind).set_dim(dims).set_stride(strides)
        return graph


def _shape(n: Mapping[str, int], uid: int) -> tuple[list[int], list[int]]:
    """Sizes and strides of an operand: batch, head, line, element.

    An axis of size 1 has the stride that it would have if all lay densely: cuDNN takes strides of
    axes that are walked nowhere at their word.
    """
    name, lines, elements = _OPERANDS[uid]
    heads = "key_heads" if lines == "keys" else "heads"
    dims = [n["batch"], n[heads], n[lines], n[elements]]
    given = [n[f"{name}_batch"], n[f"{name}_head"], n[f"{name}_{_LINES[name]}"], 1]
    return dims, _walked(dims, given)


def _bias_shape(n: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """The same of what is added; axes that it does not change along have the size 1."""
    given = [n[f"bias_{axis}"] for axis in ("batch", "head", "row", "key")]
    whole = [n["batch"], n["heads"], n["rows"], n["keys"]]
    dims = [size if step else 1 for size, step in zip(whole, given, strict=True)]
    return dims, _walked(dims, given)


def _walked(dims: list[int], given: list[int]) -> list[int]:
    """Strides, with others for axes of size 1."""
    found = list(given)
    for axis in reversed(range(len(dims))):
        if dims[axis] == 1:
            inner = [k for k in range(len(dims)) if k != axis and dims[k] != 1]
            found[axis] = max((found[k] * dims[k] for k in inner if k > axis), default=1)
    return found


def _extent(dims: list[int], strides: list[int]) -> int:
    """Elements from the first to the last."""
    return sum((size - 1) * step for size, step in zip(dims, strides, strict=True)) + 1
