"""`base.records.dataclass` does what the standard's does."""

import copy
import dataclasses
import pickle
import typing
import weakref
from typing import ClassVar

from sardonyx.base import records


def _classes(decorator):
    @decorator(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2
        tags: list = dataclasses.field(default_factory=list, compare=False)
        length: int = dataclasses.field(default=7, init=False, repr=False)

    @decorator(frozen=True)
    class Base:
        a: int

    @decorator(frozen=True)
    class Derived(Base):
        b: str = "b"

        def __post_init__(self):
            if self.a < 0:
                raise ValueError(self.a)

    @decorator(slots=True)
    class Changing:
        items: dict = dataclasses.field(default_factory=dict)

    @decorator(eq=False, slots=True)
    class Same:
        a: int

        def __repr__(self):
            return "same"

    @decorator(frozen=True, slots=True)
    class Named:
        name: str

        def __hash__(self):
            return 5

    @decorator(slots=True)
    class Optional:
        more: tuple = dataclasses.field(default=(), kw_only=True)
        made: list = dataclasses.field(default_factory=list, kw_only=True)

    @decorator(slots=True)
    class Further(Optional):
        a: int
        count: ClassVar[int] = 3
        text: "typing.ClassVar[str]" = "all"

    @decorator(eq=False, slots=True, weakref_slot=True)
    class Seen:
        a: int = 1

    @decorator(eq=False, slots=True, weakref_slot=True)
    class SeenAgain(Seen):
        a: int
        b: int = 2

    return Point, Base, Derived, Changing, Same, Named, Further, SeenAgain


def _outcome(action):
    try:
        found = action()
    except Exception as error:
        return type(error)
    return found if isinstance(found, (bool, int, tuple, list, dict, type(None))) else repr(found)


def _facts(decorator):
    point, base, derived, changing, same, named, further, seen = _classes(decorator)
    p = point(1)
    unequal = derived(1)
    actions = [
        lambda: p, lambda: (p.x, p.y, p.tags, p.length), lambda: point(1, 2, [3]) == p,
        lambda: point(1, 3) == p, lambda: p == 1, lambda: p != point(1),
        lambda: hash(p) == hash(point(1)),
        lambda: setattr(p, "x", 2), lambda: delattr(p, "x"),
        lambda: point(), lambda: point(1, 2, [], 4), lambda: point(z=1), lambda: point(y=1, x=3),
        lambda: point(1).tags is point(1).tags, lambda: dataclasses.replace(p, x=4),
        lambda: dataclasses.asdict(p), lambda: [f.name for f in dataclasses.fields(p)],
        lambda: point.__match_args__, lambda: hasattr(p, "__dict__"), lambda: copy.copy(p) == p,
        lambda: copy.deepcopy(point(1, 2, [[]])), lambda: p.__getstate__(),
        lambda: base(1) == derived(1), lambda: derived(1), lambda: derived(-1),
        lambda: derived(1, "c") == derived(1, "c"), lambda: setattr(unequal, "a", 1),
        lambda: hash(derived(1)) == hash(derived(1)), lambda: changing(), lambda: hash(changing()),
        lambda: changing({1: 2}) == changing({1: 2}), lambda: same(1), lambda: same(1) == same(1),
        lambda: further(1), lambda: further(1, more=(2,), made=[3]), lambda: further(1, (2,)),
        lambda: further(more=()), lambda: hash(same(1)) == 5, lambda: hash(named("a")),
        lambda: named("a") == named("a"), lambda: further.count, lambda: further.text,
        lambda: further.__slots__, lambda: [f.name for f in dataclasses.fields(further)],
        lambda: [f.kw_only for f in dataclasses.fields(further)], lambda: seen(3),
        lambda: seen.__slots__, lambda: weakref.ref(seen(1)) is not None, lambda: seen.__qualname__,
        lambda: decorator()(type("Bad", (), {"__annotations__": {"a": list}, "a": []})),
        lambda: dataclasses.is_dataclass(seen),
        lambda: dataclasses.dataclass()(type("Standard", (changing,), {}))({1: 2}).items,
    ]  # fmt: skip
    return [_outcome(action) for action in actions]


def test_records_behave_as_standard_dataclasses_do():
    assert _facts(records.dataclass) == _facts(dataclasses.dataclass)


@records.dataclass(frozen=True, slots=True)
class _Kept:
    a: int
    b: tuple = ()


def test_frozen_objects_with_slots_can_be_pickled():
    assert pickle.loads(pickle.dumps(_Kept(3, (4,)))) == _Kept(3, (4,))


def test_initializer_is_compiled_once():
    @records.dataclass()
    class Made:
        a: int

    before = Made.__init__
    Made(1)
    after = Made.__init__
    Made(2)
    assert before is not after
    assert Made.__init__ is after
    assert after.__qualname__.endswith("Made.__init__")
