"""Shared layers ask what a device can do, and name no maker's devices."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

import sardonyx
from sardonyx.base.errors import EngineError
from sardonyx.compiler.targets import DEVICES, PROCESSORS, target_of
from sardonyx.kernel.gpu.tile_shape import shapes_of
from sardonyx.kernel.language.thread_blocks import MatrixShape, ProductCosts, ThreadBlocks
from tests.support.second_device import second_target

PACKAGE = Path(sardonyx.__file__).parent
#: Folders that serve all devices.
SHARED = (
    "tensor", "passes", "plan", "selection", "kernel", "targets", "store", "native", "runtime",
    "loader", "ir", "plugins", "compiler", "profiling", "api",
)  # fmt: skip
#: What one maker calls his things.
_WORDS = re.compile(
    r"cuda|nvptx|ptx|sm_\d|nvvm|cublas|cudnn|nvidia|(?<![a-z])warps?(?![a-z])", re.IGNORECASE
)
_OPERATION = "the name of an operation of programs, which are in digests"
_INTERFACE = "onnxruntime's interface: names of its provider, devices, memory and options"
_DLPACK = "the protocol by which CUDA's arrays are exchanged"
_STAGE = "a stage and a kind of target that the command line has"
#: File -> reason to name a maker there. `kernel/gpu` may say warp: it is written for subgroups.
EXCEPTIONS = {
    "kernel/gpu": "warp: kernels of thread blocks, after the operations that they use",
    "kernel/language/threads.py": _OPERATION,
    "kernel/language/check_threads.py": _OPERATION,
    "compiler/stages.py": _STAGE,
    "compiler/targets.py": _STAGE,
    "profiling/chrome.py": _INTERFACE,
    "api/compatibility.py": _INTERFACE,
    "api/config_keys.py": _INTERFACE,
    "api/copies.py": _INTERFACE,
    "api/cuda_options.py": _INTERFACE,
    "api/devices.py": _INTERFACE,
    "api/dlpack.py": _DLPACK,
    "api/enums.py": _INTERFACE,
    "api/feeds.py": _DLPACK,
    "api/load.py": _INTERFACE,
    "api/making.py": _INTERFACE,
    "api/memory.py": _INTERFACE,
    "api/module.py": _INTERFACE,
    "api/named_memory.py": _INTERFACE,
    "api/ortvalue.py": _INTERFACE,
    "api/pipeline.py": _INTERFACE,
    "api/plugins.py": _INTERFACE,
    "api/providers.py": _INTERFACE,
    "api/run_options.py": _INTERFACE,
    "api/session_model.py": _INTERFACE,
    "api/settings.py": _INTERFACE,
    "api/tuning_rules.py": _INTERFACE,
}
FILES = sorted(path for folder in SHARED for path in (PACKAGE / folder).rglob("*.py"))


def _code(path: Path) -> str:
    """Names and texts of a file, a line each; no comments, no texts that document."""
    source = path.read_text()
    if not _WORDS.search(source):
        return ""
    documents = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                documents.add(first.lineno)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    kept = (tokenize.NAME, tokenize.STRING)
    return "\n".join(
        t.string.replace("_", " ")
        if t.type == tokenize.NAME and "_" in t.string[1:-1]
        else t.string
        for t in tokens
        if t.type in kept and t.start[0] not in documents
    )


def _named(path: Path) -> set[str]:
    found = {match.lower() for match in _WORDS.findall(_code(path))}
    where = str(path.relative_to(PACKAGE))
    if where.startswith("kernel/gpu/"):
        found -= {"warp", "warps"}
    return found


def test_shared_layers_name_no_maker() -> None:
    named = {str(path.relative_to(PACKAGE)): _named(path) for path in FILES}
    found = {where: words for where, words in named.items() if words and where not in EXCEPTIONS}
    assert not found, "ask the target what it can do"
    spare = [where for where in EXCEPTIONS if where in named and not named[where]]
    assert not spare, "they need no exception any more"


def test_shared_layers_ask_for_thread_blocks_by_name() -> None:
    asking = re.compile(r"\.tiling (is (not )?None|else)|isinstance\(.*Target\)")
    own = {"kernel/loops/block_sizes.py", "targets/target.py"}
    found = {str(p.relative_to(PACKAGE)) for p in FILES if asking.search(p.read_text())}
    assert found == own


def test_the_search_finds_what_it_is_for(tmp_path: Path) -> None:
    found = tmp_path / "found.py"
    found.write_text(
        '"""CUDA is documented."""\n# PTX\nWARP = 32\nx = "sm_80"\nis_cuda = of_warps\n'
    )
    assert {m.lower() for m in _WORDS.findall(_code(found))} == {"warp", "sm_8", "cuda", "warps"}


@pytest.mark.parametrize("name", PROCESSORS)
def test_processors_have_no_thread_blocks(name: str) -> None:
    target = target_of(name)
    assert not target.has_thread_blocks and not target.async_copy and not target.matrix_shapes
    assert (target.subgroup_size, target.subgroups, target.shared_bytes) == (1, 1, 0)
    assert target.pointer_bits == 64
    with pytest.raises(EngineError, match=target.name):
        _ = target.thread_blocks


@pytest.mark.parametrize("name", DEVICES)
def test_named_devices_have_thread_blocks(name: str) -> None:
    target = target_of(name)
    assert target.has_thread_blocks and target.async_copy
    assert (target.subgroup_size, target.subgroups, target.pointer_bits) == (32, 4, 64)
    assert target.shared_bytes == 48 * 2**10
    assert {shape.kind for shape in target.matrix_shapes} == {"f16", "bf16", "tf32"}
    assert target.lanes(32) == target.subgroup_size


def test_equal_keys_are_equal_capabilities() -> None:
    """What thread blocks can do is not in the key: other fields must tell devices apart."""
    targets = [target_of(name) for name in DEVICES]
    targets += [
        second_target(size, shared) for size in (8, 16, 32) for shared in (1 << 14, 1 << 15)
    ]
    known: dict[str, ThreadBlocks] = {}
    for target in targets:
        assert known.setdefault(target.key, target.thread_blocks) == target.thread_blocks
    assert len(known) == len(targets)


_COSTS = ProductCosts((), (), 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("subgroup_size", "threads", "shapes"),
    [(12, 48, 0), (32, 48, 0), (64, 32, 0), (16, 64, 1), (32, 256, 1), (0, 32, 0)],
)
def test_what_does_not_fit_is_refused(subgroup_size: int, threads: int, shapes: int) -> None:
    listed = (MatrixShape("f16", 16, 8, 16),) * shapes
    with pytest.raises(EngineError, match="thread blocks"):
        ThreadBlocks(subgroup_size, threads, 1 << 15, _COSTS, listed)


@pytest.mark.parametrize(
    ("kind", "sum_bytes", "shared_bytes", "expected"),
    [
        ("fma", 4, 48, [(64, 64), (32, 64)]),
        ("fma", 8, 32, [(32, 64)]),
        ("fma", 4, 20, [(32, 64)]),
        ("fma", 4, 16, []),
        ("fma", 8, 16, []),
    ],
)
def test_tiles_fit_into_shared_memory(
    kind: str, sum_bytes: int, shared_bytes: int, expected: list[tuple[int, int]]
) -> None:
    tiling = second_target(16, shared_bytes * 2**10).block_sizes.tiling
    assert tiling is not None
    shapes = [shape for shape, _ in shapes_of(kind, sum_bytes, tiling)]
    assert [(s.rows, s.columns) for s in shapes] == expected
