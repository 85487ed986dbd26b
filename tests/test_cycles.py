"""No folder's modules import each other in a circle, but where a function does so for a reason."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: Imports inside functions that would close a circle: (folder, importer, imported) -> reason.
LATER = {
    ("api", "session", "load"): "`load` makes sessions; a session offers the same as a method",
    ("base", "sizes", "integer"): "`//` and `%` of sizes are functions of integers",
    ("api", "session", "iobinding"): "a binding is of a session, and `io_binding` makes one",
    ("compiler", "drive", "tuning"): "tuning compiles a model in several ways, on request alone",
    ("cpu", "executable", "recording"): "recorded runs have an executable of their own",
    ("cuda.libraries", "libraries", "cublaslt"): "each library registers what it takes",
    ("cuda.libraries", "libraries", "cudnn"): "each library registers what it takes",
    ("cuda.memory", "values", "growable_values"): "a value may lie in a growable buffer",
    ("ir", "graph", "clone"): "a graph copies itself",
    ("ir", "node", "graph"): "a graph may be an attribute of a node",
    ("ir", "node", "text"): "what a node is printed as",
    ("ir", "text", "graph"): "graphs among attributes are printed too",
    ("ir", "value", "text"): "what a value is printed as",
    ("profiling", "profile", "chrome"): "a profile writes itself as a trace",
    ("selection", "kernel_cache", "selector"): "imported when the first kernel must be built",
    ("selection", "matmul", "matmul_candidates"): "imported when the first kernel must be built",
    ("tensor", "operators", "views"): "operators of tensors are functions of the language",
    ("tensor", "operators", "reshaping"): "operators of tensors are functions of the language",
    ("tensor", "operators", "elementwise"): "operators of tensors are functions of the language",
    ("tensor", "operators", "reduction"): "operators of tensors are functions of the language",
    ("tensor", "scalar", "checked"): "a load that is replaced may have a check of its index",
    ("tensor", "scalar", "complex_scalar"): "operations of complex numbers are written out",
}

Imports = dict[str, set[str]]


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imports(tree: ast.AST, own: str, names: set[str]) -> set[str]:
    """Modules of the same folder that a module imports, in functions too; not for types alone."""
    found, stack = set[str](), [tree]
    while stack:
        node = stack.pop()
        if _is_for_types(node):
            continue
        stack += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == own:
                found |= {alias.name for alias in node.names} & names
            elif node.module.startswith(f"{own}."):
                found |= {node.module[len(own) + 1 :]} & names
    return found


def _modules() -> dict[str, list[Path]]:
    made: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((ROOT / "sardonyx").rglob("*.py")):
        if path.name != "__init__.py":
            made[".".join(path.parent.relative_to(ROOT / "sardonyx").parts)].append(path)
    return made


#: Folder -> its modules. Files are read by tests: every worker of a parallel run collects all.
FOLDERS = _modules()


@cache
def _imports_of(folder: str) -> Imports:
    names, own = {path.stem for path in FOLDERS[folder]}, f"sardonyx.{folder}".rstrip(".")
    return {p.stem: _imports(ast.parse(p.read_text()), own, names) for p in FOLDERS[folder]}


def _circle(imports: Imports) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_no_circle_but_those_with_a_reason(folder: str) -> None:
    left = {
        name: {other for other in found if (folder, name, other) not in LATER}
        for name, found in _imports_of(folder).items()
    }
    assert _circle(left) == []


@pytest.mark.parametrize(("folder", "name", "other"), sorted(LATER))
def test_each_reason_is_needed(folder: str, name: str, other: str) -> None:
    imports = _imports_of(folder)
    assert other in imports[name]
    seen, stack = set[str](), [other]
    while stack:
        here = stack.pop()
        if here not in seen:
            seen.add(here)
            stack += imports[here]
    assert name in seen, "there is no circle"
