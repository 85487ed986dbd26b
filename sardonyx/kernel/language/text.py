"""Kernel programs as readable text: one line per statement, blocks indented."""

from __future__ import annotations

from collections.abc import Iterator

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
    Statement,
    Store,
    While,
)

# Attributes that say nothing beyond the usual.
_DEFAULTS = {
    "ordering": None,
    "invariant": False,
    "fixed": None,
    "name": None,
    "nontemporal": False,
}


def _attributes(pairs: tuple[tuple[str, object], ...]) -> str:
    shown = [f"{k}={v}" for k, v in pairs if k not in _DEFAULTS or v != _DEFAULTS[k]]
    return f" {{{', '.join(shown)}}}" if shown else ""


def _listed(operands: tuple[Operand, ...]) -> str:
    return ", ".join(repr(x) for x in operands)


def line(statement: Statement) -> str:
    """The first line of a statement, without its blocks."""
    match statement:
        case Let(result, op, operands):
            tail = _attributes(statement.attributes)
            return f"{result}: {result.type} = {op} {_listed(operands)}".rstrip() + tail
        case Read(result, variable):
            return f"{result}: {result.type} = ${variable.name}"
        case SetVariable(variable, value):
            return f"${variable.name}: {variable.type} = {value!r}"
        case Store(pointer, index, value, mask):
            given = f", mask {mask!r}" if mask is not None else ""
            extras = (
                ("align_bytes", statement.align_bytes),
                ("ordering", statement.ordering),
                ("nontemporal", statement.nontemporal),
            )
            tail = _attributes(extras)
            return f"store {value!r}: {value.type} to {pointer!r}[{index!r}]{given}{tail}"
        case Effect(op, operands):
            return f"{op} {_listed(operands)}".rstrip() + _attributes(statement.attributes)
        case For(index, low, high, step):
            return f"for {index} in range({low!r}, {high!r}, {step!r}):"
        case Parallel(index):
            return f"parallel {index}:"
        case While():
            return "while:"
        case If(condition):
            return f"if {condition!r}:"
        case Return(value):
            return "return" if value is None else f"return {value!r}"


def lines(block: Block, depth: int = 1) -> Iterator[tuple[Statement, str]]:
    """Every line of a block with the statement that it belongs to."""
    margin = "    " * depth
    for statement in block.statements:
        yield statement, margin + line(statement)
        match statement:
            case For(body=body) | Parallel(body=body):
                yield from lines(body, depth + 1)
            case While(header, condition, body):
                yield from lines(header, depth + 1)
                yield statement, f"{margin}    leave unless {condition!r}"
                yield from lines(body, depth + 1)
            case If(then=then, otherwise=otherwise):
                yield from lines(then, depth + 1)
                if otherwise.statements:
                    yield statement, f"{margin}else:"
                    yield from lines(otherwise, depth + 1)


def heading(program: Program) -> str:
    """The program's first line."""
    listed = ", ".join(f"{p.name} {p.value!r}: {p.value.type}" for p in program.parameters)
    result = f" -> {program.result}" if program.result is not None else ""
    inline = "inline " if program.always_inline else ""
    return f"{inline}{program.kind} {program.name}({listed}){result}:"


def to_text(program: Program) -> str:
    """The whole program."""
    return "\n".join([heading(program), *(text for _, text in lines(program.body))]) + "\n"
