"""What stands for each public name of onnxruntime: the table behind `docs/compatibility.md`.

`python -m tests.api.compatibility` writes the document; with `names`, where onnxruntime is
installed, it writes the list of its names anew.
"""

# ruff: noqa: E501 - the table has a line for each name

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import sardonyx
from sardonyx.api.config_keys import RUN_KEYS, SESSION_KEYS, Key
from sardonyx.api.optimizers import ACTING, GROUPED
from sardonyx.capi import _pybind_state

ROOT = Path(__file__).resolve().parents[2]
NAMES = Path(__file__).with_name("onnxruntime_names.json")
DOCUMENT = ROOT / "docs" / "compatibility.md"
STATUSES = ("same", "better", "no-op", "refused")
#: Where names are looked for that need no test named here.
_TESTED = tuple(
    f"tests/{folder}"
    for folder in (
        "api",
        "profiling",
        "cuda",
        "runtime",
        "store",
        "compiler",
        "tools",
        "engine",
        "hostile",
    )
)
#: What pybind11 gives every enumeration, and Python's gives its members.
_OF_ENUMERATIONS = ("name", "value")
#: Modules that onnxruntime's own modules import.
_IMPORTED = ("contextlib", "os", "platform", "warnings")


@dataclass(frozen=True, slots=True)
class Row:
    """What stands for a name.

    Attributes:
        status: One of `STATUSES`.
        note: What differs, or which error refuses it.
        test: The test that shows it; "" for the first that names it.
    """

    status: str
    note: str = ""
    test: str = ""


_OPTIONS, _FACE = "tests/api/test_options.py", "tests/api/test_face.py"
_OWN_TEST = "tests/api/test_compatibility.py"
_SETTLED = "who computes what is settled when the session is made"
_NO_PLUGINS = "its libraries have onnxruntime's binary interface: NotImplemented"
_ABSENT = "AttributeError: no program was seen to use it"
_OTHER_TOOL = "AttributeError: see `sardonyx.quantization.matmul_nbits_quantizer`"
_ALWAYS_PLANNED = "memory is planned for each combination of shapes"
_NO_CONTEXT = "accepted, never called: a bundle has no data beside it"

