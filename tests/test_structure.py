"""The shape of the source: who imports whom, how long files are, what import costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from sardonyx.api.session import InferenceSession
from sardonyx.cpu.executable import CpuParts
from sardonyx.cuda.run.executable import CudaParts
from sardonyx.store.cache import ABOVE, KERNEL_FOLDERS
from tests.support import limits

PACKAGE = Path(__file__).resolve().parents[1] / "sardonyx"
FILES = sorted(PACKAGE.rglob("*.py"))

#: Folder -> rank. A file may import from its own folder and from lower ranks. `plan.plan` and
#: `plan.serial` are plain data; `cpu` sees everything up to `runtime`.
RANK = {
    "base": 0, "host": 1, "tensor": 1, "ir": 2, "ops": 3, "loader": 4, "passes": 4,
    "plan": 5, "kernel": 6, "targets": 6.2, "llvm": 6.4, "link": 6.5, "workers": 6.6,
    "selection": 7, "native": 8, "store": 8, "runtime": 8, "cpu": 8.5, "cuda": 8.5, "plugins": 8.6,
    "compiler": 9, "profiling": 9.5, "api": 10, "capi": 11, "backend": 11, "datasets": 11,
    "tools": 11, "quantization": 11, "transformers": 11.5, "cli": 12,
}  # fmt: skip

_COMPILED = "only when a model is compiled: one that was seen before starts without"

#: Imports against the order, each with its reason.
EXCEPTIONS = {
    ("tensor", "ir"): "types only: a buffer names the constant behind it",
    ("api", "tools"): "only when asked: a session writes its optimised model",
    ("llvm", "workers"): "PTX is compiled by the code that child processes run",
    ("cpu", "compiler"): _COMPILED,
    ("cuda", "compiler"): _COMPILED,
    ("runtime", "compiler"): _COMPILED,
    ("runtime", "plugins"): "only for a model that a plugin has a part of",
}


def _folder(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "sardonyx" and parts[1] in RANK else None


def _imports(path: Path) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, node.level))
        elif isinstance(node, ast.Import):
            found.extend((alias.name, 0) for alias in node.names)
    return found


@pytest.mark.parametrize("own", sorted({p.relative_to(PACKAGE).parts[0] for p in FILES}))
def test_import_direction(own: str) -> None:
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] != own:
            continue
        for module, level in _imports(path):
            assert level == 0, f"{path}: relative import of {module}"
            folder = _folder(module)
            if folder is None or own not in RANK or (own, folder) in EXCEPTIONS:
                continue
            assert RANK[folder] <= RANK[own], f"{path}: {own} must not import {module}"


#: Functions that planning passes consist of: plan decides, and others ask `plan.pipeline`.
PASSES = {
    "find_roots", "make_groups", "fuse_attention", "as_integers", "choose_layouts",
    "with_long_columns", "with_whole_image", "with_borders", "in_order", "with_numbers",
    "taken_over", "rings_of", "find_appended",
}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_passes_are_run_by_their_list(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] == "plan":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sardonyx.plan."):
            wrong = PASSES & {alias.name for alias in node.names}
            assert not wrong, f"plan.pipeline runs {', '.join(sorted(wrong))}"


#: Modules of `plan` that those below selection read: data, and what is said of it.
PLAN_DATA = {
    "axes", "blockwise", "codes", "cuts", "groups", "inline", "layout",
    "plan", "reasons", "roles", "swap_operands",
}  # fmt: skip


def test_kernels_know_no_passes() -> None:
    found = {
        module.split(".")[2]
        for path in FILES
        if path.relative_to(PACKAGE).parts[0] in ("kernel", "llvm", "link", "workers", "targets")
        for module, _ in _imports(path)
        if module.startswith("sardonyx.plan.")
    }
    assert found <= PLAN_DATA, found - PLAN_DATA


def test_what_decides_on_code_is_in_its_digest() -> None:
    """The rest is what the engine must not import."""
    assert {folder for folder, rank in RANK.items() if rank > RANK["compiler"]} == ABOVE


#: What folders that decide on kernels import of others, with the reason why it decides on none.
_DECIDES_NOTHING = {
    "sardonyx.workers.child": "compiles a text, as any process does",
    "sardonyx.store.cache": "keeps what was made",
    "sardonyx.store.machine_code": "keeps what was made",
    "sardonyx.store.kernel_archive": "keeps what was made",
    "sardonyx.runtime.arena": "addresses of arrays",
}


@pytest.mark.parametrize("own", KERNEL_FOLDERS)
def test_what_decides_on_kernels_is_in_their_digest(own: str) -> None:
    """Kernel archives and the disk cache find kernels by it."""
    for path in sorted((PACKAGE / own).rglob("*.py")):
        for module, _ in _imports(path):
            folder = _folder(module)
            known = folder is None or folder in KERNEL_FOLDERS or module in _DECIDES_NOTHING
            assert known, f"{path} imports {module}"


def test_length_of_files() -> None:
    paths = [*FILES, *sorted(Path(__file__).parent.rglob("*.py"))]
    long = {str(p): n for p in paths if (n := len(p.read_text().splitlines())) > 700}
    assert not long, "split the files"


def test_one_file_prints() -> None:
    """The one that makes texts printable."""
    for path in FILES:
        text = path.read_text()
        if path.relative_to(PACKAGE).as_posix() == "cli/output.py" or "print" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            is_print = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
            assert not is_print, f"{path} prints"


def test_import_is_light() -> None:
    code = (
        "import sys, sardonyx\n"
        "heavy = ('llvmlite', 'onnx', 'torch', 'PIL', 'sardonyx.llvm.module', 'sardonyx.ops')\n"
        "print([m for m in heavy if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


#: Folders whose classes and functions are as small as is said here.
def test_the_session_inherits_nothing() -> None:
    """What it needs beyond its interface is in parts; they look into no other's private fields."""
    assert InferenceSession.__mro__ == (InferenceSession, object)
    own = {n for n in limits.methods_of(InferenceSession) if n.startswith("_")}
    given = {"_sess", "_sess_options", "_model_path", "_model_bytes", "_providers", "_repr_html_"}
    assert own - given == {"_make", "_take"}
    private = re.compile(r"\b(session|_session|model|runs|_runs|_model|_values)\._[a-z]\w*")
    for path in sorted((PACKAGE / "api").rglob("*.py")):
        if path.name != "parts.py":  # the one door
            assert not private.search(path.read_text()), f"{path} looks into a part"


