"""Records of measurements: each has date, question, measurement, decision, and is indexed."""

from __future__ import annotations

import datetime
import re

import pytest

from tests.documents.prose import ROOT, anchor, length, sentences

_, _INDEX, *_RECORDS = re.split(
    r"^## ", (ROOT / "benchmarks/notes.md").read_text("utf-8"), flags=re.MULTILINE
)
RECORDS = dict(text.split("\n", 1) for text in _RECORDS)
_HEAD = re.compile(
    r"\n- \*\*Date:\*\* (\S+)\n- \*\*Question:\*\* .*?\?\n- \*\*Measured:\*\* .*?\n"
    r"- \*\*Decided:\*\* .*?\.\n\n",
    re.DOTALL,
)


def test_there_are_some() -> None:
    assert len(RECORDS) > 90
    assert len(RECORDS) == len(_RECORDS)


def test_the_index_has_each_record_once() -> None:
    named = re.findall(r"^- (\S+) \[(.+)\]\(#([^)]+)\)$", _INDEX, re.MULTILINE)
    assert sorted(title for _, title, _ in named) == sorted(RECORDS)
    for date, title, place in named:
        assert place == anchor(title)
        assert f"**Date:** {date}\n" in RECORDS[title]


@pytest.mark.parametrize("title", RECORDS)
def test_a_record_has_a_head(title: str) -> None:
    head = _HEAD.match(RECORDS[title])
    assert head, RECORDS[title][:300]
    datetime.date.fromisoformat(head[1])


def test_records_are_in_the_order_of_their_dates() -> None:
    dates = [re.findall(r"\*\*Date:\*\* (\S+)", text)[0] for text in RECORDS.values()]
    assert dates == sorted(dates)


#: Sentences of more than 30 words, in all records: old ones have some, and there come no more.
_MOST_LONG = 251


def test_no_long_sentence_is_added() -> None:
    found = [s for text in RECORDS.values() for s in sentences(text) if length(s) > 30]
    assert len(found) <= _MOST_LONG, "split the sentences of your record"
