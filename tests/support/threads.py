"""Runs programs for GPUs slowly, thread block by thread block, and watches what they touch.

All threads of a block go in step, each with its own values: an array with one entry (or one row of
lanes) for each thread. Reads and writes outside the given arrays fail, and so do accesses to shared
memory that no barrier puts in order, or that read what a copy has not brought yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.kernel.gpu.warp import to_warp
from sardonyx.kernel.language.context import TICKETS
from sardonyx.kernel.language.program import (
    Block,
    Effect,
    For,
    If,
    Let,
    Literal,
    Operand,
    Parallel,
    Program,
    Read,
    Return,
    SetVariable,
    SsaValue,
    Store,
    Variable,
    While,
)
from sardonyx.kernel.language.thread_blocks import ThreadBlocks
from sardonyx.kernel.language.types import Type
from sardonyx.llvm.ptx_device import THREAD_BLOCKS

Array = np.ndarray[Any, Any]
#: Threads that matrices are spread over.
_WARP = 32
_TYPES: dict[str, Any] = {
    "i1": np.bool_, "ptr": np.int64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f32": np.float32, "f64": np.float64,
    **{f"i{n}": np.dtype(f"i{n // 8}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"u{n // 8}") for n in (8, 16, 32, 64)},
}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "tanh": np.tanh,
    "floor": np.floor, "sign": np.sign, "log": np.log, "not": np.invert, "round": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": np.reciprocal, "exp2": np.exp2,
    "ceil": np.ceil, "trunc": np.trunc, "sin": np.sin, "cos": np.cos,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip
_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift, "pow": np.power, 
    "scale": lambda x, n: x * np.exp2(n),
}  # fmt: skip
_COMPARE: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


class Memory:
    """Arrays by address."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = [a for a in arrays if a.nbytes]
        self.views = [a.reshape(-1).view(np.uint8) for a in self.arrays]
        self.starts = [a.ctypes.data for a in self.arrays]

    def _pieces(
        self, addresses: Array, size: int, active: Array
    ) -> Iterator[tuple[Array, Array, Array]]:
        """For each array touched: its bytes, who touches it, and where."""
        rest = active.copy()
        for view, start in zip(self.views, self.starts, strict=True):
            here = rest & (addresses >= start) & (addresses + size <= start + len(view))
            if here.any():
                rest &= ~here
                yield view, here, (addresses[here] - start)[:, None] + np.arange(size)
        assert not rest.any(), f"{size} bytes at {addresses[rest][0]} are in no array"

    def read(self, addresses: Array, size: int, active: Array) -> Array:
        """The bytes at each address where `active`, else zeros."""
        found = np.zeros((*addresses.shape, size), np.uint8)
        for view, here, places in self._pieces(addresses, size, active):
            found[here] = view[places]
        return found

    def write(self, addresses: Array, values: Array, active: Array) -> None:
        """Write bytes where `active`."""
        for view, here, places in self._pieces(addresses, values.shape[-1], active):
            view[places] = values[here]


