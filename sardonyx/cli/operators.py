"""`sardonyx operators`: every operator, with its versions, types, providers, and what computes it.

docs/operators.md is what it prints.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator
from itertools import groupby
from types import CodeType

import sardonyx.kernel.custom  # noqa: F401 - registers the kernels
from sardonyx.base.errors import message
from sardonyx.cli.output import say, say_text
from sardonyx.host.functions import function_names
from sardonyx.kernel.custom.task import special_names
from sardonyx.ops.core.refused import LAYOUT_DOMAINS, REASONS, reason_of
from sardonyx.ops.core.registry import OpRecord, records
from sardonyx.ops.core.signatures import GROUPS, Signature, SignatureParameter, signatures_of

_HEAD = """# Operators

Written by `sardonyx operators --markdown`; a test holds this file to it.

Every operator has one lowering to the tensor language, from which the kernels of all providers
are generated. The column *besides* names what else a lowering may use. That is kernels with
loops of their own (`sardonyx/kernel/custom/`), functions on the host (`sardonyx/host/`), and
regions (branches and loops, which are jumps in the plan).

Versions are those of the operator set from which on a record holds. Types are of the newest
version: `?` may be omitted, `+` is any number of one type, `*` any number of any types. CUDA
computes with numbers and bools; strings, and what holds sequences, optionals, maps or sparse
tensors that are fed, are the CPU's. SequenceMap has no row: `sardonyx/passes/expand.py` writes it
as a Loop.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of this command."""
    parser.add_argument("--markdown", action="store_true", help="print docs/operators.md")
    parser.add_argument("--only", default="", help="part of an operator's name")


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    if options.markdown:
        say_text(page().rstrip("\n"))
        return 0
    found = False
    for versions in _operators():
        name = f"{versions[0].domain or 'ai.onnx'}.{versions[0].op_type}"
        if options.only.lower() in name.lower():
            say("  |  ".join([name, *_cells(versions)[1:]]))
            found = True
    for (domain, op_type), reason in REASONS.items():
        name = f"{domain or 'ai.onnx'}.{op_type}"
        if options.only and options.only.lower() in name.lower():
            say(f"{name}  |  refused: {reason}")
            found = True
    if not found:
        text = message("--only", "No operator has this in its name", got=options.only)
        say(f"sardonyx operators: {text}", is_error=True)
    return int(not found)


def page() -> str:
    """The text of docs/operators.md."""
    lines = [_HEAD, "| group | types |", "|---|---|"]
    lines += [f"| {name} | {', '.join(sorted(group))} |" for name, group in GROUPS.items()]
    for domain, found in groupby(_operators(), lambda versions: versions[0].domain):
        rows = [_cells(versions) for versions in found]
        lines += ["", f"## {domain or 'ai.onnx'} ({len(rows)})", ""]
        lines += ["| operator | versions | inputs -> outputs | types | providers | besides |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [f"| {' | '.join(cells)} |" for cells in rows]
    lines += ["", "## Refused", "", "| operator | why |", "|---|---|"]
    lines += [f"| {d or 'ai.onnx'}.{name} | {why} |" for (d, name), why in REASONS.items()]
    lines += [f"| {domain}.* | {reason_of(domain, '')} |" for domain in LAYOUT_DOMAINS]
    return "\n".join(lines) + "\n"


def _operators() -> Iterator[list[OpRecord]]:
    for _, versions in groupby(records(), lambda r: (r.domain, r.op_type)):
        yield list(versions)


def _cells(versions: list[OpRecord]) -> list[str]:
    newest = versions[-1]
    found = signatures_of(newest.domain, newest.op_type)
    signature = found[-1] if found else None
    shown, types = ("", "") if signature is None else (_sides(signature), _types(signature))
    since = ", ".join(str(r.since) for r in versions)
    providers = "CPU" if "objects" in newest.flags or _only_strings(signature) else "CPU, CUDA"
    return [newest.op_type, since, shown, types, providers, ", ".join(_besides(versions))]


def _sides(signature: Signature) -> str:
    given, results = (", ".join(map(str, s)) for s in (signature.inputs, signature.outputs))
    return f"{given} -> {results}".strip()


def _types(signature: Signature) -> str:
    return "; ".join(f"{name}: {text}" for name, text in signature.texts.items())


def _only_strings(signature: Signature | None) -> bool:
    def allowed(parameter: SignatureParameter) -> bool:
        assert signature is not None  # noqa: S101 - narrows the type for the checker
        types = signature.types.get(parameter.type, {parameter.type})
        return types <= {"string", "seq", "map", "optional"}

    return signature is not None and any(map(allowed, (*signature.inputs, *signature.outputs)))


def _besides(versions: list[OpRecord]) -> list[str]:
    words = {w for record in versions for w in _words(record.lowering, set())}
    return sorted(words)


def _words(function: Callable[..., object], seen: set[object]) -> Iterator[str]:
    """What functions of `sardonyx.ops` that a lowering reaches ask for."""
    if function in seen:
        return
    seen.add(function)
    plain = inspect.unwrap(function)
    assert inspect.isfunction(plain)  # noqa: S101 - narrows the type for the checker
    cells = [c.cell_contents for c in plain.__closure__ or ()]
    for code in _codes(plain.__code__):
        texts = [c for c in code.co_consts if isinstance(c, str)]
        if "make_call" in code.co_names:
            yield from (f"kernel {c}" for c in texts if c in special_names())
        yield from (f"host {c}" for c in texts if c in function_names())
        named = [plain.__globals__.get(name) for name in code.co_names]
        for other in (*named, *cells):
            if not getattr(other, "__module__", "").startswith("sardonyx.ops"):
                continue
            members = vars(other).values() if inspect.isclass(other) else [other]
            for member in filter(inspect.isfunction, members):
                if member.__name__ == "results_of":
                    yield "region"
                yield from _words(member, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)
