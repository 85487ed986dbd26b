"""What lowerings take for granted about sizes that only a run knows.

A lowering that needs two sizes to be equal, and cannot prove it, says so here. Whoever builds the
plan collects the pairs with `collect` and guards the plan by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from sardonyx.base import integer
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.integer import known_equal
from sardonyx.base.settings import Setting
from sardonyx.base.sizes import Dim

Assumption = tuple[Dim, Dim]

_collected: ContextVar[dict[Assumption, str] | None] = ContextVar("assumptions", default=None)

_undecided: ContextVar[bool] = ContextVar("undecided_broadcasts", default=False)


#: What the reasons begin with.
_cause: ContextVar[str] = ContextVar("cause", default="")


def because_of(cause: str) -> Setting[str]:
    """What is assumed inside the block is assumed because of something else that is."""
    return Setting(_cause, f"{cause}: ")


#: What the reasons end with.
_asker: ContextVar[str] = ContextVar("asker", default="")


def asked_by(node: str) -> Setting[str]:
    """What is assumed inside the block is what this node needs."""
    return Setting(_asker, f", in {node}")


def undecided_broadcasts() -> Setting[bool]:
    """Inside the block, broadcasts whose sizes are not known are left to the run.

    They cost a multiplication per index, so a first attempt takes the sizes as equal instead.
    """
    return Setting(_undecided, True)


def broadcasts_are_undecided() -> bool:
    """Whether an `undecided_broadcasts` block is around."""
    return _undecided.get()


_ones: ContextVar[frozenset[str]] = ContextVar("ones", default=frozenset())

#: What the reasons begin with where `Squeeze` without axes takes a size as more than 1.
SEVERAL = "squeeze without axes: "


def taken_as_one(conditions: frozenset[str]) -> Setting[frozenset[str]]:
    """Inside the block, the sizes of these conditions are taken as 1; see `assume_several`."""
    return Setting(_ones, conditions)


def assume_several(size: Dim, what: str) -> bool:
    """Whether a size is taken as more than 1, which is noted, or as 1, which is noted, too.

    A run that finds it to be 1 says so with the condition's name, and gets a plan of its own.
    """
    several = integer.minimum((size - 1) * (size - 1), 1)
    if repr(several) in _ones.get():
        assume_equal(size, 1, "squeeze", what)
        return False
    assume_equal(several, 1, SEVERAL[:-2], what)
    return True


#: What the reasons begin with where a branch is taken as not taken, since data decides inside it
#: how many axes there are.
WITHOUT_PLAN = "a branch without a plan: "

_decided: ContextVar[bool] = ContextVar("decided_branches", default=False)


def decided_branches(are_decided: bool = True) -> Setting[bool]:
    """Inside the block, no branch is taken as not taken because it has no plan: it is refused."""
    return Setting(_decided, are_decided)


def branches_are_decided() -> bool:
    """Whether a `decided_branches` block is around."""
    return _decided.get()


#: What a plan that leaves broadcasts, bounds and branches to the run does not assume.
_LEFT_TO_THE_RUN = ("broadcast: ", "slice: ", "If: ")


def is_left_to_the_run(reason: str) -> bool:
    """Whether a general plan does without an assumption that was made for this reason."""
    return reason.startswith(_LEFT_TO_THE_RUN)


def collect() -> Setting[dict[Assumption, str]]:
    """Collect, in order, the pairs of sizes that are assumed equal inside the block, and why."""
    return Setting(_collected, {})


@contextmanager
def attempt() -> Iterator[None]:
    """What is assumed inside the block is forgotten if the block raises an error."""
    found = _collected.get()
    before: dict[Assumption, str] = {} if found is None else dict(found)
    try:
        yield
    except BaseException:
        if found is not None:
            found.clear()
            found.update(before)
        raise


def collected() -> tuple[Assumption, ...]:
    """The pairs that were collected so far, outside `collect` none."""
    return tuple(_collected.get() or ())


def is_taken_as_one(size: Dim) -> bool:
    """Whether a size is 1, or has been assumed to be."""
    found = _collected.get() or {}
    return size == 1 or (size, 1) in found or (1, size) in found


def assume_equal(a: Dim, b: Dim, where: str, what: str) -> None:
    """Take two sizes as equal.

    Raises:
        InvalidGraph: They are provably different; the text is made of `where` and `what`.
    """
    if a is b:
        return
    known = known_equal(a, b)
    if known is False:
        raise InvalidGraph(message(where, what, expected=repr(a), got=repr(b)))
    if known is None:
        found = _collected.get()
        if found is not None:
            found.setdefault((a, b), f"{_cause.get()}{where}: {what}{_asker.get()}")


def assume_at_most(a: Dim, b: Dim, where: str, what: str) -> None:
    """Take `a` as no larger than `b`.

    Raises:
        InvalidGraph: It is provably larger.
    """
    if integer.is_nonnegative(a - b - 1):
        raise InvalidGraph(message(where, what, expected=f"at most {b!r}", got=repr(a)))
    assume_equal(integer.maximum(a, b), b, where, what)


def assume_shape(shape: Sequence[Dim], wanted: Sequence[Dim], where: str, what: str) -> None:
    """Take a shape as the one that is wanted; `what` names the operand that has it.

    Raises:
        InvalidGraph: They are provably different.
    """
    if len(shape) != len(wanted):
        raise InvalidGraph(
            message(where, f"{what} has the wrong rank", expected=repr(list(wanted)),
                    got=repr(list(shape)))
        )  # fmt: skip
    for a, b in zip(shape, wanted, strict=True):
        assume_equal(b, a, where, f"{what} has the wrong shape {list(shape)}")
