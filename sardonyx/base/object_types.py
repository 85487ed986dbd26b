"""Types of values that are no arrays of numbers: sequences, optionals, maps, sparse tensors.

Native code sees such a value as one 64-bit code: its place in a table that the run keeps (see
`sardonyx.host`). Types are interned: equal ones are one object.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import EngineError, message
from sardonyx.base.forks import lock_over_forks
from sardonyx.base.records import dataclass

#: Sizes of tensors inside: a number where it is always the same, None where it is not. None as a
#: whole: not even the number of axes is known.
ElementShape = tuple[int | None, ...] | None

_WORDS = {"sequence": "seq", "optional": "optional", "map": "map", "sparse": "sparse_tensor"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ObjectType(DType):
    """The type of a sequence, an optional, a map or a sparse tensor; made by `object_type`.

    Attributes:
        form: `sequence`, `optional`, `map` or `sparse`.
        element: The type of what is inside: of the tensors, or of other values. Of a sparse tensor
            that of its elements.
        shape: Of the tensors inside, if it is tensors, or of the sparse tensor.
        vacant: Nothing has been put in as far as is known, so that `shape` says nothing.
        key: The type of a map's keys.
    """

    form: str
    element: DType
    shape: ElementShape
    vacant: bool
    key: DType | None

    def __eq__(self, other: object) -> bool:
        """Whether they are of one kind; kernels do not see what is known of shapes."""
        return self is other or (isinstance(other, ObjectType) and self.name == other.name)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def type_text(self) -> str:
        """The type in ONNX's words, such as `seq(tensor(float))`."""
        return self.name


_TYPES: WeakValueDictionary[object, ObjectType] = WeakValueDictionary()
_LOCK = lock_over_forks()


def object_type(
    form: str,
    element: DType,
    shape: ElementShape = None,
    *,
    vacant: bool = False,
    key: DType | None = None,
) -> ObjectType:
    """The type with these attributes; see `ObjectType`."""
    # Other object types are kept alive by those that they are part of.
    identity = (form, element.name, id(element), shape, vacant, key and key.name)
    with _LOCK:
        found = _TYPES.get(identity)
        if found is None:
            inside = element.name if form == "sparse" else element.type_text
            text = f"{key.name},{inside}" if key is not None else inside
            found = ObjectType(
                f"{_WORDS[form]}({text})", 0, np.dtype(np.int64), 64, "o",
                form, element, shape, vacant, key,
            )  # fmt: skip
            _TYPES[identity] = found
    return found


def join(a: DType, b: DType) -> DType | None:
    """The narrowest type that values of both types have; None if there is none."""
    if a is b:
        return a
    for one, other in ((a, b), (b, a)):
        # An optional of an object is the object itself, or nothing.
        if isinstance(one, ObjectType) and one.form == "optional":
            inside = join(one.element, other) if isinstance(other, ObjectType) else None
            if isinstance(inside, ObjectType):
                return object_type("optional", inside)
    if not isinstance(a, ObjectType) or not isinstance(b, ObjectType):
        return None
    if a.form != b.form or a.key is not b.key:
        return None
    element = join(a.element, b.element)
    if element is None:
        return None
    if a.vacant or b.vacant:
        rest = b if a.vacant else a
        return object_type(a.form, element, rest.shape, vacant=rest.vacant, key=a.key)
    return object_type(a.form, element, join_shapes(a.shape, b.shape), key=a.key)


def join_shapes(a: ElementShape, b: ElementShape) -> ElementShape:
    """What is known of a shape that is one of two."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(d if d == e else None for d, e in zip(a, b, strict=True))


def from_text(text: str) -> DType:
    """The type that `DType.name` prints: `float`, `seq(tensor(float))`, `map(int64,...)`.

    Raises:
        EngineError: There is no such type.
    """
    plain = dtypes.BY_NAME.get(text)
    if plain is not None:
        return plain
    word, _, rest = text.partition("(")
    form = next((form for form, known in _WORDS.items() if known == word), None)
    if not rest.endswith(")") or (form is None and word != "tensor"):
        raise EngineError(message("type", f"There is no type {text!r}"))
    inside = rest[:-1]
    if form is None:
        return from_text(inside)
    if form == "sparse":
        return object_type(form, from_text(inside))
    if form == "map":
        key, _, inside = inside.partition(",")
        return object_type(form, from_text(inside), key=from_text(key))
    return object_type(form, from_text(inside))
