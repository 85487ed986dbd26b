"""Writes `sardonyx/ops/signatures_*.py` out of the schemas of onnx and onnxruntime.

    python -m tests.ops.make_signatures

needs both packages. Types are those of all versions whose inputs are alike: what a later version
of an operator allows, an earlier one may have, too.
"""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import onnx.defs

from sardonyx.ops.core import registry
from sardonyx.ops.core.signatures import GROUPS

FOLDER = pathlib.Path(registry.__file__).parent

#: File -> domains.
FILES = {
    "onnx": ("",),
    "more": ("ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"),
    "microsoft": ("com.microsoft",),
}

_HEAD = '''"""Signatures of operators; see signatures.py.

Written by `python -m tests.ops.make_signatures`.
"""

from __future__ import annotations

#: Domain -> rows.
TABLES = {'''


def types_of(texts: Iterable[str]) -> frozenset[str]:
    """ONNX's words for types as the tables have them: containers by their first word.

    Sparse tensors that are constants of the model may be dense once it is loaded.
    """
    found = set()
    for text in texts:
        word, _, inside = text.partition("(")
        found.add(inside[:-1] if word in ("tensor", "sparse_tensor") else word if inside else text)
        if word == "sparse_tensor":
            found.add(word)
    return frozenset(found)


def expression(types: frozenset[str]) -> str:
    """A set as the shortest sum and difference of named ones."""
    best = sorted(types)
    for name, group in GROUPS.items():
        trial = [name, *sorted(types - group), *(f"-{t}" for t in sorted(group - types))]
        best = min(best, trial, key=len)
    return " ".join(best)


def parameters(schema: Any, which: str) -> Iterator[tuple[str, str, str]]:
    """Name, type and mark of each input or output."""
    for p in getattr(schema, which):
        kind = str(p.option).rpartition(".")[2]
        plain = getattr(p, "is_homogeneous", getattr(p, "isHomogeneous", True))
        mark = {"Optional": "?", "Variadic": "+" if plain else "*"}.get(kind, "")
        yield p.name, getattr(p, "type_str", None) or p.typeStr, mark


def structure(schema: Any) -> tuple[tuple[tuple[str, str, str], ...], ...]:
    """Inputs and outputs."""
    return tuple(tuple(parameters(schema, which)) for which in ("inputs", "outputs"))


def constraints(schema: Any) -> dict[str, frozenset[str]]:
    """The types that each type parameter stands for."""
    return {c.type_param_str: types_of(c.allowed_type_strs) for c in schema.type_constraints}


def lines_of(name: str, versions: list[Any]) -> Iterator[str]:
    """The rows of one operator."""
    versions = sorted(versions, key=lambda s: s.since_version)
    starts = [
        k
        for k, schema in enumerate(versions)
        if not k or [p[1:] for side in structure(schema) for p in side]
        != [p[1:] for side in structure(versions[k - 1]) for p in side]
    ]  # fmt: skip
    for start, end in zip(starts, [*starts[1:], len(versions)], strict=True):
        union: dict[str, frozenset[str]] = {}
        for schema in versions[start:]:
            for parameter, types in constraints(schema).items():
                union[parameter] = union.get(parameter, frozenset()) | types
        newest = versions[end - 1]
        used = [p for side in structure(newest) for _, p, _ in side]
        sides = [
            " ".join(f"{n}:{_inline(p)}{mark}" for n, p, mark in side) for side in structure(newest)
        ]
        named = [p for p in dict.fromkeys(used) if p in constraints(newest)]
        where = [f"{p}={expression(union[p])}" for p in named]
        yield "; ".join(
            [f"{name} {versions[start].since_version}: {sides[0]} -> {sides[1]}", *where]
        )


def _inline(parameter: str) -> str:
    (only,) = types_of([parameter])
    return only


def schemas() -> Iterator[Any]:
    """All schemas of operators that have records, onnx's own first."""
    from onnxruntime.capi import onnxruntime_pybind11_state as theirs

    own = onnx.defs.get_all_schemas_with_history()
    known = {(s.domain, s.name, s.since_version) for s in own}
    for schema in own:
        if registry.find(schema.name, schema.domain) is not None:
            yield schema
    for schema in theirs.get_all_operator_schema():
        name, domain, version = schema.name, schema.domain, schema.since_version
        if (domain, name, version) not in known and registry.find(name, domain, version):
            yield schema


def main() -> None:
    """Write the files."""
    found: dict[tuple[str, str], list[Any]] = {}
    for schema in schemas():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    for file, domains in FILES.items():
        text = [_HEAD]
        for domain in domains:
            text.append(f'    "{domain}": """')
            for (where, name), versions in sorted(found.items()):
                for line in lines_of(name, versions) if where == domain else ():
                    text += textwrap.wrap(line, 99, subsequent_indent="    ")
            text.append('""",')
        text.append("}\n")
        (FOLDER / f"signatures_{file}.py").write_text("\n".join(text))


if __name__ == "__main__":
    main()
