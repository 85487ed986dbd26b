"""A fixed part of the operator fuzzer, and what it is made of."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import pytest
from onnx import defs

from tests.operator_fuzz import compare
from tests.operator_fuzz.case import Record, make, records
from tests.operator_fuzz.instance import MAKERS
from tests.operator_fuzz.oracle import REFERENCES
from tests.operator_fuzz.oracle_faults import FAULTS, WITHOUT

_KEYS = sorted({r.key for r in records()})


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    monkeypatch.setenv("SARDONYX_COMPILE_PROCESSES", "1")


def _versions(key: tuple[str, str]) -> tuple[Record, ...]:
    return tuple(r for r in records() if r.key == key)


@pytest.mark.parametrize("key", _KEYS, ids=[".".join(filter(None, k)) for k in _KEYS])
def test_fused_and_unfused_equal_the_oracle(key: tuple[str, str]) -> None:
    seed = zlib.crc32(key[1].encode()) % 1000
    case = make(seed, _versions(key))
    found = compare.difference(case)
    again = f"python -m tests.operator_fuzz --only {key[1]} --seed {seed}"
    assert not found, f"{again}: {case.title}: {found}"


def test_every_operator_has_a_generator_or_a_reason() -> None:
    known = {(s.domain, s.name) for s in defs.get_all_schemas_with_history() if not s.deprecated}
    assert known - MAKERS.keys() == WITHOUT.keys()
    assert not MAKERS.keys() - known


def test_quoted_words_are_the_standards() -> None:
    for fault in FAULTS:
        for name in fault.names.split():
            if fault.words:
                assert fault.words in _text(name, fault.version), (name, fault.words)


def _text(name: str, version: int) -> str:
    schema = defs.get_schema(name, version, "")
    parts = [schema.doc, *(a.description for a in schema.attributes.values())]
    parts += [i.description for i in (*schema.inputs, *schema.outputs)]
    return re.sub(r"\s+", " ", " ".join(parts))


class _Wrong:
    """A session whose first output is off by one."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def run(self, names: Any, feeds: Any) -> list[Any]:
        first, *others = self.session.run(names, feeds)
        return [(first + np.ones((), first.dtype)).astype(first.dtype), *others]


@pytest.mark.parametrize("name", ["Add", "Softmax", "Floor", "TopK", "Conv"])
def test_a_wrong_result_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = compare.session_of
    monkeypatch.setattr(compare, "session_of", lambda *given: _Wrong(right(*given)))
    case = make(4, _versions(("", name)))
    assert " differs in " in compare.difference(case)


def test_the_same_seed_gives_the_same_case() -> None:
    for seed in range(40):
        first, second = make(seed), make(seed)
        assert first.model.SerializeToString() == second.model.SerializeToString()


def test_references_are_of_operators_that_exist() -> None:
    assert REFERENCES.keys() <= MAKERS.keys()
