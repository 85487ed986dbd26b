"""A provider outside the package, over NumPy: products, sums and what cuts below zero."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.plugins import Compute, ModelNode, ModelPart, ProviderDevice, Refused

_COMPUTED = {
    "MatMul": np.matmul,
    "Add": np.add,
    "Relu": lambda x: np.maximum(x, 0),
}
_DEFAULTS = {"operators": "MatMul,Add,Relu", "most_rows": "0", "memory": "host", "least_nodes": "1"}


class NumpyProvider:
    """Options: `operators`, names with commas; `most_rows` that a run takes, 0 for any number;
    `memory`, `host` or `own`; `least_nodes` of a part that is worth it.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        strange = options.keys() - _DEFAULTS.keys() - {"broken"}
        if strange:
            raise ValueError(f"there is no option {min(strange)!r}")
        if options.get("broken") == "start":
            raise Refused("there is no such device")
        self.options = {**_DEFAULTS, **options}
        self.parts: list[ModelPart] = []
        MADE.append(self)

    def claim(self, model: ModelPart) -> Iterable[ModelNode]:
        names = self.options["operators"].split(",")
        return [n for n in model.nodes if n.op_type in names and n.inputs[0].dtype == np.float32]

    def compile(self, part: ModelPart) -> Compute:
        if len(part.nodes) < int(self.options["least_nodes"]):
            raise Refused("too small")
        self.parts.append(part)
        return Computation(part, self.options)


class Computation:
    """One part."""

    def __init__(self, part: ModelPart, options: Mapping[str, str]) -> None:
        self._part, self._options = part, options
        values = [v for n in part.nodes for v in n.inputs if v is not None]
        self._weights = {v.name: v.constant for v in values if v.is_constant}
        self.calls = 0
        if options["memory"] == "own":
            self.memory = Memory()

    def __call__(self, given: Sequence[Any]) -> Sequence[Any]:
        self.calls += 1
        own = self._options["memory"] == "own"
        arrays = [x.contents for x in given] if own else given
        most = int(self._options["most_rows"])
        if most and arrays[0].shape[0] > most:
            raise Refused(f"more than {most} rows")
        if self._options.get("broken") == "run":
            raise OSError("the device is gone")
        known = dict(self._weights)
        known.update((v.name, x) for v, x in zip(self._part.inputs, arrays, strict=True))
        for node in self._part.nodes:
            known[node.outputs[0].name] = _COMPUTED[node.op_type](
                *(known[v.name] for v in node.inputs)
            )
        results = [known[v.name] for v in self._part.outputs]
        return [Held(x) for x in results] if own else results


class Held:
    """An array in memory of the provider's own."""

    def __init__(self, contents: np.ndarray) -> None:
        self.contents = contents


class Memory:
    """That memory."""

    def upload(self, array: np.ndarray) -> Held:
        return Held(array.copy())

    def download(self, value: Held) -> np.ndarray:
        return value.contents


#: The providers of this process, in the order in which sessions made them.
MADE: list[NumpyProvider] = []


class NpuProvider(NumpyProvider):
    """The same as if it had two devices: an NPU and a GPU."""

    @staticmethod
    def devices() -> list[ProviderDevice]:
        facts = {"cores": "4"}
        return [
            ProviderDevice("NPU", "Test", 0x7E57, 9, facts, {"operators": "MatMul"}),
            ProviderDevice("GPU", "Test", 0x7E57, 10, {}, {"operators": "Relu"}),
        ]


class WrongDevices(NumpyProvider):
    """Its devices are none."""

    @staticmethod
    def devices() -> list[str]:
        return ["NPU"]
