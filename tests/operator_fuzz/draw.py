"""What generators draw from: structure, the same in all runs of a case, and contents.

A generator runs once for each shape that a case is run at. What it draws with `pick`, `chance` and
`integer` is the same each time: ranks, attributes, which inputs there are. Sizes may differ, and
contents do. So a generator is plain code on plain arrays, and what differs becomes symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper

Array = np.ndarray
DType = np.dtype[Any]
_Item = TypeVar("_Item")

#: NumPy's type by the name in a schema, such as `tensor(float)`.
TYPES: dict[str, DType] = {
    f"tensor({name.lower()})": np.dtype(helper.tensor_dtype_to_np_dtype(code))
    for name, code in TensorProto.DataType.items()
    if code
}
STRING = np.dtype(object)
_WORDS = ("", "a", "b", "ab", "Ab", "ä", "hello world", "x y", "1.5", "the", "7")
_SEVERAL = {"tensor(float)": 4, "tensor(double)": 2, "tensor(float16)": 2, "tensor(int64)": 2}


def is_float(dtype: DType) -> bool:
    """Whether it is a float of any width."""
    return dtype.kind == "f" or "float" in dtype.name


def is_wide_float(dtype: DType) -> bool:
    """Whether it is a float that operators compute with."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def is_integer(dtype: DType) -> bool:
    """Whether it is an integer of any width."""
    return dtype.kind in "iu" or dtype.name in ("int4", "uint4", "int2", "uint2")


def is_signed(dtype: DType) -> bool:
    """Whether it has negative numbers."""
    return not (dtype.kind in "ub" or dtype.name.startswith("uint") or dtype == STRING)


