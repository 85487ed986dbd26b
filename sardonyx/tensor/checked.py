"""Checks of indices that stay where a load is replaced by what is loaded.

`check_index` faults where an index is outside of its axis, `check_range` where a number is outside
of a range. It lies in the number that it checks. An axis along which all elements are the same has
them whatever the index is, so the index goes when the load is replaced by what is loaded. Then the
check goes beside the element.

An operand that decides nothing (a condition whose choices are equal) is dropped only if nothing is
checked where it is computed, neither indices nor divisors (`can_be_dropped`). Where an operator
does not read elements, they are not checked: those of which a Shape is asked, which a Slice or a
constant condition leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.tensor.noted_checks import may_divide_by_zero, may_refuse
from sardonyx.tensor.operations import CHECKS
from sardonyx.tensor.scalar import Scalar, constant, make_node
from sardonyx.tensor.tensor import Buffer, Call, Tensor
from sardonyx.tensor.traverse import bodies_of, held_in, loads_of, parts_of, topological

Checks = tuple[Scalar, ...]


def checks_of(x: Scalar) -> Checks:
    """The checks made wherever the expression is evaluated, each once: also those inside others."""
    if x.op in CHECKS:  # kept in itself it would be a cycle
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
            low = check.arguments[1] if check.op == "check_range" else 0
            passed, other = check >= low, constant(1, x.dtype)
            x = make_node("select", x.dtype, (passed, x, other))
    return x


_memo: WeakKeyDictionary[Tensor, bool] = WeakKeyDictionary()


def can_be_dropped(x: Scalar) -> bool:
    """Whether nothing is checked where the expression, or a tensor that it reads, is computed."""
    return not _has_checks(x)


def is_checked(tensor: Tensor) -> bool:
    """Whether something is checked where the tensor, or one that it is made of, is computed.

    Most kernels with loops of their own, regions and calls of the host may check anything.
    """
    if isinstance(tensor, Buffer):  # a plan has them for what it computes
        return tensor.is_checked or (isinstance(tensor.key, Tensor) and is_checked(tensor.key))
    if tensor not in _memo:
        for made in topological([tensor], _memo):  # long chains are no deep recursion
            if isinstance(made, Buffer):
                continue
            if isinstance(made, Call):
                refuses = may_refuse(made.kernel, made.operands, made.all_outputs)
                _memo[made] = refuses or any(map(is_checked, made.operands))
            else:
                _memo[made] = any(map(_has_checks, bodies_of(made)))
    return _memo[tensor]


def _has_checks(x: Scalar) -> bool:
    if checks_of(x) or any(map(may_divide_by_zero, parts_of(x, _inside))):
        return True
    return any(is_checked(load.tensor) for load in loads_of(x))


def _inside(x: Scalar) -> Sequence[Scalar]:
    held = held_in(x)
    return [*x.arguments, *held] if held else x.arguments
