"""Vector math: each function is written once with the Builder and put in line by the emitter.

Nothing here needs libm or tables in memory (but for angles above 2^28). Errors stand in the
functions' docstrings and are held by tests/llvm/test_math.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program, SsaValue
from sardonyx.kernel.language.types import Type
from sardonyx.llvm import math_error, math_exponential, math_logarithm, math_trigonometric
from sardonyx.llvm.math_angle import REDUCE, reduction_program

_MODULES = (math_exponential, math_logarithm, math_trigonometric, math_error)
_NAMES = {"pow": "power", "rem": "remainder"}


def _find(op: str) -> Callable[..., SsaValue]:
    name = _NAMES.get(op, op)
    found: Callable[..., SsaValue] = next(vars(m)[name] for m in _MODULES if name in vars(m))
    return found


#: Operation -> how it is written; `rem` is that of floats.
FUNCTIONS: dict[str, Callable[..., SsaValue]] = {
    op: _find(op)
    for op in (
        "exp exp2 expm1 sinh cosh tanh sigmoid log log2 log1p asinh acosh atanh pow"
        " sin cos tan asin acos atan atan2 erf erfc rem"
    ).split()
}
#: What a GPU's units make shorter.
FUNCTIONS_OF_GPUS: dict[str, Callable[..., SsaValue]] = {
    "erf": partial(math_error.erf, gpu=True),
    "erfc": partial(math_error.erfc, gpu=True),
}
_TWO_OPERANDS = frozenset({"pow", "atan2", "rem"})
#: Functions that the emitted math may call -> how they are made.
HELPERS: dict[str, Callable[[], Program]] = {REDUCE: reduction_program}


@lru_cache(maxsize=512)
def expansion(op: str, type: Type, *, gpu: bool = False) -> Program:
    """A function program that computes `op` on `type`; perhaps with what only a GPU has."""
    names = ("x", "y") if op in _TWO_OPERANDS else ("x",)
    b = Builder(f"sardonyx.{op}", [(name, type) for name in names], result=type, always_inline=True)
    write = FUNCTIONS_OF_GPUS.get(op, FUNCTIONS[op]) if gpu else FUNCTIONS[op]
    b.return_(write(b, *(b.parameter(name) for name in names)))
    return b.program
