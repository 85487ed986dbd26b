"""Making bundles, see `store.bundle`.

The header has: `version` (of the package), `run_time` (digest of the part of it that runs plans),
`target` and `features` (instructions that the code uses), `options` (what the plans were made
with), `plans` (for each: `for`, what it is for, and numbers of its sections), `functions` (of the
run time: name to section), `sections` (offset, bytes, digest, and checksum of a large one, which
is what a session looks at, unless it must be sure that nobody has changed the file).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any, BinaryIO

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.hashing import blake2b
from sardonyx.base.records import dataclass
from sardonyx.base.version import __version__
from sardonyx.compiler.built import Built
from sardonyx.compiler.drive import (
    compiled,
    guarded,
    may_contradict,
    model_key,
    plain_source,
    state_of,
    tuned_for,
)
from sardonyx.compiler.options import EngineOptions
from sardonyx.cpu.provider import CpuProvider
from sardonyx.loader.external_writer import replacing
from sardonyx.native import functions
from sardonyx.runtime.budget import Budget
from sardonyx.selection.matmul import IN_MATRICES
from sardonyx.store import checksums
from sardonyx.store.bundle import (
    ALIGNMENT_BYTES,
    FRONT,
    MAGIC,
    SECTION,
    VERSION,
    note_made,
    run_time_digest,
    section_digest,
)
from sardonyx.store.cache import default_cache
from sardonyx.store.constants import ConstantsFile
from sardonyx.store.model_record import ModelRecord

#: A whole number of `checksums.CHUNK_BYTES`.
_PIECE_BYTES = 2**20
#: The header is written last, to a place that is kept for it.
_MOST_HEADER_BYTES = ALIGNMENT_BYTES


@dataclass(slots=True)
class Made:
    """What was written.

    Attributes:
        size_bytes: Of the file.
        plans: What the plans are for: "" for the usual one.
        kernels: Commands of the usual plan.
        nodes: Nodes of the model that it computes.
        target: Whose instructions the code has.
    """

    size_bytes: int = 0
    plans: list[str] = field(default_factory=list)
    kernels: int = 0
    nodes: int = 0
    target: str = ""


def write_bundle(
    source: Any, file: BinaryIO, options: EngineOptions | None = None, *, any_sizes: bool = False
) -> Made:
    """Compile a model into a bundle.

    Args:
        source: A path, the bytes of a model, or a `ModelProto`.
        file: Empty, open for reading and writing.
        options: What the plans are made with.
        any_sizes: Add a plan for feeds whose sizes contradict what the model says of them.

    Raises:
        NotImplemented: The model has inputs of unknown rank: it is planned when a run comes.
        And whatever `create_engine` raises.
    """
    options = options or EngineOptions()
    return guarded(options, lambda o: _Writer(plain_source(source), file, o).write(any_sizes))


class _Part:
    """A file's part that constants are written to, as if it were a file."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file, self._start = file, start

    def seek(self, offset: int, /) -> int:
        return self._file.seek(self._start + offset) - self._start

    def write(self, data: Any, /) -> int:
        return self._file.write(data)


