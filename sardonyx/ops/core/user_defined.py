"""Operators of the program's own: lowerings in the tensor language, or functions of Python."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sardonyx.base import dtypes
from sardonyx.base.dtypes import STRING, DType
from sardonyx.base.errors import InvalidArgument, InvalidGraph, SardonyxError, message
from sardonyx.host import user_defined as host
from sardonyx.ops.core import registry
from sardonyx.ops.core.attribute_kinds import KINDS
from sardonyx.ops.core.contents import DataDependent
from sardonyx.ops.core.object_values import HostShape, calls_for_tensors
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.tensor import Tensor

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ONNX = ("", "ai.onnx")


@dataclass(frozen=True)
class Output:
    """What a function of Python gives: one of its results.

    Attributes:
        dtype: ONNX's or NumPy's name of the element type, such as `float`, `int64` or `string`;
            None for that of the input `like`.
        shape: A size for each axis, None where only a call knows it; None for that of `like`.
        like: The number of the input that it is like.
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    like: int | None = None

    def __post_init__(self) -> None:
        where = "Output"
        if self.dtype is not None and _dtype(self.dtype) is None:
            raise InvalidArgument(message(where, "There is no such type", got=repr(self.dtype)))
        if self.like is None and (self.dtype is None or self.shape is None):
            what = "Without `like` a result needs a type and a shape"
            raise InvalidArgument(message(where, what))
        if self.like is not None and (type(self.like) is not int or self.like < 0):
            raise InvalidArgument(message(where, "`like` is no input", got=repr(self.like)))
        sizes = self.shape if self.shape is not None else ()
        is_shape = isinstance(sizes, tuple) and all(
            d is None or (type(d) is int and d >= 0) for d in sizes
        )
        if not is_shape:
            raise InvalidArgument(message(where, "This is no shape", got=repr(self.shape)))


def lowering(domain: str, op_type: str, since: int = 1) -> Callable[[_Function], _Function]:
    """Let the decorated function say what an operator computes, in the tensor language.

    It takes tensors for inputs (`x: Tensor | None` for one that may be omitted, `*more: Tensor`
    for any number) and attributes as keyword-only arguments, annotated `int`, `float`, `str` or
    `Sequence` of one of these, and gives a tensor, or a tuple of them. It is called when a model is
    compiled, and fused with what is around it, for every provider.

    Args:
        domain: Of the operator; not ONNX's own names.
        op_type: Its name.
        since: The first version of the domain's operator set that it holds for.

    Raises:
        InvalidArgument: There is such an operator already, or the function cannot be one.
    """

    def register(function: _Function) -> _Function:
        own = _plain(function, op_type)
        name = f"{domain}.{op_type}-{since}"

        def lowered(*inputs: Tensor | None, **attributes: Any) -> Any:
            try:
                found = own(*inputs, **attributes)
            except (SardonyxError, DataDependent):
                raise
            except Exception as error:
                what = f"Its lowering failed: {type(error).__name__}: {error}"
                raise InvalidGraph(message(name, what)) from error
            results = found if isinstance(found, tuple) else (found,)
            for result in results:
                if not isinstance(result, Tensor):
                    got = type(result).__name__
                    raise InvalidGraph(message(name, "Its lowering gives no tensor", got=got))
            return results

        _register(domain, op_type, since, own, lowered)
        return function

    return register


def function(
    domain: str, op_type: str, outputs: Sequence[Output], since: int = 1
) -> Callable[[_Function], _Function]:
    """Let the decorated function compute an operator with NumPy arrays, on the processor.

    It takes an array for each input, which it cannot write to and may not keep, and attributes as
    keyword-only arguments. It gives an array, or a tuple of them, of the types and shapes that
    `outputs` declares. Equal arguments must give equal results: it may be called when a model is
    compiled, and less often than the model says. Several threads may call it at once.

    Args:
        domain: Of the operator; not ONNX's own names.
        op_type: Its name.
        outputs: What it gives.
        since: The first version of the domain's operator set that it holds for.

    Raises:
        InvalidArgument: There is such an operator already, or the function cannot be one.
    """
    declared = tuple(outputs)
    if not declared or not all(isinstance(o, Output) for o in declared):
        what = "`outputs` is a list with an Output for each result"
        raise InvalidArgument(message(f"{domain}.{op_type}", what, got=repr(outputs)))

    def register(given: _Function) -> _Function:
        own = _plain(given, op_type)

        def lowered(*inputs: Tensor | None, **attributes: Any) -> Any:
            made = [_declared(o, inputs, f"{domain}.{op_type}") for o in declared]
            facts: dict[str, Any] = {
                "domain": domain, "op_type": op_type, "since": since,
                "given": tuple(x is not None for x in inputs),
                "attributes": tuple(sorted((n, _fact(v)) for n, v in attributes.items())),
                "expected": tuple(
                    (
                        "str" if dtype is STRING else dtype.numpy.name,
                        tuple(d if isinstance(d, int) else None for d in shape),
                        o.like if o.like is not None and o.shape is None else -1,
                    )
                    for o, (dtype, shape) in zip(declared, made, strict=True)
                ),
            }  # fmt: skip
            operands = list(inputs)
            if any(d is None for _, shape in made for d in shape):
                return calls_for_tensors("user_defined.call", operands, made, **facts)
            results = [Result(dtype, tuple(shape)) for dtype, shape in made]  # type: ignore[arg-type]  # all are known
            return host_call("user_defined.call", operands, results, **facts)

        _register(domain, op_type, since, own, lowered)
        host.FUNCTIONS[domain, op_type, since] = own
        return given

    return register


