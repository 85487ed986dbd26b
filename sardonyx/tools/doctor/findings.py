"""What was found, as text without anybody's name or folders."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sardonyx.base.printable import printable_lines
from sardonyx.base.texts import from_home, home

#: A path: from its first slash to what ends it. Words such as `and/or` have none before a letter.
_PATH = re.compile(r"(?<![\w~./…])(?:/[^\s:'\"(),;]+|[A-Za-z]:\\[^\s:'\"(),;]+)")

#: Accounts that say nothing about anybody, and words that occur elsewhere.
_NOBODY = frozenset("root home user users nobody ubuntu admin runner cache".split())


@dataclass
class Findings:
    """Sections of facts, and what is broken.

    Attributes:
        sections: Facts in words, by name, by section.
        problems: What does not work: then a bug report is one about this machine.
        remarks: What works, but not as well as it could.
    """

    sections: dict[str, dict[str, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, section: str, name: str, text: object) -> None:
        """Note a fact; of a path that is not under ~ only the last part."""
        if isinstance(text, Path) and text.is_absolute() and not _is_at_home(text):
            text = f"…/{text.name}"
        self.sections.setdefault(section, {})[name] = without_paths(str(text))

    def problem(self, text: str) -> None:
        """Note what is broken."""
        self.problems.append(without_paths(text))

    def remark(self, text: str) -> None:
        """Note what could be better."""
        self.remarks.append(without_paths(text))

    def text(self) -> str:
        """To paste into a bug report."""
        lines = []
        for section, facts in self.sections.items():
            width = max(map(len, facts))
            lines.append(section)
            lines += [f"  {name:{width}s}  {text}" for name, text in facts.items()]
        lines += [f"remark: {text}" for text in self.remarks]
        lines += [f"broken: {text}" for text in self.problems]
        if not self.problems:
            lines.append("everything that was tested works")
        return printable_lines(lines)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "sections": self.sections,
            "problems": self.problems,
            "remarks": self.remarks,
            "is_sound": not self.problems,
        }


def _is_at_home(path: Path) -> bool:
    try:
        return path.is_relative_to(Path.home())
    except RuntimeError:
        return False


def without_paths(text: str) -> str:
    """A text on one line in which paths begin at ~, or have their last part alone; USER for names.

    The folder of a user's files, and others' folders, often have names in them.
    """
    text = from_home(" ".join(text.split()))
    text = _PATH.sub(lambda found: "…/" + re.split(r"[\\/]", found[0].rstrip("\\/"))[-1], text)
    for name in {os.environ.get("USER"), os.environ.get("LOGNAME"), os.path.basename(home())}:
        if name and len(name) > 2 and name not in _NOBODY:
            text = re.sub(rf"\b{re.escape(name)}\b", "USER", text)
    return text
