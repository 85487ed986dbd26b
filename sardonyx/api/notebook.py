"""How sessions, values and what sessions say of themselves are shown in a notebook.

Everything that comes from a model or from data is escaped, and `printable`.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.printable import printable
from sardonyx.base.texts import bytes_text
from sardonyx.runtime.storage import DeviceArray

if TYPE_CHECKING:
    from sardonyx.api.ortvalue import OrtValue
    from sardonyx.api.session import InferenceSession

#: The most characters of one text that are shown.
_MOST = 4000
#: The most rows of one table.
_ROWS = 100
_LEFT = ' style="text-align:left"'
_RIGHT = ' style="text-align:right"'


class Explanation(str):
    """What `explain` says: a text, which a notebook shows as it is laid out."""

    def _repr_html_(self) -> str:
        summary, _, rest = self.partition("\n")
        return f"<p><b>{_shown(summary)}</b></p>{_laid_out(rest, len(rest))}"


class MemoryUse(dict[str, Any]):
    """What `memory` says: a dict, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return _table(("", "held"), _memory_rows(self), numbers={1})


def session_html(session: InferenceSession) -> str:
    """A session: its kernels in a sentence, providers, inputs and outputs."""
    summary = session.explain().partition("\n")[0]
    rows = [
        (what, v.name, v.type, "scalar" if v.shape == [] else " x ".join(map(_size, v.shape)))
        for what, found in (("input", session.get_inputs()), ("output", session.get_outputs()))
        for v in found
    ]
    name = session.get_modelmeta().graph_name
    title = f"<b>{_shown(type(session).__name__)}</b> {_shown(name)}"
    providers = ", ".join(session.get_providers())
    head = f"<p>{title}<br>{_shown(summary)}<br>{_shown(providers)}</p>"
    return head + _table(("", "name", "type", "shape"), rows)


def value_html(value: OrtValue) -> str:
    """A value: type, sizes, where it lies; elements, if that takes no copy from a device."""
    held = value._array
    facts = [value.data_type()]
    if isinstance(held, (np.ndarray, DeviceArray)):
        shape = " x ".join(map(str, held.shape)) or "scalar"
        facts += [shape, bytes_text(int(held.nbytes)), _place(held)]
    elif isinstance(held, (list, dict)):
        facts.append(f"{len(held)} items")
    title = f"<p><b>OrtValue</b> {_shown(', '.join(facts))}</p>"
    if isinstance(held, np.ndarray):
        text = np.array2string(held, threshold=60, edgeitems=3)
        return title + _laid_out(text, _MOST)
    return title


def _place(held: Any) -> str:
    if isinstance(held, np.ndarray):
        return "cpu"
    return f"{held.kind.name}:{held.kind.number}"


def _size(d: Any) -> str:
    return "?" if d is None else str(d)


def _memory_rows(given: Mapping[str, Any], depth: int = 0) -> Iterable[tuple[str, str]]:
    """A row for each number, those of dicts inside behind their own name."""
    for name, value in given.items():
        title = "\N{NO-BREAK SPACE}" * 4 * depth + str(name).removesuffix("_bytes")
        if isinstance(value, Mapping):
            if value:
                yield title, ""
                yield from _memory_rows(value, depth + 1)
        elif isinstance(value, int) and not isinstance(value, bool) and _is_size(str(name)):
            yield title, bytes_text(value)
        else:
            yield title, str(value)


def _is_size(name: str) -> bool:
    return name.endswith("_bytes") or name.startswith("bytes")


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()
) -> str:
    every = list(rows)
    aligned = [_RIGHT if k in numbers else _LEFT for k in range(len(heads))]
    head = "".join(f"<th{a}>{_shown(h)}</th>" for a, h in zip(aligned, heads, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{a}>{_shown(c)}</td>' for a, c in zip(aligned, row, strict=True))}</tr>"
        for row in every[:_ROWS]
    )
    rest = f"<p>and {len(every) - _ROWS} more</p>" if len(every) > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _laid_out(text: str, most: int) -> str:
    shown = _shown(text, most, has_lines=True)
    return f'<pre style="white-space:pre;overflow-x:auto">{shown}</pre>'


def _shown(text: str, most: int = _MOST, *, has_lines: bool = False) -> str:
    """A text, escaped; what is too long is cut before."""
    cut = text if len(text) <= most else f"{text[:most]} ..."
    return html.escape(printable(cut, has_lines=has_lines))
