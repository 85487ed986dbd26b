"""`dataclasses.dataclass`, made for an engine that is loaded before every first run.

The standard decorator compiles up to six functions for each class when its module is imported,
which took 40 % of the time that the engine's 400 modules took. Here the initializer is compiled
when the first object is made, which most loads never do; the others are the same for all classes.
Whatever else dataclasses have (`fields`, `replace`, `field`, `__match_args__`, `__post_init__`) is
there, and so are fields by keyword; `order` and `InitVar` are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    repr: bool = True,  # noqa: A002 - the standard's name
    weakref_slot: bool = False,
) -> Callable[[type[_T]], type[_T]]:
    """A decorator like `dataclasses.dataclass` with these arguments."""

    def decorate(cls: type[_T]) -> type[_T]:
        own = set(cls.__dict__)
        if not cls.__doc__:  # the standard decorator would read a signature to make a text (4 ms)
            cls.__doc__ = cls.__name__
        plain = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, weakref_slot=weakref_slot
        )
        made: Any = plain(cls)
        listed = dataclasses.fields(made)
        if "__init__" not in own:
            _set_initializer(made, listed, frozen=frozen, slots=slots)
        if repr and "__repr__" not in own:
            made.__repr__ = _repr_of([f.name for f in listed if f.repr])
        if eq:
            _set_comparison(made, [f.name for f in listed if f.compare], own, frozen=frozen)
        if frozen:
            _set_guards(made, frozenset(f.name for f in listed))
            if slots and "__getstate__" not in own:
                made.__getstate__, made.__setstate__ = _state, _set_state
        found: type[_T] = made
        return found

    return decorate


def _set_initializer(
    cls: Any, listed: tuple[dataclasses.Field[Any], ...], *, frozen: bool, slots: bool
) -> None:
    def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807 - it becomes one
        made = cls.__init__ = _initializer(cls, listed, frozen=frozen, slots=slots)
        made(self, *args, **named)

    cls.__init__ = __init__


def _initializer(
    cls: Any, listed: tuple[dataclasses.Field[Any], ...], *, frozen: bool, slots: bool
) -> Callable[..., None]:
    """The function that sets all fields, compiled."""
    missing = dataclasses.MISSING
    names: dict[str, Any] = {"_missing": missing, "_set": object.__setattr__}
    parameters, named, body = ["self"], ["*"], list[str]()
    for f in listed:
        value = name = f.name
        taken = named if f.kw_only else parameters
        if f.default_factory is not missing:
            names[f"_make_{name}"] = f.default_factory
            value = f"_make_{name}()"
            if f.init:
                taken.append(f"{name}=_missing")
                value = f"{value} if {name} is _missing else {name}"
        elif f.default is not missing:
            names[f"_default_{name}"] = f.default
            value = name if f.init else f"_default_{name}"
            if f.init:
                taken.append(f"{name}=_default_{name}")
        elif f.init:
            taken.append(name)
        else:
            continue
        if frozen and slots:
            names[f"_set_{name}"] = getattr(cls, name).__set__
            body.append(f" _set_{name}(self, {value})")
        else:
            body.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters += named if len(named) > 1 else []
    text = "\n".join([f"def __init__({', '.join(parameters)}):", *(body or [" pass"])])
    exec(text, names)  # noqa: S102 - names of attributes alone
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _repr_of(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807 - it becomes one
        listed = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({listed})"

    return __repr__


def _set_comparison(cls: Any, names: list[str], own: set[str], *, frozen: bool) -> None:
    """Equality of what is compared and, of objects that do not change, a digest of it."""
    what = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807 - it becomes one
        if self is other:
            return True
        return what(self) == what(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807 - it becomes one
        return hash(what(self))

    if "__eq__" not in own:
        cls.__eq__ = __eq__
    if "__hash__" not in own or ("__eq__" in own and cls.__hash__ is None):
        cls.__hash__ = __hash__ if frozen else None


def _set_guards(cls: Any, names: frozenset[str]) -> None:
    """Refuse changes of objects, of subclasses' objects only to these names."""

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807 - it becomes one
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807 - it becomes one
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
