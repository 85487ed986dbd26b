"""Which types the inputs of an operator may have.

The tables are text, a row for each operator and each change of its inputs, continued on lines that
are indented:

    Clip 11: input:T min:T? max:T? -> output:T; T=numbers

`?` may be omitted, `+` stands for any number of inputs of one type, `*` for any number of any type.
Types are ONNX's words, groups of `GROUPS`, or the first word of a container's type (`seq`); `-int8`
takes one out. Two liberties are taken: a type that a later version allows counts for earlier ones,
too, and what takes bools as well as complex numbers takes all types, since it only moves elements.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache

from sardonyx.base.dtypes import BY_NAME, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.forks import compiling
from sardonyx.base.records import dataclass
from sardonyx.tensor.tensor import Tensor

_FLOATS = frozenset("float float16 bfloat16 double".split())
_SIGNED = frozenset("int8 int16 int32 int64".split())
_UNSIGNED = frozenset("uint8 uint16 uint32 uint64".split())
_NUMBERS = _FLOATS | _SIGNED | _UNSIGNED
_TENSORS = _NUMBERS | frozenset("bool complex64 complex128 string".split())
_FLOAT8 = frozenset("float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz".split())
_NARROW = _FLOAT8 | frozenset("float4e2m1 float8e8m0 int2 int4 uint2 uint4".split())

#: Names of sets of types.
GROUPS: Mapping[str, frozenset[str]] = {
    "floats": _FLOATS,
    "float8": _FLOAT8,
    "integers": _SIGNED | _UNSIGNED,
    "numbers": _NUMBERS,
    "tensors": _TENSORS,
    "all": _TENSORS | _NARROW,
}

#: So many types are listed where one is wrong; of more their groups are named.
_FEW = 6

#: Domain -> module of its table.
_MODULES = {
    "": "onnx",
    "ai.onnx.ml": "more",
    "ai.onnx.preview": "more",
    "ai.onnx.preview.training": "more",
    "com.microsoft": "microsoft",
}


@dataclass(frozen=True, slots=True)
class SignatureParameter:
    """One input or output, or the last that repeats.

    Attributes:
        name: The standard's name.
        type: A type parameter such as `T`, or a type.
        mark: `?`, `+`, `*` or nothing; see the module's text.
    """

    name: str
    type: str
    mark: str

    def __str__(self) -> str:
        return self.type + self.mark


@dataclass(frozen=True, slots=True)
class Signature:
    """Types of inputs and outputs, from one version on.

    Attributes:
        since: That version.
        inputs: In order.
        outputs: In order.
        types: The types that a type parameter may stand for.
        texts: The same as the table writes it.
    """

    since: int
    inputs: tuple[SignatureParameter, ...]
    outputs: tuple[SignatureParameter, ...]
    types: Mapping[str, frozenset[str]]
    texts: Mapping[str, str]

    def parameter(self, number: int) -> SignatureParameter | None:
        """That of an input, or None if there are not so many."""
        if number < len(self.inputs):
            return self.inputs[number]
        last = self.inputs[-1] if self.inputs else None
        return last if last is not None and last.mark in ("+", "*") else None

    def check(self, where: str, inputs: Sequence[Tensor | None]) -> None:
        """Refuse inputs whose types do not fit.

        Raises:
            InvalidGraph: `where`, with the input and its types.
        """
        wrong = self._mismatch(inputs)
        if wrong is not None:
            what, expected, got = wrong
            do = "Feed it as a dense tensor" if got.startswith("sparse_tensor") else ""
            raise InvalidGraph(message(where, what, expected=expected, got=got, do=do))

    def _mismatch(self, inputs: Sequence[Tensor | None]) -> tuple[str, str, str] | None:
        bound: dict[str, tuple[DType, str]] = {}
        for number, x in enumerate(inputs):
            wanted = self.parameter(number)
            if x is None or wanted is None:
                continue
            what = f"The type of its input {wanted.name} (number {number})"
            got = x.dtype.type_text if x.dtype.is_code else x.dtype.name
            allowed = self.types.get(wanted.type) or frozenset((wanted.type,))
            if x.dtype.name.partition("(")[0] not in allowed:
                few = len(allowed) <= _FEW
                text = ", ".join(sorted(allowed)) if few else self.texts[wanted.type]
                return what + " is wrong", text, got
            if wanted.type not in self.types or wanted.mark == "*" or x.dtype.kind == "o":
                continue
            first, other = bound.setdefault(wanted.type, (x.dtype, wanted.name))
            if first is not x.dtype:
                return f"{what} differs from that of {other}", first.name, got
        return None


@cache
def signature_of(domain: str, op_type: str, version: int) -> Signature | None:
    """The signature in force at a version (0: the newest); None if no table has one."""
    versions = reversed(_table(domain).get(op_type, ()))
    return next((_parse(row) for since, row in versions if since <= version or not version), None)


def signatures_of(domain: str, op_type: str) -> tuple[Signature, ...]:
    """All signatures of an operator, the oldest first."""
    return tuple(_parse(row) for _, row in _table(domain).get(op_type, ()))


@cache
def _table(domain: str) -> dict[str, list[tuple[int, str]]]:
    if domain not in _MODULES:
        return {}
    with compiling:
        module = importlib.import_module(f"sardonyx.ops.core.signatures_{_MODULES[domain]}")
    found: dict[str, list[tuple[int, str]]] = {}
    for row in module.TABLES[domain].replace("\n    ", " ").strip().splitlines():
        name, since = row.partition(":")[0].split()
        found.setdefault(name, []).append((int(since), row))
    return found


def _parse(row: str) -> Signature:
    head, _, rest = row.partition(": ")
    sides, *where = rest.split("; ")
    given, _, results = sides.partition("->")
    texts = dict(w.split("=", 1) for w in where)
    types = {name: _expand(text) for name, text in texts.items()}
    return Signature(int(head.split()[1]), _parameters(given), _parameters(results), types, texts)


def _parameters(text: str) -> tuple[SignatureParameter, ...]:
    found = []
    for word in text.split():
        name, _, kind = word.partition(":")
        plain = kind.rstrip("?+*")
        found.append(SignatureParameter(name, plain, kind[len(plain) :]))
    return tuple(found)


def _expand(text: str) -> frozenset[str]:
    found: set[str] = set()
    for word in text.split():
        if word.startswith("-"):
            found.discard(word[1:])
        else:
            found |= GROUPS.get(word, {word})
    moves = {"bool", "complex64"} <= found
    return frozenset(found | BY_NAME.keys() if moves else found)
