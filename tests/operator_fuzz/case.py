"""A case: a model around one operator, what it is fed at three shapes, and what is right."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from tests.operator_fuzz import neighbours
from tests.operator_fuzz.draw import STRING, TYPES, Array, Draw
from tests.operator_fuzz.families import FAMILIES
from tests.operator_fuzz.instance import MAKERS, Const, Fed, Instance, Maker, Still
from tests.operator_fuzz.neighbours import Neighbour
from tests.operator_fuzz.oracle import Step, element_type, type_proto

#: At how many shapes a case is run.
RUNS = 3
_LAST = defs.onnx_opset_version()
_EXACT = frozenset("Transpose Unsqueeze Reshape Concat Neg Abs Relu Identity Max ReduceMax".split())


@dataclass(frozen=True)
class Record:
    """A version of an operator, and the versions of its set that it holds for."""

    schema: defs.OpSchema
    until: int

    @property
    def key(self) -> tuple[str, str]:
        """Domain and name."""
        return self.schema.domain, self.schema.name

    def __str__(self) -> str:
        return f"{self.schema.domain or 'ai.onnx'}.{self.schema.name}-{self.schema.since_version}"


@cache
def records() -> tuple[Record, ...]:
    """All versions of all operators that have a generator."""
    for family in FAMILIES:
        importlib.import_module(f"tests.operator_fuzz.{family}")
    by_key: dict[tuple[str, str], list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        by_key.setdefault((schema.domain, schema.name), []).append(schema)
    found = []
    for key, schemas in sorted(by_key.items()):
        schemas.sort(key=lambda s: s.since_version)
        last = _LAST if key[0] == "" else 5 if key[0] == "ai.onnx.ml" else 1
        ends = [s.since_version - 1 for s in schemas[1:]] + [max(last, schemas[-1].since_version)]
        if key in MAKERS:
            found += [
                Record(s, end) for s, end in zip(schemas, ends, strict=True) if not s.deprecated
            ]
    return tuple(found)


@dataclass
class Case:
    """See the module's text.

    Attributes:
        title: Operator, version and types.
        model: The model.
        feeds: Of each run.
        steps: The nodes, in order.
        types: Of all values by name.
        exact: Names of values that no rounding has touched.
        constants: Initializers by name.
        wanted: All values of each run.
    """

    title: str
    model: onnx.ModelProto = field(default_factory=onnx.ModelProto)
    feeds: list[dict[str, Any]] = field(default_factory=lambda: [{} for _ in range(RUNS)])
    steps: list[Step] = field(default_factory=list)
    types: dict[str, Any] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    constants: dict[str, Array] = field(default_factory=dict)
    wanted: list[dict[str, Any]] = field(default_factory=list)

    def noisy(self, run: int, sample: int) -> dict[str, Any]:
        """All values, had every node made random rounding errors."""
        values = {**self.feeds[run], **self.constants}
        noise = np.random.default_rng(sample)
        for step in self.steps:
            step.run(values, self.types, noise)
        return values


class InvalidCase(Exception):
    """The generator made what is no instance of the operator."""


def make(seed: int, only: Sequence[Record] = (), *, bare: bool = False) -> Case:
    """The case of a seed.

    Args:
        seed: The seed; one after the other they go through the records.
        only: The records; all if there are none.
        bare: Without neighbours.
    """
    choices = only or records()
    return _Builder(choices[seed % len(choices)], seed, bare).build()


class _Builder:
    def __init__(self, record: Record, seed: int, bare: bool) -> None:
        self.record, self.seed, self.bare = record, seed, bare
        schema = record.schema
        self.version = schema.since_version
        rng = np.random.default_rng((seed, 99))
        own = int(rng.integers(self.version, record.until + 1))
        self.opsets = {"": own if schema.domain == "" else int(rng.integers(9, _LAST + 1))}
        self.opsets[schema.domain] = own
        self.draw = Draw(schema, self.opsets[""], seed, 7)  # for neighbours
        self.draw.structure = rng
        self.case = Case("")
        self.nodes = 0
        self.maker: Maker = MAKERS[record.key]

    def build(self) -> Case:
        draws = [
            Draw(self.record.schema, self.opsets[self.record.key[0]], self.seed, run)
            for run in range(RUNS)
        ]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            instances = [self.maker.generate(d) for d in draws]
        first = instances[0]
        self._check_alike(instances)
        shown = " ".join(f"{k}={v}" for k, v in sorted(draws[0].types.items()))
        self.case.title = f"{self.record} opset {self.opsets} {shown}"
        self.case.wanted = [{} for _ in range(RUNS)]
        names = [self._input([i.inputs[k] for i in instances]) for k in range(len(first.inputs))]
        for name in first.outer:
            self._given(name, [i.outer[name] for i in instances])
        outputs = self._outputs(first, draws[0])
        schema = self.record.schema
        node = self._node(schema.name, names, outputs, first.attributes, schema)
        self._add(node, self.maker, self.version, tuple(first.outer))
        results = [name for name in outputs if name]
        shown_outputs = list(results)
        for name in results:
            shown_outputs += self._after(name, shown_outputs)
        self._finish(shown_outputs)
        return self.case

    def _check_alike(self, instances: list[Instance]) -> None:
        first = instances[0]
        for other in instances[1:]:
            if repr(other.attributes) != repr(first.attributes):
                raise InvalidCase(f"attributes differ: {first.attributes} {other.attributes}")
            for a, b in zip(first.inputs, other.inputs, strict=True):
                if type(a) is not type(b):
                    raise InvalidCase("inputs differ in kind")
                if isinstance(a, np.ndarray) and (a.dtype != b.dtype or a.ndim != b.ndim):
                    raise InvalidCase("inputs differ in type or rank")

    def _outputs(self, instance: Instance, draw: Draw) -> list[str]:
        schema = self.record.schema
        given: Sequence[Any] = instance.outputs or [o.type_str for o in schema.outputs]
        names = []
        for number, kind in enumerate(given):
            name = f"y{number}" if kind is not None else ""
            names.append(name)
            if isinstance(kind, str):
                kind = draw.types.get(kind, TYPES.get(kind, kind))
            if name:
                self.case.types[name] = kind
        return names

    # -- values

    def _input(self, values: list[Any]) -> str:
        if values[0] is None:
            return ""
        name = f"x{len(self.case.types)}"
        if isinstance(values[0], Const):
            self._constant(name, values[0].array)
            return name
        fed = isinstance(values[0], Fed)
        if isinstance(values[0], Still):
            return self._given(name, [v.array for v in values], still=True)
        values = [v.array if isinstance(v, Fed) else v for v in values]
        values = [np.asarray(v) if isinstance(v, np.generic) else v for v in values]
        if not isinstance(values[0], np.ndarray):
            return self._given(name, values)
        same = all(_equal(values[0], v) for v in values[1:])
        if same and not fed and self.draw.chance(0.6):
            self._constant(name, values[0])
            return name
        chain: list[Neighbour] = []
        while not self.bare and len(chain) < 3 and self.draw.chance(0.3):
            made = neighbours.before(self.draw, values)
            if made is None:
                break
            chain.append(made)
            values = made.arrays
        self._given(name, values)
        for k, made in enumerate(reversed(chain)):
            name = self._neighbour(made, name, f"{name}_{k}", exact=True)
        return name

    def _given(self, name: str, values: list[Any], *, still: bool = False) -> str:
        first = values[0]
        array = isinstance(first, np.ndarray)
        self.case.types[name] = first.dtype if array else "object"
        self.case.exact.add(name)
        dims: list[Any] | None = None
        if array:
            dims = []
            for axis in range(first.ndim):
                sizes = tuple(v.shape[axis] for v in values)
                # How long a list is may decide a rank: those stay numbers.
                listed = still or (first.ndim <= 2 and first.size <= 8)
                moving = len(set(sizes)) > 1 or (not listed and self.draw.chance(0.1))
                shared = "_".join(map(str, sizes)) if self.draw.chance(0.5) else f"{name}_{axis}"
                dims.append(f"d{shared}" if moving else sizes[0])
        info = helper.make_value_info(name, type_proto(first, dims))
        self.case.model.graph.input.append(info)
        for run, value in enumerate(values):
            self.case.feeds[run][name] = value
            self.case.wanted[run][name] = value
        return name

    def _constant(self, name: str, array: Array) -> None:
        self.case.types[name] = array.dtype
        self.case.exact.add(name)
        self.case.constants[name] = array
        for values in self.case.wanted:
            values[name] = array
        self.case.model.graph.initializer.append(tensor_of(array, name))

    # -- nodes

    def _node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Any],
        schema: defs.OpSchema | None = None,
    ) -> onnx.NodeProto:
        last = max((k for k, name in enumerate(inputs) if name), default=-1)
        if schema is None:
            schema = defs.get_schema(op_type, self.opsets[""], "")
        node = helper.make_node(
            op_type, inputs[: last + 1], outputs, name=f"n{self.nodes}", domain=schema.domain
        )
        self.nodes += 1
        for name, value in attributes.items():
            if value is None:
                continue
            if isinstance(value, np.ndarray):
                value = tensor_of(value, "")
            elif isinstance(value, np.dtype):
                value = element_type(value)
            kind = schema.attributes[name].type
            kind = onnx.AttributeProto.AttributeType.Value(kind.name)
            if kind == onnx.AttributeProto.STRING and isinstance(value, int):
                value = onnx.TensorProto.DataType.Name(value)  # Cast-1
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        return node

    def _add(
        self, node: onnx.NodeProto, maker: Maker, version: int, outer: tuple[str, ...] = ()
    ) -> None:
        step = Step(node, maker, version, self.opsets, outer)
        for values in self.case.wanted:
            step.run(values, self.case.types, None)
        exact = {n for n in [*node.input, *outer] if n} <= self.case.exact and maker.exact
        for name in node.output:
            if not name:
                continue
            if not isinstance(self.case.types[name], np.dtype):
                found = self.case.wanted[0][name]
                if isinstance(found, np.ndarray) and self.case.types[name] not in ("object",):
                    self.case.types[name] = found.dtype
            if exact:
                self.case.exact.add(name)
        self.case.steps.append(step)
        self.case.model.graph.node.append(node)

    def _neighbour(self, made: Neighbour, name: str, result: str, *, exact: bool) -> str:
        inputs = [name]
        for k, constant in enumerate(made.constants):
            inputs.append(f"{result}_c{k}")
            self._constant(inputs[-1], constant)
        for k, arrays in enumerate(made.others):
            if exact:
                inputs.append(self._given(f"{result}_o{k}", arrays))
            else:
                inputs.append(name)
        to = made.attributes.get("to")
        self.case.types[result] = self.case.types[name]
        if isinstance(to, np.dtype):
            source = self.case.types[name]
            self.case.types[result] = to
            exact = exact or source == to
        node = self._node(made.op_type, inputs, [result], made.attributes)
        maker = Maker(lambda draw: Instance([]), exact or made.op_type in _EXACT, own=exact)
        self._add(node, maker, self.opsets[""])
        return result

    def _after(self, name: str, shown: list[str]) -> list[str]:
        """Nodes that read a result; it may stop to be an output of the model."""
        dtype = self.case.types[name]
        if self.bare or not isinstance(dtype, np.dtype) or dtype == STRING:
            return []
        at, count = name, 0
        while count < 3 and self.draw.chance(0.35):
            arrays = [values[at] for values in self.case.wanted]
            made = neighbours.after(self.draw, arrays, self.case.types[at])
            if made is None:
                break
            at = self._neighbour(made, at, f"{name}_{count}", exact=False)
            count += 1
        if count and self.draw.chance(0.6):
            shown.remove(name)
        return [at] if count else []

    def _finish(self, outputs: list[str]) -> None:
        model = self.case.model
        declare = self.draw.chance(0.5)
        for name in outputs:
            dtype = self.case.types[name]
            if declare and isinstance(dtype, np.dtype):
                info = helper.make_tensor_value_info(name, element_type(dtype), None)
            else:
                info = onnx.ValueInfoProto(name=name)
            model.graph.output.append(info)
        model.graph.name = "case"
        model.ir_version = 10
        for domain, version in self.opsets.items():
            model.opset_import.append(helper.make_opsetid(domain, version))


def _equal(a: Any, b: Any) -> bool:
    return isinstance(a, np.ndarray) and a.shape == b.shape and a.tobytes() == b.tobytes()


def tensor_of(array: Array, name: str) -> onnx.TensorProto:
    """An array as a tensor of ONNX."""
    if array.dtype == STRING:
        texts = [str(s) for s in array.reshape(-1)]
        return helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, texts)
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
