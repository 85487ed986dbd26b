"""Options of a compilation: what decides on code is in the key of a model."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from sardonyx.compiler import compile_options
from sardonyx.compiler.compile_options import PROVIDER, CompileOptions
from sardonyx.compiler.options import EngineOptions

ROOT = Path(compile_options.__file__).parents[1]
#: Options that change no result: who is asked, told, or has parts in keys of its own.
BESIDE = {"keeper", "layers", "choices", "on_kernel", "reasons", "trace"}
KEYED = {f.name for f in dataclasses.fields(EngineOptions) if f.metadata["key"] is not None}


def test_every_option_says_what_decides_on_it() -> None:
    found = {f.name: f.metadata["from"] for f in dataclasses.fields(CompileOptions)}
    assert {name for name, names in found.items() if not names} == BESIDE
    for names in found.values():
        assert set(names) <= KEYED | {PROVIDER}


def test_options_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CompileOptions().winograd = False  # type: ignore[misc]


@pytest.mark.parametrize("name", ["threads", "load_seconds", "nothing"])
def test_what_is_in_no_key_cannot_decide(name: str) -> None:
    with pytest.raises(ValueError, match=f"the key of a model has no {name}"):
        compile_options._decided_by("winograd", name, default=False)


@pytest.mark.parametrize("folder", ["compiler", "plan", "selection"])
def test_functions_have_six_parameters_at_most(folder: str) -> None:
    """More become a record."""
    found = {}
    for path in sorted((ROOT / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                a = node.args
                names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
                count = len([n for n in names if n not in ("self", "cls")])
                if count > 6:
                    found[f"{path.name} {node.name}"] = count
    assert not found
