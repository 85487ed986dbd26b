"""Tables of candidates: each is taken somewhere, and says elsewhere why it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.plan.reasons import Reason
from sardonyx.plan.vendor_offers import Offer
from sardonyx.selection.attentions import ATTENTIONS
from sardonyx.selection.contractions import CONTRACTIONS
from sardonyx.selection.custom_kernel import CUSTOM_KERNELS
from sardonyx.selection.kernel_cache import GROUPS
from sardonyx.selection.loop_nests import LOOP_NESTS, LOOPS
from sardonyx.selection.matmul_candidates import KERNELS
from sardonyx.selection.table import Candidate, SelectionTrace, always, choose
from sardonyx.selection.vendor_products import WAYS
from tests.support.noted import noted
from tests.support.session import model_of

#: Targets are named: the machine has no part in it.
pytestmark = pytest.mark.once


class _Library:
    """Takes what it is offered, of some functions."""

    def __init__(self, *functions: str) -> None:
        self._functions = functions

    def refusal(self, offer: Offer) -> str:
        return "" if offer.function in self._functions else f"it has no {offer.function}"


def _weights(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _attention(dtype: str = "float", queries: object = 16, middle: str = "Softmax") -> Any:
    shape = f"{dtype}[2, {queries}, 8]"
    return model_of(
        f"g ({shape} q, {shape} k, {shape} v) => ({shape} y) {{ t = Transpose<perm = [0, 2, 1]>(k)"
        f" s = MatMul(q, t) p = {middle}(s) [n] y = MatMul(p, v) }}"
    )


def _product(dtype: str = "float", rows: object = 64, depth: int = 64, columns: int = 64) -> Any:
    return model_of(
        f"g ({dtype}[{rows}, {depth}] x) => ({dtype}[{rows}, {columns}] y)"
        " { [n] y = MatMul(x, w) }",
        {"w": np.ones((depth, columns), {"float": np.float32, "int64": np.int64}[dtype])},
    )


_FED = model_of(
    "g (float[64, 64] x, float[64, 64] w) => (float[64, 64] y) { [n] y = MatMul(x, w) }"
)


def _between(node: str, weights: dict[str, Any], channels: int = 32) -> Any:
    """A node between two convolutions, whose images have their channels last."""
    image = f"float[1, {channels}, 16, 16]"
    return model_of(
        f"g ({image} x) => (float[1, {channels}, H, W] y) {{ a = Conv(x, mix) [n] b = {node}"
        " y = Conv(b, mix) }",
        {"mix": _weights(channels, channels, 1, 1), **weights},
    )


def _conv(taps: int, channels: int = 32, groups: int = 1, image: int = 24) -> Any:
    pad = taps // 2
    shape = f"float[1, {channels}, {image}, {image}]"
    return model_of(
        f"g ({shape} x) => ({shape} y)"
        f" {{ [n] y = Conv<pads = [{pad}, {pad}, {pad}, {pad}], group = {groups}>(x, w) }}",
        {"w": _weights(channels, channels // groups, taps, taps)},
    )


def _integers(rows: int = 64, zero: int = 0) -> Any:
    return model_of(
        f"g (uint8[{rows}, 64] x) => (int32[{rows}, 64] y)"
        " { [n] y = MatMulInteger(x, w, none, zero) }",
        {"w": np.ones((64, 64), np.int8), "none": np.uint8(0), "zero": np.int8(zero)},
    )


_NBITS = model_of(
    "g (float[4, 64] x) => (float[4, 32] y)"
    " { [n] y = com.microsoft.MatMulNBits<K = 64, N = 32, bits = 4, block_size = 32>(x, w, s) }",
    {"w": np.full((32, 2, 16), 7, np.uint8), "s": np.ones(64, np.float32)},
)
_POOL = _between("MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a)", {})
_DEPTHWISE = _between("Conv<pads = [1, 1, 1, 1], group = 32>(a, u)", {"u": _weights(32, 1, 3, 3)})
_GROUPED = _between("Conv<pads = [1, 1, 1, 1], group = 16>(a, u)", {"u": _weights(32, 2, 3, 3)})
_TOPK = model_of(
    "g (float[4, 128] x) => (float[4, 2] y, int64[4, 2] z) { [n] y, z = TopK(x, k) }",
    {"k": np.array([2])},
)


def _map(width: int, name: str = "Relu") -> Any:
    return model_of(f"g (float[64, {width}] x) => (float[64, {width}] y) {{ [n] y = {name}(x) }}")


def _biased(width: int) -> Any:
    """A map whose rows are not one row: each reads the bias from its beginning."""
    return model_of(
        f"g (float[64, {width}] x) => (float[64, {width}] y) {{ [n] y = Add(x, b) }}",
        {"b": _weights(width)},
    )


def _concat(parts: int) -> Any:
    inputs = ", ".join(f"float[N{k}] x{k}" for k in range(parts))
    names = ", ".join(f"x{k}" for k in range(parts))
    return model_of(f"g ({inputs}) => (float[M] y) {{ [n] y = Concat<axis = 0>({names}) }}")


_ROUNDED = {"bf16_products": True}
_MATMUL, _CUDNN = {"accelerator": _Library("matmul")}, {"accelerator": _Library("convolution")}
_FLASH, _NONE = {"accelerator": _Library("attention")}, {"accelerator": _Library()}

#: Table, candidate, model, target, options, why it is not taken; "" where it is.
CASES: list[tuple[Any, str, Any, str, dict[str, Any], str]] = [
    (GROUPS, "part by part", _concat(70), "avx2", {}, ""),
    (GROUPS, "part by part", _concat(3), "avx2", {}, "it does not choose between many parts"),
    (GROUPS, "as a whole", _concat(3), "avx2", {}, ""),
    (GROUPS, "as a whole", _concat(70), "avx2", {}, "part by part comes first"),
    # -- contractions
    (CONTRACTIONS, "library", _product(), "sm_80", _MATMUL, ""),
    (CONTRACTIONS, "library", _product(), "sm_80", _NONE, "it has no matmul"),
    (CONTRACTIONS, "library", _product(), "avx2", {}, "the target has no libraries"),
    (CONTRACTIONS, "tiles of thread blocks", _product(), "sm_80", {}, ""),
    (CONTRACTIONS, "tiles of thread blocks", _product(), "avx2", {}, "has no thread blocks"),
    (CONTRACTIONS, "tiles of thread blocks", _conv(3, groups=32), "sm_80", {},
     "it has no columns: vectors run across its batches"),
    (CONTRACTIONS, "a sum in each lane", _GROUPED, "avx2", {}, ""),
    (CONTRACTIONS, "a sum in each lane", _product(), "avx2", {},
     "sums of 64 for 64 columns, with 0 batch axes: vectors of 8 lanes run along columns"),
    (CONTRACTIONS, "product of any sizes", _product(), "avx2", {}, ""),
    (CONTRACTIONS, "product of any sizes", _product(columns=8), "avx512", {},
     "8 columns, fewer than the 16 lanes"),
    (CONTRACTIONS, "product of any sizes", _product(columns=3, depth=8), "avx2", {},
     "3 columns, sums of 8: fewer than 8"),
    (CONTRACTIONS, "product of any sizes", _FED, "avx2", {},
     "its right factor changes from run to run"),
    (CONTRACTIONS, "product of any sizes", _product(), "amx", _ROUNDED,
     "its factors are rounded to bfloat16"),
    (CONTRACTIONS, "product of any sizes", _conv(1), "avx2", {},
     "what is summed does not lie side by side in its left factor"),
    (CONTRACTIONS, "product of codes in blocks", _NBITS, "amx", {}, ""),
    (CONTRACTIONS, "product of codes in blocks", _NBITS, "avx2", {},
     "the target has no instruction for sums of four products of bytes"),
    (CONTRACTIONS, "product of codes in blocks", _conv(1), "amx", {},
     "its right factor is no matrix of constant codes with a scale for each block"),
    (CONTRACTIONS, "kernel of its own", _FED, "avx2", {}, ""),
    (CONTRACTIONS, "kernel of its own", _product(), "avx2", {}, "product of any sizes comes first"),
    # -- kernels of contractions
    (KERNELS, "integers in matrices", _integers(), "amx", {}, ""),
    (KERNELS, "integers in matrices", _integers(), "avx2", {}, "no registers for matrices"),
    (KERNELS, "integers in matrices", _integers(rows=1), "amx", {},
     "1 row, no more than 4: vectors are as fast"),
    (KERNELS, "integers in matrices", _integers(zero=3), "amx", {},
     "the zero points of its right factor differ from 0"),
    (KERNELS, "integers", _integers(), "avx2", {}, ""),
    (KERNELS, "integers", _FED, "avx2", {}, "its factors are not 8-bit codes"),
    (KERNELS, "bfloat16 in matrices", _product(depth=256), "amx", _ROUNDED, ""),
    (KERNELS, "bfloat16 in matrices", _product(depth=256, rows=2), "amx", _ROUNDED,
     "2 rows, no more than 2: vectors are as fast"),
    (KERNELS, "winograd", _conv(3), "avx2", {}, ""),
    (KERNELS, "winograd", _conv(3), "avx2", {"winograd": False}, "session.disable_winograd is set"),
    (KERNELS, "winograd", _conv(5), "avx2", {}, "5 x 5 taps, not 3 x 3"),
    (KERNELS, "winograd", _conv(3, channels=8), "avx2", {}, "8 channels, fewer than 16"),
    (KERNELS, "winograd", _conv(3, image=2), "avx2", {},
     "direct sums take 9.22e+03 cycles, tiles of 2 x 2 "),
    (KERNELS, "winograd", _conv(1), "avx2", {}, "its left factor has no windows"),
    (KERNELS, "bfloat16", _product(depth=256), "avx512", _ROUNDED, ""),
    (KERNELS, "bfloat16", _FED, "avx512", {}, "session.allow_bfloat16_products is not set"),
    (KERNELS, "product", _FED, "avx2", {}, ""),
    (KERNELS, "product", _conv(3), "avx2", {}, "winograd comes first"),
    # -- attention
    (ATTENTIONS, "library", _attention("float16"), "sm_80", _FLASH, ""),
    (ATTENTIONS, "library", _attention("float16"), "sm_80", _NONE, "it has no attention"),
    (ATTENTIONS, "attention of any number of queries", _attention(), "avx2", {}, ""),
    (ATTENTIONS, "attention of any number of queries", _attention(queries=3), "avx2", {},
     "3 queries, fewer than the"),
    (ATTENTIONS, "attention of any number of queries", _attention(queries="N"), "avx2", {},
     "only a run knows how many queries there are"),
    (ATTENTIONS, "tiles of thread blocks", _attention("float16"), "sm_80", {}, ""),
    (ATTENTIONS, "tiles of thread blocks", _attention(), "avx2", {}, "no thread blocks"),
    (ATTENTIONS, "blocks of queries", _attention(queries="N"), "avx2", {}, ""),
    (ATTENTIONS, "blocks of queries", _attention(), "avx2", {}, "comes first"),
    # -- loop nests
    (LOOP_NESTS, "windows of any sizes", _DEPTHWISE, "avx2", {}, ""),
    (LOOP_NESTS, "windows of any sizes", _map(64), "avx2", {}, "it reduces nothing"),
    (LOOP_NESTS, "maps of any sizes", _map(64), "avx2", {}, ""),
    (LOOP_NESTS, "maps of any sizes", _map(16), "avx2", {}, ""),
    (LOOP_NESTS, "maps of any sizes", _biased(16), "avx2", {},
     "rows of 16, fewer than 8 vectors of 8"),
    (LOOP_NESTS, "rows of any sizes", _map(264, "Softmax"), "avx2", {}, ""),
    (LOOP_NESTS, "rows of any sizes", _map(256, "Softmax"), "avx2", {},
     "256 elements are reduced, no more than 32 vectors of 8"),
    (LOOP_NESTS, "rows of any sizes", _biased(16), "avx2", {}, "it reduces nothing"),
    (LOOP_NESTS, "kernel of its own", _biased(16), "avx2", {}, ""),
    (LOOP_NESTS, "kernel of its own", _map(64), "avx2", {}, "maps of any sizes comes first"),
    (LOOPS, "loops of thread blocks", _map(64, "Softmax"), "sm_80", {}, ""),
    (LOOPS, "loops of thread blocks", _biased(16), "avx2", {}, "the target has no thread blocks"),
    (LOOPS, "loops of vectors", _biased(16), "avx2", {}, ""),
    (LOOPS, "loops of vectors", _map(64, "Softmax"), "sm_80", {},
     "loops of thread blocks comes first"),
    (CUSTOM_KERNELS, "loops of its own", _TOPK, "avx2", {}, ""),
    # -- libraries
    (WAYS, "matrix product", _product(), "sm_80", _MATMUL, ""),
    (WAYS, "matrix product", _product(), "sm_80", _NONE, "it has no matmul"),
    (WAYS, "convolution", _conv(3), "sm_80", _CUDNN, ""),
    (WAYS, "convolution", _product(), "sm_80", _NONE, "no convolution: it has no spatial axes"),
    (WAYS, "product of patches", _product(), "sm_80", _NONE, "its windows share elements"),
    (WAYS, "matrix products", _product(), "sm_80", _NONE, "it has no matmul"),
    (WAYS, "no library", _product(), "sm_80", _NONE, ""),
    (WAYS, "no library", _product(), "sm_80", _MATMUL, "matrix product comes first"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{name}: {why or 'taken'}"[:60] for _, name, _, _, _, why in CASES]
)
def test_candidates(case: tuple[Any, str, onnx.ModelProto, str, dict[str, Any], str]) -> None:
    _, name, model, target, options, why = case
    found = noted(model, target, **options).candidates("n")[name]
    assert (found.reason is None) is (not why), found
    assert why in str(found.reason or "")


#: What is packed: the candidate, the model, why it is not taken.
COPIED = [
    ("copy in even steps", _product(), ""),
    ("copy in even steps", _conv(3), "it is more than elements of one tensor"),
    ("map of any sizes", _conv(3), ""),
    ("map of any sizes", _product(), "copy in even steps comes first"),
    ("loop nest", _product(), "copy in even steps comes first"),
]


@pytest.mark.parametrize(("name", "model", "why"), COPIED, ids=[f"{c[0]} {c[2]}" for c in COPIED])
def test_copies(name: str, model: onnx.ModelProto, why: str) -> None:
    found = noted(model, "avx2").candidates("n", own=False)[name]
    assert why in str(found.reason or "")
    assert (found.reason is None) is (not why)


@pytest.mark.parametrize(
    "table",
    [GROUPS, CONTRACTIONS, KERNELS, ATTENTIONS, LOOP_NESTS, LOOPS, WAYS],
    ids="groups contractions kernels attentions loop_nests loops ways".split(),
)
def test_every_candidate_has_cases(table: Any) -> None:
    """Taken once, refused once; those of libraries with an epilogue apart go with the others."""
    found = {(name, not why) for own, name, _, _, _, why in CASES if own is table}
    names = {row.name for row in table if not row.name.endswith("epilogue apart")}
    rare = {("product of patches", True), ("matrix products", True)} if table is WAYS else set()
    assert found == {(n, taken) for n in names for taken in (True, False)} - rare
    assert len({row.name for row in table}) == len(table)
    assert table[-1].why_not is always


def test_costs_are_told_where_they_are_known() -> None:
    found = noted(_conv(3), "avx2").candidates("n")
    winograd, product = found["winograd"].cost, found["product"].cost
    assert isinstance(winograd, int)
    assert isinstance(product, int)
    assert winograd < product
    tiles = noted(_product(), "sm_80").candidates("n")["tiles of thread blocks"]
    assert (tiles.cost, tiles.is_possible) == (4225, True)  # cycles of the device
    apart = noted(_product(), "sm_80").candidates("n")["kernel of its own"]
    assert (apart.cost, apart.is_possible) == (None, True)
    unknown = noted(_product(rows="N"), "sm_80").candidates("n")["tiles of thread blocks"]
    assert unknown.cost is None


# -- the walk ---------------------------------------------------------------------------------

_asked: list[str] = []


def _row(name: str, why: str = "", *, tries: bool = False) -> Candidate[str, str]:
    def why_not(task: str) -> Reason | None:
        _asked.append(name)
        return Reason(why) if why else None

    return Candidate(name, why_not, lambda task: f"{name} of {task}", lambda task: 3, tries)


_TABLE = (_row("a", "too short"), _row("b"), _row("c"), _row("d", "no"), _row("e", tries=True))


def test_the_first_without_a_reason_is_built() -> None:
    """In a session nobody asks the rows behind it."""
    _asked.clear()
    assert choose(_TABLE, "it") == "b of it"
    assert _asked == ["a", "b"]


def test_a_trace_asks_all_rows_but_those_that_try() -> None:
    _asked.clear()
    trace = SelectionTrace()
    group: Any = type("Group", (), {"roots": []})()
    with trace.group(group):
        assert choose(_TABLE, "it", trace) == "b of it"
    assert _asked == ["a", "b", "c", "d"]
    assert [(c.name, str(c.reason), c.cost) for c in trace.of(group)] == [
        ("a", "too short", None), ("b", "None", 3), ("c", "b comes first", 3), ("d", "no", None),
        ("e", "b comes first", 3),
    ]  # fmt: skip


def test_a_table_must_take_all() -> None:
    with pytest.raises(AssertionError, match="no row of a table takes it"):
        choose(_TABLE[:1], "it")


def test_reasons_are_written_when_they_are_read() -> None:
    class Loud:
        def __format__(self, spec: str) -> str:
            raise AssertionError("nobody asked")

    reason = Reason("{} columns", Loud())
    with pytest.raises(AssertionError, match="nobody asked"):
        str(reason)
    assert str(Reason("{} columns, fewer than the {} lanes", 3, 8)) == (
        "3 columns, fewer than the 8 lanes"
    )
    assert str(Reason("a text {as} it is")) == "a text {as} it is"
