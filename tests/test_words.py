"""One concept, one word: public classes have names of their own, and retired words stay away."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "sardonyx"
FILES = sorted(p for top in ("sardonyx", "tests", "benchmarks") for p in (ROOT / top).rglob("*.py"))
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

#: Names of the code that were given up -> what the same thing is called now (docs/glossary.md).
RETIRED = {
    "Ahead": "Prefetch",
    "AttentionMeeting": "SplitKAttention",
    "Conveyor": "CopyStreams",
    "CudaLaunch": "CudaLauncher",
    "CudaRooms": "CudaGrowableBuffers",
    "CudaStarted": "CudaAsyncRun",
    "Formed": "KernelRecord",
    "Former": "KernelSelector",
    "Forming": "KernelCache",
    "FormingOptions": "SelectionOptions",
    "GeneralProduct": "GeneralContraction",
    "GeneralRows": "GeneralLoopNest",
    "Grain": "BlockSizes",
    "HalfKernel": "Bf16Micro",
    "HalfSchedule": "Bf16Factors",
    "HostRooms": "HostGrowableBuffers",
    "KeptPlan": "StoredPlan",
    "KnownKernels": "KernelStore",
    "KnownLayers": "LayerStore",
    "LateCalls": "HostEpilogue",
    "Leases": "FramePool",
    "LikeRun": "LastRun",
    "Meeting": "SplitKReduction",
    "Meetings": "ResidualCodes",
    "ProductKernel": "ContractionKernel",
    "ProductSchedule": "ContractionSchedule",
    "QuickRun": "TryRun",
    "QuickRunTo": "TryRun",
    "RepeatedRun": "TryRun",
    "Resident": "DeviceState",
    "Room": "GrowableBuffer",
    "Rooms": "GrowableBuffers",
    "RowsBuilder": "LoopNestBuilder",
    "RowsKernel": "LoopNestKernel",
    "RowsSchedule": "LoopNestSchedule",
    "RunsAgain": "fast_path",
    "RunsAlike": "CudaFastPath",
    "RunsCaptured": "CapturedRuns",
    "SpecialTask": "CustomTask",
    "Steering": "DeviceControlFlow",
    "TurnedBlocks": "TransposeTiles",
    "UnderWay": "AsyncRuns",
    "Unsteerable": "NotOnDevice",
    "WrittenLayer": "EncodedLayer",
    "alike": "last_run",
    "conveyor": "copy_streams",
    "fetch_alike": "try_run",
    "find_steering": "find_control_flow",
    "forming": "kernel_cache",
    "in_rooms": "in_growable_buffers",
    "leave_alike": "try_run",
    "quick_run": "try_run",
    "run_again": "try_run",
    "run_alike": "try_run",
    "run_quickly": "try_run",
    "steer": "set_condition",
    "steering": "control_flow",
    "steers": "controls_flow",
    "tensors_alike": "try_run",
    "under_way": "async_runs",
}
#: Words within names of the package, such as `first_room` or `RoomOf` -> what to say instead.
RETIRED_PARTS = {
    "alike": "last_run, fast_path",
    "conveyed": "copied",
    "conveyor": "copy_streams",
    "conveyors": "copy_streams",
    "formed": "selected, made",
    "forming": "kernel_cache",
    "late_call": "host_epilogue",
    "late_calls": "host_epilogue",
    "meeting": "split_k_reduction, residual_codes, exchange",
    "meetings": "split_k_reductions, residual_codes, exchanges",
    "quick_run": "try_run",
    "quick_runs": "try_run",
    "room": "buffer for a growable buffer, else capacity",
    "rooms": "buffers",
    "steer": "control",
    "steered": "controlled",
    "steering": "control_flow",
    "turned": "transposed, rotated, swapped",
    "under_way": "async_runs",
}
#: Names that have such a word, and where -> why.
KEPT = {
    ("ortvalue_with_room", "sardonyx/api/ortvalue.py"): "programs call it",
    ("room", "sardonyx/api/ortvalue.py"): "programs may name the argument",
    ("turned", "sardonyx/kernel/matmul/"): "a part of a kernel's scratch, which is called so",
}
#: The same for words of texts: comments, docstrings, errors, pages.
RETIRED_IN_TEXTS = {
    r"\bsteer(s|ed|ing)?\b": "control, control flow",
    r"\bconveyors?\b": "copy streams",
    r"\bquick runs?\b": "the fast path",
    r"\b(its|whole|first|other|larger) rooms?\b": "buffer",
    r"\bkeys turned\b|\bturned in registers\b": "transposed",
    r"\bturned by (the|an) angles?\b": "rotated",
    r"\b(residual|of) meetings?\b": "split-K reduction, residual codes",
    r"\bpass of (a|the|such a) loop\b": "a trip, or a round of trips",
    r"\blate calls?\b": "host epilogue",
    r"\bforming (a )?kernels?\b": "kernel selection",
    r"`(executor|product_schedule|library_\w+|late_calls|native_\w+|rooms)\.": "the new module",
    r"\bcodegen/": "selection/, llvm/, link/, workers/",
}


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_two_public_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(_shown(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def _by_folder(paths: list[Path]) -> dict[str, list[Path]]:
    """A test of a folder takes no longer than one of a file, and there are a tenth of them."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        if path != Path(__file__):
            found[_shown(path.parent)].append(path)
    return found


