"""The shape of the source: who imports whom, how long files are, what import costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sardonyx.api.session import InferenceSession
from sardonyx.store.cache import ABOVE
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
LIMITED = (
    "api backend base capi cli datasets host ir link llvm loader native ops passes plugins "
    "profiling quantization store targets tensor tools transformers workers"
).split()
_MOST_METHODS, _MOST_ATTRIBUTES, _MOST_PARAMETERS = 25, 15, 6

_FACE = "onnxruntime's names, all of which programs may use; parts do the work"
#: Classes that have more, each with its reason.
LARGE_CLASSES = {
    "InferenceSession": _FACE,
    "SessionOptions": _FACE,
    "OrtValue": _FACE,
    "FunctionEmitter": "LLVM's instructions, and the control flow around them, share one state",
    "NativeFunctions": "a table of functions, one attribute for each",
}

_CALLERS = "arguments that programs give by name"
_CODES = "options of a quantisation, which its configurations give by name"
_HOT = "called for every message of a file: a record for each would cost more than reading it"
_OPERATOR = "inputs and attributes of one operator, which its specification lists"
#: Functions that take more, each with its reason. Lowerings take what their operator has.
LONG_PARAMETER_LISTS = {
    "api/compiling.py:ModelCompiler:__init__": _CALLERS,
    "api/generation/generate.py:generate": _CALLERS,
    "api/memory.py:OrtMemoryInfo:create_v2": _CALLERS,
    "api/ortvalue.py:OrtValue:ortvalue_from_address": _CALLERS,
    "api/session.py:InferenceSession:run_async": _CALLERS,
    "tools/convert/convert.py:convert": _CALLERS,
    "tools/optimizer/model.py:optimize_model": _CALLERS,
    "quantization/block_configs.py:DefaultWeightOnlyQuantConfig:__init__": _CALLERS,
    "quantization/calibrate.py:MinMaxCalibrater:__init__": _CALLERS,
    "quantization/calibrate.py:create_calibrator": _CALLERS,
    "quantization/configs.py:DynamicQuantConfig:__init__": _CALLERS,
    "quantization/configs.py:QuantConfig:__init__": _CALLERS,
    "quantization/configs.py:StaticQuantConfig:__init__": _CALLERS,
    "quantization/configs.py:get_qdq_config": _CALLERS,
    "quantization/matmul_nbits_quantizer.py:MatMulNBitsQuantizer:__init__": _CALLERS,
    "quantization/quantize.py:quantize_dynamic": _CALLERS,
    "quantization/quantize.py:quantize_static": _CALLERS,
    "quantization/shape_inference.py:quant_pre_process": _CALLERS,
    "quantization/arithmetic.py:parameters_of_range": _CODES,
    "quantization/arithmetic.py:parameters_of_weights": _CODES,
    "host/ngrams.py:count": "attributes of TfIdfVectorizer, which a plan names",
    "ir/node.py:Node:__init__": "what a file says of a node",
    "tensor/tensor.py:buffer": "facts about an array, of which each caller gives one or two",
    "loader/wire.py:_enter": _HOT,
    "loader/wire.py:_fields": _HOT,
    "ops/contrib/attention.py:attend": _OPERATOR,
    "ops/contrib/attention.py:attend_projected": _OPERATOR,
    "ops/contrib/experts.py:_packed": _OPERATOR,
    "ops/contrib/indexer.py:_tokens": _OPERATOR,
    "ops/contrib/indexer_packed.py:_entries": _OPERATOR,
    "ops/contrib/indexer_packed.py:_updates": _OPERATOR,
    "ops/contrib/packed.py:_attend_packed": _OPERATOR,
    "ops/contrib/paged.py:written_tokens": _OPERATOR,
    "ops/generation/decoders.py:Decoder:_inputs": _OPERATOR,
    "ops/generation/generation.py:_beam_search": _OPERATOR,
    "ops/ml/linear.py:_check_pairs": _OPERATOR,
    "ops/ml/tree_votes.py:votes_of": _OPERATOR,
    "ops/onnx/convolution.py:convolve": _OPERATOR,
    "ops/onnx/indexing.py:policy_of": _OPERATOR,
    "ops/onnx/linear_attention.py:linear_attention": _OPERATOR,
    "ops/onnx/normalisation.py:layer_norm": _OPERATOR,
    "ops/onnx/quantise.py:quantise": _OPERATOR,
}


@pytest.mark.parametrize("folder", LIMITED)
def test_classes_are_small(folder: str) -> None:
    for cls in limits.classes_in(folder):
        if cls.__name__ not in LARGE_CLASSES:
            methods, attributes = limits.methods_of(cls), limits.attributes_of(cls)
            what = f"{cls.__qualname__} has {len(methods)} methods, {len(attributes)} attributes"
            is_small = len(methods) <= _MOST_METHODS and len(attributes) <= _MOST_ATTRIBUTES
            assert is_small, f"{what}: parts of their own can do some of it"


@pytest.mark.parametrize("folder", LIMITED)
def test_parameter_lists_are_short(folder: str) -> None:
    for where, function, is_method in limits.functions_in(folder):
        if where not in LONG_PARAMETER_LISTS and not limits.is_lowering(function):
            names = limits.parameters_of(function, is_method=is_method)
            assert len(names) <= _MOST_PARAMETERS, f"{where}: make a record of some of {names}"


def test_exceptions_of_sizes_are_needed() -> None:
    """Each is there, and above a limit."""
    classes = {cls.__name__: cls for folder in LIMITED for cls in limits.classes_in(folder)}
    for name in LARGE_CLASSES:
        cls = classes[name]
        methods, attributes = limits.methods_of(cls), limits.attributes_of(cls)
        assert len(methods) > _MOST_METHODS or len(attributes) > _MOST_ATTRIBUTES, name
    long = {
        where
        for folder in LIMITED
        for where, function, is_method in limits.functions_in(folder)
        if len(limits.parameters_of(function, is_method=is_method)) > _MOST_PARAMETERS
    }
    assert LONG_PARAMETER_LISTS.keys() <= long


def test_the_session_inherits_nothing() -> None:
    """What it needs beyond its interface is in parts; they look into no other's private fields."""
    assert InferenceSession.__mro__ == (InferenceSession, object)
    own = {n for n in limits.methods_of(InferenceSession) if n.startswith("_")}
    given = {"_sess", "_sess_options", "_model_path", "_model_bytes", "_providers", "_repr_html_"}
    assert own - given == {"_make", "_take", "_engine"}
    private = re.compile(r"\b(session|_session|model|runs|_runs|_model|_values)\._[a-z]\w*")
    for path in sorted((PACKAGE / "api").rglob("*.py")):
        if path.name != "parts.py":  # the one door
            assert not private.search(path.read_text()), f"{path} looks into a part"


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


