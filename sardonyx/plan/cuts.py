"""Where an expression gets too long to be computed where it is read: the rest gets memory."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.traverse import held_in, loads_of

#: Beyond this many nodes an expression is cut, so that chains cannot grow without bound.
MOST_NODES = 600
#: Nodes one inside another. Whatever walks an expression calls itself, and Python's stack, of which
#: callers have used a part, has room for a thousand calls. Networks have up to 13 (segformer_b0).
MOST_LEVELS = 64
#: A value that is an index takes as many calls as so many nodes.
_LEVELS_OF_INDEX = 5
#: The same of all atoms in its indices. Networks have up to 35 (segformer_b0); with each Reshape
#: to sizes of a run behind another the work doubles at least.
_MOST_ATOMS = 300


def is_long(body: Scalar) -> bool:
    """Whether an expression is to be cut: it has too many nodes, side by side or nested."""
    count = node_count(body, MOST_NODES)
    if count >= MOST_NODES:
        return True
    loads = loads_of(body)
    is_nested = any(sizes.opaque_in(index) for x in loads for index in x.at)
    return (is_nested or count > MOST_LEVELS) and levels_of(body) > MOST_LEVELS


def node_count(body: Scalar, limit: int) -> int:
    """How many different nodes an expression has, counted up to `limit`."""
    seen: set[Scalar] = set()
    stack = [body]
    while stack and len(seen) < limit:
        x = stack.pop()
        if x not in seen:
            seen.add(x)
            stack.extend(x.arguments)
    return len(seen)


def levels_of(body: Scalar) -> int:
    """How many nodes lie one inside another at most, those in indices too."""
    known: dict[Scalar, int] = {}
    stack = [body]
    while stack:
        x = stack[-1]
        inner = _inside(x)
        left = [part for part, _ in inner if part not in known]
        if left:
            stack += left
        else:
            known[stack.pop()] = 1 + max((known[part] + more for part, more in inner), default=0)
    return known[body]


def _inside(x: Scalar) -> list[tuple[Scalar, int]]:
    """The parts of a node, with what they count for beside their own levels."""
    return [(part, 0) for part in x.arguments] + [(part, _LEVELS_OF_INDEX) for part in held_in(x)]


def has_long_indices(body: Scalar) -> bool:
    """Whether the indices of its loads have `_MOST_ATOMS` atoms or more, shared ones once."""
    seen: set[Dim] = set()
    stack = [index for x in loads_of(body) for index in x.at]
    count = 0
    while stack and count < _MOST_ATOMS:
        index = stack.pop()
        if isinstance(index, sizes.Size) and index not in seen:
            seen.add(index)
            atoms = [atom for monomial, _ in index.terms for atom in monomial]
            count += len(atoms)
            stack.extend(argument for atom in atoms for argument in atom.arguments)
    return count >= _MOST_ATOMS
