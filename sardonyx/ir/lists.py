"""What a graph consists of: its names, its outputs, its nodes in order."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, MutableSequence
from typing import TYPE_CHECKING, overload

from sardonyx.ir.node import Node

if TYPE_CHECKING:
    from sardonyx.ir.graph import Graph
    from sardonyx.ir.value import Value


#: Distance of the positions of neighbours, so that nodes fit in between without renumbering.
_POSITION_GAP = 1 << 24


class Names:
    """The names of a graph and its subgraphs, which are unique in the whole."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.nodes: set[str] = set()
        self._value_counters: dict[str, int] = {}
        self._node_counters: dict[str, int] = {}

    def fresh_value(self, hint: str) -> str:
        """A name that no value has and that was never given before."""
        return _fresh(hint, self.values, self._value_counters)

    def fresh_node(self, hint: str) -> str:
        """A name that no node has and that was never given before."""
        return _fresh(hint, self.nodes, self._node_counters)


def _fresh(hint: str, taken: Container[str], counters: dict[str, int]) -> str:
    count = counters.get(hint, 0)
    while True:
        name = f"{hint}_{count}" if count else hint
        count += 1
        if name and name not in taken and name not in counters:
            counters[name] = 1  # it is given, whether or not something takes it
            counters[hint] = count
            return name


class Outputs(MutableSequence["Value"]):
    """The outputs of a graph, which tells the values that they are outputs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._items: list[Value] = []

    def _enter(self, value: Value) -> Value:
        value._output_of[self._graph] = value._output_of.get(self._graph, 0) + 1
        return value

    def _leave(self, value: Value) -> None:
        count = value._output_of.pop(self._graph) - 1
        if count:
            value._output_of[self._graph] = count

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | MutableSequence[Value]:
        return self._items[index]

    @overload
    def __setitem__(self, index: int, value: Value) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Value]) -> None: ...
    def __setitem__(self, index: int | slice, value: Value | Iterable[Value]) -> None:
        items = list(self._items)
        items[index] = value  # type: ignore[index, assignment]  # the overloads pair index and value
        for item in items:
            self._enter(item)
        for item in self._items:
            self._leave(item)
        self._items = items

    def __delitem__(self, index: int | slice) -> None:
        gone = self._items[index]
        for item in gone if isinstance(gone, list) else [gone]:
            self._leave(item)
        del self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def insert(self, index: int, value: Value) -> None:
        """Insert an output before `index`."""
        self._items.insert(index, self._enter(value))

    def __repr__(self) -> str:
        return repr(self._items)


class Nodes:
    """The nodes of a graph in order. Nodes may be added and removed while it is iterated over."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._first: Node | None = None
        self._last: Node | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Node]:
        node = self._first
        while node is not None:
            yield node
            # A removed node keeps its pointer, so that the way back into the list is found.
            node = node._next
            while node is not None and node.graph is not self._graph:
                node = node._next

    def __reversed__(self) -> Iterator[Node]:
        node = self._last
        while node is not None:
            yield node
            node = node._previous
            while node is not None and node.graph is not self._graph:
                node = node._previous

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and node.graph is self._graph

    @property
    def first(self) -> Node | None:
        """The first node."""
        return self._first

    @property
    def last(self) -> Node | None:
        """The last node."""
        return self._last

    def _link(self, node: Node, before: Node | None) -> None:
        previous = self._last if before is None else before._previous
        node._previous, node._next = previous, before
        if previous is None:
            self._first = node
        else:
            previous._next = node
        if before is None:
            self._last = node
        else:
            before._previous = node
        self._count += 1
        low = previous._position if previous else 0
        high = before._position if before else low + 2 * _POSITION_GAP
        node._position = (low + high) // 2
        if not low < node._position < high:
            self._renumber()

    def _renumber(self) -> None:
        node, position = self._first, 0
        while node is not None:
            position += _POSITION_GAP
            node._position, node = position, node._next

    def _unlink(self, node: Node) -> None:
        if node._previous is None:
            self._first = node._next
        else:
            node._previous._next = node._next
        if node._next is None:
            self._last = node._previous
        else:
            node._next._previous = node._previous
        self._count -= 1