#: Folders of what runs plans: their classes are composed of parts (see `runtime.executable`).
COMPOSED = ("runtime", "cpu", "cuda")
MOST_METHODS, MOST_ATTRIBUTES, MOST_PARAMETERS = 22, 12, 6
#: Classes that have more, over what they derive from -> methods and attributes, and why.
LARGER = {
    "Arena": (20, 16, "the one lock of an arena guards all that it counts"),
    "CublasLt": (17, 15, "results of trials, by what they were made for"),
    "CudaFrame": (33, 39, "`Frame`, and what one run has on a device, each read in all runs"),
    "Cudnn": (9, 14, "plans under way, ready, and refused"),
    "Device": (15, 15, "one object for all that the driver has one of for each device"),
    "Engine": (25, 10, "a plan's runs, its variants and its regions"),
    "Frame": (23, 16, "the record that native code reads, and the memory behind its addresses"),
    "GrownArray": (31, 14, "an array of any library, whose address may change"),
    "Launches": (12, 25, "tables that native code reads, with the arrays that keep them"),
    "PlanTables": (26, 28, "a table for each kind of row that native code reads"),
    "Pool": (9, 13, "what threads share with native code, kept as long as they live"),
    "RecordedFrame": (24, 19, "`Frame`, with room for notes"),
    "UnrankedEngine": (26, 12, "`Engine`, for feeds whose ranks differ"),
}
#: Functions with more parameters, and why.
LONGER = {
    ("cuda/libraries/proving.py", "__init__"): "operands of a trial, which has no other record",
    ("cuda/memory/rectangles.py", "copy_rectangles"): "two strided arrays without their objects",
    ("cuda/memory/values.py", "__init__"): "what is known of an array, by name",
    ("runtime/pool.py", "_serve"): "what a thread must keep, and nothing else of its pool",
}


def _composed_files() -> list[Path]:
    return [p for p in FILES if p.relative_to(PACKAGE).parts[0] in COMPOSED]


def _classes() -> dict[str, ast.ClassDef]:
    trees = [ast.parse(path.read_text()) for path in _composed_files()]
    return {n.name: n for tree in trees for n in tree.body if isinstance(n, ast.ClassDef)}


def _size(name: str, classes: dict[str, ast.ClassDef]) -> tuple[int, int]:
    """Methods and attributes of a class and of what it derives from."""
    methods, attributes, stack = set[str](), set[str](), [name]
    while stack:
        node = classes[stack.pop()]
        bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
        stack += [base for base in bases if base in classes]
        methods |= {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        attributes |= {
            n.attr
            for n in ast.walk(node)
            if isinstance(n, ast.Attribute)
            and isinstance(n.ctx, ast.Store)
            and isinstance(n.value, ast.Name)
            and n.value.id == "self"
        }
    return len(methods), len(attributes)


def test_what_runs_plans_is_composed_of_small_classes() -> None:
    classes = _classes()
    sizes = {name: _size(name, classes) for name in classes}
    large = {n for n, (m, a) in sizes.items() if m > MOST_METHODS or a > MOST_ATTRIBUTES}
    assert large == LARGER.keys()
    grown = {n: sizes[n] for n, (m, a, _) in LARGER.items() if sizes[n][0] > m or sizes[n][1] > a}
    assert grown == {}


def test_functions_of_what_runs_plans_have_few_parameters() -> None:
    long = set[tuple[str, str]]()
    for path in _composed_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
                count = len(given) + len(node.args.kwonlyargs) - (given[:1] in (["self"], ["cls"]))
                if count > MOST_PARAMETERS:
                    long.add((path.relative_to(PACKAGE).as_posix(), node.name))
    assert long == LONGER.keys()


def test_the_run_time_knows_no_provider() -> None:
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] in ("runtime", "store", "native"):
            found = {_folder(module) for module, _ in _imports(path)} & {"cpu", "cuda"}
            assert not found, f"{path} imports {found}"
