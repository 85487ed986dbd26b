"""Calls of functions on the host, for values that have no form as tensors of numbers.

Strings, sequences, optionals and maps are 64-bit codes to the tensor language: places in a table
that belongs to the run. Equal strings have equal codes, so that whatever moves or compares elements
(Gather, Concat, Where, Equal) is done natively. Only what looks inside calls a function of
`sardonyx.host`, which must give equal results for equal arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.dtypes import INT64, DType
from sardonyx.base.object_types import ObjectType
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.tensor.tensor import Call, Shape, Tensor, make_call

#: Name of the kernel of such calls; their attribute `call` is a `HostFacts`.
HOST_CALL = "host"
#: The function that makes a sequence of its arguments.
CONSTRUCT = "sequence.construct"


@dataclass(frozen=True, slots=True)
class Result:
    """What a function gives.

    Attributes:
        dtype: Element type of a tensor, or the type of a sequence and the like.
        shape: The tensor's; () for others. With `held`, only its length means something.
        held: Only the function knows the shape: what the plan gets is a number for `take` and then
            the sizes, as one tensor of int64.
    """

    dtype: DType
    shape: Shape = ()
    held: bool = False

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Which function is called how.

    Attributes:
        function: `module.name` inside `sardonyx.host`.
        facts: Keyword arguments: numbers, strings, and tuples of them.
        given: For each positional argument, whether there is a tensor for it.
        results: What it gives.
    """

    function: str
    facts: tuple[tuple[str, object], ...]
    given: tuple[bool, ...]
    results: tuple[Result, ...]

    def fact(self, name: str) -> object:
        """A keyword argument."""
        return dict(self.facts)[name]


def host_call(
    function: str,
    operands: Sequence[Tensor | None],
    results: Sequence[Result],
    **facts: object,
) -> tuple[Call, ...]:
    """The results of a function on the host.

    Args:
        function: `module.name` inside `sardonyx.host`.
        operands: Its positional arguments; None for one that is omitted.
        results: What it gives.
        facts: Its keyword arguments: numbers, strings, None, and tuples of them.
    """
    given = tuple(x is not None for x in operands)
    call = HostFacts(function, tuple(sorted(facts.items())), given, tuple(results))
    specs = tuple(((1 + r.rank,), INT64) if r.held else (r.shape, r.dtype) for r in results)
    return make_call(HOST_CALL, tuple(x for x in operands if x is not None), specs, call=call)


def is_host_call(x: Tensor) -> bool:
    """Whether a function on the host gives it, which may give something else each time."""
    return isinstance(x, Call) and x.kernel == HOST_CALL


def call_behind(x: Tensor, function: str) -> tuple[Call, HostFacts] | None:
    """The call of a function that gives this tensor as its first result, if that is what it is."""
    if not isinstance(x, Call) or not is_host_call(x) or x.output:
        return None
    call = x.attribute("call")
    assert isinstance(call, HostFacts)  # noqa: S101 - narrows the type for the checker
    return (x, call) if call.function == function else None


def take(number: Tensor, dtype: DType, shape: tuple[Dim, ...]) -> Tensor:
    """What a call has held back, once its shape is known; `number` is the first of what it gave."""
    return host_call("take", [number], [Result(dtype, shape)])[0]


def is_object(x: Tensor) -> bool:
    """Whether it is a sequence, an optional or a map."""
    return isinstance(x.dtype, ObjectType)
