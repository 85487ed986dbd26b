"""The operator records: what each version of each operator means, found by name.

A lowering takes the inputs in ONNX's order as positional tensors (None where omitted) and the
attributes, under ONNX's names, as keyword-only arguments with ONNX's defaults; one without a
default is required. Four keyword-only names are filled in by the caller instead of from
attributes: `output_count`, how many outputs the node gives, `version`, that of the operator set,
`scope`, which lowers the graphs among the attributes, and `kept`, a dict that stays with the node
for what is made out of large attributes, since a node is lowered several times. A lowering returns
a tensor, or a tuple of tensors (None for an output that is never asked for).
"""

from __future__ import annotations

import importlib
import keyword
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache, partial
from types import CodeType, MappingProxyType
from typing import Any, TypeVar

from sardonyx.base import errors
from sardonyx.base.errors import EngineError, Fail, InvalidGraph, message
from sardonyx.base.forks import compiling
from sardonyx.base.records import dataclass
from sardonyx.ir.node import Node
from sardonyx.ops.core.attribute_kinds import Kind, argument_of, kind_of
from sardonyx.ops.core.families import FAMILIES, RARE
from sardonyx.ops.core.refused import reason_of
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.core.signatures import signature_of
from sardonyx.tensor.elementwise import by_parts
from sardonyx.tensor.tensor import Tensor

Lowering = Callable[..., Any]
_Function = TypeVar("_Function", bound=Lowering)

_SUPPLIED = frozenset(("output_count", "version", "scope", "kept"))


