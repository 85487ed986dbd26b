"""Statements of a kernel program to LLVM IR: structured control flow straight to SSA.

Variables never live in memory: the set of variables that a loop or a branch sets is known from its
statements, and each becomes a phi. Loops are rotated: a guard, then the test at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from sardonyx.base.errors import EngineError, message
from sardonyx.base.records import dataclass
from sardonyx.kernel.language.operations import BINARY, COMPARE
from sardonyx.kernel.language.program import (
    Block,
    Effect,
    For,
    If,
    Let,
    Operand,
    Parallel,
    Program,
    Read,
    Return,
    SetVariable,
    SsaValue,
    Statement,
    Store,
    Variable,
    While,
)
from sardonyx.kernel.language.types import I64
from sardonyx.llvm import emit_effects, emit_memory, emit_mode, emit_vector
from sardonyx.llvm.emit_arithmetic import PLAIN, UNARY, binary, compare, fused, scale
from sardonyx.llvm.emit_base import Emitter, llvm_type
from sardonyx.llvm.emit_block import BLOCK
from sardonyx.llvm.emit_convert import bitcast, convert
from sardonyx.llvm.emit_dot import dot, dot_halves, round_to_half
from sardonyx.llvm.emit_gpu import GPU
from sardonyx.llvm.math import FUNCTIONS, expansion
from sardonyx.targets.target import Target

_MEMORY = {
    "load": emit_memory.load, "offset": emit_memory.offset, "local": emit_memory.local,
    "table": emit_memory.table,
    "atomic": emit_memory.atomic, "compare_exchange": emit_memory.compare_exchange,
    "splat": emit_vector.splat, "extract": emit_vector.extract, "insert": emit_vector.insert,
    "shuffle": emit_vector.shuffle, "tail_mask": emit_vector.tail_mask,
}  # fmt: skip


@dataclass(slots=True)
class EmitFrame:
    """Where a `Return` goes: out of the function, or to the end of an inlined body."""

    context: str
    exit: str | None = None
    returns: list[tuple[str, str]] = field(default_factory=list)


class FunctionEmitter(Emitter):
    """Emits the body of one program.

    Args:
        target: What it is for.
        declarations: Shared by the module.
        programs: The module's programs by name, for inlining.
    """

    def __init__(
        self, target: Target, declarations: dict[str, str], programs: dict[str, Program]
    ) -> None:
        super().__init__(target, declarations)
        self.programs = programs
        self.current: dict[Variable, str] = {}
        self.bounds, self.pace = ("0", "0"), "1"
        self._sets: dict[Block, dict[Variable, None]] = {}
        self._inlining: list[str] = []

    # -- statements ---------------------------------------------------------------------------

    def run(self, block: Block, frame: EmitFrame) -> None:
        """Emit all statements of a block."""
        for statement in block.statements:
            if self.closed:
                return
            self._statement(statement, frame)

    def _statement(self, statement: Statement, frame: EmitFrame) -> None:
        if isinstance(statement, Let):  # most are
            self.names[statement.result] = self._let(statement, frame)
            return
        match statement:
            case Read(result, variable):
                if variable not in self.current:
                    raise EngineError(message("llvm", f"{variable.name} is read before set"))
                self.names[result] = self.current[variable]
            case SetVariable(variable, value):
                self.current[variable] = self.use(value)
            case Store():
                emit_memory.store(self, statement)
            case Effect():
                program = self._inlined(statement)
                if program is not None:
                    self.inline(program, [self.use(x) for x in statement.operands])
                else:
                    emit_effects.effect(self, statement, frame.context)
            case For(index, low, high, step, body):
                self._loop(index, self.use(low), self.use(high), self.use(step), body, frame)
            case Parallel(index, body):
                self._loop(index, *self.bounds, self.pace, body, frame)
            case While():
                self._while(statement, frame)
            case If():
                self._if(statement, frame)
            case Return(value):
                self._return(value, frame)

    def _let(self, let: Let, frame: EmitFrame) -> str:
        op, type = let.op, let.result.type
        if op in PLAIN:
            a, b = let.operands
            return binary(self, op, let, self.use(a), self.use(b))
        if op in FUNCTIONS and (op != "rem" or type.is_float):
            program = expansion(op, type, gpu=self.target.isa == "ptx")
            return self.inline(program, [self.use(x) for x in let.operands])
        if op in _MEMORY:
            return _MEMORY[op](self, let)
        if op in GPU:
            return GPU[op](self, let)
        if op in BLOCK:
            return BLOCK[op](self, let)
        if op in COMPARE:
            a, b = let.operands
            return compare(self, op, a.type, self.use(a), self.use(b))
        if op in UNARY:
            return UNARY[op](self, op, type, self.use(let.operands[0]))
        if op in BINARY:
            a, b = let.operands
            return binary(self, op, let, self.use(a), self.use(b))
        if op.startswith("reduce_"):
            return emit_vector.reduce(self, let)
        match op:
            case "fma":
                return fused(self, type, *(self.use(x) for x in let.operands))
            case "dot_halves":
                return dot_halves(self, let)
            case "round_to_half":
                return round_to_half(self, let)
            case "dot":
                return dot(self, let)
            case "select":
                condition, a, b = let.operands
                lanes = condition.type.lanes
                return self.select(self.use(condition), type, self.use(a), self.use(b), lanes)
            case "convert":
                return convert(self, let.operands[0].type, type, self.use(let.operands[0]))
            case "bitcast":
                return bitcast(self, let.operands[0].type, type, self.use(let.operands[0]))
            case "scale":
                return scale(self, type, *(self.use(x) for x in let.operands))
            case "constant":
                return self.use(let.operands[0])
            case "iota":
                return emit_vector.iota_literal(type)
            case "context":
                return emit_effects.context_field(self, frame.context, let)
            case "clock":
                return emit_effects.clock(self)
            case "float_mode":
                return emit_mode.read(self)
            case "address_of":
                return emit_effects.symbol(str(let.attribute("name")))
            case "call":
                inlined = self._inlined(let)
                if inlined is None:
                    return emit_effects.call(self, let, type)
                return self.inline(inlined, [self.use(x) for x in let.operands])
        raise EngineError(message("llvm", f"Unknown operation {op!r} on {type}"))

    def _return(self, value: Operand | None, frame: EmitFrame) -> None:
        text = "" if value is None else self.use(value)
        if frame.exit is None:
            kind = "" if value is None else f" {llvm_type(value.type)} {text}"
            self.close(f"ret{kind or ' void'}")
            return
        frame.returns.append((text, self.block))
        self.close(f"br label %{frame.exit}")

    # -- control flow -------------------------------------------------------------------------

    def variables_set(self, block: Block) -> dict[Variable, None]:
        """The variables set anywhere in a block, in order; computed once."""
        found = self._sets.get(block)
        if found is None:
            found = self._sets[block] = {}
            for statement in block.statements:
                match statement:
                    case SetVariable(variable, _):
                        found[variable] = None
                    case For(body=body) | Parallel(body=body):
                        found |= self.variables_set(body)
                    case While(header=header, body=body):
                        found |= self.variables_set(header) | self.variables_set(body)
                    case If(then=then, otherwise=otherwise):
                        found |= self.variables_set(then) | self.variables_set(otherwise)
        return found

    def _carried(self, *blocks: Block) -> list[Variable]:
        """Variables that live before the loop and change in it."""
        changed: dict[Variable, None] = {}
        for block in blocks:
            changed |= self.variables_set(block)
        return [variable for variable in changed if variable in self.current]

    def _phi(self, type: str, sources: Sequence[tuple[str, str]]) -> str:
        if len({text for text, _ in sources}) == 1:
            return sources[0][0]
        listed = ", ".join(f"[{text}, %{block}]" for text, block in sources)
        return self.do(f"phi {type} {listed}")

    def _open_loop(
        self, label: str, before: str, carried: Sequence[Variable]
    ) -> dict[Variable, tuple[int, str]]:
        """Start a loop's first block; its phis get their second source by `_close_phis`."""
        self.open(label)
        pending = {}
        for variable in carried:
            name = self.fresh()
            initial = self.current[variable]
            kind = llvm_type(variable.type)
            self.effect(f"{name} = phi {kind} [{initial}, %{before}]")
            pending[variable] = (len(self.lines) - 1, name)
            self.current[variable] = name
        return pending

    def _close_phis(self, pending: dict[Variable, tuple[int, str]]) -> None:
        for variable, (line, _) in pending.items():
            self.lines[line] += f", [{self.current[variable]}, %{self.block}]"

    def _loop(
        self, index: SsaValue, low: str, high: str, pace: str, body: Block, frame: EmitFrame
    ) -> None:
        head, leave = self.label("loop"), self.label("after")
        guard, before = self.block, dict(self.current)
        carried = self._carried(body)
        enter = self.compare("slt", I64, low, high)
        self.close(f"br i1 {enter}, label %{head}, label %{leave}")
        exits: list[tuple[str, dict[Variable, str]]] = [(guard, before)]
        with self.scope():
            name = self.fresh()
            pending = self._open_loop(head, guard, carried)
            at = len(self.lines)
            self.effect(f"{name} = phi i64 [{low}, %{guard}]")
            self.names[index] = name
            self.run(body, frame)
            if not self.closed:
                following = self.do(f"add nsw i64 {name}, {pace}")
                again = self.do(f"icmp slt i64 {following}, {high}")
                self._close_phis(pending)
                self.lines[at] += f", [{following}, %{self.block}]"
                exits.append((self.block, dict(self.current)))
                self.close(f"br i1 {again}, label %{head}, label %{leave}")
        self.open(leave)
        self._merge(exits, carried)

    def _merge(
        self, exits: Sequence[tuple[str, dict[Variable, str]]], changed: Sequence[Variable]
    ) -> None:
        """Join the values of variables where control flow joins."""
        merged = dict(exits[0][1])
        for variable in changed:
            if all(variable in state for _, state in exits):
                sources = [(state[variable], block) for block, state in exits]
                merged[variable] = self._phi(llvm_type(variable.type), sources)
            else:
                merged.pop(variable, None)
        self.current = merged

    def _while(self, loop: While, frame: EmitFrame) -> None:
        head, inside, leave = self.label("while"), self.label("body"), self.label("after")
        guard, before = self.block, self.current
        carried = self._carried(loop.header, loop.body)
        self.close(f"br label %{head}")
        self.current = dict(before)
        with self.scope():
            pending = self._open_loop(head, guard, carried)
            self.run(loop.header, frame)
            if self.closed:
                return
            test = self.use(loop.condition)
            self.close(f"br i1 {test}, label %{inside}, label %{leave}")
            after = dict(self.current)
            self.open(inside)
            self.run(loop.body, frame)
            if not self.closed:
                self._close_phis(pending)
                self.close(f"br label %{head}")
        self.open(leave)
        self.current = after

    def _if(self, branch: If, frame: EmitFrame) -> None:
        test = self.use(branch.condition)
        then, leave = self.label("then"), self.label("endif")
        other = self.label("else") if branch.otherwise.statements else leave
        guard, before = self.block, self.current
        self.close(f"br i1 {test}, label %{then}, label %{other}")
        exits: list[tuple[str, dict[Variable, str]]] = []
        changed: dict[Variable, None] = {}
        for label, block in ((then, branch.then), (other, branch.otherwise)):
            if label == leave:
                exits.append((guard, before))
                continue
            changed |= self.variables_set(block)
            with self.scope():
                self.open(label)
                self.current = dict(before)
                self.run(block, frame)
                if not self.closed:
                    exits.append((self.block, self.current))
                    self.close(f"br label %{leave}")
        if exits:
            self.open(leave)
            self._merge(exits, list(changed))

    # -- inlining -----------------------------------------------------------------------------

    def _inlined(self, statement: Let | Effect) -> Program | None:
        """The `always_inline` function that a statement calls, if it does."""
        if statement.op != "call":
            return None
        program = self.programs.get(str(statement.attribute("name")))
        return program if program is not None and program.always_inline else None

    def inline(self, program: Program, operands: Sequence[str]) -> str:
        """Emit the body of a function in place of a call; gives its result."""
        if program.name in self._inlining:
            what = f"{program.name} is always inlined and calls itself"
            raise EngineError(message("llvm", what))
        self._inlining.append(program.name)
        for parameter, text in zip(program.parameters, operands, strict=True):
            self.names[parameter.value] = text
        context = next((self.names[p.value] for p in program.parameters if p.name == "context"), "")
        outer, self.current = self.current, {}
        last = program.body.statements[-1] if program.body.statements else None
        if isinstance(last, Return) and _count_returns(program.body) == 1:
            self.run(Block(program.body.statements[:-1]), EmitFrame(context))
            text = "" if last.value is None else self.use(last.value)
        else:
            text = self._inline_with_exits(program, context)
        self.current = outer
        self._inlining.pop()
        return text

    def _inline_with_exits(self, program: Program, context: str) -> str:
        frame = EmitFrame(context, self.label("inlined"))
        with self.scope():
            self.run(program.body, frame)
            if not self.closed:
                frame.returns.append(("", self.block))
                self.close(f"br label %{frame.exit}")
        self.open(str(frame.exit))
        if program.result is None:
            return ""
        return self._phi(llvm_type(program.result), frame.returns)


def _count_returns(block: Block) -> int:
    total = 0
    for statement in block.statements:
        match statement:
            case Return():
                total += 1
            case For(body=body) | Parallel(body=body):
                total += _count_returns(body)
            case While(header=header, body=body):
                total += _count_returns(header) + _count_returns(body)
            case If(then=then, otherwise=otherwise):
                total += _count_returns(then) + _count_returns(otherwise)
    return total
