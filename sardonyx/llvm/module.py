"""Kernel programs -> the text of one LLVM module."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import Type
from sardonyx.llvm import emit_block
from sardonyx.llvm.compile import AS_WRITTEN, FUNCTION_ATTRIBUTES
from sardonyx.llvm.emit import EmitFrame, FunctionEmitter
from sardonyx.llvm.emit_base import llvm_type
from sardonyx.llvm.emit_effects import parameter_type, result_type, symbol
from sardonyx.llvm.math import HELPERS
from sardonyx.targets.target import Target

_METADATA = "!0 = !{}\n!1 = !{i32 1}"


def emit_module(programs: Sequence[Program], target: Target) -> str:
    """LLVM IR text that defines every program under its name.

    A kernel has the C type `void(void *args, int64_t begin, int64_t end, void *context)`: its
    parameters lie in 8-byte slots of `args`, and it does the blocks of [begin, end). A function has
    the C type that its parameters say, and so has a program of kind `block`, which is what each
    thread of a GPU calls. Functions marked `always_inline` are put into their callers
    and are not defined.

    Raises:
        EngineError: Two programs have one name, or a program is not well formed.
    """
    named = {program.name: program for program in programs}
    if len(named) != len(programs):
        raise EngineError(message("llvm", "Two programs of a module have the same name"))
    declarations: dict[str, str] = {}
    texts = [
        _function(program, target, declarations, named)
        for program in programs
        if not program.always_inline
    ]
    return _module(texts, target, declarations, named)


def emit_unit(program: Program, others: Sequence[Program], target: Target, name: str) -> str:
    """LLVM IR text that defines one program, under the name given; see `emit_module`.

    Args:
        program: What to define.
        others: Programs that it calls: they are declared, or put into it if they are to be.
        target: What it is for.
        name: Of the function. Texts of equal programs are equal if it is.
    """
    named = {other.name: other for other in others}
    declarations: dict[str, str] = {}
    text = _function(program, target, declarations, named, name)
    heads = [
        f"declare {_head(other)} #0"
        for other in others
        if other.name != name and not other.always_inline and symbol(other.name) in text
    ]
    head = AS_WRITTEN if program.as_written else ""
    return head + _module([text, *heads], target, declarations, named)


def _module(
    texts: list[str], target: Target, declarations: dict[str, str], named: dict[str, Program]
) -> str:
    """Functions with what they need besides."""
    for name, make in HELPERS.items():
        if name in declarations:
            declarations[name] = _function(make(), target, declarations, named)
    tuning = f'"prefer-vector-width"="{target.vector_bits}" "frame-pointer"="none"'
    attributes = f"attributes #0 = {{ {FUNCTION_ATTRIBUTES} {tuning} }}"
    tables = [
        f'@"{name}" = {content}'
        for content, name in declarations.items()
        if content[:8] == "private "
    ]
    others = [text for name, text in declarations.items() if name[:8] != "private "]
    return "\n\n".join([*tables, *texts, *others, attributes, _METADATA]) + "\n"


def _function(
    program: Program,
    target: Target,
    declarations: dict[str, str],
    named: dict[str, Program],
    own_name: str | None = None,
) -> str:
    e = FunctionEmitter(target, declarations, named)
    if program.kind == "kernel":
        signature = "ptr noalias %args, i64 %begin, i64 %end, ptr %context"
        e.bounds = ("%begin", "%end")
        context = "%context"
        for slot, parameter in enumerate(program.parameters):
            e.names[parameter.value] = _slot(e, slot, parameter.value.type)
    else:
        context, listed = "", []
        for number, parameter in enumerate(program.parameters):
            name = e.names[parameter.value] = f"%p{number}"
            apart = " noalias" if parameter.noalias else ""
            listed.append(f"{parameter_type(parameter.value.type)}{apart} {name}")
            if parameter.name == "context":
                context = name
        if program.kind == "block":
            blocks = next(e.names[p.value] for p in program.parameters if p.name == "blocks")
            first = emit_block.register(e, "ctaid.x")
            e.bounds = (first, e.pure(f"sdiv i64 {blocks}, {target.subgroups}"))
            e.pace = emit_block.register(e, "nctaid.x")
        signature = ", ".join(listed)
    try:
        e.run(program.body, EmitFrame(context))
    except EngineError as error:
        raise EngineError(f"{error} In program {program.name}.") from error
    if not e.closed:
        e.close("ret void" if program.result is None else "unreachable")
    linkage = "internal" if program.name in HELPERS else "dso_local"
    rare = " noinline cold" if program.cold else ""
    defined = symbol(program.name if own_name is None else own_name)
    named_signature = f"{result_type(program.result)} {defined}({signature})"
    head = f"define {linkage} {named_signature}{rare} #0"
    return "\n".join([f"{head} {{", "entry:", *e.entry, *e.lines, "}"])


def _head(program: Program) -> str:
    """How a function is declared that is defined elsewhere."""
    listed = ", ".join(
        parameter_type(p.value.type) + (" noalias" if p.noalias else "") for p in program.parameters
    )
    return f"dso_local {result_type(program.result)} {symbol(program.name)}({listed})"


def _slot(e: FunctionEmitter, slot: int, type: Type) -> str:
    """Load a kernel's parameter from the low bytes of its slot."""
    where = e.pure(f"getelementptr i8, ptr %args, i64 {8 * slot}") if slot else "%args"
    kind = "i8" if type.scalar == "i1" else llvm_type(type)
    loaded = e.do(f"load {kind}, ptr {where}, align 8, !invariant.load !0")
    return e.do(f"icmp ne i8 {loaded}, 0") if type.scalar == "i1" else loaded
