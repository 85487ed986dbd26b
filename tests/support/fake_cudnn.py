"""A package `cudnn` whose convolutions and attentions NumPy computes, in memory that is the host's.

It has what `sardonyx.cuda.libraries.cudnn` calls, with the meanings that cuDNN's frontend gives it.
"""

from __future__ import annotations

import itertools
import pickle
import types
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.fake_driver import FakeDriver
from tests.support.fake_library import array_at, attended


class NotSupported(Exception):  # noqa: N818 - cuDNN has a name of its own for it
    """What cuDNN raises where it has no plan."""


class Cudnn(types.ModuleType):
    """The package.

    Attributes:
        driver: Whose device it works on.
        supported: Whether there are plans.
        built: Numbers of the plans that were built.
        read: How many plans were read from bytes.
        searched: Modes of heuristics that were asked for.
        executed: How many plans were executed outside of graphs.
        asked: Numbers of the plans that were executed.
        idle: Numbers of plans that write nothing, and say nothing of it.
        wrong: Numbers of plans that write something else.
    """

    __version__ = "1"
    cudnnGraphNotSupportedError = NotSupported  # noqa: N815 - the package's name

    def __init__(self, driver: FakeDriver) -> None:
        super().__init__("cudnn")
        self.driver, self.supported = driver, True
        self.built: list[int] = []
        self.searched: list[str] = []
        self.read = self.executed = 0
        self.asked: list[int] = []
        self.idle, self.wrong = set[int](), set[int]()
        self.streams: dict[Any, int] = {}
        self.data_type = types.SimpleNamespace(
            FLOAT=np.float32, DOUBLE=np.float64, HALF=np.float16, BFLOAT16=ml_dtypes.bfloat16
        )
        self.heur_mode = types.SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
        self.diagonal_alignment = types.SimpleNamespace(TOP_LEFT="first", BOTTOM_RIGHT="last")
        self.numerical_note = types.SimpleNamespace(TENSOR_CORE="t", DOWN_CONVERT_INPUTS="d")

    def backend_version(self) -> int:
        return 91900

    def create_handle(self) -> int:
        self.streams[len(self.streams)] = 0
        return len(self.streams) - 1

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle] = stream

    def pygraph(self, **_: Any) -> _Graph:
        return _Graph(self)


class _Tensor:
    """A tensor with what is known of it, by name: `dim`, `stride`, `uid`, `data_type`."""

    def __init__(self, op: str, operands: tuple[Any, ...] = (), **facts: Any) -> None:
        self.op, self.operands, self.facts = op, operands, facts

    def _put(self, name: str, value: Any) -> _Tensor:
        self.facts[name] = value
        return self

    def set_output(self, value: bool) -> _Tensor:
        return self._put("output", value)

    def set_uid(self, value: int) -> _Tensor:
        return self._put("uid", value)

    def set_data_type(self, value: Any) -> _Tensor:
        return self._put("data_type", value)

    def set_dim(self, value: list[int]) -> _Tensor:
        return self._put("dim", value)

    def set_stride(self, value: list[int]) -> _Tensor:
        _check_strides(self.facts["dim"], value)
        return self._put("stride", value)

    def at(self, pack: dict[int, int]) -> Any:
        f = self.facts
        return array_at(pack[f["uid"]], f["data_type"], f["dim"], f["stride"])

    def value(self, pack: dict[int, int]) -> Any:
        if self.op == "tensor":
            return self.at(pack).astype(np.float64)
        inner = [x.value(pack) for x in self.operands]
        if self.op == "conv":
            return _convolved(*inner, **self.facts["windows"])
        if self.op == "sdpa":
            bias = inner[3] if len(inner) > 3 else 0
            return attended(*inner[:3], bias, self.facts["scale"], self.facts["causal"])
        return inner[0] + inner[1] if self.op == "add" else np.maximum(inner[0], 0)


def _check_strides(dims: list[int], strides: list[int]) -> None:
    """cuDNN takes them at their word: with the stride 0 of an axis of size 1 plans do nothing."""
    assert all(step > 0 for size, step in zip(dims, strides, strict=True) if size == 1)


