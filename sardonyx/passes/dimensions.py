"""Dimensions of inputs whose names say less than they seem to.

x: float[?, 3, ?, ?]  ->  x: float[x.0, 3, x.2, x.3]

Files use one name for sizes that differ: a placeholder (`?`, `None`), or one name twice in a
shape. Those become dimensions of their own. A name that two inputs share stays one dimension.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sardonyx.base import sizes
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.ir.graph import Graph

#: Names that exporters write where they know nothing.
PLACEHOLDERS = frozenset(("?", "None", "none", "-1", "unk", "unknown", "dynamic"))


def separate_dimensions(graph: Graph, *, all_names: bool = False) -> int:
    """Give a symbol of its own to every dimension whose name cannot be relied on.

    Args:
        graph: Its inputs are changed.
        all_names: Rely on none.

    Returns:
        The number of dimensions changed.
    """
    count = 0
    for value in graph.inputs:
        if value.shape is None:
            continue
        names = Counter(d for d in value.shape if not isinstance(d, int))
        shape: list[sizes.Dim] = []
        for axis, dim in enumerate(value.shape):
            doubtful = not isinstance(dim, int) and (
                all_names or names[dim] > 1 or repr(dim) in PLACEHOLDERS
            )
            count += doubtful
            shape.append(sizes.symbol(f"{value.name}.{axis}") if doubtful else dim)
        value.shape = tuple(shape)
    return count


def denotations(graph: Graph) -> tuple[str, ...]:
    """What axes of the inputs stand for, as far as the file says it."""
    found = (d for v in graph.inputs if v.declared is not None for d in v.declared.denoted if d)
    return tuple(dict.fromkeys(found))


def fix_denoted(graph: Graph, denoted: Mapping[str, int], named: Mapping[str, int]) -> None:
    """Give dimensions of the inputs the sizes of what they stand for, in place.

    Args:
        graph: Its inputs are changed.
        denoted: Sizes by denotation; capital and small letters are one.
        named: Sizes by name, which must not differ.

    Raises:
        InvalidArgument: A dimension has another size, or is given another by its name.
    """
    numbers = {key.lower(): size for key, size in denoted.items()}
    for value in graph.inputs if numbers else ():
        words = value.declared.denoted if value.declared is not None else ()
        if value.shape is None or len(words) != len(value.shape):
            continue
        shape = list(value.shape)
        for axis, (dim, word) in enumerate(zip(value.shape, words, strict=True)):
            size = numbers.get(word.lower())
            if size is None:
                continue
            other = dim if isinstance(dim, int) else named.get(repr(dim), size)
            if other != size:
                by = "The file says" if isinstance(dim, int) else f"The name {dim!r} gives"
                raise InvalidArgument(
                    message(
                        f"input {value.name}", f"{by} axis {axis}, {word}, another size",
                        expected=str(other), got=str(size), do="Leave out one of the overrides",
                    )
                )  # fmt: skip
            shape[axis] = size
        value.shape = tuple(shape)