#: Names whose meaning differs. What is not here is the same, and a test names it.
ROWS: dict[str, Row] = {
    "InferenceSession.run": Row("better", "`timeout`, `stream`; feeds of any library, ml_dtypes", _FACE),
    "InferenceSession.run_async": Row("better", "without a callback it is awaited", _FACE),
    "InferenceSession.run_with_iobinding": Row(
        "better", "adapters are fed, too; results may lie in larger memory", "tests/api/test_adapters.py"
    ),
    "InferenceSession.create_ortvalue_from_shape_and_type": Row(
        "better", "`memory_info`, too", "tests/cuda/driver/test_addresses.py"
    ),
    "IOBinding.bind_input": Row(
        "better", "devices as objects, too; how far memory goes is checked", "tests/cuda/driver/test_addresses.py"
    ),
    "IOBinding.bind_output": Row(
        "better", "devices as objects, too; how far memory goes is checked", "tests/cuda/driver/test_addresses.py"
    ),
    "OrtMemoryInfo.create_v2": Row(
        "same", "other makers, and alignments that memory does not have by itself: NotImplemented", "tests/api/test_memory_names.py"
    ),
    "InferenceSession.enable_fallback": Row("no-op", _SETTLED, _OWN_TEST),
    "InferenceSession.disable_fallback": Row("no-op", _SETTLED, _OWN_TEST),
    "InferenceSession.set_ep_dynamic_options": Row("refused", "InvalidArgument: there are none", _OWN_TEST),
    "ModelCompiler": Row("better", "a bundle: machine code, weights and plan in one file", "tests/api/test_bundles.py"),
    "ModelCompiler.set_ep_context_data_write_func": Row("no-op", _NO_CONTEXT),
    "ModelCompiler.clear_ep_context_data_write_func": Row("no-op", _NO_CONTEXT),
    "SessionOptions.set_ep_context_data_read_func": Row("no-op", _NO_CONTEXT),
    "SessionOptions.clear_ep_context_data_read_func": Row("no-op", _NO_CONTEXT),
    "OrtEpContextData": Row("no-op", "bundles have no data beside them: no callback gets one", _OWN_TEST),
    "OrtEpContextDataBuffer": Row("refused", "`allocate`, `write`: NotImplemented", _OWN_TEST),
    "SessionOptions.register_custom_ops_library": Row("refused", _NO_PLUGINS),
    "register_execution_provider_library": Row("refused", _NO_PLUGINS),
    "unregister_execution_provider_library": Row("refused", "NotFound: none was registered", _OWN_TEST),
    "SessionOptions.add_free_dimension_override_by_denotation": Row(
        "same", "conflicts are errors that name the input", "tests/api/test_model_parts.py"
    ),
    "SessionOptions.add_external_initializers": Row("better", "arrays, too", "tests/api/test_model_parts.py"),
    "SessionOptions.add_external_initializers_from_files_in_memory": Row(
        "better", "lengths are checked; buffers may change afterwards; other files may be on disk", "tests/api/test_model_parts.py"
    ),
    "SessionOptions.add_provider_for_devices": Row("same", "one device", "tests/api/test_selection.py"),
    "SessionOptions.set_provider_selection_policy": Row("same", "", "tests/api/test_selection.py"),
    "SessionOptions.set_provider_selection_policy_delegate": Row("same", "", "tests/api/test_selection.py"),
    "get_ep_devices": Row("same", "those of other packages, too", "tests/api/test_selection.py"),
    "SessionOptions.enable_mem_pattern": Row("no-op", _ALWAYS_PLANNED),
    "SessionOptions.enable_mem_reuse": Row("no-op", _ALWAYS_PLANNED),
    "SessionOptions.execution_order": Row("no-op", "kernels run in the order of the graph"),
    "SessionOptions.log_verbosity_level": Row("no-op", "levels are those of `logging`"),
    "SessionOptions.use_deterministic_compute": Row("no-op", "the same feeds give the same bits in any case"),
    "RunOptions.log_severity_level": Row("no-op", "sessions have levels", _OPTIONS),
    "RunOptions.log_verbosity_level": Row("no-op", "levels are those of `logging`", _OPTIONS),
    "RunOptions.logid": Row("no-op", "sessions have log ids", _OPTIONS),
    "RunOptions.only_execute_path_to_fetches": Row(
        "better", "acts in `run` on the processor; onnxruntime computes all the same", "tests/api/test_fetches.py"
    ),
    "enable_telemetry_events": Row("no-op", "nothing is ever reported", _OWN_TEST),
    "disable_telemetry_events": Row("no-op", "nothing is ever reported", _OWN_TEST),
    "preload_dlls": Row("no-op", "there are no libraries to load", _OWN_TEST),
    "set_default_logger_verbosity": Row("no-op", "levels are those of `logging`", _OWN_TEST),
    "import_capi_exception": Row("same", "None: the package is never half imported", _OWN_TEST),
    "has_collective_ops": Row("same", "False", _OWN_TEST),
    "SparseTensor.as_blocksparse_view": Row("refused", "no operator takes blocks: an error, as for other formats"),
    "capi.SparseBlockSparseView": Row("refused", "AttributeError: no operator takes blocks"),
    "capi.SessionObjectInitializer": Row("refused", _ABSENT),
    "capi.get_session_initializer": Row("refused", _ABSENT),
    "capi.get_all_operator_schema": Row("refused", "AttributeError: see `sardonyx operators`"),
    "capi.get_all_opkernel_def": Row("refused", "AttributeError: see `sardonyx operators`"),
    "capi.get_registered_ep_kernel_defs": Row("refused", "AttributeError: see `sardonyx operators`"),
    "capi.opkernel": Row("refused", "AttributeError: see `sardonyx operators`"),
    "capi.schemadef": Row("refused", "AttributeError: see `sardonyx operators`"),
    "capi.pack_fp4_weights_for_cuda_moe_gemm": Row("refused", _ABSENT),
    "capi.quantize_matmul_2bits": Row("refused", _OTHER_TOOL),
    "capi.quantize_matmul_4bits": Row("refused", _OTHER_TOOL),
    "capi.quantize_matmul_8bits": Row("refused", _OTHER_TOOL),
    "capi.quantize_matmul_bnb4": Row("refused", _OTHER_TOOL),
    "capi.quantize_qdq_matmul_2bits": Row("refused", _OTHER_TOOL),
    "capi.quantize_qdq_matmul_4bits": Row("refused", _OTHER_TOOL),
}  # fmt: skip


def _all_names() -> Iterator[tuple[str, int | None]]:
    """Public names of onnxruntime, and those with an underscore that clients take.

    Members of enumerations have their number beside them.
    """
    import onnxruntime
    from onnxruntime.capi import _pybind_state as compiled

    for prefix, module in (("", onnxruntime), ("capi.", compiled)):
        for name, found in sorted(vars(module).items()):
            if name.startswith("_") or name in _IMPORTED or (prefix and hasattr(onnxruntime, name)):
                continue
            yield prefix + name, None
            if inspect.isclass(found) and not issubclass(found, Exception) and not prefix:
                own = [m for m in dir(found) if not m.startswith("_") or m.startswith("_get_c_")]
                own = [m for m in own if not hasattr(int, m)]  # an IntEnum's
                members = getattr(found, "__members__", {})
                yield from ((f"{name}.{m}", int(members[m]) if m in members else None) for m in own)


@lru_cache(maxsize=1)
def listed() -> dict[str, int | None]:
    """The stored names; members of enumerations with their numbers."""
    return dict(json.loads(NAMES.read_text()))


