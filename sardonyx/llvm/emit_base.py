"""What all parts of the emitter share: lines, names, types, literals, intrinsics.

Values are LLVM operands as text (`%12`, `0x3FF0000000000000`); their types come from the kernel
language. `f16` and `bf16` are held as `i16` bits, so that every target can move them about.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from sardonyx.base.conversion import rounded
from sardonyx.base.dtypes import BFLOAT16
from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.language.program import Literal, Operand, SsaValue
from sardonyx.kernel.language.types import Type
from sardonyx.targets.target import Target

_SCALARS = {"f32": "float", "f64": "double", "ptr": "ptr", "i1": "i1", "f16": "i16", "bf16": "i16"}


#: Types as LLVM writes them, by scalar and lanes.
_WRITTEN: dict[tuple[str, int], str] = {}


def llvm_type(type: Type) -> str:
    """The LLVM type of a value."""
    found = _WRITTEN.get((type.scalar, type.lanes))
    if found is None:
        scalar = _SCALARS.get(type.scalar) or f"i{type.bits}"
        found = scalar if type.lanes == 1 else f"<{type.lanes} x {scalar}>"
        _WRITTEN[type.scalar, type.lanes] = found
    return found


def memory_type(type: Type) -> str:
    """The LLVM type in memory: `i1` takes a byte."""
    return llvm_type(Type("u8", type.lanes) if type.scalar == "i1" else type)


def suffix(type: Type) -> str:
    """How an intrinsic's name spells a type: `v16f32`, `i64`."""
    scalar = {"ptr": "p0", "f16": "i16", "bf16": "i16"}.get(type.scalar, type.scalar)
    scalar = scalar.replace("u", "i")
    return scalar if type.lanes == 1 else f"v{type.lanes}{scalar}"


