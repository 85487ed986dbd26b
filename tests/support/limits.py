"""What a reader has to know of a class or of a function, as counted by tests of the structure."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2] / "sardonyx"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def _bases(cls: type) -> list[type]:
    """The class and those of the package that it inherits from."""
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "sardonyx"]


def methods_of(cls: type) -> set[str]:
    """Methods and properties of a class over its MRO, within the package.

    Those that Python calls by itself (`__init__`, `__add__`) do not count.
    """
    kinds = (property, classmethod, staticmethod)
    return {
        name
        for base in _bases(cls)
        for name, value in vars(base).items()
        if (inspect.isfunction(value) or isinstance(value, kinds))
        and not (name.startswith("__") and name.endswith("__"))
    }


def attributes_of(cls: type) -> set[str]:
    """What methods of a class store in `self` over its MRO, within the package.

    A record has none of its own: its fields are what it is there for.
    """
    return {name for base in _bases(cls) for name in _stored(base)}


@cache
def _stored(cls: type) -> frozenset[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    return frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def parameters_of(function: FunctionNode, *, is_method: bool = False) -> list[str]:
    """Names of a function's parameters, without `self`, `cls`, `*rest` and `**rest`."""
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[1:] if is_method and names[:1] in (["self"], ["cls"]) else names


def classes_in(folder: str) -> Iterator[type]:
    """The classes that modules of a folder define."""
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        if path.stem == "__main__":
            continue
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        module = importlib.import_module(name.removesuffix(".__init__"))
        found: dict[str, Any] = vars(module)
        yield from (
            value
            for value in found.values()
            if inspect.isclass(value) and value.__module__ == module.__name__
        )


def functions_in(folder: str) -> Iterator[tuple[str, FunctionNode, bool]]:
    """Functions of a folder: where each stands, the function, and whether it is a method."""
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        where = path.relative_to(PACKAGE).as_posix()
        yield from _functions(where, ast.parse(path.read_text()), is_class=False)


def _functions(
    where: str, node: ast.AST, *, is_class: bool
) -> Iterator[tuple[str, FunctionNode, bool]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, FunctionNode):
            yield f"{where}:{inner.name}", inner, is_class
        name = f"{where}:{inner.name}" if isinstance(inner, ast.ClassDef) else where
        yield from _functions(name, inner, is_class=isinstance(inner, ast.ClassDef))


def is_lowering(function: FunctionNode) -> bool:
    """Whether a function is an operator's: its parameters are the specification's."""
    calls = [d.func for d in function.decorator_list if isinstance(d, ast.Call)]
    return any(isinstance(called, ast.Name) and called.id == "op" for called in calls)
