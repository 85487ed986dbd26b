"""Kernel programs for GPUs: a vector becomes one element in each thread of a warp.

A kernel's blocks are dealt out to the warps of the whole grid. Scalars are the same in all
threads, and so is control flow, which hangs on scalars alone: a warp never diverges. What a scalar
writes, its first thread writes. Vectors are shorter than a warp at times; then the threads beyond
repeat what those before them do, so that nothing is read or written outside.

The parallel axis becomes a loop of each warp::

    for block in warp..blocks step warps:
        body, a vector's element `thread` in each thread
"""

from __future__ import annotations

from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.operations import REDUCE
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
from sardonyx.kernel.language.threads import TRAILING
from sardonyx.kernel.language.types import I32, I64, PTR, Type
from sardonyx.kernel.language.words import by_words


def to_warp(program: Program, size: int) -> Program:
    """A program whose vectors are spread over the threads of warps.

    A kernel becomes a function of its slots, the number of blocks and the context: what every
    thread of the grid calls.

    Args:
        program: Of vectors with up to `size` lanes.
        size: Threads of a warp: a device's `subgroup_size`.

    Raises:
        EngineError: The program has vectors that are longer than a warp, or operations that have no
            meaning there.
    """
    return _Warp(program, size).run()


class _Warp:
    def __init__(self, program: Program, size: int) -> None:
        self.source, self.size = program, size
        parameters = [(p.name, _one(p.value.type)) for p in program.parameters]
        if program.kind == "kernel":
            parameters += zip(TRAILING, (I64, PTR), strict=True)
        self.b = Builder(
            program.name, parameters, result=program.result and _one(program.result),
            always_inline=program.always_inline, cold=program.cold,
        )  # fmt: skip
        self.values: dict[SsaValue, Operand] = {}
        self.variables: dict[Variable, Register] = {}
        for old, new in zip(program.parameters, self.b.program.parameters, strict=False):
            self.values[old.value] = new.value
        self.thread = self.b.let(I64, "thread", [])
        self.warp = self.b.let(I64, "warp", [])

    def run(self) -> Program:
        self.block(self.source.body)
        return self.b.program

    # -- statements ---------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for statement in block.statements:
            match statement:
                case Let():
                    self.values[statement.result] = self.let(statement)
                case Read(result, variable):
                    self.values[result] = self.variables[variable].get()
                case SetVariable(variable, value):
                    self.set(variable, self.of(value))
                case Store():
                    self.store(statement)
                case Effect():
                    self.effect(statement)
                case For(index, low, high, step, body):
                    with self.b.for_(self.of(low), self.of(high), self.of(step)) as i:
                        self.values[index] = i
                        self.block(body)
                case Parallel(index, body):
                    count = self.b.let(I64, "warps", [])
                    blocks = self.b.parameter("blocks")
                    with self.b.for_(self.warp, blocks, count) as i:
                        self.values[index] = i
                        self.block(body)
                case While(header, condition, body):

                    def test(header: Block = header, condition: Operand = condition) -> Operand:
                        self.block(header)
                        return self.of(condition)

                    with self.b.while_(test):
                        self.block(body)
                case If(condition, then, otherwise):
                    with self.b.if_(self.of(condition)):
                        self.block(then)
                    with self.b.else_():
                        self.block(otherwise)
                case Return(value):
                    self.b.return_(None if value is None else self.of(value))

    def set(self, variable: Variable, value: Operand) -> None:
        register = self.variables.get(variable)
        if register is None:
            kept = Variable(_one(variable.type), variable.name)
            register = self.variables[variable] = Register(self.b, kept)
        register.set(value)

    def of(self, operand: Operand) -> Operand:
        """An operand as every thread sees it."""
        if isinstance(operand, Literal):
            return self.b.constant(_one(operand.type), operand.value)
        return self.values[operand]

    def lane(self, lanes: int) -> SsaValue:
        """Which lane of a vector of so many a thread has."""
        if lanes == self.size:
            return self.thread
        if not 0 < lanes < self.size or lanes & (lanes - 1):
            what = f"A vector of {lanes} lanes cannot be spread over a warp"
            raise EngineError(message(f"kernel {self.source.name}", what))
        return self.thread & (lanes - 1)

    # -- values -------------------------------------------------------------------------------

    def let(self, let: Let) -> Operand:
        b, kind = self.b, let.result.type
        operands = [self.of(x) for x in let.operands]
        match let.op:
            case "splat":
                return operands[0]
            case "iota":
                return b.convert(self.lane(kind.lanes), _one(kind))
            case "tail_mask":
                return self.lane(kind.lanes) < operands[0]
            case "extract":
                return self.from_lane(operands[0], int(str(let.attribute("lane"))))
            case "insert":
                here = b.eq(self.lane(kind.lanes), int(str(let.attribute("lane"))))
                return b.select(here, operands[1], operands[0])
            case "load":
                return self.load(let, operands)
            case "atomic" | "compare_exchange":
                return self.once(let, operands)
            case "context" if let.attribute("field") == "scratch":
                size = b.let(I64, "context", [], field="scratch_bytes")
                return b.offset(b.let(PTR, "context", [], field="scratch"), self.warp * size)
            case "context" if let.attribute("field") == "thread":
                return self.warp
            case "local":
                return self.local(let)
            case "shuffle":
                return self.shuffle(let, operands)
        if let.op in REDUCE:
            return self.reduce(let.op, let.operands[0].type, operands[0])
        return b.let(_one(kind), let.op, operands, **dict(let.attributes))

    def load(self, let: Let, operands: list[Operand]) -> Operand:
        b, kind = self.b, let.result.type
        pointer, index, *rest = operands
        if kind.lanes > 1 and let.operands[1].type.lanes == 1:
            index = b.convert(index, I64) + self.lane(kind.lanes)
        attributes = dict(let.attributes)
        if attributes.get("align_bytes"):
            attributes["align_bytes"] = _alignment(int(str(attributes["align_bytes"])), kind)
        return b.let(_one(kind), "load", [pointer, index, *rest], **attributes)

    def store(self, statement: Store) -> None:
        b, lanes = self.b, statement.value.type.lanes
        pointer, index, value = map(self.of, (statement.pointer, statement.index, statement.value))
        mask = None if statement.mask is None else self.of(statement.mask)
        if lanes == 1:
            first = b.eq(self.thread, 0)
            mask = first if mask is None else first & mask
        elif statement.index.type.lanes == 1:
            index = b.convert(index, I64) + self.lane(lanes)
        if statement.ordering:
            with b.if_(mask if mask is not None else b.eq(0, 0)):
                b.store(value, pointer, index, ordering=statement.ordering)
        else:
            align = statement.align_bytes and _alignment(
                statement.align_bytes, statement.value.type
            )
            b.store(value, pointer, index, mask=mask, align_bytes=align)
        b.append(Effect("sync_warp", ()))

    def once(self, let: Let, operands: list[Operand]) -> Operand:
        """What one thread does, and all get the result of."""
        b = self.b
        held = b.variable(b.constant(_one(let.result.type), 0))
        with b.if_(b.eq(self.thread, 0)):
            held.set(b.let(_one(let.result.type), let.op, operands, **dict(let.attributes)))
        return self.from_lane(held.get(), 0)

    def local(self, let: Let) -> Operand:
        element = let.attribute("element")
        assert isinstance(element, Type)  # noqa: S101 - narrows the type for the checker
        count = int(str(let.attribute("count"))) * element.lanes
        total = -(-count * element.size_bytes // 64) * 64
        return self.b.let(PTR, "shared", [], size_bytes=total)

    def effect(self, effect: Effect) -> None:
        operands = tuple(self.of(x) for x in effect.operands)
        if effect.op in ("prefetch", "pause"):
            return
        if effect.op == "set_condition":
            with self.b.if_(self.b.eq(self.thread, 0)):
                self.b.append(Effect(effect.op, operands, effect.attributes))
            return
        self.b.append(Effect(effect.op, operands, effect.attributes))

    # -- between threads ----------------------------------------------------------------------

    def shuffle(self, let: Let, operands: list[Operand]) -> Operand:
        """Each thread takes what another has of one of two vectors."""
        b, count = self.b, let.operands[0].type.lanes
        lanes = let.attribute("lanes")
        assert isinstance(lanes, tuple)  # noqa: S101 - narrows the type for the checker
        if len(lanes) > self.size:
            what = f"A vector of {len(lanes)} lanes cannot be spread over a warp"
            raise EngineError(message(f"kernel {self.source.name}", what))
        chosen = self._by_lane([int(str(lane)) for lane in lanes])
        first, second = operands
        found = self._moved_from(first, chosen & (count - 1))
        if all(lane < count for lane in lanes):
            return found
        other = self._moved_from(second, chosen & (count - 1))
        return b.select(chosen < count, found, other)

    def _by_lane(self, numbers: list[int]) -> Operand:
        """The small number that belongs to each lane: four of them in a word."""
        b, lane = self.b, self.b.convert(self.lane(len(numbers)), I32)
        words = [
            sum(number << (8 * k) for k, number in enumerate(numbers[first : first + 4]))
            for first in range(0, len(numbers), 4)
        ]
        word: Operand = b.constant(I32, _signed(words[0]))
        for k, held in enumerate(words[1:], 1):
            word = b.select(lane < 4 * k, word, b.constant(I32, _signed(held)))
        shift = (lane & 3) << 3
        return (word >> shift) & 0xFF

    def from_lane(self, x: Operand, lane: int) -> Operand:
        """What one thread has, in all."""
        return self._moved_from(x, self.b.constant(I32, lane))

    def _across(self, x: Operand, distance: int) -> Operand:
        """What the thread has whose number differs in one bit."""

        def move(word: Operand) -> Operand:
            return self.b.let(I32, "shuffle_across", [word], number=distance)

        return by_words(self.b, x, move)

    def _moved_from(self, x: Operand, thread: Operand) -> Operand:
        """What another thread has, which each chooses."""
        return by_words(self.b, x, lambda word: self.b.let(I32, "shuffle_from", [word, thread]))

    def reduce(self, op: str, vector: Type, x: Operand) -> Operand:
        """By halves, as on a CPU: the same bits."""
        name, distance = op.removeprefix("reduce_"), vector.lanes // 2
        while distance:
            x = self.b.binary(name, x, self._across(x, distance))
            distance //= 2
        return x


def _signed(word: int) -> int:
    """A word of 32 bits as the number that an i32 holds."""
    return word - (1 << 32) if word >> 31 else word


def _alignment(align_bytes: int, vector: Type) -> int:
    """What is known of each element's address, where a vector's is a multiple of `align_bytes`."""
    return align_bytes if vector.lanes == 1 else min(align_bytes, vector.element.size_bytes)


def _one(type: Type) -> Type:
    return type.element