def remove(domain: str, op_type: str) -> None:
    """Forget an operator of the program's own, in all its versions; sessions that have it go on.

    Raises:
        InvalidArgument: There is none.
    """
    if not registry.remove(domain, op_type):
        raise InvalidArgument(message("operators", f"There is no own {domain}.{op_type}"))
    for key in [k for k in host.FUNCTIONS if k[:2] == (domain, op_type)]:
        del host.FUNCTIONS[key]


def _register(domain: str, op_type: str, since: int, own: Any, lowered: Callable[..., Any]) -> None:
    where = f"{domain}.{op_type}"
    if not isinstance(domain, str) or not isinstance(op_type, str) or not op_type:
        what = "Domain and name of an operator are text"
        raise InvalidArgument(message("operators", what, got=f"{domain!r}, {op_type!r}"))
    if type(since) is not int or since < 1:
        raise InvalidArgument(message(where, "This is no version", got=repr(since)))
    if domain in _ONNX:
        what = "ONNX's own domain takes no further operators"
        raise InvalidArgument(message(where, what, do="Choose a domain of your own"))
    try:
        record = registry.record_for(op_type, since, domain, own)
    except KeyError as error:
        what = f"An attribute has the annotation {error}"
        raise InvalidArgument(message(where, what, expected=", ".join(KINDS))) from None
    if not registry.add(replace(record, lowering=lowered, flags=frozenset(("strings",)))):
        raise InvalidArgument(message(where, "sardonyx has an operator of this name"))
    host.FUNCTIONS.pop((domain, op_type, since), None)  # it may have been a function before


def _plain(given: Any, op_type: str) -> Any:
    """The function, its annotations as the registry reads them."""
    if not isinstance(given, types.FunctionType):
        what = "An operator is a plain function"
        raise InvalidArgument(message(op_type, what, got=type(given).__name__))
    if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(given).parameters.values()):
        raise InvalidArgument(message(op_type, "Attributes have names of their own, not **"))
    made = types.FunctionType(
        given.__code__, given.__globals__, given.__name__, given.__defaults__, given.__closure__
    )
    made.__kwdefaults__ = given.__kwdefaults__
    made.__annotations__ = {n: _text(a) for n, a in given.__annotations__.items()}
    return made


def _text(annotation: Any) -> str:
    """An annotation as text: `list[int]` and `tuple[int, ...]` are sequences, too."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    for module in ("typing.", "collections.abc.", "numpy.", "np.", "sardonyx.tensor.tensor."):
        text = text.replace(module, "")
    for form in ("list[", "List[", "tuple[", "Tuple["):
        if text.startswith(form):
            return "Sequence[" + text[len(form) :].replace(", ...", "")
    return text


def _dtype(name: str) -> DType | None:
    found = dtypes.BY_NAME.get(name)
    if found is None:
        found = next((d for d in dtypes.ALL if d is not STRING and d.numpy.name == name), None)
    return found


def _fact(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _declared(
    output: Output, inputs: Sequence[Tensor | None], where: str
) -> tuple[DType, HostShape]:
    """Type and shape of a result."""
    model = None
    if output.like is not None:
        model = inputs[output.like] if output.like < len(inputs) else None
        if model is None:
            what = f"A result is like input {output.like}, which is not there"
            raise InvalidGraph(message(where, what))
    dtype = None if output.dtype is None else _dtype(output.dtype)
    if dtype is None:
        assert model is not None  # noqa: S101 - narrows the type for the checker
        dtype = model.dtype
    if output.shape is not None:
        return dtype, output.shape
    assert model is not None  # noqa: S101 - narrows the type for the checker
    return dtype, model.shape