class _Writer:
    def __init__(self, source: Any, file: BinaryIO, options: EngineOptions) -> None:
        self._source, self._file, self._options = source, file, options
        self._provider = CpuProvider()
        self._sections: list[tuple[int, int, str, str]] = []
        self._places: dict[tuple[int, str], int] = {}
        self._made = Made(target=self._provider.target.name)
        self._has_matrices = False

    def write(self, any_sizes: bool) -> Made:
        options = self._options
        self._extend(_MOST_HEADER_BYTES)
        plans = [self._plan("", options)]
        record = self._record
        if record.appended:
            plans.append(self._plan("in_rooms", replace(options, in_growable_buffers=True)))
        if any_sizes and may_contradict(record.plan):
            plans.append(self._plan("general", replace(options, general=True)))
        target = self._provider.target
        header = {
            "version": __version__,
            "run_time": run_time_digest(),
            "target": target.name,
            "features": self._features(),
            "options": options.traits(),
            "plans": plans,
            "functions": {k: self._section(functions.compiled(k)) for k in functions.kinds()},
            "sections": self._sections,
        }
        self._made.plans = [str(p["for"]) for p in plans]
        self._write_header(json.dumps(header, separators=(",", ":")).encode())
        return self._made

    def _extend(self, size: int) -> None:
        """Make the file so large, with a hole where that is possible."""
        self._file.seek(size - 1)
        self._file.write(b"\0")

    def _write_header(self, text: bytes) -> None:
        if FRONT.size + len(text) > _MOST_HEADER_BYTES:
            what = f"The header takes {len(text)} bytes, and there is room for {_MOST_HEADER_BYTES}"
            raise errors.NotImplemented(message("bundle", what))
        checksum = blake2b(text, digest_size=16).digest()
        self._file.seek(0)
        self._file.write(FRONT.pack(MAGIC, VERSION, len(text), checksum) + text)
        self._file.flush()
        self._made.size_bytes = self._file.seek(0, os.SEEK_END)
        note_made(checksum.hex())

    def _plan(self, purpose: str, options: EngineOptions) -> dict[str, Any]:
        timings: dict[str, float] = {}
        budget = Budget(options.memory_limit_bytes)
        cache = default_cache() if options.use_cache else None
        state = state_of(self._source)
        key = model_key(self._source, state, options, self._provider) if cache is not None else None
        tuned = tuned_for(self._source, options, self._provider, cache, key)
        if tuned is not None:
            options = replace(options, choices=tuned.choices)
        with compiled(self._source, options, self._provider, timings, budget, cache) as built:
            record = self._portable(built)
            constants = self._section(lambda part: built.constants.write(part))
            code, _ = built.generated.complete()
        self._has_matrices |= any(IN_MATRICES in c.kernel for c in record.plan.calls)
        if not purpose:
            self._record, calls = record, record.plan.calls
            self._made.kernels = len(calls)
            self._made.nodes = len({name for c in calls for name in c.origin})
        return {
            "for": purpose,
            "record": self._section(record.to_bytes()),
            "code": self._section(code),
            "constants": constants,
        }

    def _features(self) -> str:
        """What instructions the code may have: those on matrices only if a kernel has any.

        Systems may refuse a process the registers for them on the same processor.
        """
        listed = self._provider.target.features.split(",")
        return ",".join(f for f in listed if self._has_matrices or not f.startswith("+amx"))

    def _portable(self, built: Built) -> ModelRecord:
        """What a session must know where the model's files are not."""
        record, sizes = built.record, self._options.free_dimension_overrides
        if record.unranked:
            raise errors.NotImplemented(
                message(
                    "bundle",
                    f"Runs decide on {', '.join(record.unranked)}, so there is no plan",
                    do="Give the inputs shapes: `sardonyx tools fix-shapes`",
                )
            )  # fmt: skip
        fixed = [replace(v, shape=v.shape_with(sizes)) for v in record.inputs]
        return replace(record, files=[], inputs=tuple(fixed))

    def _section(self, content: bytes | Callable[[ConstantsFile], None]) -> int:
        """Write a section, unless it is there already; gives its number."""
        end = self._file.seek(0, os.SEEK_END)
        start = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if end < start:
            self._extend(start)
        self._file.seek(start)
        if callable(content):
            content(_Part(self._file, start))
        else:
            self._file.write(content)
        size = self._file.seek(0, os.SEEK_END) - start
        name = section_digest(self._pieces(start))
        known = self._places.get((size, name))
        if known is not None:
            self._file.truncate(start)
            return known
        checksum = b""
        if size > checksums.SMALL_BYTES:
            checksum = checksums.of_pieces(self._pieces(start), SECTION)
        self._sections.append((start, size, name, checksum.hex()))
        self._places[size, name] = len(self._sections) - 1
        return len(self._sections) - 1

    def _pieces(self, start: int) -> Iterator[bytes]:
        """What was written from a place on."""
        self._file.seek(start)
        while piece := self._file.read(_PIECE_BYTES):
            yield piece


def bundle_file(
    source: Any,
    path: str,
    options: EngineOptions | None = None,
    *,
    any_sizes: bool = False,
    check: Callable[[int], None] = lambda nodes: None,
) -> Made:
    """`write_bundle` to a file, which appears when it is complete.

    Args:
        source, options, any_sizes: See `write_bundle`.
        path: The file.
        check: Is given the number of nodes before the file appears.

    Raises:
        InvalidArgument: No file can have this path, or the model has it.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder):
        raise InvalidArgument(message(path, "A file cannot be written here"))
    is_path = isinstance(source, str | os.PathLike)
    if is_path and os.path.exists(path) and os.path.samefile(source, path):
        what = "The bundle would replace its model"
        raise InvalidArgument(message(path, what, do="Give it a name of its own"))
    with replacing(path) as file:
        made = write_bundle(source, file, options, any_sizes=any_sizes)
        check(made.nodes)
    return made