def _convolved(
    image: Any, weight: Any, *, pre_padding: Any, post_padding: Any, stride: Any, dilation: Any
) -> Any:
    pads = [(0, 0), (0, 0), *zip(pre_padding, post_padding, strict=True)]
    padded = np.pad(image, pads)
    counts = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(padded.shape[2:], weight.shape[2:], stride, dilation, strict=True)
    ]
    groups = image.shape[1] // weight.shape[1]
    weight = weight.reshape(groups, -1, *weight.shape[1:])
    total = np.zeros((image.shape[0], *weight.shape[:2], *counts))
    for tap in itertools.product(*map(range, weight.shape[3:])):
        window = [
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilation, counts, stride, strict=True)
        ]
        part = padded[(slice(None), slice(None), *window)]
        part = part.reshape(part.shape[0], groups, -1, *part.shape[2:])
        total += np.einsum("ngc...,gkc->ngk...", part, weight[(*[slice(None)] * 3, *tap)])
    return total.reshape(total.shape[0], -1, *counts)


class _Graph:
    def __init__(self, package: Cudnn) -> None:
        self.package = package
        self.result: _Tensor | None = None
        self.is_built, self.chosen = False, 0

    def tensor(self, **facts: Any) -> _Tensor:
        assert len(facts["dim"]) == len(facts["stride"]) >= 4
        _check_strides(facts["dim"], facts["stride"])
        return _Tensor("tensor", **facts)

    def _made(self, *given: Any, **facts: Any) -> _Tensor:
        self.result = _Tensor(*given, **facts)
        return self.result

    def conv_fprop(
        self, image: _Tensor, weight: _Tensor, compute_data_type: Any, **windows: Any
    ) -> _Tensor:
        return self._made("conv", (image, weight), windows=windows)

    def add(self, a: _Tensor, b: _Tensor, compute_data_type: Any) -> _Tensor:
        return self._made("add", (a, b))

    def sdpa(
        self, name: str, q: _Tensor, k: _Tensor, v: _Tensor, generate_stats: bool,
        attn_scale: float, bias: _Tensor | None = None, diagonal_alignment: str = "",
        diagonal_band_right_bound: int | None = None,
    ) -> tuple[_Tensor, None]:  # fmt: skip
        assert not generate_stats
        assert bool(diagonal_alignment) == (diagonal_band_right_bound == 0)
        for tensor in (q, k, v):
            assert all(step % 8 == 0 for step in tensor.facts["stride"][:3])
        operands = (q, k, v) if bias is None else (q, k, v, bias)
        return self._made("sdpa", operands, scale=attn_scale, causal=diagonal_alignment), None

    def relu(self, input: _Tensor, compute_data_type: Any) -> _Tensor:
        return self._made("relu", (input,))

    def validate(self) -> None:
        assert self.result is not None

    build_operation_graph = validate

    def deselect_numeric_notes(self, notes: list[str]) -> None: ...

    def deselect_workspace_greater_than(self, size: int) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        self.package.searched.append(modes[0])

    def check_support(self) -> None:
        if not self.package.supported:
            raise NotSupported("no plan")

    def get_execution_plan_count(self) -> int:
        return 3

    def build_plans(self) -> None:
        self.build_plan_at_index(0)

    def build_plan_at_index(self, index: int) -> None:
        if index == 2:
            raise NotSupported("this one cannot be built")
        self.package.built.append(index)
        self.is_built, self.chosen = True, index

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 100

    def get_workspace_size(self) -> int:
        return 100

    def serialize(self) -> bytes:
        return pickle.dumps((self.result, self.chosen))

    def deserialize(self, handle: int, data: list[int]) -> None:
        self.result, self.chosen = pickle.loads(bytes(data))  # noqa: S301 - written above
        self.is_built = True
        self.package.read += 1

    def execute(self, pack: dict[int, int], workspace: int, handle: int) -> None:
        self.execute_plan_at_index(pack, workspace, self.chosen, handle)

    def execute_plan_at_index(
        self, pack: dict[int, int], workspace: int, index: int, handle: int
    ) -> None:
        assert self.is_built
        assert workspace
        result, driver, package = self.result, self.package.driver, self.package
        assert result is not None

        def work() -> None:
            out = result.at(pack)
            value = result.value(pack)
            assert value.shape == out.shape
            if index not in package.idle:
                out[...] = value + (index in package.wrong)

        package.asked.append(index)
        package.executed += driver.capture is None
        driver.do("call", work, package.streams[handle])
