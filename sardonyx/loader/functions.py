"""Model-local functions: found by name, and the calls that lead to a node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.loader.wire import WireRecord

if TYPE_CHECKING:
    from sardonyx.ir.value import Value

#: Functions may call each other at most so deep.
CALL_DEPTH_LIMIT = 32
#: A few short functions that call each other can stand for more nodes than fit in memory.
INLINED_NODES_LIMIT = 200_000

Key = tuple[str, str, str]


def function_table(functions: Iterable[WireRecord]) -> dict[Key, WireRecord]:
    """Functions by domain, name and overload.

    Raises:
        InvalidGraph: Two are the same.
    """
    table: dict[Key, WireRecord] = {}
    for function in functions:
        key = function_key(function.domain, function.name, function.overload)
        if table.setdefault(key, function) is not function:
            raise InvalidGraph(message(f"function {function.name}", "It is defined twice"))
    return table


def function_key(domain: str, name: str, overload: str) -> Key:
    """What a call finds a function by."""
    return ("" if domain == "ai.onnx" else domain, name, overload)


class FunctionScope:
    """Names that nodes may use, in a graph and those around it."""

    def __init__(self, parent: FunctionScope | None = None) -> None:
        self.parent = parent
        self.values: dict[str, Value] = {}
        #: Inputs of a function that its call omits.
        self.omitted: set[str] = set()
        #: Function outputs, which are values of the caller.
        self.bound: dict[str, Value] = {}

    def find(self, name: str) -> Value | None:
        """The value that the name means here."""
        scope: FunctionScope | None = self
        while scope is not None:
            found = scope.values.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None


@dataclass(frozen=True)
class Context:
    """Where nodes are built: what holds for all nodes of a function's body, or of the model.

    Attributes:
        opset: Versions of the operator sets in force.
        prefix: Put before the names of nodes and values.
        calls: Functions that are being inlined, outermost first.
        arguments: Attributes of the call: the proto with the scope and context that it is from.
        origin: Names of the file's nodes that are being inlined.
    """

    opset: dict[str, int]
    prefix: str = ""
    calls: tuple[Key, ...] = ()
    arguments: dict[str, tuple[WireRecord, FunctionScope, Context]] = field(default_factory=dict)
    origin: tuple[str, ...] = ()

    def enter(
        self,
        key: Key,
        opset: dict[str, int],
        prefix: str,
        arguments: dict[str, tuple[WireRecord, FunctionScope, Context]],
    ) -> Context:
        """The context of the body of a function that is called here.

        Raises:
            InvalidGraph: The function calls itself, or calls are nested too deep.
        """
        calls = (*self.calls, key)
        if key in self.calls:
            names = " -> ".join(name for _, name, _ in calls)
            raise InvalidGraph(message(f"function {key[1]}", f"It calls itself: {names}"))
        if len(calls) > CALL_DEPTH_LIMIT:
            raise InvalidGraph(
                message(f"function {key[1]}", f"Calls are nested more than {CALL_DEPTH_LIMIT} deep")
            )
        return Context(opset, prefix, calls, arguments, self.origin)
