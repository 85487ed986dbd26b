"""Making kernel archives, see `store.kernel_archive`: graphs are compiled, their kernels kept.

Kernels of any target are made on any machine, and nothing is run. A graph's weights are only looked
at where planning looks at them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sardonyx.base import remembering
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.records import dataclass
from sardonyx.compiler.build import compile_lowered
from sardonyx.compiler.compile_options import CompileOptions
from sardonyx.compiler.drive import guarded, plain_source
from sardonyx.compiler.options import EngineOptions
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.link.blob import blob_of
from sardonyx.llvm.compile import AS_WRITTEN
from sardonyx.llvm.module import emit_module
from sardonyx.loader.load import load
from sardonyx.native import functions
from sardonyx.ops.core.lower import lower
from sardonyx.ops.core.registry import load_frequent
from sardonyx.passes.pipeline import optimise
from sardonyx.store import kernel_archive, kernel_store, layer_store, machine_code
from sardonyx.store.cache import Cache
from sardonyx.store.kernel_store import KernelStore
from sardonyx.store.layer_store import LayerStore
from sardonyx.store.machine_code import Units
from sardonyx.targets.target import Target

_MOST_BYTES = 2**40


@dataclass(slots=True)
class ArchivedGraph:
    """What a graph brought to an archive.

    Attributes:
        name: Of the graph.
        known: How many of its kernels those before it had brought.
        made: How many it brought.
    """

    name: str
    known: int
    made: int


class ArchiveWriter:
    """Collects kernels for one target. Use it as a context: its end removes temporary files.

    Args:
        target: What to generate for.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._folder = tempfile.TemporaryDirectory(prefix="sardonyx-")
        self._cache = Cache(Path(self._folder.name), _MOST_BYTES)
        self._found: dict[tuple[str, str], bytes] = {}

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, *_error: object) -> None:
        self._folder.cleanup()

    def add(self, source: Any, name: str) -> ArchivedGraph:
        """Compile a graph, and keep its kernels.

        Args:
            source: A path, the bytes of a model, or a `ModelProto`.
            name: What to call it.

        Raises:
            SardonyxError: It cannot be compiled.
        """
        load_frequent()
        return guarded(EngineOptions(), lambda _: self._added(source, name))

    def _added(self, source: Any, name: str) -> ArchivedGraph:
        try:
            graph = load(plain_source(source))
            optimise(graph)
            lowered = lower(graph)
            with Units(self.target, self._cache) as units:
                units.archive = None  # what another one has is made, too
                store = KernelStore(self._cache, units, (self.target.key, True, False))
                layers = LayerStore(store)

                def take(kernel: Kernel) -> None:
                    if kernel.host is None:
                        units.take((kernel.program, *kernel.functions))

                options = CompileOptions(
                    keeper=store, layers=layers, choices=store.choices, on_kernel=take
                )
                compiled, _ = compile_lowered(graph, lowered, self.target, options)
                for invocation in compiled.invocations:
                    take(invocation.kernel)
                self._found |= {(p, machine_code.KIND): d for p, d in units.finished().items()}
                store.write()
                layers.write()
                self._collect_layers()
                return ArchivedGraph(name, store.found, store.made)
        finally:
            remembering.forget()

    def write(self, folder: Path) -> Path:
        """Write the archive; give its file.

        Args:
            folder: Where; an archive for the same target is replaced.

        Raises:
            InvalidArgument: It cannot be written there.
        """
        found = self._found | self._run_time()
        for key in self._keys(kernel_store.KIND):
            found[key, kernel_store.KIND] = self._cache.read(key, kernel_store.KIND) or b""
        path = folder / kernel_archive.file_name(self.target)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            kernel_archive.write_archive(path, found)
        except OSError as error:
            raise InvalidArgument(
                message("archive", f"{path} cannot be written: {error}")
            ) from None
        return path

    def _collect_layers(self) -> None:
        """Take the layers that the cache has: it drops the oldest, an archive none."""
        for key in self._keys(layer_store.KIND):
            part = self._cache.read(key, layer_store.KIND) or b""
            for name, line in layer_store.lines_of(part).items():
                self._found[name.decode(), layer_store.KIND] = line

    def _keys(self, kind: str) -> Iterable[str]:
        folder = Path(self._folder.name) / kind
        return [path.name for path in folder.iterdir()] if folder.is_dir() else []

    def _run_time(self) -> dict[tuple[str, str], bytes]:
        """The run time's own functions."""
        found = {}
        with Units(self.target, self._cache) as units:
            for kind, programs in functions.kinds().items():
                part = units.part(AS_WRITTEN + emit_module(programs(), self.target))()
                blob = blob_of([part], self.target).to_bytes()
                found[functions.archived_key(kind, self.target), kind] = blob
        return found


def write_archive(
    folder: Path,
    target: Target,
    sources: Iterable[tuple[str, Any]],
    say: Callable[[ArchivedGraph], None] = lambda _: None,
) -> Path:
    """Compile graphs for a target, and write the archive of their kernels; give its file.

    Args:
        folder: Where; an archive for the same target is replaced.
        target: What to generate for.
        sources: Names and models, as `InferenceSession` takes them.
        say: Is told of each graph.

    Raises:
        SardonyxError: A graph cannot be compiled.
        InvalidArgument: The archive cannot be written there.
    """
    with ArchiveWriter(target) as writer:
        for name, source in sources:
            say(writer.add(source, name))
        return writer.write(folder)
