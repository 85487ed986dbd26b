"""The machine's library of layers: what groups became whose structure any model had before.

Where kernels are known, most of what is left of building is to find out their names: groups are
made general, and copies of weights looked at. Layers of one structure need that once, in whichever
model and process it was. Layers lie in sixteen parts, by the first digit of their structure's name:
a session reads the parts it asks for, and writes those that it adds to. The key of a part has all
that building depends on, and the source that decides on it. A kernel archive has each layer apart.
A line is the name of a structure, and what groups of that structure became; only what is asked for
is parsed. A line whose kernels' code is gone, or that cannot be read, is of no use: the group is
built as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sardonyx.base.errors import EngineError, SardonyxError
from sardonyx.base.log import get_logger
from sardonyx.selection.layer_codec import from_text, to_text
from sardonyx.selection.layers import Layer
from sardonyx.store.cache import digest
from sardonyx.store.kernel_store import KernelStore
from sardonyx.store.tuning_choices import changed_at
from sardonyx.tensor.tensor import Buffer

_log = get_logger("compile")
#: The kind of its entries.
KIND = "layers"
#: The layers of a part that were written last are kept, up to so many bytes.
_MOST_BYTES = 2**18


def _part_of(name: bytes) -> bytes:
    """The part that the structure of a name is in."""
    return name[:1]


class LayerStore:
    """The layers of one cache, and of an archive; see `selection.layers.LayerKeeper`.

    Args:
        kernels: Has the kernels; the layers are in the same cache and archive.
    """

    def __init__(self, kernels: KernelStore) -> None:
        self._cache, self._kernels = kernels.cache, kernels
        self._place = digest(KIND, kernels.facts, changed_at(kernels.cache))
        self._parts: dict[bytes, dict[bytes, bytes]] = {}
        self._new: dict[bytes, Layer] = {}

    def find(
        self,
        key: tuple[object, ...],
        buffers: Mapping[Buffer, Buffer],
        name: Callable[[str], str],
    ) -> Layer | None:
        """What a structure became before; see `LayerKeeper.find`."""
        structure = self._named(key)
        if not structure:
            return None
        line = self._line(structure)
        if line is None:
            return None
        try:
            written = from_text(line)
            names = []
            for code in written.codes:
                own = self._kernels.named(code, name)
                if own is None:
                    return None
                names.append(own)
            return written.layer(names, buffers)
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            SardonyxError,
        ) as error:
            _log.warning("a layer of the library cannot be read, and is made again: %s", error)
            return None

    def _line(self, structure: bytes) -> bytes | None:
        """What groups of a structure became, as text; None if nobody knows."""
        archive = self._kernels.archive
        line = None if archive is None else archive.read(structure.decode(), KIND)
        if line is None:
            part = _part_of(structure)
            if part not in self._parts:
                self._parts[part] = self._read(part)
            line = self._parts[part].get(structure)
        return line

    def keep(self, key: tuple[object, ...], layer: Layer) -> None:
        """Take what a structure became; `write` writes it."""
        name = self._named(key)
        if name:
            self._new[name] = layer

    def write(self) -> None:
        """Write what was taken, once the machine's library has the kernels."""
        parts: dict[bytes, dict[bytes, bytes]] = {}
        for name, layer in self._new.items():
            try:
                line = to_text(layer, self._kernels.codes)
            except EngineError as error:
                _log.debug("a layer is not kept: %s", error)
                continue
            parts.setdefault(_part_of(name), {})[name] = line
        self._new.clear()
        for part, lines in parts.items():
            self._write(part, lines)

    def _write(self, part: bytes, lines: dict[bytes, bytes]) -> None:
        # Another process may have written meanwhile. What it writes now is lost, and made again.
        every = {k: v for k, v in self._read(part).items() if k not in lines} | lines
        left, latest = _MOST_BYTES, list[bytes]()
        for name, line in reversed(every.items()):
            left -= len(name) + len(line) + 2
            if left < 0:
                break
            latest.append(b"%s %s\n" % (name, line))
        self._cache.put(self._key(part), KIND, b"".join(reversed(latest)))

    def _key(self, part: bytes) -> str:
        return digest(self._place, part)

    def _named(self, key: tuple[object, ...]) -> bytes:
        """The name of a structure; empty if it has none that outlives the process."""
        name = self._kernels.identities.of(key)
        return b"" if name is None else digest(self._place, name).encode()

    def _read(self, part: bytes) -> dict[bytes, bytes]:
        """The lines of a part by name, the oldest first."""
        return lines_of(self._cache.read(self._key(part), KIND) or b"")


def lines_of(part: bytes) -> dict[bytes, bytes]:
    """The lines of a part by the name of their structure, the oldest first."""
    found = {}
    for whole in part.splitlines():
        name, _, line = whole.partition(b" ")
        found[name] = line
    return found
