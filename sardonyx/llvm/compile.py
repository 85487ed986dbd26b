"""LLVM IR text -> a relocatable ELF object. The only module that drives llvmlite.

An LLVM fatal error ends the process: `sardonyx.workers.children` compiles in others.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sardonyx.base.errors import EngineError, message
from sardonyx.base.forks import compiling

if TYPE_CHECKING:
    from sardonyx.targets.target import Target

#: Attributes that every function in a text must carry: without them LLVM may call memcpy, memset or
#: libm, which a blob cannot reach, or emit unwind tables, which nothing reads.
FUNCTION_ATTRIBUTES = 'nounwind "no-builtins" "no-trapping-math"="true"'

#: The first line of a text whose loops step as they are written, see
#: `kernel.language.program.Program`.
AS_WRITTEN = "; loops step as they are written\n"

#: Names of the pass pipelines, from none to all scalar optimisations (never the vectorisers).
PIPELINES = ("none", "light", "full")


@lru_cache
def _binding() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def load_llvm() -> None:
    """Import LLVM, which the first compilation would do otherwise."""
    _binding()


def _step_loops(binding: Any, as_written: bool) -> None:
    """Have loops stepped as they are written, or not: LLVM has one switch for the process."""
    if _STEPS["as written"] != as_written:
        binding.set_option("sardonyx", f"-disable-lsr={str(as_written).lower()}")
        _STEPS["as written"] = as_written


@lru_cache(maxsize=16)
def _machine(triple: str, cpu: str, features: str, level: int) -> Any:
    return (
        _binding()
        .Target.from_triple(triple)
        .create_target_machine(
            cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small"
        )
    )


def _neighbourhood(text: str, number: int) -> str:
    lines = text.splitlines()
    first = max(1, number - 3)
    shown = lines[first - 1 : number + 2]
    return "\n".join(
        f"{'>' if first + i == number else ' '} {first + i:5d} | {line}"
        for i, line in enumerate(shown)
    )


def _fault(what: str, text: str, error: Exception) -> EngineError:
    detail = str(error).strip()
    found = re.search(r"<string>:(\d+):\d+: (?:error: )?(.*)", detail)
    if not found:
        return EngineError(message("llvm", f"{what}: {detail}"))
    shown = _neighbourhood(text, int(found[1]))
    return EngineError(message("llvm", f"{what}: {found[2]}") + f"\n{shown}")


def _optimise(module: Any, machine: Any, pipeline: str) -> None:
    if pipeline == "none":
        return
    if pipeline not in PIPELINES:
        raise EngineError(
            message("llvm", "Unknown pass pipeline", expected=str(PIPELINES), got=pipeline)
        )
    llvm = _binding()
    tuning = llvm.create_pipeline_tuning_options(speed_level=1 if pipeline == "light" else 2)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    tuning.loop_interleaving = False
    tuning.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)


def _prepare(text: str, target: Target, pipeline: str, level: int, verify: bool) -> tuple[Any, Any]:
    llvm = _binding()
    machine = _machine(target.triple, target.cpu, target.features, level)
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
    except RuntimeError as error:
        raise _fault("LLVM cannot read the generated text", text, error) from None
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    if verify:
        try:
            module.verify()
        except RuntimeError as error:
            raise _fault("LLVM refuses the generated text", text, error) from None
    _optimise(module, machine, pipeline)
    return module, machine


_STEPS = {"as written": False}

#: Modules compiled by this process so far. Runs never compile: a test reads it.
COUNTS = {"modules": 0}


def compile_text(
    text: str, target: Target, *, pipeline: str = "none", level: int = 2, verify: bool = True
) -> bytes:
    """Compile LLVM IR text to a relocatable ELF object, whatever system this is.

    A module costs 0.9 ms before its first function: put several kernels into one text. `light`
    adds 60 % to the time and took 6 % off fused pointwise kernels; loops whose invariants the
    emitter keeps outside do not need it.

    What breaks it off (a handler of signals) may have llvmlite free memory twice: see
    `base.handlers.deferred`, which whoever compiles in a process of the caller's uses.

    Args:
        text: A module; its functions carry `FUNCTION_ATTRIBUTES`. Triple and layout are set here.
        target: What to generate for.
        pipeline: One of `PIPELINES`, run before code generation.
        level: Effort of code generation, 0 to 3.
        verify: Let LLVM check the module first; unchecked bad text can end the process.

    Raises:
        EngineError: The text is not valid; the error shows the lines around the fault.
    """
    with compiling:
        return _object(text, target, pipeline, level, verify)


def _object(text: str, target: Target, pipeline: str, level: int, verify: bool) -> bytes:
    module, machine = _prepare(text, target, pipeline, level, verify)
    COUNTS["modules"] += 1
    _step_loops(_binding(), text.startswith(AS_WRITTEN))
    return bytes(machine.emit_object(module))


def emit_assembly(text: str, target: Target, *, pipeline: str = "none", level: int = 2) -> str:
    """The assembly text that `compile_text` would have made an object of; what a GPU gets."""
    with compiling:
        module, machine = _prepare(text, target, pipeline, level, True)
        return str(machine.emit_assembly(module))
