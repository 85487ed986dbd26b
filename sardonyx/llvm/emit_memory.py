"""Loads, stores, addresses, atomics and local memory."""

from __future__ import annotations

from typing import cast

from sardonyx.kernel.language.program import Let, Literal, Operand, Store
from sardonyx.kernel.language.types import I64, U8, U64, Type
from sardonyx.llvm.emit_base import Emitter, llvm_type, memory_type, scalar_literal, suffix

_ORDERINGS = {"relaxed": "monotonic"}
_RMW = {"add": "add", "sub": "sub", "or": "or", "and": "and", "xor": "xor", "exchange": "xchg"}


def _in_memory(type: Type) -> Type:
    return U8.with_lanes(type.lanes) if type.scalar == "i1" else type


def address(e: Emitter, pointer: Operand, index: Operand, size_bytes: int) -> str:
    """`pointer + index * size_bytes`; a vector of pointers if `index` is one."""
    base = e.use(pointer)
    if isinstance(index, Literal) and index.type.lanes == 1:
        offset = int(index.value) * size_bytes
        return base if not offset else e.pure(f"getelementptr i8, ptr {base}, i64 {offset}")
    at, kind = e.use(index), index.type
    if kind.bits < 64:
        wide = I64.with_lanes(kind.lanes)
        at, kind = e.cast("zext" if kind.is_unsigned else "sext", kind, at, wide), wide
    if size_bytes in (1, 2, 4, 8):
        return e.pure(f"getelementptr i{8 * size_bytes}, ptr {base}, {llvm_type(kind)} {at}")
    at = e.binary("mul", kind, at, e.lit(kind, size_bytes))
    return e.pure(f"getelementptr i8, ptr {base}, {llvm_type(kind)} {at}")


def _mask(e: Emitter, mask: Operand | None, lanes: int) -> tuple[str, str]:
    kind = f"<{lanes} x i1>"
    if mask is None:
        return kind, "splat (i1 true)"
    if mask.type.lanes == lanes and lanes > 1:
        return kind, e.use(mask)
    one = e.pure(f"insertelement {kind} poison, i1 {e.use(mask)}, i64 0")
    if lanes == 1:
        return kind, one
    zeros = f"<{lanes} x i32> zeroinitializer"
    return kind, e.pure(f"shufflevector {kind} {one}, {kind} poison, {zeros}")


def _vector(type: Type) -> tuple[str, str]:
    """The vector type and intrinsic suffix of `type`, which may be a scalar."""
    if type.lanes > 1:
        return memory_type(type), suffix(_in_memory(type))
    return f"<1 x {memory_type(type)}>", f"v1{suffix(_in_memory(type))}"


def _twice(e: Emitter, vector: str, lanes: int, x: str) -> str:
    """A vector in which every lane comes two times."""
    order = ", ".join(f"i32 {lane // 2}" for lane in range(2 * lanes))
    return e.pure(f"shufflevector {vector} {x}, {vector} poison, <{2 * lanes} x i32> <{order}>")


def _in_halves(
    e: Emitter, type: Type, where: str, mask: tuple[str, str], gathers: bool
) -> tuple[Type, str, tuple[str, str]]:
    """Type, place and mask of a masked access to 128-bit lanes as one to twice as many halves.

    No target has the former; LLVM would go from lane to lane.
    """
    lanes = 2 * type.lanes
    halves = (f"<{lanes} x i1>", _twice(e, mask[0], type.lanes, mask[1]))
    if gathers:
        steps = ", ".join(f"i64 {8 * (lane % 2)}" for lane in range(lanes))
        pointers = _twice(e, f"<{type.lanes} x ptr>", type.lanes, where)
        where = e.pure(f"getelementptr i8, <{lanes} x ptr> {pointers}, <{lanes} x i64> <{steps}>")
    return U64.with_lanes(lanes), where, halves


def _from_anywhere(e: Emitter, lanes: int, where: str, mask: tuple[str, str]) -> str:
    """The places of a masked gather, those that the mask leaves out taken to a zero of ours.

    No target gathers elements of one or two bytes. LLVM goes from lane to lane, with a branch for
    each that a mask may leave out: kernels get huge, and take seconds to compile.
    """
    content = "private unnamed_addr constant [1 x i64] [i64 0], align 8"
    zero = e.declarations.setdefault(content, f"table.{len(e.declarations)}")
    kind = f"<{lanes} x ptr>"
    return e.pure(f'select {mask[0]} {mask[1]}, {kind} {where}, {kind} splat (ptr @"{zero}")')


