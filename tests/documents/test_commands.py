"""Every `sardonyx ...` in the documentation is a command with arguments that it takes."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from sardonyx.cli import main as cli
from tests.documents.test_pages import PAGES, ROOT

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<![^\s(|\[])`(sardonyx [^`\n]+)`")
#: Words of commands that stand for something else than themselves.
_STANDS_FOR = {r"graph\|plan\|kernels\|llvm\|asm": "plan", "...": "graph"}
#: What is no line to be typed: a command that is named, in a sentence.
_NAMED = re.compile(r"sardonyx [a-z]+( --help|(?<=tools) [a-z-]+)?")


def _commands(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    fenced = [
        line.strip().removeprefix("$ ").partition("  #")[0].strip()
        for kind, block in _FENCE.findall(text)
        if kind in ("", "sh", "console")
        for line in block.splitlines()
    ]
    shown = [line.partition(" # ")[0] for line in fenced if line.startswith("sardonyx ")]
    return [c for c in [*shown, *_INLINE.findall(text)] if not _NAMED.fullmatch(c)]


FOUND = [
    pytest.param(command, id=f"{page.relative_to(ROOT)} {command}")
    for page in PAGES
    for command in dict.fromkeys(_commands(page))
]


def test_there_are_some() -> None:
    assert len(FOUND) > 40


@pytest.mark.parametrize("command", FOUND)
def test_arguments_are_taken(command: str, monkeypatch: Any) -> None:
    seen: list[argparse.Namespace] = []
    words = [_STANDS_FOR.get(word, word) for word in command.split()[1:]]
    module = __import__(f"sardonyx.cli.{words[0]}", fromlist=["run"])
    monkeypatch.setattr(module, "run", seen.append)
    assert cli.main(words) == 0
    assert len(seen) == 1
