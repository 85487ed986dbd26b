"""Index maps put into each other: a view of a view is a view, and may be no view at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.tensor import Map, Tensor, indices, make_map


def bind(variables: Iterable[Dim], values: Iterable[Dim]) -> dict[sizes.Atom, Dim]:
    """Index variables (as `indices` gives them) and what to put in their places."""
    pairs = zip(map(sizes.as_atom, variables), values, strict=True)
    return {atom: value for atom, value in pairs if atom is not None}


def is_index_map(tensor: Tensor) -> bool:
    """Whether every element is one element of one tensor, found by position alone."""
    return (
        isinstance(tensor, Map)
        and tensor.body.op == "load"
        and not any(sizes.opaque_in(index) for index in tensor.body.at)
    )


def compose(tensor: Tensor, index_maps: Mapping[Tensor, Map]) -> Tensor:
    """An index map of a known index map, as one of what that reads; other tensors as they are.

    Args:
        tensor: Any tensor.
        index_maps: For some buffers, the index map that they hold the elements of.

    Returns:
        The innermost tensor itself where all that is left is to read it in its own order.
    """
    if not isinstance(tensor, Map) or not is_index_map(tensor):
        return tensor
    inner = index_maps.get(tensor.body.tensor)
    if inner is not None:
        places = bind(indices(inner.shape), tensor.body.at)
        tensor = make_map(tensor.shape, rewrite(inner.body, atoms=places))
    body = tensor.body
    if body.op != "load" or body.tensor.shape != tensor.shape or body.at != indices(tensor.shape):
        return tensor
    return body.tensor


def innermost(tensor: Tensor) -> Tensor:
    """What an index map of index maps reads in its own order, if it does; else the tensor."""
    found = tensor
    while is_index_map(found):
        assert isinstance(found, Map)  # noqa: S101 - narrows the type for the checker
        inner = found.body.tensor
        maps: dict[Tensor, Map] = {}
        if isinstance(inner, Map) and is_index_map(inner):
            maps[inner] = inner
        composed = compose(found, maps)
        if composed is found:
            return tensor
        found = composed
    return found
