"""Puts nodes into a graph that is being made, and finds operands for them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.values import (
    FLOATS,
    LIMITS,
    MOST_ELEMENTS,
    RUNS,
    WHOLE_LIMITS,
    Extent,
    Shape,
    Value,
    fixed,
    numpy_dtype,
    volume,
)


class Declined(Exception):
    """A rule finds nothing that it can be applied to."""


class Builder:
    """One graph, perhaps inside another one.

    Attributes:
        random: What decides.
        nodes: The nodes so far.
        values: What nodes may read: what was made here, and what is visible from around.
        made: What nodes of this graph gave.
        inputs: Declared inputs, of the outermost graph.
        feeds: Arrays for those, by run.
        initializers: Of the outermost graph.
        depth: How many graphs are around.
        wrong_names: Whether inputs may give one name to dimensions that differ.
    """

    def __init__(self, random_: random.Random, parent: Builder | None = None) -> None:
        self.random, self.parent = random_, parent
        self.nodes: list[onnx.NodeProto] = []
        self.values: list[Value] = list(parent.values) if parent else []
        self.made: list[Value] = []
        self.depth: int = parent.depth + 1 if parent else 0
        root = self.root
        if root is self:
            self.inputs: list[onnx.ValueInfoProto] = []
            self.feeds: list[dict[str, Any]] = [{} for _ in range(RUNS)]
            self.initializers: list[onnx.TensorProto] = []
            self.symbols: dict[Extent, list[str]] = {}
            self.names, self.count, self.most = 0, 0, 30
            self.read: set[str] = set()
            self.wrong_names = False

    @property
    def root(self) -> Builder:
        """The outermost graph."""
        return self.parent.root if self.parent else self

    @property
    def room(self) -> int:
        """How many nodes may still be added."""
        return self.root.most - self.root.count

    def chance(self, probability: float) -> bool:
        """True so often."""
        return self.random.random() < probability

    def name(self, prefix: str = "v") -> str:
        """A name that nothing else has."""
        self.root.names += 1
        return f"{prefix}{self.root.names}"

    # -- finding operands -----------------------------------------------------------------

    def pick(self, *conditions: Callable[[Value], Any]) -> Value:
        """A value that meets all conditions; new ones and those not read yet are more likely."""
        fitting = [v for v in self.values if all(c(v) for c in conditions)]
        if not fitting:
            raise Declined
        if self.chance(0.5):
            fitting = [v for v in fitting if v.name not in self.root.read] or fitting
        if self.chance(0.5):
            fitting = fitting[-4:]
        return self.random.choice(fitting)

    def number(self, low: int, high: int) -> int:
        """A number from `low` to `high`."""
        if low > high:
            raise Declined
        return self.random.randint(low, high)

    def check(self, shape: Shape, bound: float = 0.0, dtype: str = "f4") -> None:
        """Decline what is too large."""
        if volume(shape) > MOST_ELEMENTS or bound > LIMITS[dtype] or len(shape) > 6:
            raise Declined

    # -- adding ---------------------------------------------------------------------------

    def node(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        **attributes: Any,
    ) -> Value:
        """Add a node; gives its first output. The outputs' names are made here."""
        names = [v.name if v is not None else "" for v in inputs]
        domain = attributes.pop("domain", "")
        for v in outputs:
            self.check(v.shape)
        self.root.count += 1
        self.root.read.update(names)
        results = [self.add(v) for v in outputs]
        self.nodes.append(
            helper.make_node(
                op_type,
                names,
                [v.name for v in results],
                self.name(op_type),
                domain=domain,
                **attributes,
            )  # fmt: skip
        )
        return results[0]

    def add(self, value: Value) -> Value:
        """Name a value, and let nodes read it."""
        named = value.like(name=self.name(), contents=value.contents)
        self.values.append(named)
        self.made.append(named)
        return named

    def constant(self, array: Any) -> Value:
        """A constant, which no rule picks: an initializer or a node."""
        array = np.asarray(array)
        name = self.name("c")
        if self.chance(0.7):
            self.root.initializers.append(numpy_helper.from_array(array, name))
        else:
            value = numpy_helper.from_array(array)
            self.nodes.append(helper.make_node("Constant", [], [name], value=value))
        code = "b1" if array.dtype == bool else array.dtype.str[1:]
        bound = float(np.max(np.abs(array.astype(np.float64)), initial=0.0))
        whole = bool(np.all(array.astype(np.float64) % 1 == 0)) if code[0] == "f" else True
        shape = tuple(map(fixed, array.shape))
        return Value(name, code, shape, True, whole, bound, (array,) * RUNS)

    def weights(self, shape: Sequence[int], dtype: str, whole: bool, scale: float = 1.0) -> Value:
        """A constant of random numbers, small whole ones if that is wanted."""
        return self.constant(self.numbers(tuple(shape), dtype, whole, scale))

    def numbers(self, shape: tuple[int, ...], dtype: str, whole: bool, scale: float = 1.0) -> Any:
        """Random numbers."""
        random_ = np.random.default_rng(self.random.getrandbits(32))
        if dtype == "b1":
            return random_.random(shape) < 0.5
        if dtype[0] in "iu" or whole:
            low = 0 if dtype[0] == "u" else -3
            return random_.integers(low, 4, shape).astype(dtype)
        return (np.clip(random_.standard_normal(shape), -3, 3) * scale).astype(dtype)

    def feed(self, shape: Shape, dtype: str, whole: bool, arrays: Sequence[Any] = ()) -> Value:
        """An input of the outermost graph."""
        root = self.root
        name = root.name("x")
        given = list(arrays)
        for run in range(RUNS):
            sizes = tuple(e.at[run] for e in shape)
            if len(given) <= run:
                given.append(self.numbers(sizes, dtype, whole))
            root.feeds[run][name] = np.asarray(given[run], numpy_dtype(dtype)).reshape(sizes)
        kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype))
        # What decides how many axes there are has to be known.
        declared = [e.number if arrays and e.is_static else root._declared(e) for e in shape]
        root.inputs.append(helper.make_tensor_value_info(name, kind, declared))
        contents = tuple(root.feeds[run][name] for run in range(RUNS)) if arrays else None
        bound = max([np.max(np.abs(f[name].astype(float)), initial=0) for f in root.feeds] + [3.0])
        value = Value(name, dtype, shape, True, whole or dtype[0] != "f", bound, contents)
        for builder in self._around():
            builder.values.insert(0, value)
        return value

    def _around(self) -> list[Builder]:
        return [self, *(self.parent._around() if self.parent else [])]

    def _declared(self, extent: Extent) -> int | str:
        if extent.is_static and self.chance(0.8):
            return extent.number
        if self.wrong_names and self.symbols and self.chance(0.2):
            return self.random.choice(self.random.choice(list(self.symbols.values())))
        names = self.symbols.setdefault(extent, [])
        if not names or self.chance(0.1):  # two names for what is always equal
            names.append(f"N{sum(map(len, self.symbols.values()))}")
        return self.random.choice(names)

    # -- sizes as operands ----------------------------------------------------------------

    def sizes(self, shape: Sequence[Extent]) -> Value:
        """An int64 value of one axis with these sizes, however it gets them."""
        if any(e.free for e in shape):
            raise Declined
        array = [np.array([e.at[run] for e in shape], np.int64) for run in range(RUNS)]
        if all(e.is_static for e in shape) and self.chance(0.7):
            return self.constant(array[0])
        if self.chance(0.25):
            return self.feed((fixed(len(shape)),), "i8", True, array)
        if len(shape) == 1 or self.chance(0.2):
            parts = [self._size(e) for e in shape]
        else:
            parts = [self.constant([e.number]) if e.is_static else self._size(e) for e in shape]
        if len(parts) == 1:
            return parts[0]
        result = Value("", "i8", (fixed(len(parts)),), True, True, 99.0, tuple(array))
        return self.node("Concat", parts, [result], axis=0)

    def _size(self, extent: Extent) -> Value:
        """An int64[1] value that is a size."""
        arrays = tuple(np.array([n], np.int64) for n in extent.at)
        result = Value("", "i8", (fixed(1),), True, True, 99.0, arrays)
        having = [v for v in self.values if extent in v.shape]
        if not having:
            return self.feed((fixed(1),), "i8", True, arrays)
        source = self.random.choice(having)
        axis = source.shape.index(extent)
        if self.chance(0.3):
            return self.node("Shape", [source], [result], start=axis, end=axis + 1)
        every = tuple(np.array([e.at[run] for e in source.shape]) for run in range(RUNS))
        shape = Value("", "i8", (fixed(source.rank),), True, True, 99.0, every)
        if any(e.free for e in source.shape):
            shape = shape.like()
        whole = self.node("Shape", [source], [shape])
        return self.node("Gather", [whole, self.constant(np.array([axis]))], [result], axis=0)


def bounded(builder: Builder, value: Value, dtype: str | None = None) -> Value:
    """A result as it is, or declined because it may be too large; exact only while it is small."""
    code = dtype or value.dtype
    builder.check(value.shape, value.bound, code)
    if code in FLOATS and value.exact and value.bound > WHOLE_LIMITS[code]:
        return value.like(exact=False, whole=False)
    return value