#: What tests must not name: the engine behind a session, and the parts of an executable.
_INSIDE = re.compile(
    rf"\._engine\b|\.parts\.({'|'.join(f.name for f in (*fields(CpuParts), *fields(CudaParts)))})\b"
)
#: Tests of the classes behind a session, which call or change them; others look at it through
#: `api.inspection`.
INSIDE = {
    "compiler/test_tuning.py": "times the kernels of an engine",
    "cuda/interop/test_torch_tensors.py": "asks the fast path whether it takes a call",
    "cuda/memory/test_arena.py": "sees whether sessions have one arena",
    "cuda/run/test_device_control_flow.py": "stops a run from the host",
    "cuda/run/test_fast_path.py": "calls the fast path, and looks at a frame's last run",
    "cuda/test_after_trouble.py": "begins a run with a flag of its own, and leaves it",
    "engine/test_branches.py": "reads the tables that a walk writes",
    "engine/test_together.py": "reads and writes the tables of a walk, and counts its returns",
    "profiling/test_profile.py": "asks the fast path whether it takes a run",
    "runtime/test_life_cycle.py": "sees that an engine goes with its session",
}


def test_tests_look_into_no_session() -> None:
    tests = Path(__file__).parent
    texts = {p.relative_to(tests).as_posix(): p.read_text() for p in tests.rglob("*.py")}
    del texts["test_structure.py"]
    assert {name: found for name, text in texts.items() if (found := _INSIDE.findall(text))} == {}
    doors = ("tests.support.inside", "sardonyx.api.parts")
    found = {name for name, text in texts.items() if any(door in text for door in doors)}
    assert found - {"support/inside.py"} == INSIDE.keys()


def test_locks_of_modules_are_open_in_forked_processes() -> None:
    """A thread that the child does not have must not hold one: `base.forks` makes such locks."""
    renewed_by_itself = {"runtime/pool.py"}
    plain = re.compile(r"^\w+ = (threading\.)?R?Lock\(\)", re.MULTILINE)
    found = [
        name
        for path in FILES
        if (name := str(path.relative_to(PACKAGE))) not in renewed_by_itself
        and plain.search(path.read_text())
    ]
    assert found == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]
    assert project["mypy"]["strict"] is True
    assert "sardonyx" in project["mypy"]["files"]
    assert "py.typed" in project["setuptools"]["package-data"]["sardonyx"]


FOLDERS = sorted(p.parent for p in PACKAGE.rglob("__init__.py"))
#: Names that other programs import: their texts are for users.
NO_MAP = {"backend", "capi", "datasets", "quantization", "transformers", "tools", "cli"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(PACKAGE.parent)))
def test_a_folder_says_what_is_in_it(folder: Path) -> None:
    """Its purpose, its entry point, and files to read first, which are there."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    if folder == PACKAGE or folder.name in NO_MAP or folder.parent.name in NO_MAP:
        assert text
        return
    entry, _, first = text.partition("Read first:")
    assert "Entry point:" in entry, "name the entry point"
    named = re.findall(r"`([\w/]+\.py)`", first)
    assert named and all((folder / name).is_file() for name in named), named


def test_the_run_time_knows_no_provider() -> None:
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] in ("runtime", "store", "native"):
            found = {_folder(module) for module, _ in _imports(path)} & {"cpu", "cuda"}
            assert not found, f"{path} imports {found}"
