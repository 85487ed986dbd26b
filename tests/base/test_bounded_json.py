"""JSON that nobody vouches for: what is read, and what is refused by name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from sardonyx.base.bounded_json import MOST_DEPTH, parse_json, read_json
from sardonyx.base.errors import InvalidArgument, NoSuchFile

#: Text, what it stands for.
READ: list[tuple[Any, Any]] = [
    (b'\xef\xbb\xbf{"a": [1, 2.5, true, null]}', {"a": [1, 2.5, True, None]}),
    ('"[[[' + "[" * 1000 + r"\"" + "{" * 1000 + '"', "[[[" + "[" * 1000 + '"' + "{" * 1000),
    ("[" * MOST_DEPTH + "]" * MOST_DEPTH, None),
    ("[" + ",".join(["[]"] * 1000) + "]", [[] for _ in range(1000)]),
    ('{"a": {"b": 1}, "b": {"b": 2}}', {"a": {"b": 1}, "b": {"b": 2}}),
]


@pytest.mark.parametrize(("text", "expected"), READ, ids=range(len(READ)))
def test_read(text: Any, expected: Any) -> None:
    found = parse_json(text, "here")
    assert expected is None or found == expected


#: Text, what is said of it, whether only a strict reader refuses it.
REFUSED: list[tuple[Any, str, bool]] = [
    ("[" * 200_000, "nested too deeply", False),
    ('{"a":' * 200_000, "nested too deeply", False),
    ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), "nested too deeply", False),
    ('["' + "\\" * 100_001, "It is no JSON", False),
    ('"' + '\\"' * 100_000, "It is no JSON", False),
    ("", "It is no JSON", False),
    (b"\xff\xfe", "It is no JSON", False),
    ("[" + "1" * 5000 + "]", "It is no JSON", False),
    ("0" * 1001, "too long", False),
    ('{"a": 1, "a": 2}', "the key 'a' twice", True),
    ("[NaN]", "NaN for a number", True),
    ("[-Infinity]", "-Infinity for a number", True),
    ("[1e999]", "1e999 for a number", True),
]


@pytest.mark.parametrize(("text", "said", "strictly"), REFUSED, ids=range(len(REFUSED)))
def test_refused(text: Any, said: str, strictly: bool) -> None:
    most = 1000 if said == "too long" else 10_000_000
    with pytest.raises(InvalidArgument, match=said) as found:
        parse_json(text, "file.json", most=most)
    assert str(found.value).startswith("[file.json] ") and len(str(found.value)) < 400
    if strictly:
        parse_json(text, "file.json", is_strict=False)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}
    with pytest.raises(InvalidArgument, match=r"a\.json.*too long.*at most 7 bytes"):
        read_json(path, most_bytes=7)
    with pytest.raises(NoSuchFile):
        read_json(tmp_path / "b.json")


#: Files that read JSON with Python's own reader, and whose it is.
OWN = {
    "base/bounded_json.py": "the reader itself",
    "link/blob.py": "the cache's, or a bundle's section behind its digest",
    "workers/child.py": "of the parent process",
    "link/elf.py": "of the compiler",
    "selection/kernel_record.py": "the cache's",
    "selection/layer_codec.py": "the cache's",
    "plan/facts.py": "the cache's",
    "plan/serial.py": "the cache's, or a bundle's section behind its digest",
    "store/tuning_choices.py": "the cache's",
    "compiler/plan_store.py": "the cache's",
    "store/model_record.py": "the cache's, or a bundle's section behind its digest",
    "tools/convert/table_source.py": "of the framework, in memory",
    "tools/doctor/self_test.py": "of a process of ours",
    "tools/perf/process.py": "of a process of ours",
    "tools/perf/worker.py": "of the parent process",
    "tools/tune/process.py": "of a process of ours",
    "tools/tune/worker.py": "of the parent process",
    "tools/view/reading.py": "of the process's own profile",
}


def test_no_other_file_reads_json() -> None:
    package = Path(__file__).resolve().parents[2] / "sardonyx"
    found = set()
    for path in package.rglob("*.py"):
        text = path.read_text()
        if "json" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load"):
                found.add(path.relative_to(package).as_posix())
    assert found == set(OWN)