_OF_FILES, _OF_TEXTS = _by_folder(FILES), _by_folder([*FILES, *PAGES])
_ANY_RETIRED = re.compile(rf"\b({'|'.join(RETIRED)})\b")


@pytest.mark.parametrize("folder", _OF_FILES)
def test_no_retired_name_is_left(folder: str) -> None:
    left = {}
    for path in _OF_FILES[folder]:
        text = path.read_text()
        if _ANY_RETIRED.search(text):  # a word of a comment, mostly
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            names = {t.string for t in tokens if t.type == tokenize.NAME}
            left |= {(_shown(path), name): RETIRED[name] for name in names & RETIRED.keys()}
    assert left == {}


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _retired_parts(name: str) -> set[str]:
    """Retired words in a name of words with underscores, or with capitals."""
    words = "_".join(_WORD.findall(name)).lower()
    return {part for part in RETIRED_PARTS if f"_{part}_" in f"_{words}_"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first_room", {"room"}), ("_ROOM", {"room"}), ("RoomOf", {"room"}), ("headroom", set()),
        ("under_way_runs", {"under_way"}), ("UnderWay", {"under_way"}), ("thunder_way", set()),
        ("HTTPRoom2", {"room"}), ("returned", set()), ("turned_rows", {"turned"}),
    ],
)  # fmt: skip
def test_parts_of_names_are_seen(name: str, expected: set[str]) -> None:
    assert _retired_parts(name) == expected


#: Of tests the names are sentences; a word of them is no term.
_OF_PACKAGE = {k: v for k, v in _OF_FILES.items() if not k.startswith("tests")}
_ANY_PART = re.compile("|".join(RETIRED_PARTS).replace("_", "_?"), re.IGNORECASE)


@pytest.mark.parametrize("folder", _OF_PACKAGE)
def test_no_retired_word_is_left_in_a_name(folder: str) -> None:
    left = {}
    for path in _OF_PACKAGE[folder]:
        text = path.read_text()
        if not _ANY_PART.search(text):
            continue
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        for name in {t.string for t in tokens if t.type == tokenize.NAME}:
            if any(name == kept and _shown(path).startswith(at) for kept, at in KEPT):
                continue
            left |= {(_shown(path), name): RETIRED_PARTS[part] for part in _retired_parts(name)}
    assert left == {}


@pytest.mark.parametrize("folder", _OF_TEXTS)
def test_no_retired_word_is_left_in_a_text(folder: str) -> None:
    left = {}
    for path in _OF_TEXTS[folder]:
        text = path.read_text()
        left |= {
            (_shown(path), w): new for w, new in RETIRED_IN_TEXTS.items() if re.search(w, text)
        }
    assert left == {}


def test_a_subgroup_is_a_warp_once() -> None:
    """Pages say subgroup; one says what NVIDIA calls it. Names in code are as they are."""
    texts = {p: re.sub(r"(?ms)^```.*?^```$|`[^`]*`", "", p.read_text()) for p in PAGES}
    found = {_shown(p): len(re.findall(r"(?i)\bwarps?\b", text)) for p, text in texts.items()}
    assert {name: n for name, n in found.items() if n} == {"docs/architecture/cuda.md": 1}


def test_terms_of_the_glossary_are_where_it_says() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)[1:]
    terms = [term for term, _ in rows]
    assert len(terms) > 50 and len(set(terms)) == len(terms)
    for term, places in rows:
        for place in re.findall(r"`([^`]+)`", places):
            assert (PACKAGE / place).exists() or (ROOT / place).exists(), (term, place)
