"""A lowered graph as text: what each tensor is, element by element, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sardonyx.compiler.text_names import TensorNames, listed
from sardonyx.ops.core.lower import LoweredGraph
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.region import Branches, Region, Repetition
from sardonyx.tensor.tensor import (
    Buffer,
    Call,
    Contract,
    Map,
    Reduce,
    Shape,
    Tensor,
    reduced_indices,
)
from sardonyx.tensor.traverse import topological


def tensors_text(lowered: LoweredGraph) -> Iterator[str]:
    """Lines: inputs and weights where they are first read, then what is computed of them."""
    names = TensorNames(lowered)
    wanted = [*lowered.outputs.values(), *(m.tensor for m in lowered.measured.values())]
    given: dict[Tensor, str] = dict.fromkeys(lowered.inputs.values(), "input")
    yield from _lines(wanted, lowered.origins, names, given, "")
    yield f"return {', '.join(map(names.of, lowered.outputs.values()))}"


def _lines(
    wanted: Sequence[Tensor],
    origins: Mapping[Tensor, tuple[str, ...]],
    names: TensorNames,
    given: Mapping[Tensor, str],
    indent: str,
) -> Iterator[str]:
    for tensor in topological(list(dict.fromkeys(wanted))):
        nodes = " ".join(origins.get(tensor, ()))
        what = _what(tensor, names, given)
        yield f"{indent}{names.typed(tensor)} = {what}{f'  # {nodes}' if nodes else ''}"
        region = dict(tensor.attributes).get("region") if isinstance(tensor, Call) else None
        if isinstance(tensor, Call) and tensor.output == 0 and isinstance(region, Region):
            yield from _region(region, names, f"{indent}    ")


def _region(region: Region, names: TensorNames, indent: str) -> Iterator[str]:
    bodies = []
    given: dict[Tensor, str] = dict.fromkeys(region.outside, "from outside")
    if isinstance(region, Branches):
        bodies = [("then", region.then), ("else", region.otherwise)]
    elif isinstance(region, Repetition):
        given.update((c.inside, f"carried, at first {names.of(c.initial)}") for c in region.carried)
        given.update((s.inside, f"slice of {names.of(s.whole)}") for s in region.sliced)
        bodies = [(f"at most {region.trips!r} times", region.body)]
    for title, body in bodies:
        yield f"{indent}{title}:"
        yield from _lines(body.outputs, body.origins, names, given, f"{indent}  ")
        yield f"{indent}  return {', '.join(map(names.of, body.outputs))}"


def _what(tensor: Tensor, names: TensorNames, given: Mapping[Tensor, str]) -> str:
    if tensor in given:
        return given[tensor]
    match tensor:
        case Map(body=body):
            return names.expression(body)
        case Reduce(kind=kind, extents=extents, body=body):
            return f"{kind} over {_axes(extents)} of {names.expression(body)}"
        case Contract(extents=extents, left=left, right=right, accumulator=accumulator):
            factors = f"{names.expression(left)} * {names.expression(right)}"
            return f"sum over {_axes(extents)} of {factors} in {accumulator}"
        case Call(kernel=kernel, operands=operands, output=output):
            return f"output {output} of {kernel}({', '.join(map(names.of, operands))})"
        case Buffer(value=value) if value is not None:
            return f"constant {value!r}"
        case Buffer(constant=constant) if constant is not None:
            return "constant"
    return "from outside"


def _axes(extents: Shape) -> str:
    """Summed axes with their extents, such as `r0 < 64`."""
    axes = [a for a in reduced_indices(extents) if a != 0]
    return ", ".join(f"{a!r} < {listed((extent_of(a),))}" for a in axes) or "1 element"
