"""Names of what a run decides about branches and loops before there is a plan for it.

A decision is a list, and its length is what is decided: see `passes.write_out`. Apart from that, so
that a session from the cache needs no graph to talk about it.
"""

from __future__ import annotations

#: Iterations that are written out at most, and are counted on the way.
MOST_ITERATIONS = 1024

_BRANCH, _ITERATIONS = "branch of ", "iterations of "


def of_branch(node: str) -> str:
    """Which branch of an If is taken, given the node's name: 1 for the first, 0 for the second."""
    return _BRANCH + node


def of_iterations(node: str) -> str:
    """How often a Loop or Scan goes round, given the node's name."""
    return _ITERATIONS + node


def is_decision(name: str) -> bool:
    """Whether a name is that of a decision."""
    return name.startswith((_BRANCH, _ITERATIONS))


def in_words(name: str, length: int) -> str:
    """What was decided."""
    if name.startswith(_BRANCH):
        return f"the {'then' if length else 'else'}_{name}"
    most = MOST_ITERATIONS
    return f"over {most} {name}" if length > most else f"{length} {name}"
