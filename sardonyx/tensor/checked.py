"""Checks of indices that stay where a load is replaced by what is loaded.

`check_index` faults where an index is outside of its axis. It lies in the index that it checks. An
axis along which all elements are the same has them whatever the index is, so the index goes when
the load is replaced by what is loaded. Then the check goes beside the element. What an operator
does not look at (a condition whose choices are equal) goes with its checks.
"""

from __future__ import annotations

from collections.abc import Iterable

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.tensor.scalar import Scalar, compare, constant, make_node

Checks = tuple[Scalar, ...]


def checks_of(x: Scalar) -> Checks:
    """The checks made wherever the expression is evaluated, each once: also those inside others."""
    if x.op == "check_index":  # kept in itself it would be a cycle
        return (*_find_checks(x), x)
    if x._checks is None:
        x._checks = _find_checks(x)
    return x._checks


def _find_checks(x: Scalar) -> Checks:
    if x.op == "load":
        return checks_in(x.at)
    if x.op == "select":
        condition, a, b = map(checks_of, x.arguments)
        return _joined(condition, [check for check in a if check in b]) if a and b else condition
    found = checks_in((x.dim,)) if x.op in ("size", "check_index") else ()
    for argument in x.arguments:
        found = _joined(found, checks_of(argument))
    return found


def _joined(a: Checks, b: Iterable[Scalar]) -> Checks:
    return tuple(dict.fromkeys((*a, *b))) if b else a


def checks_in(at: Iterable[Dim]) -> Checks:
    """The checks inside symbolic integers, an inner one before the one around it."""
    found: Checks = ()
    for index in at:
        for atom in sizes.opaque_in(index):
            if isinstance(atom.payload, Scalar):
                found = _joined(found, checks_of(atom.payload))
    return found


def with_checks(x: Scalar, checks: Checks) -> Scalar:
    """The same value, with those checks that it does not make itself."""
    if not checks:
        return x
    for check in reversed(checks):
        if check not in checks_of(x):
            # It is always passed, and so the other value never taken.
            passed, other = compare("ge", check, 0), constant(1, x.dtype)
            x = make_node("select", x.dtype, (passed, x, other))
    return x
