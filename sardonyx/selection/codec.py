"""What another process understands: expressions over placeholders as JSON, where code is."""

from __future__ import annotations

import re
from typing import Any

from sardonyx.base import sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.object_types import from_text
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom
from sardonyx.plan.canonical import placeholder
from sardonyx.plan.dims import DimReader, DimWriter
from sardonyx.plan.inline import COMPUTED
from sardonyx.tensor.rounding import Rounding
from sardonyx.tensor.scalar import Scalar, make_node
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor, buffer, make_map, make_reduce

_INDEX_NAME = re.compile(r"(\D+)(\d+)")
_PLACEHOLDER_NAME = re.compile(r"b(\d+)")


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """Where the machine code of a kernel is.

    Attributes:
        stem: How the kernel's name begins.
        place: Of the kernel's own function.
        others: Names of the functions that it calls, and where they are.
    """

    stem: str
    place: str
    others: tuple[tuple[str, str], ...]

    def places(self, name: str) -> dict[str, str]:
        """Of all its functions by name; its own has this one."""
        return {**dict(self.others), name: self.place}


def stem_of(name: str) -> str:
    """How the name of a kernel begins, without its number."""
    return name.rpartition("_")[0]


def code_from(stem: str, place: str, others: list[list[str]]) -> CodeLocation:
    """Where machine code is, as JSON has it."""
    return CodeLocation(stem, place, tuple((name, at) for name, at in others))


class ExpressionWriter(DimWriter):
    """Writes sizes, expressions over placeholders, and what is packed."""

    def name(self, tensor: Buffer, entry: dict[str, Any]) -> None:
        """Have a buffer written that is no placeholder.

        Args:
            tensor: The buffer.
            entry: What `ExpressionReader` makes one of.
        """
        self._places[tensor] = self._add(entry)

    def buffer(self, tensor: Tensor) -> int:
        """A placeholder, or a buffer that has been named."""
        if tensor not in self._places:
            named = _PLACEHOLDER_NAME.fullmatch(str(getattr(tensor, "key", "")))
            number = int(named[1]) if named else -1
            if placeholder(number, tensor.shape, tensor.dtype) is not tensor:
                raise _unwritable(tensor)
            entry = {"placeholder": [number, self.dims(tensor.shape), tensor.dtype.name]}
            self._places[tensor] = self._add(entry)
        return self._places[tensor]

    def contents(self, x: Map | Reduce) -> list[Any]:
        """What is packed."""
        if isinstance(x, Map):
            return [self.dims(x.shape), self._scalar(x.body)]
        body, extents = self._scalar(x.body), self.dims(x.extents)
        return [self.dims(x.shape), body, extents, x.kind, x.dtype.name]

    def _scalar(self, x: Scalar) -> int:
        if x not in self._places:
            arguments = list(map(self._scalar, x.arguments))
            entry = {"node": [x.op, x.dtype.name, arguments, self._payload(x)]}
            self._places[x] = self._add(entry)
        return self._places[x]

    def _payload(self, x: Scalar) -> Any:
        if x.op == "load":
            return [self.buffer(x.tensor), self.dims(x.at)]
        if x.op in ("size", "check_index"):
            return self.dim(x.dim)
        if x.op == "cast" and x.payload is not None:
            return [x.rounding.saturate, x.rounding.direction]
        named = x.op == "check_range" and isinstance(x.payload, str)
        if not (named or x.payload is None or isinstance(x.payload, int | float)):
            raise _unwritable(x)
        return x.payload

    def _atom_entry(self, atom: Atom) -> dict[str, Any]:
        if atom.kind == "opaque" and isinstance(atom.payload, Scalar):
            low, high = atom.arguments
            if sizes.variable(sizes.opaque(atom.payload, low, high)) is not atom:
                raise _unwritable(atom)
            return {"opaque": [self._scalar(atom.payload), self.dim(low), self.dim(high)]}
        if atom.kind != "index":
            return super()._atom_entry(atom)
        named, extent = _INDEX_NAME.fullmatch(atom.name), atom.arguments[0]
        if named is None:
            raise _unwritable(atom)
        stem, number = named[1], int(named[2])
        if sizes.as_atom(sizes.numbered_index(extent, number, stem)) is not atom:
            raise _unwritable(atom)
        return {"index": [stem, number, self.dim(extent)]}


class ExpressionReader(DimReader):
    """Reads what `ExpressionWriter` wrote."""

    def buffer(self, written: int) -> Buffer:
        """A buffer."""
        found = self._values[written]
        if not isinstance(found, Buffer):
            raise TypeError("that is not a buffer")
        return found

    def buffers(self) -> list[Buffer]:
        """All of them, in the order in which they were written."""
        return [x for x in self._values if isinstance(x, Buffer)]

    def contents(self, written: list[Any]) -> Map | Reduce:
        """What is packed."""
        shape, body, *rest = written
        if not rest:
            return make_map(self.dims(shape), self._values[body])
        extents, kind, dtype = rest
        return make_reduce(
            self.dims(shape), self.dims(extents), kind, self._values[body], from_text(dtype)
        )

    def _named_entry(self, kind: str, value: Any) -> Any:
        if kind == "index":
            stem, number, extent = value
            return sizes.numbered_index(self.dim(extent), number, stem)
        if kind == "opaque":
            inner, low, high = value
            return sizes.opaque(self._values[inner], self.dim(low), self.dim(high))
        if kind == "placeholder":
            number, shape, dtype = value
            return placeholder(number, self.dims(shape), from_text(dtype))
        if kind == "packed":
            shape, dtype = value
            return buffer("packed", self.dims(shape), from_text(dtype))
        if kind == "made":
            stem, shape, dtype, contents, is_computed = value
            found = Buffer(self.dims(shape), from_text(dtype), (stem, self.contents(contents)))
            found.constant = COMPUTED if is_computed else None
            return found
        if kind == "node":
            return self._node(*value)
        return super()._named_entry(kind, value)

    def _node(self, op: str, dtype: str, arguments: list[int], payload: Any) -> Scalar:
        operands = tuple(self._values[a] for a in arguments)
        found: Any = payload
        if op == "load":
            at, indices = payload
            found = self.buffer(at), self.dims(indices)
        elif op in ("size", "check_index"):
            found = self.dim(payload)
        elif op == "cast" and payload is not None:
            found = Rounding(*payload)
        return make_node(op, from_text(dtype), operands, found)


def _unwritable(x: object) -> EngineError:
    return EngineError(message("kernel", f"{x!r} has no meaning in another process"))
