"""What the site has beyond `docs/`: the start page and the changelog, from the root."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).resolve().parents[1]
_PAGES = {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Leave out of the navigation what is not written yet, and add what it does not name."""
    folder = Path(config.docs_dir)
    there = {str(p.relative_to(folder)) for p in folder.rglob("*.md")} | set(_PAGES)
    named: set[str] = set()
    config.nav = [entry for entry in (_kept(e, there, named) for e in config.nav) if entry]
    missing = sorted(there - named)
    if missing:
        config.nav.append({"More": missing})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add pages that lie elsewhere."""
    for name, source in _PAGES.items():
        files.append(File.generated(config, name, content=(_ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to files that are no pages become their names."""
    return _LINK.sub(lambda m: _link(m[0], m[1], m[2], config), markdown)


def _link(whole: str, text: str, target: str, config: Any) -> str:
    if target.startswith(("http", "#", "mailto:")):
        return whole
    path, _, anchor = target.partition("#")
    name = Path(path).name
    is_page = path in (name, f"docs/{name}") and (Path(config.docs_dir) / name).is_file()
    if is_page or path in _PAGES:
        return f"[{text}]({name}{'#' + anchor if anchor else ''})"
    place = re.sub(r"^(\.\./)+", "", path)
    if not (_ROOT / place).exists():
        return whole  # strict mode says so
    return text if text.strip("`") == place else f"{text} (`{place}`)"


def _kept(entry: Any, there: set[str], named: set[str]) -> Any:
    if isinstance(entry, str):
        named.add(entry)
        return entry if entry in there else None
    ((title, value),) = entry.items()
    if isinstance(value, str):
        return {title: value} if _kept(value, there, named) else None
    kept = [e for e in (_kept(e, there, named) for e in value) if e]
    return {title: kept} if kept else None