def load(e: Emitter, let: Let) -> str:
    """Plain, masked, gathering or atomic."""
    type = let.result.type
    pointer, index, *rest = let.operands
    where = address(e, pointer, index, type.size_bytes)
    align = cast(int, let.attribute("align_bytes"))
    mask = rest[0] if rest else None
    gathers = index.type.lanes > 1
    if gathers and mask is not None and type.size_bytes < 4:
        where = _from_anywhere(e, type.lanes, where, _mask(e, mask, type.lanes))
        mask = None
    if mask is not None or gathers:
        bits, element = _mask(e, mask, type.lanes), type
        if type.scalar == "u128":
            element, where, bits = _in_halves(e, type, where, bits, gathers)
        kind, tail = _vector(element)
        name = "gather" if gathers else "load"
        pointers = f"<{element.lanes} x ptr>" if gathers else "ptr"
        infix = f"v{element.lanes}p0" if gathers else "p0"
        operands = [(pointers, where), ("i32", str(align)), bits, (kind, "zeroinitializer")]
        loaded = e.intrinsic(f"llvm.masked.{name}.{tail}.{infix}", kind, operands, pure=False)
        if element is not type:
            loaded = e.pure(f"bitcast {kind} {loaded} to {llvm_type(type)}")
        elif type.lanes == 1:
            loaded = e.do(f"extractelement {kind} {loaded}, i64 0")
    else:
        ordering = let.attribute("ordering")
        kind = memory_type(type)
        if ordering:
            word = _ORDERINGS.get(str(ordering), str(ordering))
            loaded = e.do(f"load atomic {kind}, ptr {where} {word}, align {align}")
        else:
            tail = ", !invariant.load !0" if let.attribute("invariant") else ""
            loaded = e.do(f"load {kind}, ptr {where}, align {align}{tail}")
    if type.scalar == "i1":
        byte = _in_memory(type)
        return e.compare("ne", byte, loaded, e.lit(byte, 0))
    return loaded


def store(e: Emitter, statement: Store) -> None:
    """Plain, masked, scattering or atomic."""
    type = statement.value.type
    where = address(e, statement.pointer, statement.index, type.size_bytes)
    value, align = e.use(statement.value), statement.align_bytes or type.alignment_bytes
    if type.scalar == "i1":
        value = e.cast("zext", type, value, _in_memory(type))
    scatters = statement.index.type.lanes > 1
    kind = memory_type(type)
    if statement.mask is not None or scatters:
        bits, element = _mask(e, statement.mask, type.lanes), type
        if type.scalar == "u128":
            element, where, bits = _in_halves(e, type, where, bits, scatters)
        vector, tail = _vector(element)
        if element is not type:
            value = e.pure(f"bitcast {kind} {value} to {vector}")
        elif type.lanes == 1:
            value = e.pure(f"insertelement {vector} poison, {kind} {value}, i64 0")
        name = "scatter" if scatters else "store"
        pointers = f"<{element.lanes} x ptr>" if scatters else "ptr"
        infix = f"v{element.lanes}p0" if scatters else "p0"
        operands = [(vector, value), (pointers, where), ("i32", str(align)), bits]
        e.intrinsic(f"llvm.masked.{name}.{tail}.{infix}", "void", operands)
        return
    if statement.ordering:
        word = _ORDERINGS.get(statement.ordering, statement.ordering)
        e.effect(f"store atomic {kind} {value}, ptr {where} {word}, align {align}")
        return
    tail = ", !nontemporal !1" if statement.nontemporal else ""
    e.effect(f"store {kind} {value}, ptr {where}, align {align}{tail}")


def offset(e: Emitter, let: Let) -> str:
    """A pointer moved."""
    pointer, index = let.operands
    return address(e, pointer, index, cast(int, let.attribute("size_bytes")))


def local(e: Emitter, let: Let) -> str:
    """Memory on the stack, one piece per statement however often it is reached."""
    element, count = cast(Type, let.attribute("element")), cast(int, let.attribute("count"))
    name = e.fresh()
    total = element.size_bytes * element.lanes * count
    e.entry.append(f"  {name} = alloca [{total} x i8], align {let.attribute('align_bytes')}")
    return name


def table(e: Emitter, let: Let) -> str:
    """Constant data beside the code, once per content."""
    element = cast(Type, let.attribute("element"))
    values = cast(tuple[int | float, ...], let.attribute("values"))
    kind = memory_type(element)
    listed = ", ".join(f"{kind} {scalar_literal(element, value)}" for value in values)
    content = f"private unnamed_addr constant [{len(values)} x {kind}] [{listed}], align 64"
    name = e.declarations.setdefault(content, f"table.{len(e.declarations)}")
    return f'@"{name}"'


def atomic(e: Emitter, let: Let) -> str:
    """Read-modify-write; gives the old value."""
    pointer, value = let.operands
    op, kind = str(let.attribute("rmw")), llvm_type(value.type)
    name = _RMW.get(op) or ("u" if value.type.is_unsigned else "") + op
    if value.type.is_float and op in ("add", "sub", "min", "max"):
        name = f"f{op}"
    word = str(let.attribute("ordering"))
    word = _ORDERINGS.get(word, word)
    return e.do(f"atomicrmw {name} ptr {e.use(pointer)}, {kind} {e.use(value)} {word}")


def compare_exchange(e: Emitter, let: Let) -> str:
    """Gives the old value."""
    pointer, expected, value = let.operands
    kind = llvm_type(value.type)
    pair = e.do(
        f"cmpxchg ptr {e.use(pointer)}, {kind} {e.use(expected)}, {kind} {e.use(value)}"
        " seq_cst seq_cst"
    )
    return e.pure(f"extractvalue {{ {kind}, i1 }} {pair}, 0")