_VARIADIC = 0x04  # the flag of a code object that takes *arguments


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One version of an operator.

    Attributes:
        domain: "" is ONNX's own.
        op_type: The operator's name.
        since: First version of the operator set that it holds for.
        lowering: See the module's text.
        flags: Words about it, such as `commutative`, for passes. With `strings` inputs may be
            strings, with `objects` sequences and the like; see tensor/host.py. A `linear` one
            treats the parts of complex elements in its first input alike.
        attributes: Names of the attributes that it takes.
        required: Names of those without a default.
        least_inputs: Number of inputs without a default.
        needed: Those of them that must not be omitted.
        most_inputs: Number of inputs that may be given; None if any number may.
        supplied: Which arguments the caller fills in.
        kinds: What Python makes of each attribute, as the lowering's annotation says; of those
            that it annotates.
        repeated: The first of the inputs that the lowering takes as `*`, if none of them may be
            omitted.
        defaults: Those of float attributes, as the file's 32 bits hold them.
    """

    domain: str
    op_type: str
    since: int
    lowering: Lowering
    flags: frozenset[str]
    attributes: frozenset[str]
    required: frozenset[str]
    least_inputs: int
    needed: tuple[int, ...]
    most_inputs: int | None
    supplied: frozenset[str]
    kinds: Mapping[str, Kind] = field(compare=False)
    repeated: int | None
    defaults: Mapping[str, float] = field(compare=False)

    def __repr__(self) -> str:
        return f"{self.domain or 'ai.onnx'}.{self.op_type}-{self.since}"


@dataclass(slots=True)
class _Declared:
    """A version of an operator, whose record is made when somebody asks for it: few are used.

    Attributes:
        since: First version of the operator set that it holds for.
    """

    since: int
    _make: Callable[[], OpRecord]
    _made: OpRecord | None = None

    @property
    def record(self) -> OpRecord:
        """The record."""
        if self._made is None:
            self._made = self._make()
        return self._made


_RECORDS: dict[tuple[str, str], list[_Declared]] = {}
#: Operators that the program registered.
_OWN: set[tuple[str, str]] = set()
_NOTHING: Mapping[str, int] = MappingProxyType({})

#: What version 1 of many operators had besides: which inputs might be overwritten.
CONSUMED_INPUTS: Mapping[str, int] = MappingProxyType({"consumed_inputs": 6})


def op(
    op_type: str,
    *since: int,
    domain: str = "",
    flags: Iterable[str] = (),
    added: Mapping[str, int] = _NOTHING,
    removed: Mapping[str, int] = _NOTHING,
) -> Callable[[_Function], _Function]:
    """Register the decorated lowering for the versions of an operator that it is true of.

    Args:
        op_type: The operator's name.
        since: First versions of the operator set that the lowering holds for; 1 if none are given.
        domain: "" is ONNX's own.
        flags: Words about the operator for passes.
        added: Attributes that came later, with the first version that has them.
        removed: Attributes that went, with the first version that is without them.
    """

    def register(lowering: _Function) -> _Function:
        versions, words = _RECORDS.setdefault((domain, op_type), []), frozenset(flags)
        for first in since or (1,):
            if any(other.since == first for other in versions):
                where = f"{domain or 'ai.onnx'}.{op_type}-{first}"
                raise EngineError(message(where, "The operator is registered twice"))
            make = partial(_record, op_type, first, domain, lowering, words, (added, removed))
            versions.append(_Declared(first, make))
        versions.sort(key=lambda r: -r.since)
        _lookup.cache_clear()
        return lowering

    return register


def _record(
    op_type: str,
    since: int,
    domain: str,
    lowering: Lowering,
    flags: frozenset[str],
    changes: tuple[Mapping[str, int], Mapping[str, int]] = (_NOTHING, _NOTHING),
) -> OpRecord:
    """The record of one version; `changes` are the attributes that came and that went."""
    added, removed = changes
    absent = {n for n, version in added.items() if since < version}
    absent |= {n for n, version in removed.items() if since >= version}
    code: CodeType = lowering.__code__
    positional = code.co_argcount
    named = code.co_varnames[positional : positional + code.co_kwonlyargcount]
    defaults = lowering.__kwdefaults__ or {}
    attributes = {n.rstrip("_") if keyword.iskeyword(n[:-1]) else n for n in named} - _SUPPLIED
    if absent - attributes:
        what = f"The lowering has no attribute {min(absent - attributes)!r}"
        raise EngineError(message(f"{op_type}-{since}", what))
    attributes -= absent
    notes = {n: str(text) for n, text in lowering.__annotations__.items()}
    variadic = code.co_varnames[positional + len(named)] if code.co_flags & _VARIADIC else ""
    least = positional - len(lowering.__defaults__ or ())
    optional = {n for n, text in notes.items() if text.endswith("| None")}
    return OpRecord(
        domain,
        op_type,
        since,
        lowering,
        flags,
        frozenset(attributes),
        frozenset(n for n in attributes if n not in defaults and f"{n}_" not in defaults),
        least,
        tuple(k for k in range(least) if code.co_varnames[k] not in optional),
        None if code.co_flags & _VARIADIC else positional,
        frozenset(named) & _SUPPLIED,
        {n: kind_of(notes[n]) for n in named if n in notes.keys() - _SUPPLIED},
        positional if notes.get(variadic) == "Tensor" else None,
        {n: _FLOAT32.unpack(_FLOAT32.pack(v))[0] for n, v in defaults.items() if type(v) is float},
    )


_FLOAT32 = struct.Struct("<f")


@cache
def load(domain: str) -> None:
    """Import the families of a domain, so that their records are registered."""
    with compiling:
        for family in FAMILIES.get(domain, ()):
            importlib.import_module(f"sardonyx.ops.{family}")


@cache
def load_frequent() -> None:
    """Import the families of ONNX's own operators that most models need."""
    with compiling:
        for family in FAMILIES[""]:
            if family not in RARE:
                importlib.import_module(f"sardonyx.ops.{family}")


def load_all() -> None:
    """Import all families."""
    for domain in FAMILIES:
        load(domain)


@cache
def _lookup(domain: str, op_type: str, version: int) -> OpRecord | None:
    if domain:
        load("")
        load(domain)
    else:
        _load_until(op_type)
    versions = _RECORDS.get((domain, op_type), ())
    return next((r.record for r in versions if r.since <= version or not version), None)


def _load_until(op_type: str) -> None:
    """Import families of ONNX's own operators, the frequent ones first, until one is there."""
    load_frequent()
    for family in RARE:
        if ("", op_type) in _RECORDS:
            return
        with compiling:
            importlib.import_module(f"sardonyx.ops.{family}")


def find(op_type: str, domain: str = "", version: int = 0) -> OpRecord | None:
    """The record in force at a version of the operator set (0: the newest), or None."""
    return _lookup(domain, op_type, version)


