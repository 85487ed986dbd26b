"""A picture of all trials: bars that end at the ratio to the defaults, with its interval."""

from __future__ import annotations

import html
from collections.abc import Sequence

from sardonyx.base.printable import printable
from sardonyx.tools.tune.outcome import Outcome

_ROW, _LEFT, _WIDTH, _RIGHT, _TOP = 24, 240, 420, 150, 56
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}"
    ".bar{fill:#9db7d5}.best{fill:#3a7d44}.slow{fill:#d9b3a5}.line{stroke:#222}"
    ".one{stroke:#888;stroke-dasharray:4 3}.why{fill:#8a3b12}"
)


def drawing(outcomes: Sequence[Outcome], best: Outcome, title: str) -> str:
    """An SVG document."""
    measured = [o for o in outcomes if o.ratios]
    most = max([1.2, *(min(o.bounds[1], 2.0) for o in measured)])
    scale = _WIDTH / most
    height = _TOP + _ROW * len(outcomes) + 16
    width = _LEFT + _WIDTH + _RIGHT
    one = _LEFT + scale
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{_STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
        f'<text class="title" x="12" y="22">{_escaped(title)}</text>'
        f'<text x="12" y="42">cost of each trial, as a share of the defaults\' (less is better)'
        f'</text><line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="{_TOP - 6}" '
        f'y2="{height - 10}"/>'
    ]
    for number, outcome in enumerate(outcomes):
        parts.append(_row(outcome, outcome.settings.key == best.settings.key, number, scale, most))
    return "".join(parts) + "</svg>\n"


def _row(outcome: Outcome, is_best: bool, number: int, scale: float, most: float) -> str:
    top = _TOP + _ROW * number
    middle = top + _ROW // 2
    name = outcome.name if len(outcome.name) < 36 else outcome.name[:34] + "..."
    label = (
        f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{_escaped(name)}'
        f"<title>{_escaped(outcome.name)}</title></text>"
    )
    if not outcome.ratios:
        why = _escaped(outcome.failure[:60])
        return label + f'<text class="why" x="{_LEFT + 4}" y="{middle + 4}">{why}</text>'
    low, high = (_LEFT + scale * min(x, most) for x in outcome.bounds)
    kind = "best" if is_best else "slow" if outcome.is_slow or not outcome.works else "bar"
    length = scale * min(outcome.ratio, most)
    note = f"{outcome.ratio:.3f}" + (" too slow" if outcome.is_slow else "")
    note += f" {outcome.failure[:24]}" if outcome.failure else ""
    return (
        f'{label}<rect class="{kind}" x="{_LEFT}" y="{top + 4}" width="{length:.1f}" '
        f'height="{_ROW - 8}"/><line class="line" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" '
        f'y2="{middle}"/><text x="{_LEFT + _WIDTH + 8}" y="{middle + 4}">{_escaped(note)}</text>'
    )


def _escaped(text: str) -> str:
    return html.escape(printable(text))
