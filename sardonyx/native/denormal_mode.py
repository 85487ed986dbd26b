"""Native: the same functions for sessions in which denormal numbers are zeros.

A thread's mode is changed where it enters native code, and restored where it leaves: functions of
the host run in their caller's mode, and sessions without the option have nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I64, PTR, Type

#: What the names of these functions begin with.
FLUSHING = "flushing_"


def flushing() -> list[Program]:
    """`flushing_NAME` for each function in which kernels run, with the parameters of NAME."""
    return [
        _flushing("execute", ("frame", "items", "pool"), I64),
        _flushing("again", ("frame", "items", "outputs"), I64),
        _flushing("worker", ("pool", "context"), None),
    ]


def _flushing(name: str, parameters: Sequence[str], result: Type | None) -> Program:
    b = Builder(FLUSHING + name, [(p, PTR) for p in parameters], result=result)
    mode = b.float_mode()
    b.flush_denormals(mode)
    given = b.call(name, [b.parameter(p) for p in parameters], result)
    b.set_float_mode(mode)
    b.return_(given)
    return b.program