class Shared:
    """Shared memory with a record of who touched what since the last barrier."""

    BASE = 1 << 60

    def __init__(self, size: int) -> None:
        self.bytes = np.full(size, 0xFF, np.uint8)
        self.epoch = 1
        self.writer, self.reader = (np.full(size, -1) for _ in range(2))
        self.written, self.was_read = (np.zeros(size, int) for _ in range(2))
        self.flying = np.zeros(size, int)

    def _places(self, addresses: Array, size: int, active: Array) -> tuple[Array, Array]:
        threads = np.argwhere(active)[:, 0]
        places = (addresses[active] - self.BASE)[:, None] + np.arange(size)
        assert places.size == 0 or (places.min() >= 0 and places.max() < len(self.bytes))
        return places, np.broadcast_to(threads[:, None], places.shape)

    def read(self, addresses: Array, size: int, active: Array) -> Array:
        """As `Memory.read`."""
        places, threads = self._places(addresses, size, active)
        assert not self.flying[places].any(), "a copy under way is read"
        raced = (self.written[places] == self.epoch) & (self.writer[places] != threads)
        assert not raced.any(), "what another thread has written is read without a barrier"
        again = (self.was_read[places] == self.epoch) & (self.reader[places] != threads)
        self.reader[places] = np.where(again, -2, threads)
        self.was_read[places] = self.epoch
        found = np.zeros((*addresses.shape, size), np.uint8)
        found[active] = self.bytes[places]
        return found

    def check_write(self, addresses: Array, size: int, active: Array) -> None:
        """Fail if another thread may still read or write there."""
        places, threads = self._places(addresses, size, active)
        assert len(np.unique(places)) == places.size, "two threads write to one place"
        raced = (self.was_read[places] == self.epoch) & (self.reader[places] != threads)
        assert not raced.any(), "what another thread may still read is written"
        raced = (self.written[places] == self.epoch) & (self.writer[places] != threads)
        assert not raced.any(), "two threads write to one place without a barrier"

    def write(self, addresses: Array, values: Array, active: Array) -> None:
        """As `Memory.write`."""
        size = values.shape[-1]
        self.check_write(addresses, size, active)
        places, threads = self._places(addresses, size, active)
        self.bytes[places] = values[active]
        self.writer[places], self.written[places] = threads, self.epoch

    def fly(self, addresses: Array, size: int, active: Array, step: int) -> None:
        """Copies begin (1) or end (-1)."""
        places, _ = self._places(addresses, size, active)
        self.flying[places] += step


