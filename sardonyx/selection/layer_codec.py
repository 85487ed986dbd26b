"""What groups became, as text on placeholders: so that another process need not form them again.

The text has neither statements nor buffers of a model: `selection.layers` puts them in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sardonyx.base.errors import EngineError, message
from sardonyx.base.records import dataclass
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Block, Program
from sardonyx.plan.inline import COMPUTED
from sardonyx.selection.codec import CodeLocation, ExpressionReader, ExpressionWriter, code_from
from sardonyx.selection.invocation import Invocation
from sardonyx.selection.layers import Layer, brought
from sardonyx.tensor.tensor import Buffer


def to_text(layer: Layer, codes: Mapping[str, CodeLocation]) -> bytes:
    """What `from_text` reads: one line.

    Args:
        layer: Work of any group of its structure.
        codes: Where the machine code of kernels is, by their names.

    Raises:
        EngineError: It contains what has no meaning in another process.
    """
    layer = layer.on({p: p for p in layer.buffers}, None, {})
    w = ExpressionWriter()
    for made, (kind, contents) in layer.made.items():
        if made.constant not in (None, COMPUTED):
            raise EngineError(message("kernel", f"The contents of {made.label} are known"))
        shape, written = w.dims(made.shape), w.contents(contents)
        is_computed = made.constant is not None
        w.name(made, {"made": [kind, shape, made.dtype.name, written, is_computed]})
    kernels: dict[str, int] = {}
    rows = []
    for invocation, is_own in zip(layer.invocations, layer.own, strict=True):
        kernel, name = invocation.kernel, invocation.kernel.program.name
        if name not in codes:
            raise EngineError(message("kernel", f"{name} is in no library"))
        arguments = invocation.arguments
        rows.append([
            kernels.setdefault(name, len(kernels)), is_own, invocation.note,
            [w.dim(d) for d in (kernel.blocks, kernel.cost_ns, kernel.scratch_bytes)],
            [isinstance(a, Buffer) for a in arguments],
            [w.buffer(a) if isinstance(a, Buffer) else w.dim(a) for a in arguments],
            list(map(w.buffer, invocation.reads)), list(map(w.buffer, invocation.writes)),
        ])  # fmt: skip
    found = [codes[name] for name in kernels]
    code = [[c.stem, c.place, c.others] for c in found]
    return json.dumps([code, w.table, rows], separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class EncodedLayer:
    """What a text says, before any of it is made.

    Attributes:
        codes: Where the machine code of its kernels is.
    """

    codes: tuple[CodeLocation, ...]
    _table: list[Any]
    _rows: list[Any]

    def layer(self, names: Sequence[str], buffers: Iterable[Buffer]) -> Layer:
        """The work, on placeholders.

        Args:
            names: Of its kernels.
            buffers: The placeholders.

        Raises:
            ValueError: It is on others.
        """
        r = ExpressionReader(self._table)
        stand_ins = {p: p for p in buffers}
        made = {b: found for b in r.buffers() if (found := brought(b.key)) is not None}
        if not stand_ins.keys() >= set(r.buffers()) - made.keys():
            raise ValueError("it is of another structure")
        invocations, own = list[Invocation](), list[bool]()
        for number, is_own, note, sizes, is_buffer, arguments, reads, writes in self._rows:
            given = tuple(
                r.buffer(a) if one else r.dim(a)
                for one, a in zip(is_buffer, arguments, strict=True)
            )
            program = Program(names[number], "kernel", (), None, Block())
            blocks, cost_ns, scratch_bytes = map(r.dim, sizes)
            invocations.append(
                Invocation(
                    Kernel(program, given, blocks, cost_ns, scratch_bytes),
                    given,
                    tuple(map(r.buffer, reads)),
                    tuple(map(r.buffer, writes)),
                    note=note,
                )  # fmt: skip
            )
            own.append(is_own)
        return Layer(stand_ins, invocations, own, made)


def from_text(text: bytes) -> EncodedLayer:
    """Read what `to_text` wrote.

    Raises:
        ValueError, TypeError: The text is damaged.
    """
    codes, table, rows = json.loads(text)
    return EncodedLayer(tuple(code_from(*code) for code in codes), table, rows)
