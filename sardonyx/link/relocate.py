"""Relocations between parts of one image: how a distance is written into an instruction.

References through a global offset table are turned into direct ones, as linkers do, since every
symbol is in the image.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from sardonyx.base.errors import EngineError, message

_PAGE = 4096


class RelocationPlace(NamedTuple):
    """Where a relocation applies: S (`value`), A (`addend`) and P (`offset`) of the ABI texts."""

    image: bytearray
    offset: int
    value: int
    addend: int
    symbol: str

    @property
    def distance(self) -> int:
        """S + A - P."""
        return self.value + self.addend - self.offset

    def put(self, layout: str, value: int) -> None:
        """Write a number at the place; one that does not fit is refused."""
        try:
            struct.pack_into(layout, self.image, self.offset, value)
        except struct.error:
            raise self.too_far() from None

    def instruction(self) -> int:
        """The 32-bit instruction at the place."""
        return int(struct.unpack_from("<I", self.image, self.offset)[0])

    def field(self, value: int, bits: int, shift: int) -> None:
        """Put a signed number of `bits` bits into the instruction, from bit `shift` on."""
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise self.too_far()
        mask = (1 << bits) - 1
        word = self.instruction() & ~(mask << shift)
        self.put("<I", word | (value & mask) << shift)

    def too_far(self) -> EngineError:
        """The error for a distance that the instruction cannot hold."""
        return EngineError(message("link", f"The distance to {self.symbol!r} is too large"))


Rule = Callable[[RelocationPlace], None]


def _relative(layout: str) -> Rule:
    return lambda place: place.put(layout, place.distance)


def _global_offset_load(place: RelocationPlace) -> None:
    """`mov symbol@GOTPCREL(%rip), reg` -> `lea symbol(%rip), reg`; calls and jumps likewise."""
    image, offset = place.image, place.offset
    opcode, operand = image[offset - 2], image[offset - 1]
    if opcode == 0x8B:
        image[offset - 2] = 0x8D
    elif opcode == 0xFF and operand == 0x15:
        image[offset - 2 : offset] = b"\x67\xe8"
    elif opcode == 0xFF and operand == 0x25:
        # jmp *m is 6 bytes; jmp rel32 is 5 and starts one byte earlier
        image[offset - 2] = 0x90
        image[offset - 1] = 0xE9
    else:
        raise EngineError(
            message("link", f"Instruction {opcode:#x} reads the address of {place.symbol!r}")
        )
    place.put("<i", place.distance)


def _branch(bits: int, shift: int) -> Rule:
    return lambda place: place.field(place.distance >> 2, bits, shift)


def _split_immediate(place: RelocationPlace, value: int) -> None:
    """ADR and ADRP: the two low bits stand in bits 29-30, the rest in bits 5-23."""
    if not -(1 << 20) <= value < 1 << 20:
        raise place.too_far()
    word = place.instruction() & ~(3 << 29 | 0x7FFFF << 5)
    place.put("<I", word | (value & 3) << 29 | (value >> 2 & 0x7FFFF) << 5)


def _address(place: RelocationPlace) -> None:
    _split_immediate(place, place.distance)


def _page(place: RelocationPlace) -> None:
    """ADRP. Images start at a page, so pages can be counted within the image."""
    _split_immediate(place, (place.value + place.addend) // _PAGE - place.offset // _PAGE)


def _low_bits(scale: int) -> Rule:
    """The offset within the page, in units of the access size, in bits 10-21."""

    def apply(place: RelocationPlace) -> None:
        low = (place.value + place.addend) % _PAGE
        if low & ((1 << scale) - 1):
            raise EngineError(message("link", f"{place.symbol!r} is not aligned to its access"))
        word = place.instruction() & ~(0xFFF << 10)
        place.put("<I", word | (low >> scale) << 10)

    return apply


def _global_offset_add(place: RelocationPlace) -> None:
    """`ldr xd, [xn, :got_lo12:symbol]` -> `add xd, xn, :lo12:symbol`."""
    registers = place.instruction() & 0x3FF
    low = (place.value + place.addend) % _PAGE
    place.put("<I", 0x91000000 | low << 10 | registers)


_X86_64: dict[int, Rule] = {
    0: lambda place: None,
    2: _relative("<i"),  # PC32
    4: _relative("<i"),  # PLT32
    9: _global_offset_load,  # GOTPCREL
    24: _relative("<q"),  # PC64
    41: _global_offset_load,  # GOTPCRELX
    42: _global_offset_load,  # REX_GOTPCRELX
}
_AARCH64: dict[int, Rule] = {
    0: lambda place: None,
    260: _relative("<q"),  # PREL64
    261: _relative("<i"),  # PREL32
    262: _relative("<h"),  # PREL16
    273: _branch(19, 5),  # LD_PREL_LO19
    274: _address,  # ADR_PREL_LO21
    275: _page,  # ADR_PREL_PG_HI21
    276: _page,  # ADR_PREL_PG_HI21_NC
    277: _low_bits(0),  # ADD_ABS_LO12_NC
    278: _low_bits(0),  # LDST8_ABS_LO12_NC
    279: _branch(14, 5),  # TSTBR14
    280: _branch(19, 5),  # CONDBR19
    282: _branch(26, 0),  # JUMP26
    283: _branch(26, 0),  # CALL26
    284: _low_bits(1),  # LDST16_ABS_LO12_NC
    285: _low_bits(2),  # LDST32_ABS_LO12_NC
    286: _low_bits(3),  # LDST64_ABS_LO12_NC
    299: _low_bits(4),  # LDST128_ABS_LO12_NC
    311: _page,  # ADR_GOT_PAGE
    312: _global_offset_add,  # LD64_GOT_LO12_NC
    314: _relative("<i"),  # PLT32
}

#: ELF machine number -> the relocations that can be resolved within an image.
MACHINES: dict[int, dict[int, Rule]] = {62: _X86_64, 183: _AARCH64}
