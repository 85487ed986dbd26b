"""A library that does products and convolutions with NumPy, in memory that is the host's."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.cuda.libraries.libraries import CallPlace, LibraryWork
from sardonyx.plan.vendor_attention import ATTENTION
from sardonyx.plan.vendor_convolution import convolution_numbers
from sardonyx.plan.vendor_offers import BATCHES, MATMUL, Offer
from tests.support.fake_driver import FakeDriver

_DTYPES = {
    "float": np.float32, "double": np.float64, "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip


def array_at(address: int, dtype: Any, shape: list[int], steps: list[int]) -> Any:
    """Elements in memory, with strides in elements."""
    size = np.dtype(dtype).itemsize
    count = sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1
    memory = (ctypes.c_char * (count * size)).from_address(address)
    flat = np.frombuffer(memory, dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * size for s in steps])


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS: dict[str, Any] = {"": lambda x: x, "relu": lambda x: np.maximum(x, 0), "gelu": _gelu}


@dataclass
class FakeLibrary:
    """See `libraries.Library`.

    Attributes:
        driver: Whose device it works on.
        refuses: Why no offer is taken.
        unable: Whether calls are refused when they are made.
        done: Functions that were called.
        offers: What was offered.
    """

    driver: FakeDriver
    refuses: str = ""
    unable: bool = False
    key: str = ""
    pending: int = 0
    searching: int = 0
    version: int = 0
    done: list[str] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)

    def refusal(self, offer: Offer) -> str:
        self.offers.append(offer)
        return self.refuses

    def run(self, work: LibraryWork, place: CallPlace) -> bool:
        assert place.workspace(1000)
        if self.unable:
            return False
        compute = {"matmul": _matmul, "convolution": _convolve, "attention": _attend}

        def call() -> None:
            self.done.append(work.call.function)
            compute[work.call.function](work)

        self.driver.do("call", call, place.stream)
        return True


def _finished(work: LibraryWork, total: Any, residual: Any, bias: Any) -> Any:
    total = total + bias + residual
    return ACTIVATIONS[work.activation](total)


def _matmul(work: LibraryWork) -> None:
    dtype = _DTYPES[work.dtype]
    n = dict(zip(MATMUL, work.numbers, strict=True))
    counts = [n[f"batch_{k}"] for k in range(BATCHES)]

    def steps(what: str) -> list[int]:
        return [n[f"{what}_{k}"] for k in range(BATCHES)]

    left = array_at(
        work.left, dtype, [*counts, n["m"], n["k"]], [*steps("left"), n["left_m"], n["left_k"]]
    )
    right = array_at(
        work.right, dtype, [*counts, n["k"], n["n"]], [*steps("right"), n["right_k"], n["right_n"]]
    )
    place = [*counts, n["m"], n["n"]], [*steps("out"), n["out_m"], n["out_n"]]
    dtype = _DTYPES[work.result]
    out = array_at(work.out, dtype, *place)
    bias = array_at(work.bias, dtype, [n["n"]], [1]).astype(np.float64) if work.bias else 0
    residual = array_at(work.residual, dtype, *place).astype(np.float64) if work.residual else 0
    out[...] = _finished(work, left.astype(np.float64) @ right.astype(np.float64), residual, bias)


def _convolve(work: LibraryWork) -> None:
    dtype = _DTYPES[work.dtype]
    spatial = int(str(work.call["spatial"]))
    n = dict(zip(convolution_numbers(spatial), work.numbers, strict=True))

    def each(name: str) -> list[int]:
        return [n[f"{name}_{axis}"] for axis in range(spatial)]

    image = array_at(
        work.left, dtype, [n["n"], n["channels"], *each("size")],
        [n["image_n"], n["image_channel"], *each("image_step")],
    ).astype(np.float64)  # fmt: skip
    taps = each("filter")
    shape = [n["filters"], *taps, n["channels"] // n["groups"]]
    filters = array_at(
        work.right, dtype, shape, [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]
    ).astype(np.float64)
    place = (
        [n["n"], n["filters"], *each("out")], [n["out_n"], n["out_filter"], *each("out_step")],
    )  # fmt: skip
    dtype = _DTYPES[work.result]
    out = array_at(work.out, dtype, *place)
    bias: Any = 0
    if work.bias:
        bias = array_at(work.bias, dtype, [n["filters"]], [1]).astype(np.float64)
        bias = bias.reshape(-1, *[1] * spatial)
    residual = array_at(work.residual, dtype, *place).astype(np.float64) if work.residual else 0
    total = np.zeros(place[0])
    for at in itertools.product(*map(range, taps)):
        for where in itertools.product(*map(range, each("out"))):
            source = [
                w * s + t * d - p
                for w, s, t, d, p in zip(
                    where, each("stride"), at, each("dilation"), each("pad"), strict=True
                )
            ]
            if all(0 <= x < size for x, size in zip(source, each("size"), strict=True)):
                pixel = image[(slice(None), slice(None), *source)].reshape(n["n"], n["groups"], -1)
                tap = filters[(slice(None), *at)].reshape(n["groups"], -1, pixel.shape[2])
                products = np.einsum("ngc,gfc->ngf", pixel, tap)
                total[(slice(None), slice(None), *where)] += products.reshape(n["n"], -1)
    out[...] = _finished(work, total, residual, bias)


def attended(queries: Any, keys: Any, values: Any, bias: Any, scale: float, causal: str) -> Any:
    """Attention in float64: (batch, heads, lines, elements); keys may have fewer heads."""
    shared = queries.shape[1] // keys.shape[1]
    keys, values = (np.repeat(x, shared, 1) for x in (keys, values))
    scores = queries @ keys.swapaxes(2, 3) * scale + bias
    if causal:
        rows, columns = scores.shape[2:]
        reach = columns - rows if causal == "last" else 0
        seen = np.arange(columns)[None] <= np.arange(rows)[:, None] + reach
        scores = np.where(seen, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    return powers @ values / np.maximum(powers.sum(-1, keepdims=True), np.finfo(float).tiny)


def _attend(work: LibraryWork) -> None:
    n = dict(zip(ATTENTION, work.numbers, strict=True))

    def at(address: int, name: str, heads: str, line: str, elements: str, kind: str) -> Any:
        step = {"rows": "row", "keys": "key"}[line]
        shape = [n["batch"], n[heads], n[line], n[elements]]
        steps = [n[f"{name}_batch"], n[f"{name}_head"], n[f"{name}_{step}"], 1]
        return array_at(address, _DTYPES[kind], shape, steps)

    queries = at(work.left, "left", "heads", "rows", "depth", work.dtype)
    keys = at(work.right, "right", "key_heads", "keys", "depth", work.dtype)
    values = at(work.values, "values", "key_heads", "keys", "width", work.dtype)
    out = at(work.out, "out", "heads", "rows", "width", work.result)
    bias: Any = 0
    if work.bias:
        bias = array_at(
            work.bias, _DTYPES[str(work.call["bias_type"])],
            [n["batch"], n["heads"], n["rows"], n["keys"]],
            [n[f"bias_{axis}"] for axis in ("batch", "head", "row", "key")],
        ).astype(np.float64)  # fmt: skip
    wide = [x.astype(np.float64) for x in (queries, keys, values)]
    scale = float(str(work.call["scale"]))
    out[...] = attended(*wide, bias, scale, str(work.call["causal"]))