def record_for(op_type: str, since: int, domain: str, function: Lowering) -> OpRecord:
    """The record of an operator that takes what a function takes.

    Raises:
        KeyError: An attribute's annotation is none of `attribute_kinds.KINDS`.
    """
    return _record(op_type, since, domain, function, frozenset())


def add(record: OpRecord) -> bool:
    """Register an operator of the program's own, in place of one that it registered before.

    Returns:
        Whether it is registered: not where the package has an operator of that name.
    """
    load(record.domain)
    key = record.domain, record.op_type
    if key not in _OWN and key in _RECORDS:
        return False
    _OWN.add(key)
    others = [r for r in _RECORDS.get(key, ()) if r.since != record.since]
    own = _Declared(record.since, lambda: record)
    _RECORDS[key] = sorted([*others, own], key=lambda r: -r.since)
    _lookup.cache_clear()
    return True


def remove(domain: str, op_type: str) -> bool:
    """Forget an operator of the program's own; whether there was one."""
    key = domain, op_type
    if key not in _OWN:
        return False
    _OWN.remove(key)
    del _RECORDS[key]
    _lookup.cache_clear()
    return True


def is_own(node: Node) -> bool:
    """Whether a node's operator is of the program's own."""
    return (node.domain, node.op_type) in _OWN


def records() -> tuple[OpRecord, ...]:
    """All records of the package, by domain, name and version."""
    load_all()
    found = [r.record for key, each in _RECORDS.items() if key not in _OWN for r in each]
    return tuple(sorted(found, key=lambda r: (r.domain, r.op_type, r.since)))


def record_of(node: Node) -> OpRecord:
    """The record that says what a node means.

    Raises:
        InvalidGraph: There is none: of the standard's domains, or of one that is not imported.
        Fail: There is none, of another domain.
    """
    record = _lookup(node.domain, node.op_type, node.version)
    if record is None:
        load_all()
        others = _RECORDS.get((node.domain, node.op_type))
        known = f"version {others[-1].since} or later" if others else ""
        what = (
            f"The operator {node.op_type} of {node.domain or 'ai.onnx'}, version "
            f"{node.version}, is not supported"
        )
        reason = reason_of(node.domain, node.op_type)
        if reason:
            what += f": {reason}"
        do = "" if reason or others else _advice(node)
        raise _kind_of_unknown(node)(message(where(node), what, expected=known, do=do))
    return record


#: The domains of the standard, of which a checker knows all operators.
_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training")
#: Those that onnxruntime has without an import.
_ALWAYS_THERE = ("com.microsoft", "com.microsoft.nchwc", "ai.onnx.preview.training")


def _kind_of_unknown(node: Node) -> type[InvalidGraph | Fail]:
    """What onnxruntime raises for an operator that it does not know."""
    is_imported = node.version > 0 or node.domain in _ALWAYS_THERE
    return InvalidGraph if node.domain in _STANDARD or not is_imported else Fail


def _advice(node: Node) -> str:
    """What to do about an operator that nobody knows."""
    import difflib  # only for errors

    known = [op_type for domain, op_type in _RECORDS if domain == node.domain]
    found = difflib.get_close_matches(node.op_type, known, 1)
    if found:
        return f"Did you mean {found[0]!r}?"
    return "Register what it computes: docs/own_operators.md"


def where(node: Node) -> str:
    """How errors name a node: as the file does, or those of it that a pass made it from."""
    return node.where