def _float_bits(value: float, layout: str) -> float:
    try:
        return float(struct.unpack(layout, struct.pack(layout, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def bfloat16_bits(value: float) -> int:
    """The bits of the bfloat16 nearest to a number, ties to even."""
    return int(rounded(np.array(value, np.float64), BFLOAT16.numpy).view(np.uint16))


def float16_bits(value: float) -> int:
    """The bits of the float16 nearest to a number, ties to even."""
    (bits,) = struct.unpack("<H", struct.pack("<e", _float_bits(value, "<e")))
    return int(bits)


def scalar_literal(type: Type, value: int | float | bool) -> str:
    """A literal of one lane."""
    if type.scalar in ("f32", "f64"):
        wide = _float_bits(float(value), "<f" if type.scalar == "f32" else "<d")
        return f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}"
    if type.scalar in ("f16", "bf16"):
        bits = float16_bits(value) if type.scalar == "f16" else bfloat16_bits(value)
        return str(bits)
    if type.scalar == "i1":
        return "true" if value else "false"
    if type.scalar == "ptr":
        return "null" if not value else f"inttoptr (i64 {int(value)} to ptr)"
    wrapped = int(value) & (1 << type.bits) - 1
    return str(wrapped - (1 << type.bits) if wrapped >> type.bits - 1 else wrapped)


def literal(type: Type, value: int | float | bool) -> str:
    """A literal of all lanes."""
    text = scalar_literal(type, value)
    if type.lanes == 1:
        return text
    return f"splat ({llvm_type(type.element)} {text})"


class Emitter:
    """Text of one LLVM function in the making.

    Attributes:
        target: What it is for.
        declarations: Texts of the intrinsics used, shared by the module.
        lines: Body so far.
        block: Label of the block being written.
        closed: The block has its terminator.
    """

    def __init__(self, target: Target, declarations: dict[str, str]) -> None:
        self.target, self.declarations = target, declarations
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.block = "entry"
        self.closed = False
        self.names: dict[SsaValue, str] = {}
        self._count = 0
        self._known: dict[str, str] = {}
        self._log: list[str] = []

    # -- names and lines ----------------------------------------------------------------------

    def fresh(self) -> str:
        """A new name."""
        self._count += 1
        return f"%v{self._count}"

    def label(self, stem: str) -> str:
        """A new block label."""
        self._count += 1
        return f"{stem}{self._count}"

    def open(self, label: str) -> None:
        """Start a block."""
        self.lines.append(f"{label}:")
        self.block, self.closed = label, False

    def close(self, terminator: str) -> None:
        """End the block, unless something ended it."""
        if not self.closed:
            self.lines.append(f"  {terminator}")
        self.closed = True

    def effect(self, text: str) -> None:
        """Append an instruction without result."""
        self.lines.append(f"  {text}")

    def do(self, text: str) -> str:
        """Append an instruction whose result may differ from time to time; gives its name."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def pure(self, text: str) -> str:
        """The result of an instruction without side effects, computed once per scope."""
        name = self._known.get(text)
        if name is None:
            name = self._known[text] = self.do(text)
            self._log.append(text)
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is computed inside does not dominate what follows."""
        mark = len(self._log)
        try:
            yield
        finally:
            for text in self._log[mark:]:
                del self._known[text]
            del self._log[mark:]

    # -- operands -----------------------------------------------------------------------------

    def use(self, operand: Operand) -> str:
        """The text of an operand."""
        if isinstance(operand, Literal):
            return literal(operand.type, operand.value)
        name = self.names.get(operand)
        if name is None:
            raise EngineError(message("llvm", f"{operand!r} is used where it is not defined"))
        return name

    def binary(self, op: str, type: Type, a: str, b: str) -> str:
        """`op type a, b`."""
        return self.pure(f"{op} {llvm_type(type)} {a}, {b}")

    def compare(self, predicate: str, type: Type, a: str, b: str) -> str:
        """`icmp` or `fcmp`, by the type."""
        kind = "fcmp" if type.is_float else "icmp"
        return self.pure(f"{kind} {predicate} {llvm_type(type)} {a}, {b}")

    def select(self, condition: str, type: Type, a: str, b: str, lanes: int | None = None) -> str:
        """`select`, on as many truth values as `type` has lanes unless `lanes` says otherwise."""
        test = llvm_type(Type("i1", type.lanes if lanes is None else lanes))
        kind = llvm_type(type)
        if type.scalar == "u128" and test != "i1":
            return self._select_halves(condition, type, a, b)
        return self.pure(f"select {test} {condition}, {kind} {a}, {kind} {b}")

    def _select_halves(self, condition: str, type: Type, a: str, b: str) -> str:
        """Of 128-bit lanes: LLVM would go from one to the next."""
        halves = Type("u64", 2 * type.lanes)
        twice = [lane // 2 for lane in range(halves.lanes)]
        wide = self.shuffled(Type("i1", type.lanes), condition, "poison", twice)
        low, high = (self.cast("bitcast", type, x, halves) for x in (a, b))
        return self.cast("bitcast", halves, self.select(wide, halves, low, high), type)

    def cast(self, op: str, source: Type, x: str, target: Type) -> str:
        """`op source x to target`."""
        return self.pure(f"{op} {llvm_type(source)} {x} to {llvm_type(target)}")

    def lit(self, type: Type, value: int | float) -> str:
        """A literal of all lanes."""
        return literal(type, value)

    def splat(self, type: Type, x: str) -> str:
        """All lanes of `type` hold the scalar `x`."""
        if type.lanes == 1:
            return x
        kind = llvm_type(type)
        one = self.pure(f"insertelement {kind} poison, {llvm_type(type.element)} {x}, i64 0")
        return self.pure(
            f"shufflevector {kind} {one}, {kind} poison, <{type.lanes} x i32> zeroinitializer"
        )

    def shuffled(self, type: Type, a: str, b: str, lanes: Sequence[int]) -> str:
        """Lanes of `a` (of `type`) followed by `b`."""
        kind = llvm_type(type)
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.pure(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{mask}>")

    def widened(self, source: Type, target: Type, x: str) -> str:
        """The first lanes of a longer vector; the others are undefined."""
        if source.lanes == 1:
            kind = llvm_type(target)
            return self.pure(f"insertelement {kind} poison, {llvm_type(source)} {x}, i64 0")
        lanes = [min(i, source.lanes) for i in range(target.lanes)]
        return self.shuffled(source, x, "poison", lanes)

    def narrowed(self, source: Type, target: Type, x: str) -> str:
        """The first lanes of a vector."""
        if target.lanes == 1:
            return self.pure(f"extractelement {llvm_type(source)} {x}, i64 0")
        return self.shuffled(source, x, "poison", range(target.lanes))

    # -- intrinsics ---------------------------------------------------------------------------

    def declare(self, name: str, result: str, parameters: Sequence[str]) -> None:
        """Make sure that the module declares an intrinsic."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(parameters)})"

    def intrinsic(
        self, name: str, result: str, operands: Sequence[tuple[str, str]], *, pure: bool = True
    ) -> str:
        """Call an intrinsic; `operands` are types and texts."""
        self.declare(name, result, [kind for kind, _ in operands])
        listed = ", ".join(f"{kind} {text}" for kind, text in operands)
        text = f"call {result} @{name}({listed})"
        if result == "void":
            self.effect(text)
            return ""
        return self.pure(text) if pure else self.do(text)

    def math(self, name: str, type: Type, *operands: str) -> str:
        """An intrinsic whose operands and result have one type: `llvm.fma.v16f32`."""
        kind = llvm_type(type)
        return self.intrinsic(
            f"llvm.{name}.{suffix(type)}", kind, [(kind, text) for text in operands]
        )
