"""The page itself: data, the charts' library, scripts and styles, in one file."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import importlib.util
import json
from pathlib import Path
from typing import Any

from sardonyx.base.errors import Fail, installing, message
from sardonyx.base.printable import printable

_WEB = Path(__file__).parent / "web"
#: In this order they are one script.
SCRIPTS = (
    "data.js", "widgets.js", "table.js", "treemap.js", "timeline.js", "memory.js",
    "placement.js", "comparison.js", "main.js",
)  # fmt: skip


def document(data: Any, title: str) -> str:
    """A whole page.

    Whatever is in `data` stays data: it lies in a block that browsers do not run, no character in
    it can end the block, scripts make text of it only, and the page's own policy lets nothing run
    but the scripts that are here now, and nothing be loaded.

    Raises:
        Fail: The charts' library is not installed.
    """
    library, own = _harmless(library_text()), _harmless(own_script())
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in (library, own))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline';"
        " img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    style = (_WEB / "page.css").read_text("utf-8")
    body = (_WEB / "page.html").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{html.escape(printable(title))}</title>\n<style>{style}</style></head>\n<body>\n"
        f'{body}\n<script type="application/json" id="data">{embedded(data)}</script>\n'
        f"<script>{library}</script>\n<script>{own}</script>\n</body></html>\n"
    )


def embedded(data: Any) -> str:
    """JSON that may stand in a `script` element: nothing in it looks like a tag or a comment.

    Its texts are `printable`, since a browser obeys marks of direction, too.
    """
    text = json.dumps(_printable(data), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _printable(data: Any) -> Any:
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, dict):
        return {printable(str(name)): _printable(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):  # columns of numbers, most of them
        return [x if type(x) is int else _printable(x) for x in data]
    return data


def own_script() -> str:
    """The page's own code, as one function that is called."""
    parts = [(_WEB / name).read_text("utf-8") for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


@functools.cache
def library_text() -> str:
    """The charts' library, out of the package that brings it.

    Raises:
        Fail: It is not installed.
    """
    found = importlib.util.find_spec("plotly")
    for folder in found.submodule_search_locations or () if found is not None else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_text("utf-8")
    what = "Pages need the charts of the package plotly"
    raise Fail(message("view", what, do=installing("view")))


def _harmless(script: str) -> str:
    """The same script where it cannot end its element; both stand in strings only."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r\n", "\n")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
