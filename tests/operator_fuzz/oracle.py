"""What a node computes, by onnx.reference or by NumPy, and never by anything of the engine's.

Nodes are evaluated one at a time. Floats go through in double, unless the node's maker says that
its operator depends on the type. With `noise` every float that a node reads, and every one that it
gives, is first moved by a random rounding error: what that does to the results says how far off
correct ones may be.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_grid_sample

from tests.operator_fuzz.draw import DType, is_float, is_wide_float
from tests.operator_fuzz.instance import Maker

_EPSILONS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
_EPSILONS |= {"complex64": 2.0**-24, "complex128": 2.0**-53}


@dataclass(frozen=True)
class Use:
    """A node as references see it.

    Attributes:
        attributes: Given ones and defaults, as Python values.
        version: The operator's.
        types: Of the outputs as the model has them, None where one is left out.
        input_types: The same of the inputs.
        opset: The version of ONNX's own operator set.
    """

    node: onnx.NodeProto
    attributes: Mapping[str, Any]
    version: int
    types: tuple[Any, ...]
    input_types: tuple[Any, ...]
    opset: int


#: A smaller error is lost where the oracle, which computes in double, applies it.
_LEAST_NOISE = 2.0**-51

Reference = Callable[..., Any]
#: By domain and name: references with the first and the last version that they are true of.
REFERENCES: dict[tuple[str, str], list[tuple[int, int, Reference]]] = {}


def reference(
    *names: str, since: int = 1, until: int = 99, domain: str = ""
) -> Callable[[Reference], Reference]:
    """Register the decorated function: of a `Use` and arrays, None where omitted.

    What it answers with NotImplemented is left to onnx.reference.
    """

    def register(function: Reference) -> Reference:
        for text in names:
            for name in text.split():
                REFERENCES.setdefault((domain, name), []).append((since, until, function))
        return function

    return register


#: What former versions meant, as attributes that the evaluator knows: since, until, name, values.
FORMER: dict[tuple[str, str], tuple[tuple[int, int, str, dict[Any, str]], ...]] = {
    ("", "RoiAlign"): ((10, 15, "coordinate_transformation_mode", {None: "output_half_pixel"}),),
    ("", "GridSample"): ((16, 19, "mode", {b"bilinear": "linear", b"bicubic": "cubic"}),),
}


def epsilon(dtype: Any) -> float:
    """Half a unit in the last place of 1; 0 for types that do not round."""
    return _EPSILONS.get(getattr(dtype, "name", ""), 0.0)


class GridSample(op_grid_sample.GridSample):
    """onnx.reference's, which rounds places to float32 whatever the grid's type is."""

    op_domain = ""

    def _gs_denormalize_coordinates(self, n: Any, dims: Any, align_corners: bool) -> Any:
        pairs = zip(n, dims, strict=True)
        return np.array([self._gs_denormalize(v, d, align_corners) for v, d in pairs], np.float64)


@dataclass
class Step:
    """A node of a case.

    Attributes:
        node: The node.
        maker: How it is compared.
        version: Of its operator.
        opsets: By domain.
        outer: Names that its graphs read from outside.
    """

    node: onnx.NodeProto
    maker: Maker
    version: int
    opsets: dict[str, int]
    outer: tuple[str, ...] = ()
    _evaluators: dict[Any, Any] = field(default_factory=dict)

    def run(
        self, values: dict[str, Any], types: Mapping[str, Any], noise: np.random.Generator | None
    ) -> None:
        """Add the outputs to the values."""
        names = [*self.node.input, *self.outer]
        given: dict[str, Any] = {}
        for number, name in enumerate(names):
            if name:
                moved = noise if number not in self.maker.steady else None
                given[name] = self._input(values[name], types[name], moved)
        results = self._results(given, types)
        for name, result in zip(self.node.output, results, strict=False):
            if name:
                kept = self._output(result, types.get(name))
                values[name] = kept if self.maker.exact else _moved(kept, types.get(name), noise)

    def _input(self, value: Any, dtype: Any, noise: np.random.Generator | None) -> Any:
        if isinstance(value, list):
            return [self._input(item, item.dtype, noise) for item in value]
        if not isinstance(value, np.ndarray):
            return value
        if self.maker.own:
            return value.astype(dtype) if isinstance(dtype, np.dtype) else value
        if is_wide_float(value.dtype) or value.dtype.kind == "c":
            wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
            return wide if self.maker.exact else _moved(wide, dtype, noise)
        return value

    def _output(self, result: Any, dtype: Any) -> Any:
        if isinstance(result, np.generic):
            return np.asarray(result)
        return result

    def _results(self, given: Mapping[str, Any], types: Mapping[str, Any]) -> Any:
        key = self.node.domain, self.node.op_type
        for since, until, function in REFERENCES.get(key, ()):
            if since <= self.version <= until:
                names = [*self.node.input, *self.outer]
                arrays = [given[name] if name else None for name in names]
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    found = function(self._use(types), *arrays)
                if found is NotImplemented:
                    break
                return found if isinstance(found, tuple) else (found,)
        return self._referee(given)

    def _use(self, types: Mapping[str, Any]) -> Use:
        schema = onnx.defs.get_schema(self.node.op_type, self.version, self.node.domain)
        attributes = {
            name: helper.get_attribute_value(a.default_value)
            for name, a in schema.attributes.items()
            if a.default_value.name
        }
        attributes |= {a.name: helper.get_attribute_value(a) for a in self.node.attribute}
        return Use(
            self.node,
            {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()},
            self.version,
            tuple(types[name] if name else None for name in self.node.output),
            tuple(types[name] if name else None for name in self.node.input),
            self.opsets[""],
        )

    def _explicit(self) -> onnx.NodeProto:
        """The node with its version's defaults written out: the evaluator knows the newest."""
        schema = onnx.defs.get_schema(self.node.op_type, self.version, self.node.domain)
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        given = {a.name for a in node.attribute}
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name and name not in given:
                node.attribute.append(attribute.default_value)
        for since, until, name, values in FORMER.get((node.domain, node.op_type), ()):
            if since <= self.version <= until:
                old = next((a for a in node.attribute if a.name == name), None)
                value = values.get(None if old is None else helper.get_attribute_value(old))
                if value is not None and old is not None:
                    node.attribute.remove(old)
                if value is not None:
                    node.attribute.append(helper.make_attribute(name, value))
        return node

    def _referee(self, given: Mapping[str, Any]) -> Any:
        key = tuple((n, _type_key(v)) for n, v in given.items())
        if key not in self._evaluators:
            inputs = [helper.make_value_info(n, type_proto(v)) for n, v in given.items()]
            outputs = [onnx.ValueInfoProto(name=n) for n in self.node.output if n]
            graph = helper.make_graph([self._explicit()], "one", inputs, outputs)
            imports = [helper.make_opsetid(d, v) for d, v in self.opsets.items()]
            model = helper.make_model(graph, opset_imports=imports)
            self._evaluators[key] = ReferenceEvaluator(model, new_ops=[GridSample])
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = iter(self._evaluators[key].run(None, dict(given)))
        return [next(found) if name else None for name in self.node.output]


