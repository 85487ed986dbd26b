"""Providers outside the package: what one is, and how it sees a model. See docs/plugins.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

import numpy as np

from sardonyx.base.records import dataclass
from sardonyx.ir.constant import Constant

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
#: Computes a part: arrays for its inputs in, arrays for its outputs out, both in the part's order.
Compute: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]


class Refused(Exception):  # noqa: N818 - an answer, rather than an error
    """A provider does not compute something: the processor does. The text says why."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelValue:
    """A tensor of a model.

    Attributes:
        name: Its name.
        dtype: NumPy's element type.
        shape: Sizes; text where only a run knows the number. Equal texts are equal sizes.
        weight: The constant behind it; see `constant`.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]
    weight: Constant | None = field(default=None, repr=False)

    @property
    def is_constant(self) -> bool:
        """Whether its elements never change."""
        return self.weight is not None

    @property
    def constant(self) -> Array | None:
        """The elements, read-only, if they never change; weights of files are read each time."""
        return None if self.weight is None else self.weight.array()


@dataclass(frozen=True, slots=True, eq=False)
class ModelNode:
    """An application of an operator, in ONNX's terms.

    Attributes:
        name: Unique in the model.
        op_type: The operator's name.
        domain: The operator's domain; "" is ONNX's own.
        version: Version of the domain's operator set.
        inputs: Values read, None for omitted ones.
        outputs: Values computed, None for omitted ones.
        attributes: Numbers, text, lists of them, and arrays.
    """

    name: str
    op_type: str
    domain: str
    version: int
    inputs: tuple[ModelValue | None, ...]
    outputs: tuple[ModelValue | None, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class ModelPart:
    """Nodes of a model with what goes in and comes out: all that may be claimed, or a part.

    Attributes:
        inputs: Values that nodes read and that are computed, or fed, outside.
        outputs: Values that are read outside, or that the model gives out.
        nodes: In an order in which they can be computed.
    """

    inputs: tuple[ModelValue, ...]
    outputs: tuple[ModelValue, ...]
    nodes: tuple[ModelNode, ...]

    def readers(self, value: ModelValue) -> tuple[ModelNode, ...]:
        """The nodes that read a value."""
        return tuple(n for n in self.nodes if any(v is value for v in n.inputs))

    def is_inside(self, value: ModelValue) -> bool:
        """Whether only nodes of this part read a value."""
        return all(v is not value for v in self.outputs)


@dataclass(frozen=True, slots=True)
class ProviderDevice:
    """A device that a provider has, as `get_ep_devices` lists it.

    Attributes:
        type: `CPU`, `GPU` or `NPU`.
        vendor, vendor_id: Its maker.
        device_id: The maker's number of the kind of device.
        metadata: What else is known of it.
        options: Options that make the provider use it.
    """

    type: str = "CPU"
    vendor: str = ""
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


class DeviceMemory(Protocol):
    """Memory of a provider's own. Copies are made by these calls alone, and `explain` counts them.

    An attribute `memory` of what `compile` gives; without one, values are arrays of the host.
    """

    def upload(self, array: Array) -> Any:
        """What stands for a copy of the array, which is valid during the call alone."""

    def download(self, value: Any) -> Array:
        """An array of the host with the contents of what the computation gave."""


class PluginProvider(Protocol):
    """A provider outside the package.

    An entry point of the group `sardonyx.providers` names a function, or the class, that makes one
    of a mapping of options from text to text. It raises `Refused` where it cannot start here, and
    `ValueError` for options that it does not know. If it has an attribute `devices`, that is called
    without arguments, and gives a `ProviderDevice` for each device; else there is one, of the host.

    Attributes:
        options: All options with their values, as text.
    """

    @property
    def options(self) -> Mapping[str, str]:
        """All options with their values, as text."""

    def claim(self, model: ModelPart) -> Iterable[ModelNode]:
        """Which nodes it computes. Neighbours among them become one part."""

    def compile(self, part: ModelPart) -> Compute:
        """What computes a part; runs may call it from several threads at once.

        It may raise `Refused` in a run, for data or sizes that it does not take.

        Raises:
            Refused: It does not compute the part after all.
        """
