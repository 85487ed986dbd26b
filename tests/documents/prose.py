"""Pages as sentences and headings.

`python -m tests.documents.prose [WORDS]` lists sentences of more words, page by page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TABLE_OR_HEADING = re.compile(r"^\s*(\||#).*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
#: What begins a text of its own: an empty line, an item of a list.
_BREAK = re.compile(r"\n\s*\n|^\s*(?:[-*]|\d+\.)\s+", re.MULTILINE)
#: Where one sentence ends and another begins.
_END = re.compile(r"(?<=[.!?:])[\"')*]*\s+(?=[\"'(*]*[A-Z0-9`])")


def texts(page: str) -> list[str]:
    """Paragraphs and items of a page, without tables, headings and blocks of code."""
    plain = _TABLE_OR_HEADING.sub("\n", _COMMENT.sub("", _FENCE.sub("\n\n", page)))
    shown = _LINK.sub(r"\1", plain)
    return [" ".join(text.split()) for text in _BREAK.split(shown) if text.split()]


def sentences(page: str) -> list[str]:
    """Sentences of a page; what stands between backticks counts as one word."""
    found = []
    for text in texts(page):
        found += [s for s in _END.split(_CODE.sub("`x`", text)) if s]
    return found


def length(sentence: str) -> int:
    """Words of a sentence."""
    return sum(any(c.isalnum() for c in word) for word in sentence.split())


def anchor(heading: str) -> str:
    """What links to a heading say, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", _LINK.sub(r"\1", heading).replace("`", "").lower())
    return kept.strip().replace(" ", "-")


def anchors(page: str) -> set[str]:
    """Every place of a page that links may name."""
    return {anchor(h) for h in re.findall(r"^#+ (.+)$", _FENCE.sub("", page), re.MULTILINE)}


def _main() -> None:
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        found = sentences(page.read_text("utf-8"))
        long = [s for s in found if length(s) > limit]
        mean = sum(map(length, found)) / max(1, len(found))
        name = page.relative_to(ROOT)
        print(f"{name}: {len(found)} sentences, mean {mean:.1f}, {len(long)} long")
        for sentence in long:
            print(f"  {length(sentence)}: {sentence}")


if __name__ == "__main__":
    _main()