def find(name: str) -> Any:
    """What has a name here; None if nothing has, `True` for a member of enumerations."""
    owner: Any = sardonyx
    if name.startswith("capi."):
        owner, name = _pybind_state, name.removeprefix("capi.")
    first, _, member = name.partition(".")
    found = getattr(owner, first, None) if first != "import_capi_exception" else True
    if not member or found is None:
        return found
    if hasattr(found, member):
        return True
    # Options, and what is given in `__init__`, are not the class's.
    texts = inspect.getsource(found) + inspect.getsource(inspect.getmodule(found) or found)
    is_given = re.search(rf"self\.{member}\b|\b{member}:|\"{member}\":", texts)
    return True if is_given or member in _OF_ENUMERATIONS else None


@lru_cache(maxsize=1)
def _texts() -> dict[str, str]:
    files = [p for folder in _TESTED for p in sorted((ROOT / folder).glob("test_*.py"))]
    files.sort(key=lambda p: p.name == "test_compatibility.py")  # what says more comes first
    return {str(p.relative_to(ROOT)): p.read_text() for p in files}


def row(name: str) -> Row | None:
    """What the table says of a name; None if it says nothing, and nobody has it."""
    given = ROWS.get(name)
    if given is None and find(name) is None:
        return None
    given = given or Row("same")
    if given.test:
        return given
    if listed().get(name) is not None:
        return Row(given.status, given.note, _OWN_TEST)
    is_tried = name in ROWS or name.rpartition(".")[2] in _OF_ENUMERATIONS
    return Row(given.status, given.note, _test_of(name) or (_OWN_TEST if is_tried else ""))


@lru_cache(maxsize=1)
def _words() -> dict[str, str]:
    """Attributes, names in quotes and what is called -> the first test that has them."""
    word, found = re.compile(r"(?<=[.\"\[])\w+|\b\w+(?=\()"), dict[str, str]()
    for path, text in _texts().items():
        for name in word.findall(text):
            found.setdefault(name, path)
    return found


def _test_of(name: str) -> str:
    return _words().get(name.rpartition(".")[2], "")


def keys() -> Iterator[tuple[str, str, Key]]:
    """Kind, name and meaning of all keys of configurations."""
    for kind, table in (("session", SESSION_KEYS), ("run", RUN_KEYS)):
        yield from ((kind, name, key) for name, key in table.items())


_EFFECTS = {"acts": "acts", "hint": "no-op", "refused": "refused: NotImplemented"}


def key_test(name: str) -> str:
    """The test of a key: the one that names it, else the table's own, which tries each key."""
    text = next((path for path, text in _texts().items() if f'"{name}"' in text), "")
    return text or _OWN_TEST


def document() -> str:
    """The text of `docs/compatibility.md`."""
    lines = [
        "# onnxruntime's names, and what stands for them",
        "",
        "Generated by `python -m tests.api.compatibility` from the names of onnxruntime 1.31.1. *same*: what its documents say; *better*: that and more;",
        "*no-op*: accepted, without effect on results; *refused*: with the error that is named. Names of `capi` are those of `onnxruntime.capi._pybind_state`.",
        "",
        "| name | status | note | test |",
        "|---|---|---|---|",
    ]
    for name in listed():
        found = row(name)
        if found is not None:
            lines.append(f"| `{name}` | {found.status} | {found.note} | {_short(found.test)} |")
    lines += [
        "",
        "## Keys of configurations",
        "",
        "A key that is not here warns with the nearest name. *no-op*: results do not depend on it; a value that asks for something else than what is done is noted in the log.",
        "",
        "| key | of | effect | what it does, or why not | values that ask for what is done | test |",
        "|---|---|---|---|---|---|",
    ]
    for kind, name, key in keys():
        done = ", ".join(f'"{v}"' for v in key.done)
        effect = _EFFECTS[key.effect]
        lines.append(
            f"| `{name}` | {kind} | {effect} | {key.reason} | {done} | {_short(key_test(name))} |"
        )
    lines += [
        "",
        "## Optimisers",
        "",
        "What the argument `disabled_optimizers` of a session, or the entry `optimization.disable_specified_optimizers`, leaves out. What begins with *fold pads*, *fold factors*,",
        "*fold constants*, *join MatMul*, *turn* and *merge Reshapes* or *Transposes* concerns the file of `optimized_model_filepath` alone: in a session, what never changes is computed once.",
        "",
        "| optimiser | left out |",
        "|---|---|",
        *(f"| `{name}` | {', '.join(steps)} |" for name, steps in ACTING.items()),
        "",
        "Of the others there is no step to leave out, since kernels are made of whatever nodes compute together; the log says so: "
        + ", ".join(f"`{n}`" for n in GROUPED)
        + ".",
        "A name that is none of these warns with the nearest.",
    ]
    return "\n".join(lines) + "\n"


def _short(test: str) -> str:
    return test.removeprefix("tests/").removesuffix(".py")


if __name__ == "__main__":
    if "names" in sys.argv[1:]:
        NAMES.write_text(json.dumps(dict(sorted(set(_all_names()))), indent=0) + "\n")
    DOCUMENT.write_text(document())