class Draw:
    """The random choices of one run of a case."""

    def __init__(self, schema: onnx.defs.OpSchema, opset: int, seed: int, run: int) -> None:
        self.schema = schema
        self.version = schema.since_version
        self.opset = opset
        self.run = run
        self.structure = np.random.default_rng((seed, 0))
        self.contents = np.random.default_rng((seed, 1 + run))
        self.most = 800  # elements
        self.types: dict[str, DType] = {}
        for constraint in schema.type_constraints:
            names = [t for t in constraint.allowed_type_strs if t in TYPES]
            weights = [w for t in names for w in [t] * _SEVERAL.get(t, 1)]
            if weights:
                self.types[constraint.type_param_str] = TYPES[self.pick(weights)]

    # -- structure

    def chance(self, probability: float) -> bool:
        """True that often; the same in all runs."""
        return bool(self.structure.random() < probability)

    def pick(self, items: Sequence[_Item]) -> _Item:
        """One of them; the same in all runs."""
        return items[int(self.structure.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included; the same in all runs."""
        return int(self.structure.integers(low, high + 1))

    def number(self, low: float, high: float) -> float:
        """A multiple of 1/8; the same in all runs."""
        return self.integer(int(low * 8), int(high * 8)) / 8

    def order(self, count: int) -> list[int]:
        """A permutation; the same in all runs."""
        return [int(k) for k in self.structure.permutation(count)]

    def some(self, items: Sequence[_Item], least: int = 0) -> list[_Item]:
        """Some of them, in their order; the same in all runs."""
        count = self.integer(least, len(items))
        return [items[k] for k in sorted(self.order(len(items))[:count])]

    def maybe(self, value: _Item, probability: float = 0.5) -> _Item | None:
        """The value, or nothing, so that an attribute takes its default."""
        return value if self.chance(probability) else None

    def axis(self, rank: int) -> int:
        """An axis, perhaps counted from the end (callers check that the version allows it)."""
        return self.integer(-rank, rank - 1)

    def type_of(self, name: str) -> DType:
        """The type drawn for a type constraint, or of a concrete type."""
        return self.types[name] if name in self.types else TYPES[name]

    def input_type(self, number: int) -> DType:
        """The type of an input; of the last one if there are fewer in the schema."""
        return self.type_of(self.schema.inputs[min(number, len(self.schema.inputs) - 1)].type_str)

    def has_attribute(self, name: str) -> bool:
        """Whether this version of the operator has the attribute."""
        return name in self.schema.attributes

    def at_most(self, **limits: DType) -> None:
        """Settle types."""
        self.types.update(limits)

    # -- sizes

    def size(self, low: int = 0, high: int = 6) -> int:
        """A size: the same in all runs, or one that differs."""
        same, kind = self.integer(low, high), self.structure.random()
        if kind < 0.45:
            if same == 0 and self.chance(0.6):
                same = max(low, 1)
            return same
        least = low if kind > 0.93 else max(low, 1)
        return int(self.contents.integers(min(least, high), high + 1))

    def shape(self, least: int = 0, most: int = 6, low: int = 0, high: int = 7) -> list[int]:
        """A shape with so few elements that cases stay small."""
        rank = self.integer(least, most)
        high = max(low, min(high, int(self.most ** (1 / max(rank, 1)))))
        return [self.size(low, high) for _ in range(rank)]

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        """A shape that can be broadcast to this one."""
        drop = self.integer(0, len(shape)) if self.chance(0.4) else 0
        result = []
        for size in shape[drop:]:
            kind = self.structure.random()
            if kind < 0.25:
                size = 1
            elif kind < 0.28:
                size = size if self.contents.random() < 0.6 else 1
            result.append(size)
        return result

    def operands(self, count: int, least: int = 0, most: int = 5) -> list[list[int]]:
        """Shapes that can be broadcast together."""
        shape = self.shape(least, most)
        shapes = [list(shape)] + [self.broadcast(shape) for _ in range(count - 1)]
        return [shapes[k] for k in self.order(count)]

    # -- contents

    def values(self, shape: Sequence[int], dtype: DType, low: float = -4, high: float = 4) -> Array:
        """Contents of any type: floats are multiples of 1/8, numbers lie within the limits."""
        size = tuple(shape)
        if dtype == STRING:
            return self.contents.choice(np.array(_WORDS, object), size=size).astype(object)
        if dtype.kind == "b":
            return np.asarray(self.contents.random(size) < 0.5)
        if dtype.kind == "c":
            parts = self.contents.integers(-16, 17, (2, *size)) / 4
            return np.asarray(parts[0] + 1j * parts[1], dtype)
        if is_integer(dtype):
            least = max(low, 0) if not is_signed(dtype) else low
            numbers = self.contents.integers(int(least), int(max(high, least)) + 1, size)
            return np.asarray(np.asarray(numbers).astype(dtype))
        eighths = self.contents.integers(int(np.ceil(low * 8)), int(high * 8) + 1, size) / 8
        return np.asarray(np.asarray(eighths).astype(dtype))

    def fixed(self, shape: Sequence[int], dtype: DType, low: float = -4, high: float = 4) -> Array:
        """Contents of any type that are the same in all runs."""
        contents, self.contents = self.contents, self.structure
        try:
            return self.values(shape, dtype, low, high)
        finally:
            self.contents = contents

    def reals(self, shape: Sequence[int], dtype: DType, scale: float = 1.0) -> Array:
        """Normal floats, or, of other types, `values`."""
        if not is_float(dtype):
            return self.values(shape, dtype)
        return np.asarray((scale * self.contents.standard_normal(tuple(shape))).astype(dtype))

    def distinct(self, shape: Sequence[int], dtype: DType) -> Array:
        """Numbers of which no two are the same, as far as the type has so many."""
        count = prod(shape)
        numbers = self.contents.permutation(count)
        if is_signed(dtype):
            numbers = numbers - count // 2
        numbers = numbers / 4 if is_wide_float(dtype) and count < 2000 else numbers
        return np.asarray(numbers).astype(dtype).reshape(tuple(shape))

    def indices(self, shape: Sequence[int], limit: int, dtype: DType, negative: bool) -> Array:
        """Places on an axis of a size, perhaps counted from the end."""
        low = -limit if negative else 0
        return np.asarray(
            self.contents.integers(low, max(limit, low + 1), tuple(shape)).astype(dtype)
        )

    def anything(self, shape: Sequence[int], dtype: DType) -> Array:
        """Contents for operators that move elements, with limits, infinities and not-a-number."""
        found = self.values(shape, dtype, -100 if is_signed(dtype) else 0, 100)
        if is_float(dtype) and found.size:
            flat = found.reshape(-1)
            specials = np.array([np.nan, np.inf, -np.inf, -0.0, 0.1, 1e-7, -1e30, 1e30])
            with np.errstate(all="ignore"):
                put = specials[self.contents.integers(0, 8, flat.size)].astype(dtype)
            flat[:] = np.where(self.contents.random(flat.size) < 0.15, put, flat)
        elif dtype.kind in "iu" and found.size:
            flat = found.reshape(-1)
            limits = np.iinfo(dtype)
            put = np.array([limits.min, limits.max], dtype)[self.contents.integers(0, 2, flat.size)]
            flat[:] = np.where(self.contents.random(flat.size) < 0.1, put, flat)
        return found
