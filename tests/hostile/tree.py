"""Changes of any protobuf message, by its descriptor: no knowledge of ONNX."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from tests.hostile import values

Site = tuple[Any, FieldDescriptor]
_MESSAGE = FieldDescriptor.TYPE_MESSAGE
_RANGES = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
}
#: A message may not become deeper than this by copies of its parts into each other.
_DEEPEST = 90
_LONGEST_LIST = 3000


def is_list(field: FieldDescriptor) -> bool:
    """Whether a field is repeated."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def sites(message: Any, depth: int = 0) -> Iterator[tuple[Any, FieldDescriptor, int]]:
    """Every field that is set, in the message and in those inside it, with its depth."""
    for field, value in message.ListFields():
        yield message, field, depth
        if field.type == _MESSAGE and depth < _DEEPEST:
            for inner in value if is_list(field) else (value,):
                yield from sites(inner, depth + 1)


def messages(message: Any) -> dict[str, list[Any]]:
    """All messages inside, by type."""
    found: dict[str, list[Any]] = {message.DESCRIPTOR.name: [message]}
    for holder, field, _ in sites(message):
        if field.type == _MESSAGE:
            held = getattr(holder, field.name)
            found.setdefault(field.message_type.name, []).extend(held if is_list(field) else [held])
    return found


def scalar(rnd: random.Random, field: FieldDescriptor, old: Any) -> Any:
    """Another value for a field that is no message."""
    if field.type == FieldDescriptor.TYPE_STRING:
        return rnd.choice(values.TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return changed_bytes(rnd, old)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return values.real(rnd)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rnd.choice([v.number for v in field.enum_type.values])
    low, high = _RANGES[field.type]
    if rnd.random() < 0.3 and isinstance(old, int):
        return min(max(old + rnd.choice((-2, -1, 1, 2)), low), high)
    return values.integer(rnd, low, high)


def changed_bytes(rnd: random.Random, data: bytes) -> bytes:
    """Bytes cut, prolonged, or with other bits."""
    kind = rnd.randrange(4)
    if kind == 0:
        return data[: rnd.randrange(len(data) + 1)]
    if kind == 1:
        return data + rnd.randbytes(rnd.randint(1, 16))
    changed = bytearray(data)
    for _ in range(rnd.randint(1, 4)):
        if changed:
            changed[rnd.randrange(len(changed))] = rnd.choice((0, 255, 128, rnd.randrange(256)))
    return bytes(changed)


def mutate(rnd: random.Random, message: Any) -> str:
    """Change one thing; gives what, in words."""
    every = list(sites(message))
    if not every:
        return "nothing"
    holder, field, depth = rnd.choice(every)
    where = f"{field.containing_type.name}.{field.name}"
    if is_list(field):
        return f"{_change_list(rnd, message, holder, field, depth)} {where}"
    if rnd.random() < 0.2:
        holder.ClearField(field.name)
        return f"clear {where}"
    if field.type == _MESSAGE:
        return f"{_splice(rnd, message, getattr(holder, field.name), depth)} {where}"
    setattr(holder, field.name, scalar(rnd, field, getattr(holder, field.name)))
    return f"set {where}"


def _change_list(
    rnd: random.Random, root: Any, holder: Any, field: FieldDescriptor, depth: int
) -> str:
    items = getattr(holder, field.name)
    kind = rnd.choice(("delete", "duplicate", "move", "change", "change", "change"))
    place = rnd.randrange(len(items))
    if kind == "delete":
        del items[place]
    elif kind == "change" and field.type == _MESSAGE:
        return _splice(rnd, root, items[place], depth)
    elif kind == "change":
        items[place] = scalar(rnd, field, items[place])
    else:
        old = list(items)[:_LONGEST_LIST]
        item = old[place % len(old)] if kind == "duplicate" else old.pop(place % len(old))
        copies = rnd.choice((1, 1, 1, 5, 60)) if kind == "duplicate" and len(old) < 200 else 1
        at = rnd.randint(0, len(old))
        kept = [*old[:at], *[item] * copies, *old[at:]]
        if field.type == _MESSAGE:
            kept = [_copy(x) for x in kept]
        holder.ClearField(field.name)
        getattr(holder, field.name).extend(kept)
    return kind


def _splice(rnd: random.Random, root: Any, target: Any, depth: int) -> str:
    """Overwrite a message with another one of its type, even with one that holds it."""
    source = _copy(rnd.choice(messages(root)[target.DESCRIPTOR.name]))
    deepest = max((d for _, _, d in sites(source)), default=0)
    if depth + deepest > _DEEPEST or source.ByteSize() > 1 << 20:
        return "leave"
    if rnd.random() < 0.3:
        target.MergeFrom(source)
        return "merge"
    target.CopyFrom(source)
    return "splice"


def _copy(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made
