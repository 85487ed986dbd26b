"""The fast tier of the tests: every file but the slow ones, which are listed in slow_files.txt.

`pytest` alone runs the fast tier; with a path, or `-k`, every test of it. `--tier=rest` runs what
the fast tier leaves out, `--tier=all` everything. `python -m tests.tiers RESULTS.xml ...` writes
the list anew from a run of everything: `pytest --tier=all --junitxml=RESULTS.xml`.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LIST = ROOT / "slow_files.txt"
TIERS = ("fast", "rest", "all")
#: A file is slow that takes more seconds than this, and more for each of its tests: files of many
#: quick tests prove much for what they take. So all fast ones fit in five minutes on two cores.
_FILE_SECONDS, _TEST_SECONDS = 3.0, 0.05


def slow_files() -> frozenset[str]:
    """Paths, from the folder of tests, of what the fast tier leaves out."""
    rows = (line.split() for line in LIST.read_text("utf-8").splitlines())
    return frozenset(row[1] for row in rows if row and not row[0].startswith("#"))


def is_left_out(path: Path, tier: str, slow: frozenset[str]) -> bool:
    """Whether a tier has no test of a file."""
    if tier == "all" or not (path.suffix == ".py" and path.name.startswith("test_")):
        return False
    is_slow = path.relative_to(ROOT).as_posix() in slow
    return is_slow if tier == "fast" else not is_slow


def slowest(results: Sequence[Path]) -> list[tuple[float, str]]:
    """Seconds and path of each slow file, from reports of pytest in JUnit's form.

    Of a file that several reports have, the last one counts.
    """
    seconds, tests = Counter[str](), Counter[str]()
    for report in results:
        found, count = Counter[str](), Counter[str]()
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = case.get("classname", "")
            if name.startswith("tests."):
                found[name] += float(case.get("time", 0))
                count[name] += 1
        for name in found:
            seconds[name], tests[name] = found[name], count[name]
    paths = {name: "/".join(name.split(".")[1:]) + ".py" for name in seconds}
    rows = [
        (total, paths[name])
        for name, total in seconds.items()
        if total > _FILE_SECONDS and total / tests[name] > _TEST_SECONDS
    ]
    return sorted(rows, key=lambda row: (-row[0], row[1]))


def main(arguments: Sequence[str]) -> None:
    """The command."""
    rows = [f"{seconds:.0f} {path}" for seconds, path in slowest([*map(Path, arguments)])]
    head = "# Seconds in a run of everything, and file; made by `python -m tests.tiers`."
    LIST.write_text("\n".join([head, *rows]) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
