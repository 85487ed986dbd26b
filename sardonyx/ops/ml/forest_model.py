"""Trees as a model describes them, once its names are numbers."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.ir.constant import Array

#: What a node asks, in the order in which TreeEnsemble-5 numbers it, and the leaf.
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
         "BRANCH_MEMBER", "LEAF")  # fmt: skip
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)


@dataclass(slots=True)
class Trees:
    """Trees as a model describes them; positions of nodes are counted over all trees.

    Attributes:
        modes: What each node asks: positions in `MODES`.
        values: What it compares with.
        features: Which feature it asks for.
        tracks: Whether NaN goes where true answers go.
        true: The node after a true answer, an array or a `forest_nodes.Following`.
        false: The node after a false one.
        roots: The first node of each tree.
        votes: For each vote the leaf that it belongs to, its target and its weight.
        members: The set of each node that tests membership, in the order of the nodes.
    """

    modes: Array
    values: Array
    features: Array
    tracks: Array
    true: Any
    false: Any
    roots: Array
    votes: tuple[Array, Array, Array]
    members: list[Array] = field(default_factory=list)


def fail(where: str, what: str, expected: object = "", got: object = "") -> InvalidGraph:
    """An error about the description of the trees."""
    return InvalidGraph(message(where, what, expected=str(expected), got=str(got)))