def _type_key(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.name
    return type(value).__name__


def type_proto(value: Any, dims: Any = None) -> onnx.TypeProto:
    """The type of a value; `dims` of an array, if they are known."""
    if isinstance(value, np.ndarray):
        return helper.make_tensor_type_proto(element_type(value.dtype), dims)
    if isinstance(value, list):
        first = value[0] if value else np.zeros(0, np.float32)
        dims = [None] * first.ndim if isinstance(first, np.ndarray) and value else None
        return helper.make_sequence_type_proto(type_proto(first, dims))
    if isinstance(value, dict):
        key, item = next(iter(value.items()))
        code = onnx.TensorProto.STRING if isinstance(key, str) else onnx.TensorProto.INT64
        codes = {float: onnx.TensorProto.FLOAT, str: onnx.TensorProto.STRING}
        kind = codes.get(type(item), onnx.TensorProto.INT64)
        return helper.make_map_type_proto(code, helper.make_tensor_type_proto(kind, []))
    raise TypeError(f"no type for {value!r}")


def element_type(dtype: DType) -> int:
    """ONNX's number of a type."""
    return onnx.TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)


def _moved(value: Any, dtype: Any, noise: np.random.Generator | None) -> Any:
    """The value with a random rounding error of its type."""
    size = epsilon(dtype) and max(epsilon(dtype), _LEAST_NOISE)
    if noise is None or not size or not isinstance(value, np.ndarray):
        return value
    if not is_float(value.dtype) and value.dtype.kind != "c":
        return value
    with np.errstate(all="ignore"):
        factor = 1 + size * noise.uniform(-1, 1, value.shape)
        return np.where(np.isfinite(value), value * factor, value)
