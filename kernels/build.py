"""Build the kernel archives of the package sardonyx-kernels from weightless graphs.

    python kernels/build.py [GRAPH ...] --targets avx2,amx --output kernels/sardonyx_kernels

Without graphs: those in ../shared/models, ../shared/zoo.tar.xz and tests/plan/graphs.
"""

import argparse
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_SHARED = _ROOT.parent / "shared"
sys.path.insert(0, str(_ROOT))

from sardonyx.base.errors import SardonyxError  # noqa: E402
from sardonyx.compiler.archive_writer import ArchiveWriter  # noqa: E402
from sardonyx.compiler.targets import PROCESSORS, target_of  # noqa: E402
from tests.support.weightless import fill  # noqa: E402


def graphs(folder: Path) -> Iterator[Path]:
    """The graphs that are compiled unless others are named."""
    yield from sorted((_SHARED / "models").glob("*.onnx"))
    yield from sorted((_ROOT / "tests" / "plan" / "graphs").glob("*.onnx"))
    if (_SHARED / "zoo.tar.xz").exists():
        with tarfile.open(_SHARED / "zoo.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        yield from sorted(folder.rglob("*.onnx"))


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
        sources = options.graphs or list(graphs(folder / "zoo"))
        for name in options.targets.split(","):
            with ArchiveWriter(target_of(name)) as writer:
                for source in sources:
                    start = time.perf_counter()
                    try:
                        with tempfile.TemporaryDirectory(dir=folder) as filled:
                            made = writer.add(fill(source, Path(filled)), source.stem)
                    except SardonyxError as error:
                        print(f"{name} {source.stem}: {error}", flush=True)
                        continue
                    seconds = time.perf_counter() - start
                    print(
                        f"{name} {made.name}: {made.known} kernels were there, {made.made} are new,"
                        f" {seconds:.1f} s",
                        flush=True,
                    )
                path = writer.write(options.output)
                print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