def apply(
    node: Node, inputs: Sequence[Tensor | None], scope: Scope | None = None
) -> tuple[Tensor | None, ...]:
    """The outputs of a node, given the tensors of its inputs.

    Args:
        node: The node.
        inputs: The tensors, None where omitted.
        scope: Lowers the graphs among the node's attributes.

    Raises:
        NotImplemented: Something that the operator asks for is not supported.
        Fail: Nobody knows the operator, of a domain that is not the standard's.
        InvalidGraph: Nobody knows it, of the standard's domains; or inputs or attributes do not
            fit, and the text names node and input shapes.
        DataDependent: Contents are needed that only a run knows.
    """
    record = record_of(node)
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    arguments = _arguments(node, record, scope)
    count = len(given)
    given += [None] * (record.least_inputs - count)
    if record.most_inputs is not None and count > record.most_inputs:
        raise InvalidGraph(
            message(
                where(node),
                "It has too many inputs",
                expected=f"at most {record.most_inputs}",
                got=str(count),
            )
        )
    _check_types(node, record, given)
    missing = [k for k in record.needed if given[k] is None]
    if record.repeated is not None:
        missing += [k for k in range(record.repeated, len(given)) if given[k] is None]
    if missing:
        raise InvalidGraph(message(where(node), f"Its input number {missing[0]} is missing"))
    try:
        result = _lowered(record, given, arguments)
    except (InvalidGraph, EngineError) as error:
        raise InvalidGraph(_explain(node, given, error)) from error
    except errors.NotImplemented as error:
        raise errors.NotImplemented(_explain(node, given, error)) from error
    except (ValueError, TypeError, ArithmeticError, LookupError, *_OF_CONTENTS) as error:
        # Attributes and contents come from the file: what Python cannot compute with is its fault.
        raise InvalidGraph(_explain(node, given, _in_words(error))) from error
    outputs = result if isinstance(result, tuple) else (result,)
    if len(outputs) < len(node.outputs):
        raise InvalidGraph(
            message(
                where(node),
                "It has too many outputs",
                expected=f"at most {len(outputs)}",
                got=str(len(node.outputs)),
            )
        )
    return outputs


def _lowered(
    record: OpRecord, inputs: Sequence[Tensor | None], arguments: Mapping[str, object]
) -> Any:
    x = inputs[0] if inputs else None
    if x is None or not x.dtype.is_complex or "linear" not in record.flags:
        return record.lowering(*inputs, **arguments)
    return by_parts(lambda part: record.lowering(part, *inputs[1:], **arguments), x)


def _check_types(node: Node, record: OpRecord, inputs: Sequence[Tensor | None]) -> None:
    """Refuse types that the standard does not allow; codes where a lowering would compute."""
    signature = signature_of(node.domain, node.op_type, node.version)
    if signature is not None:
        signature.check(where(node), inputs)
    for x in inputs:
        if x is None or not x.dtype.is_code:
            continue
        if ("strings" if x.dtype.kind == "s" else "objects") not in record.flags:
            what = f"It does not take inputs of type {x.dtype.type_text}"
            raise errors.NotImplemented(message(where(node), what))


#: What a lowering raises about contents of constants.
_OF_CONTENTS = (errors.InvalidArgument, errors.DivisionByZero)

#: What is said of inputs whose sizes a lowering could not take apart.
OTHER_RANKS = "It does not take inputs of such ranks."


def _in_words(error: Exception) -> Exception | str:
    """An error of Python's own; in ours where sizes were taken apart that are not there."""
    text = str(error)
    apart = isinstance(error, IndexError) or "unpack" in text or "positional argument" in text
    return OTHER_RANKS if apart else error


def _explain(node: Node, inputs: Sequence[Tensor | None], error: Exception | str) -> str:
    shown = ", ".join("-" if x is None else f"{x.dtype}{list(x.shape)}" for x in inputs)
    return f"[{where(node)}] {error} Its inputs are {shown or 'none'}."


def _arguments(node: Node, record: OpRecord, scope: Scope | None) -> Mapping[str, object]:
    arguments: dict[str, object] = dict(record.defaults)
    for name, value in node.attributes.items():
        if name not in record.attributes:
            raise InvalidGraph(
                message(
                    where(node),
                    f"{record!r} has no attribute {name!r}",
                    expected=", ".join(sorted(record.attributes)) or "none",
                )
            )
        spelled = f"{name}_" if keyword.iskeyword(name) else name
        kind = record.kinds.get(spelled)
        arguments[spelled] = value if kind is None else argument_of(where(node), name, value, kind)
    missing = record.required - node.attributes.keys()
    if missing:
        raise InvalidGraph(message(where(node), f"Its attribute {min(missing)!r} is missing"))
    if record.supplied:
        known = {
            "output_count": len(node.outputs), "version": node.version, "scope": scope,
            "kept": node.kept,
        }  # fmt: skip
        arguments.update((name, known[name]) for name in record.supplied)
    return arguments
