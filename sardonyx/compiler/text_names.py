"""Names of tensors, and expressions, as stages of a compilation print them."""

from __future__ import annotations

from collections.abc import Iterable

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.ir.value import Value
from sardonyx.ops.core.lower import LoweredGraph
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Tensor

#: Nodes of an expression that are printed: one that shares its parts may be very long.
_MOST_NODES = 100


def listed(dims: Iterable[Dim]) -> str:
    """Sizes, with commas between them."""
    return ",".join(map(repr, dims))


class TensorNames:
    """What tensors are called: `%y` as the file calls them, else `t0`, `t1` as they are met.

    Args:
        lowered: The graph whose values have names.
    """

    def __init__(self, lowered: LoweredGraph) -> None:
        self._names: dict[Tensor, str] = {}
        for named in (lowered.inputs, lowered.outputs, lowered.values):
            for value, tensor in named.items():
                self._names.setdefault(tensor, f"%{value.name}")
        self._count = 0

    def of(self, tensor: Tensor) -> str:
        """The name of a tensor, or of the one that a buffer is memory for."""
        found = self._names.get(tensor)
        if found is None:
            key = tensor.key if isinstance(tensor, Buffer) else None
            if isinstance(key, Tensor):
                return self.of(key)
            if isinstance(key, Value):
                return f"%{key.name}"
            match key:
                case ("copy", Value() as value):
                    return f"copy of %{value.name}"
            found = self._names[tensor] = f"t{self._count}"
            self._count += 1
        return found

    def typed(self, tensor: Tensor) -> str:
        """The name with type and shape, such as `%y: float[N,64]`."""
        return f"{self.of(tensor)}: {tensor.dtype}[{listed(tensor.shape)}]"

    def expression(self, x: Scalar) -> str:
        """An expression; `...` stands for what is left out of a long one."""
        return _Expression(self).text(x)


class _Expression:
    def __init__(self, names: TensorNames) -> None:
        self._names, self._left = names, _MOST_NODES

    def text(self, x: Scalar) -> str:
        if self._left <= 0:
            return "..."
        self._left -= 1
        match x.op:
            case "constant":
                return repr(x.payload)
            case "size":
                return self._index(x.dim)
            case "load":
                return f"{self._names.of(x.tensor)}[{', '.join(map(self._index, x.at))}]"
        parts = [*map(self.text, x.arguments)]
        if x.op in ("cast", "bitcast"):
            parts.append(str(x.dtype))
        if x.op == "check_index":
            parts.append(self._index(x.dim))
        return f"{x.op}({', '.join(parts)})"

    def _index(self, dim: Dim) -> str:
        """An index; one that is loaded from a tensor as what is loaded."""
        atom = sizes.as_atom(dim)
        if atom is not None and isinstance(atom.payload, Scalar):
            return self.text(atom.payload)
        return repr(dim)