class Machine:
    """Runs one program.

    Attributes:
        SHARED: What shared memory is; where it begins, no other memory is.

    Args:
        program: Of kind `block`, or a kernel, which is spread over a warp first.
        arguments: Arrays for pointers, numbers for the rest, in slot order.
        scratch_bytes: What a kernel works in.
        device: What its thread blocks can do.
    """

    SHARED: type[Shared] = Shared

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Array | int],
        scratch_bytes: int = 0,
        device: ThreadBlocks = THREAD_BLOCKS,
    ) -> None:
        self.is_block, self.device, self.size = (
            program.kind == "block",
            device,
            device.subgroup_size,
        )
        self.program = program if self.is_block else to_warp(program, self.size)
        self.threads = device.threads if self.is_block else self.size
        scratch = np.zeros(max(64, scratch_bytes), np.uint8)
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        self.tickets = np.zeros(TICKETS, np.int32)
        self.memory = Memory([*arrays, scratch, self.tickets])
        self.shared: Shared | None = None
        self.arguments, self.scratch = arguments, scratch
        self.groups: list[list[tuple[Array, Array, Array]]] = []
        self.open: list[tuple[Array, Array, Array]] = []

    def run(self, blocks: int, grid: int = 1) -> None:
        """All blocks, dealt out to `grid` thread blocks (or warps), one after the other."""
        for number in range(grid):
            self.number, self.grid, self.blocks = number, grid, blocks
            self.shared = None
            self.values: dict[SsaValue, Array] = {}
            self.variables: dict[Variable, Array] = {}
            given: list[Any] = [
                a.ctypes.data if isinstance(a, np.ndarray) else a for a in self.arguments
            ]
            given += [blocks, 0]
            for parameter, value in zip(self.program.parameters, given, strict=True):
                kind = _TYPES[parameter.value.type.scalar]
                self.values[parameter.value] = np.full(self.threads, value, kind)
            with np.errstate(all="ignore"):
                self.block(self.program.body, np.ones(self.threads, bool))
            assert not self.open and not any(self.groups), "copies are still under way"
        assert not self.tickets.any(), "tickets are left"

    # -- statements ---------------------------------------------------------------------------

    def block(self, block: Block, active: Array) -> None:
        for statement in block.statements:
            match statement:
                case Let():
                    self.values[statement.result] = self.let(statement, active)
                case Read(result, variable):
                    self.values[result] = self.variables[variable]
                case SetVariable(variable, value):
                    self.set(variable, self.of(value), active)
                case Store():
                    self.store(statement, active)
                case Effect():
                    self.effect(statement, active)
                case For(index, low, high, step, body):
                    self.loop(index, self.of(low), self.of(high), self.of(step), body, active)
                case Parallel(index, body):
                    whole = np.ones(self.threads, np.int64)
                    count = self.blocks // self.device.subgroups if self.is_block else self.blocks
                    self.loop(
                        index, whole * self.number, whole * count, whole * self.grid, body, active
                    )
                case While(header, condition, body):
                    inside = active.copy()
                    while True:
                        self.block(header, inside)
                        inside = inside & self.of(condition)
                        if not inside.any():
                            break
                        self.block(body, inside)
                case If(condition, then, otherwise):
                    test = self.of(condition)
                    for way, branch in ((test, then), (~test, otherwise)):
                        if (active & way).any():
                            self.block(branch, active & way)
                case Return():
                    pass

    def loop(
        self, index: SsaValue, low: Array, high: Array, step: Array, body: Block, active: Array
    ) -> None:
        at = low.copy()
        while True:
            inside = active & (at < high)
            if not inside.any():
                return
            self.values[index] = at.copy()
            self.block(body, inside)
            at = at + step

    def set(self, variable: Variable, value: Array, active: Array) -> None:
        old = self.variables.get(variable)
        if old is None:
            self.variables[variable] = value
        else:
            chosen = active if value.ndim == 1 else active[:, None]
            self.variables[variable] = np.where(chosen, value, old)

    def of(self, operand: Operand) -> Array:
        if isinstance(operand, Literal):
            kind = operand.type
            shape = (self.threads,) if kind.lanes == 1 else (self.threads, kind.lanes)
            number = operand.value
            if kind.is_integer:
                number = int(number) & (1 << kind.bits) - 1
                wide = np.array(number, f"u{kind.bits // 8}").view(_TYPES[kind.scalar])
                return np.full(shape, wide)
            return np.full(shape, number, _TYPES[kind.scalar])
        return self.values[operand]

    # -- values -------------------------------------------------------------------------------

    def let(self, let: Let, active: Array) -> Array:
        kind = let.result.type
        given = [self.of(x) for x in let.operands]
        ids = np.arange(self.threads)
        match let.op:
            case "thread":
                return ids % self.size
            case "warp_of_block":
                return ids // self.size
            case "warp":
                return np.full(self.threads, self.number)
            case "warps":
                return np.full(self.threads, self.grid)
            case "shared_by_block":
                assert self.shared is None, "one piece of shared memory is enough"
                self.shared = self.SHARED(int(str(let.attribute("size_bytes"))))
                return np.full(self.threads, self.SHARED.BASE)
            case "context":
                wanted = {
                    "scratch": self.scratch.ctypes.data, "scratch_bytes": 0,
                    "tickets": self.tickets.ctypes.data,
                }  # fmt: skip
                return np.full(self.threads, wanted[str(let.attribute("field"))])
            case "constant":
                return given[0]
            case "load":
                return self.load(let, given, active)
            case "offset":
                return given[0] + given[1].astype(np.int64) * int(str(let.attribute("size_bytes")))
            case "convert":
                return _converted(given[0], kind)
            case "bitcast":
                return _recast(given[0], kind)
            case "select":
                condition, a, b = given
                if condition.ndim < a.ndim:
                    condition = condition[:, None]
                return np.where(condition, a, b)
            case "splat":
                return np.repeat(given[0][:, None], kind.lanes, 1)
            case "iota":
                return np.repeat(
                    np.arange(kind.lanes, dtype=_TYPES[kind.scalar])[None], len(ids), 0
                )
            case "extract":
                return given[0][:, let.attribute("lane")] if given[0].ndim > 1 else given[0]
            case "insert":
                found = given[0].copy()
                found[:, let.attribute("lane")] = given[1]
                return found
            case "shuffle":
                both = np.concatenate([g.reshape(len(ids), -1) for g in given], 1)
                picked = both[:, list(let.attribute("lanes"))]  # type: ignore[call-overload]
                return picked if kind.lanes > 1 else picked[:, 0]
            case "tail_mask":
                if kind.lanes == 1:
                    return given[0] > 0
                return np.arange(kind.lanes)[None] < given[0][:, None]
            case "fma":
                wide = [g.astype(np.float64) for g in given]
                return (wide[0] * wide[1] + wide[2]).astype(given[0].dtype)
            case "div" | "rem":
                return _divided(let.op, given[0], given[1])
            case "to_tf32":
                bits = given[0].view(np.int32)
                return np.where(np.isfinite(given[0]), (bits + 0x1000) & ~0x1FFF, bits)
            case "atomic":
                assert active.sum() == 1
                old = self.memory.read(given[0], 4, active).view(np.int32)[:, 0]
                new = np.ascontiguousarray((old + given[1]).astype(np.int32)[:, None])
                self.memory.write(given[0], new.view(np.uint8), active)
                return old
            case "load_matrix":
                assert active.all()
                return self.load_matrix(given[0], bool(let.attribute("transposed")))
            case "multiply_matrices":
                assert active.all()
                return _multiplied(str(let.attribute("kind")), given)
            case "power_of_two":
                return np.exp2(given[0])
            case "shuffle_from":
                return given[0][ids // self.size * self.size + given[1]]
            case "shuffle_across":
                return given[0][ids ^ int(str(let.attribute("number")))]
        if let.op in _COMPARE:
            return np.asarray(_COMPARE[let.op](*given))
        if let.op.startswith("reduce_"):
            name = let.op.removeprefix("reduce_")
            return np.asarray(_BINARY[name].reduce(given[0], axis=1))  # type: ignore[attr-defined]
        table = _UNARY if len(given) == 1 else _BINARY
        return np.asarray(table[let.op](*given)).astype(given[0].dtype)

    def space(self, addresses: Array, active: Array) -> Memory | Shared:
        shared = addresses >= self.SHARED.BASE
        if self.shared is not None and shared[active].all():
            return self.shared
        assert not shared[active].any()
        return self.memory

    def place(self, pointer: Array, index: Array, kind: Type) -> tuple[Array, int]:
        """Addresses, and lanes that lie side by side at each."""
        size = kind.size_bytes
        at = pointer[:, None] if index.ndim > 1 else pointer
        return at + index.astype(np.int64) * size, 1 if index.ndim > 1 else kind.lanes

    def load(self, let: Let, given: list[Array], active: Array) -> Array:
        kind = let.result.type
        pointer, index, *mask = given
        addresses, lanes = self.place(pointer, index, kind)
        align = let.attribute("align_bytes")
        if mask and mask[0].ndim > 1 and lanes > 1:
            addresses = addresses[:, None] + np.arange(lanes) * kind.size_bytes
            lanes = 1
        chosen = active if addresses.ndim == 1 else np.repeat(active[:, None], kind.lanes, 1)
        if mask:
            chosen = chosen & (mask[0] if mask[0].ndim == chosen.ndim else mask[0][:, None])
        if isinstance(align, int) and not mask:
            assert not (addresses[chosen] % align).any(), "an access is not aligned"
        space = self.space(addresses, chosen)
        found = space.read(addresses, lanes * kind.size_bytes, chosen)
        if kind.scalar == "i1":
            return found[..., 0] != 0
        typed = np.ascontiguousarray(found).view(_TYPES[kind.scalar])
        return typed.reshape((self.threads,) if kind.lanes == 1 else (self.threads, kind.lanes))

    def store(self, statement: Store, active: Array) -> None:
        kind = statement.value.type
        pointer, index, value = map(self.of, (statement.pointer, statement.index, statement.value))
        addresses, lanes = self.place(pointer, index, kind)
        value = np.ascontiguousarray(value.reshape(self.threads, kind.lanes))
        rows = value.view(np.uint8).reshape(self.threads, kind.lanes, -1)
        chosen = active
        mask = None if statement.mask is None else self.of(statement.mask)
        if mask is not None and mask.ndim > 1 and lanes > 1:
            addresses = addresses[:, None] + np.arange(lanes) * kind.size_bytes
            lanes = 1
        if addresses.ndim > 1:
            chosen = np.repeat(active[:, None], kind.lanes, 1)
            data = rows
        else:
            data = rows.reshape(self.threads, -1)
        if mask is not None:
            chosen = chosen & (mask if mask.ndim == chosen.ndim else mask[:, None])
        elif statement.align_bytes:
            assert not (addresses[chosen] % statement.align_bytes).any(), "not aligned"
        self.space(addresses, chosen).write(addresses, data, chosen)

    def load_matrix(self, addresses: Array, transposed: bool) -> Array:
        assert self.shared is not None
        assert not (addresses % 16).any(), "a row is not aligned"
        # What a thread gets comes from rows that others name: all count as readers.
        rows = self.shared.read(addresses, 16, np.ones(self.threads, bool)).view(np.uint16)
        found = np.zeros((self.threads, 4, 2), np.uint16)
        for warp in range(self.threads // _WARP):
            for matrix in range(4):
                first = warp * _WARP + 8 * matrix
                tile = rows[first : first + 8]
                tile = tile.T if transposed else tile
                found[warp * _WARP : (warp + 1) * _WARP, matrix] = tile.reshape(_WARP, 2)
        return found.reshape(self.threads, 8).view(np.int32)

    def effect(self, effect: Effect, active: Array) -> None:
        match effect.op:
            case "sync_warp" | "prefetch" | "fence":
                pass
            case "barrier":
                assert active.all(), "not all threads reach a barrier"
                assert self.shared is not None
                self.shared.epoch += 1
            case "copy_async":
                self.copy(effect, active)
            case "commit_copies":
                self.groups.append(self.open)
                self.open = []
            case "wait_copies":
                assert self.shared is not None
                while len(self.groups) > int(str(effect.attribute("pending"))):
                    for target, data, chosen in self.groups.pop(0):
                        self.shared.fly(target, data.shape[-1], chosen, -1)
                        self.shared.write(target, data, chosen)
            case _:
                raise AssertionError(f"{effect.op} is not for these tests")

    def copy(self, effect: Effect, active: Array) -> None:
        target, source, inside = (self.of(x) for x in effect.operands)
        size = int(str(effect.attribute("size_bytes")))
        assert self.shared is not None
        assert not (target[active] % size).any(), "a copy's target is not aligned"
        assert not (source[active & inside] % size).any(), "a copy's source is not aligned"
        self.shared.check_write(target, size, active)
        data = self.memory.read(source, size, active & inside)
        self.shared.fly(target, size, active, 1)
        self.open.append((target, data, active))


def _divided(op: str, a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.divide(a, b) if op == "div" else np.fmod(a, b)
    b = np.where(b == 0, 1, b)
    quotient = np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)
    return (quotient if op == "div" else a - quotient * b).astype(a.dtype)


def _converted(x: Array, kind: Type) -> Array:
    target = _TYPES[kind.scalar]
    if kind.scalar == "i1":
        return x != 0
    if kind.is_integer and x.dtype.kind not in "iub":
        info = np.iinfo(target)
        clean = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0)
        return np.clip(clean, info.min, info.max).astype(target)
    return x.astype(target)


def _recast(x: Array, kind: Type) -> Array:
    flat = np.ascontiguousarray(x).reshape(len(x), -1).view(_TYPES[kind.scalar])
    return flat if kind.lanes > 1 else flat[:, 0]


def _multiplied(kind: str, given: list[Array]) -> Array:
    """PTX ISA, matrix fragments of mma.m16n8k16 (16-bit) and mma.m16n8k8 (tf32)."""
    *words, sums = given
    result = sums.copy()
    each = 1 if kind == "tf32" else 2
    element = {"tf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    for first in range(0, len(sums), _WARP):
        lanes = np.arange(_WARP)
        group, member = lanes // 4, lanes % 4
        a, b = np.zeros((16, 8 * each)), np.zeros((8 * each, 8))
        for k, word in enumerate(words):
            part = np.ascontiguousarray(word[first : first + _WARP]).reshape(_WARP, 1)
            if kind == "tf32":
                assert not (part & 0x1FFF).any(), "not rounded to tf32"
            elements = part.view(element).astype(np.float64)
            for e in range(each):
                if k < 4:
                    a[group + 8 * (k % 2), (member + 4 * (k // 2)) * each + e] = elements[:, e]
                else:
                    b[(member + 4 * (k - 4)) * each + e, group] = elements[:, e]
        c = a @ b
        for k in range(4):
            rows, columns = group + 8 * (k // 2), member * 2 + k % 2
            result[first : first + _WARP, k] += c[rows, columns].astype(np.float32)
    return result
