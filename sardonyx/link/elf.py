"""Linking relocatable ELF64 objects (x86-64 or AArch64) into a flat, relocatable-anywhere image.

Read-only allocatable sections of an object are laid out one behind another, and the references
among them are resolved as distances: that is an `ObjectPart`. Parts are laid out one behind
another, too, and what they refer to in each other is resolved likewise, so the image runs wherever
it is put at a page boundary. References to anything outside, absolute addresses and writable data
are refused.

Formats: System V gABI chapters 4 and 5; the x86-64 psABI; ELF for the Arm 64-bit Architecture.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import NamedTuple

from sardonyx.base.errors import EngineError, message
from sardonyx.link.relocate import MACHINES, RelocationPlace

_PROGBITS, _SYMTAB, _STRTAB, _RELA, _NOBITS, _NOTE, _REL = 1, 2, 3, 4, 8, 7, 9
_WRITE, _ALLOC = 1, 2
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_SECTION_SYMBOL, _FUNCTION, _LOCAL = 3, 2, 0
# Unwind tables: nothing unwinds through generated code.
_DROPPED = (".eh_frame", ".gcc_except_table", ".ARM.exidx")
_ALIGNMENT = 64
_X86_64 = 62
_PAGE = 4096


class _Section(NamedTuple):
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


class _Symbol(NamedTuple):
    name: str
    binding: int
    kind: int
    section: int
    value: int


class Image(NamedTuple):
    """Linked objects: bytes to be placed at a page boundary, and where their symbols are."""

    data: bytes
    symbols: dict[str, int]


class ObjectPart(NamedTuple):
    """One object, laid out; what it refers to outside of itself is still open.

    Attributes:
        machine: ELF's number of the instruction set.
        data: The sections.
        symbols: Where in them its functions are.
        references: Offset, kind of relocation, addend and symbol of each reference to outside.
    """

    machine: int
    data: bytes
    symbols: dict[str, int]
    references: tuple[tuple[int, int, int, str], ...]

    def to_bytes(self) -> bytes:
        """What `from_bytes` reads."""
        head = json.dumps([self.machine, self.symbols, self.references]).encode()
        return struct.pack("<I", len(head)) + head + self.data

    @staticmethod
    def from_bytes(data: bytes) -> ObjectPart:
        """Read what `to_bytes` wrote.

        Raises:
            EngineError: The bytes are something else.
        """
        try:
            (size,) = struct.unpack_from("<I", data)
            machine, symbols, references = json.loads(data[4 : 4 + size])
            listed = tuple((int(a), int(b), int(c), str(d)) for a, b, c, d in references)
        except (struct.error, ValueError, TypeError):
            raise _refuse("The bytes are no compiled function, or are cut short") from None
        return ObjectPart(machine, data[4 + size :], symbols, listed)


def _text_at(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _read_sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if count == 0:  # more than 0xff00 sections: the number is in the first one's size
        (count,) = struct.unpack_from("<Q", data, start + 32)
    if names == 0xFFFF:
        (names,) = struct.unpack_from("<I", data, start + 40)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    table = data[raw[names][4] : raw[names][4] + raw[names][5]]
    return [
        _Section(_text_at(table, r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(1, r[8]))
        for r in raw
    ]


def _read_symbols(data: bytes, sections: list[_Section]) -> list[_Symbol]:
    table = next((s for s in sections if s.kind == _SYMTAB), None)
    if table is None:
        return []
    names = sections[table.link]
    words = data[names.offset : names.offset + names.size]
    return [
        _Symbol(_text_at(words, name), info >> 4, info & 15, section, value)
        for name, info, _, section, value, _ in struct.iter_unpack(
            "<IBBHQQ", data[table.offset : table.offset + table.size]
        )
    ]


def _refuse(what: str, do: str = "") -> EngineError:
    return EngineError(message("link", what, do=do))


def _lay_out(data: bytes, sections: list[_Section]) -> tuple[bytearray, dict[int, int]]:
    """The image before relocation, code first, and the offset of each section in it."""
    kept: list[tuple[bool, int]] = []
    for index, section in enumerate(sections):
        if not section.flags & _ALLOC or not section.size or section.kind == _NOTE:
            continue
        if section.name.startswith(_DROPPED):
            continue
        if section.flags & _WRITE or section.kind == _NOBITS:
            raise _refuse(
                f"The code has writable data (section {section.name}, {section.size} bytes)",
                "Make its globals constant, and hold no pointers in them",
            )
        kept.append((not section.name.startswith(".text"), index))
    image = bytearray()
    offsets: dict[int, int] = {}
    for _, index in sorted(kept):
        section = sections[index]
        image.extend(b"\0" * (-len(image) % max(section.alignment, 16)))
        offsets[index] = len(image)
        image += data[section.offset : section.offset + section.size]
    image.extend(b"\0" * (-len(image) % _ALIGNMENT))
    return image, offsets


def read_object(data: bytes) -> ObjectPart:
    """Lay out one relocatable object.

    Raises:
        EngineError: It has writable data, or needs absolute addresses.
    """
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        raise _refuse("The object is not a little-endian ELF64 file")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind != 1 or machine not in MACHINES:
        raise _refuse(f"The object is of type {kind} for machine {machine}, which cannot be linked")
    rules = MACHINES[machine]
    sections = _read_sections(data)
    symbols = _read_symbols(data, sections)
    image, offsets = _lay_out(data, sections)

    def address(symbol: _Symbol) -> int | None:
        base = offsets.get(symbol.section)
        return None if base is None else base + symbol.value

    outside: list[tuple[int, int, int, str]] = []
    for section in sections:
        if section.kind == _REL and section.info in offsets:
            raise _refuse("The object has relocations without addends")
        if section.kind != _RELA or section.info not in offsets:
            continue
        base = offsets[section.info]
        entries = data[section.offset : section.offset + section.size]
        for offset, info, addend in struct.iter_unpack("<QQq", entries):
            symbol, code = symbols[info >> 32], info & 0xFFFFFFFF
            value, rule = address(symbol), rules.get(code)
            if rule is not None and symbol.section == _UNDEFINED and symbol.name:
                outside.append((base + offset, code, addend, symbol.name))
                continue
            if rule is None or value is None:
                raise _refuse(
                    f"Relocation {code} in {sections[section.info].name} against "
                    f"{symbol.name or sections[symbol.section].name!r} cannot be resolved in a "
                    "position-independent image",
                )
            rule(RelocationPlace(image, base + offset, value, addend, symbol.name))
    found = {
        s.name: where
        for s in symbols
        if s.name and s.binding != _LOCAL and (where := address(s)) is not None
    }
    return ObjectPart(machine, bytes(image), found, tuple(outside))


def join(parts: Sequence[ObjectPart]) -> Image:
    """One image of several parts, which may refer to each other by name.

    Raises:
        EngineError: They refer to symbols that none of them has, or two have the same one.
    """
    image = bytearray()
    symbols: dict[str, int] = {}
    bases = []
    for part in parts:
        # Instructions of AArch64 that count pages were resolved from the part's beginning.
        image.extend(b"\0" * (-len(image) % (_ALIGNMENT if part.machine == _X86_64 else _PAGE)))
        bases.append(len(image))
        for name, offset in part.symbols.items():
            if symbols.setdefault(name, len(image) + offset) != len(image) + offset:
                raise _refuse(f"Two objects define {name!r}")
        image += part.data
    missing = sorted({name for part in parts for *_, name in part.references} - symbols.keys())
    if missing:
        raise _refuse(
            f"The code calls functions that it does not contain: {', '.join(missing)}",
            "Emit them, or avoid the operations that LLVM makes such calls of",
        )
    for part, base in zip(parts, bases, strict=True):
        rules = MACHINES[part.machine]
        for offset, code, addend, name in part.references:
            rules[code](RelocationPlace(image, base + offset, symbols[name], addend, name))
    return Image(bytes(image), symbols)
