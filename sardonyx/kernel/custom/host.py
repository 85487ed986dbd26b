"""Calls of functions on the host: what the plan passes to them."""

from __future__ import annotations

from sardonyx.base.sizes import Dim
from sardonyx.kernel.custom.task import CustomTask, View, special
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.plan.plan import HostResult, HostSignature
from sardonyx.tensor.host import HOST_CALL, HostFacts
from sardonyx.tensor.tensor import Buffer

#: A call is a change to Python and back, and mostly a loop there.
_COST_NS = 10_000


@special(HOST_CALL)
def build_host_call(task: CustomTask, symbol: str) -> Kernel:
    """Tensors of any kind -> the results of the function, which the plan's caller calls."""
    call = task.attribute("call")
    assert isinstance(call, HostFacts)  # noqa: S101 - narrows the type for the checker
    given = iter(task.operands)
    operands = [next(given) if there else None for there in call.given]
    results = tuple(
        None if view is None else result
        for view, result in zip(task.outputs, call.results, strict=True)
    )
    signature = HostSignature(
        call.function,
        call.facts,
        tuple(None if v is None else (v.dtype, len(v.shape)) for v in operands),
        tuple(None if r is None else HostResult(r.dtype, r.rank, r.held) for r in results),
    )
    arguments: list[Buffer | Dim] = []
    for view in (*operands, *task.outputs):
        if view is not None:
            arguments += _arguments(view)
    builder = Builder(f"host.{call.function}", [])
    builder.return_()
    return Kernel(builder.program, tuple(arguments), 1, _COST_NS, host=signature)


def _arguments(view: View) -> list[Buffer | Dim]:
    return [view.buffer, view.offset, *view.shape, *view.strides]
