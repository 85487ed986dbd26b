"""A fixed range of mutated files: named errors or results, no crash, no hang, no growth."""

from __future__ import annotations

import time

from sardonyx.native.functions import library
from tests.hostile.corpus import Corpus
from tests.hostile.driver import campaign

#: Enough for an idle machine; a busy one does fewer cases in the time that there is.
_CASES, _SECONDS = 900, 25.0


def test_mutants(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    monkeypatch.setenv("SARDONYX_COMPILE_PROCESSES", "1")
    library()
    start = time.monotonic()
    # Making ONNX's node cases takes seconds; `python -m tests.hostile` has them.
    corpus = Corpus(cases=False)
    tally = campaign(0, _CASES, corpus, seconds=_SECONDS)
    assert not tally.defects, tally.defects
    assert tally.cases >= 100
    assert {"ran", "refused InvalidGraph", "refused InvalidProtobuf"} <= tally.kinds.keys()
    assert time.monotonic() - start < 3 * _SECONDS
