"""Build the kernel archives of the package sardonyx-kernels from weightless graphs.

    python kernels/build.py [GRAPH ...] --targets avx2,amx --output kernels/sardonyx_kernels

Without graphs: those in ../shared/models, ../shared/zoo.tar.xz and tests/plan/graphs, and the
models out of PyPI wheels that the tests download.
"""

import argparse
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_SHARED = _ROOT.parent / "shared"
# Archives are for the source of this checkout, not for what may be installed: it is found first, so
# these imports are behind.
sys.path.insert(0, str(_ROOT))

from sardonyx.base.errors import SardonyxError  # noqa: E402
from sardonyx.compiler.archive_writer import ArchiveWriter  # noqa: E402
from sardonyx.compiler.targets import PROCESSORS, target_of  # noqa: E402
from tests.support.weightless import fill  # noqa: E402
from tests.wheels.fetch import Unreachable  # noqa: E402
from tests.wheels.models import MODELS  # noqa: E402

#: What gives a model, in a folder for its file if it needs one.
Source = Callable[[Path], object]


def graphs(folder: Path) -> Iterator[Path]:
    """The weightless graphs that are compiled unless others are named."""
    yield from sorted((_SHARED / "models").glob("*.onnx"))
    yield from sorted((_ROOT / "tests" / "plan" / "graphs").glob("*.onnx"))
    if (_SHARED / "zoo.tar.xz").exists():
        with tarfile.open(_SHARED / "zoo.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        yield from sorted(folder.rglob("*.onnx"))


def sources(named: list[Path], folder: Path) -> Iterator[tuple[str, Source]]:
    """Names of graphs, and what gives them."""
    for path in named or graphs(folder):
        yield path.stem, lambda filled, path=path: fill(path, filled)
    if not named:
        for name, model in MODELS.items():
            yield name, lambda _, model=model: model.read()


def main() -> None:
    """Build, and print what each graph brought."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="*", type=Path)
    parser.add_argument("--targets", default="avx2", help=f"of {', '.join(PROCESSORS)}")
    output = Path(__file__).parent / "sardonyx_kernels"
    parser.add_argument("--output", type=Path, default=output)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found = list(sources(options.graphs, folder / "zoo"))
        for name in options.targets.split(","):
            with ArchiveWriter(target_of(name)) as writer:
                for stem, source in found:
                    start = time.perf_counter()
                    try:
                        with tempfile.TemporaryDirectory(dir=folder) as filled:
                            made = writer.add(source(Path(filled)), stem)
                    except (SardonyxError, Unreachable) as error:
                        print(f"{name} {stem}: {error}", flush=True)
                        continue
                    seconds = time.perf_counter() - start
                    print(
                        f"{name} {stem}: {made.known} kernels were there, {made.made} are new, "
                        f"{seconds:.1f} s",
                        flush=True,
                    )
                path = writer.write(options.output)
                print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
