"""Walking over what tensors are made of."""

from __future__ import annotations

from collections.abc import Container, Iterable

from sardonyx.tensor.scalar import Scalar, loads_of
from sardonyx.tensor.tensor import Call, Contract, Map, Reduce, Tensor


def bodies_of(tensor: Tensor) -> tuple[Scalar, ...]:
    """The scalar expressions that a tensor consists of."""
    if isinstance(tensor, (Map, Reduce)):
        return (tensor.body,)
    if isinstance(tensor, Contract):
        return (tensor.left, tensor.right)
    return ()


def operands_of(tensor: Tensor) -> list[Tensor]:
    """Tensors that a tensor reads, each once, in a fixed order."""
    found: dict[Tensor, None] = {}
    for body in bodies_of(tensor):
        for x in loads_of(body):
            found[x.tensor] = None
    if isinstance(tensor, Call):
        for operand in tensor.operands:
            found[operand] = None
    return list(found)


def topological(outputs: Iterable[Tensor], done: Container[Tensor] = ()) -> list[Tensor]:
    """All tensors that the outputs need and that are not `done`, producers first."""
    found: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(list(outputs))]
    while stack:
        tensor, expanded = stack.pop()
        if tensor in found or tensor in done:
            continue
        if expanded:
            found[tensor] = None
            continue
        stack.append((tensor, True))
        stack.extend((t, False) for t in reversed(operands_of(tensor)) if t not in found)
    return list(found)
