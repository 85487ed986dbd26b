"""Walking over what tensors are made of."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from sardonyx.base import sizes
from sardonyx.base.remembering import remembering
from sardonyx.base.sizes import Dim
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Call, Contract, Map, Reduce, Tensor


def _arguments(x: Scalar) -> Sequence[Scalar]:
    return x.arguments


def parts_of(
    x: Scalar, inside: Callable[[Scalar], Sequence[Scalar]] = _arguments
) -> Iterator[Scalar]:
    """An expression and what `inside` gives of it, and of that, each once: `x + x` has one part.

    Walked again and again, an expression whose parts are shared takes twice as long for each level.
    """
    seen = {x}
    stack = [x]
    while stack:
        node = stack.pop()
        yield node
        for part in reversed(inside(node)):
            if part not in seen:
                seen.add(part)
                stack.append(part)


def held_in(x: Scalar) -> list[Scalar]:
    """The expressions inside the indices of a load, or inside the symbolic integer of a node."""
    held = x.at if x.op == "load" else (x.dim,) if x.op in ("size", "check_index") else ()
    values = [atom.payload for value in held for atom in sizes.opaque_in(value)]
    return [value for value in values if isinstance(value, Scalar)]


def dims_of(x: Scalar) -> Iterator[Dim]:
    """Every symbolic integer in an expression, also those inside indices."""
    for part in parts_of(x, lambda node: [*node.arguments, *held_in(node)]):
        if part.op == "load":
            yield from part.at
        elif part.op in ("size", "check_index"):
            yield part.dim


def loads_of(x: Scalar) -> tuple[Scalar, ...]:
    """Every load in the expression, also those inside indices, each once, in a fixed order."""
    if x.op == "load":  # kept in itself it would be a cycle, and long chains be freed bit by bit
        return _find_loads(x) if any(map(sizes.opaque_in, x.at)) else (x,)
    if x._loads is None:
        x._loads = _find_loads(x)
    return x._loads


def _find_loads(x: Scalar) -> tuple[Scalar, ...]:
    found: dict[Scalar, None] = {}
    _collect(x, found, set())
    return tuple(found)


def _collect(node: Scalar, found: dict[Scalar, None], seen: set[Scalar]) -> None:
    """Add loads below a node; closures that call each other would be left to the collector."""
    if node in seen:
        return
    seen.add(node)
    if node.op == "load":
        for i in node.at:
            _collect_dim(i, found, seen)
        found[node] = None
    elif node.op == "size":
        _collect_dim(node.dim, found, seen)
    for argument in node.arguments:
        _collect(argument, found, seen)


def _collect_dim(value: Dim, found: dict[Scalar, None], seen: set[Scalar]) -> None:
    for atom in sizes.opaque_in(value):
        if isinstance(atom.payload, Scalar):
            _collect(atom.payload, found, seen)


def bodies_of(tensor: Tensor) -> tuple[Scalar, ...]:
    """The scalar expressions that a tensor consists of."""
    if isinstance(tensor, (Map, Reduce)):
        return (tensor.body,)
    if isinstance(tensor, Contract):
        return (tensor.left, tensor.right)
    return ()


@remembering(1 << 14)
def operands_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """Tensors that a tensor reads, each once, in a fixed order."""
    found: dict[Tensor, None] = {}
    for body in bodies_of(tensor):
        for x in loads_of(body):
            found[x.tensor] = None
    if isinstance(tensor, Call):
        for operand in tensor.operands:
            found[operand] = None
    return tuple(found)


def topological(outputs: Iterable[Tensor], done: Container[Tensor] = ()) -> list[Tensor]:
    """All tensors that the outputs need and that are not `done`, producers first."""
    found: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(list(outputs))]
    while stack:
        tensor, expanded = stack.pop()
        if tensor in found or tensor in done:
            continue
        if expanded or isinstance(tensor, Buffer):
            found[tensor] = None
            continue
        stack.append((tensor, True))
        stack.extend((t, False) for t in reversed(operands_of(tensor)) if t not in found)
    return list(found)
