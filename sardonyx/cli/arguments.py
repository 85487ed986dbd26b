"""Arguments that several commands take: each is declared here, and means the same in all."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from sardonyx.base.errors import InvalidArgument, message

#: Sizes are int64 in files.
_MOST_SIZE = 2**63 - 1
#: More threads than any machine has; a larger number is a slip.
MOST_THREADS = 4096
#: No file has more.
MOST_BYTES = 2**63 - 1
_MOST_SEED = 2**32 - 1
_SIZE = re.compile(r"(?s)(.+)[=:]([0-9]+)")


def whole(least: int = 0, most: int = 2**31 - 1) -> Callable[[str], int]:
    """What reads a whole number of this range, in the digits 0 to 9."""

    def read(text: str) -> int:
        if re.fullmatch("[+-]?[0-9]{1,25}", text) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")

    return read


def real(least: float = 0.0, most: float = math.inf, *, above: bool = False) -> Any:
    """What reads a finite number of this range; with `above`, one that is more than `least`."""

    def read(text: str) -> float:
        try:
            number = float(text) if text.isascii() else math.nan
        except ValueError:
            number = math.nan
        if math.isfinite(number) and least <= number <= most and not (above and number == least):
            return number
        start = f"more than {least:g}" if above else f"{least:g} or more"
        end = f", at most {most:g}" if most < math.inf else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a number that is {start}{end}")

    return read


def numbers_of(
    text: str | None, flag: str, least: int = 0, most: int = MOST_THREADS
) -> tuple[int, ...] | None:
    """Whole numbers of a list with commas; None for no text.

    Raises:
        InvalidArgument: One is none, or out of range.
    """
    if text is None:
        return None
    try:
        return tuple(whole(least, most)(word.strip()) for word in text.split(",") if word.strip())
    except argparse.ArgumentTypeError as error:
        what = f"It is no list of numbers such as 1,2: {error}"
        raise InvalidArgument(message(flag, what, got=text)) from None


def sizes_of(texts: Iterable[str], flag: str = "--dim") -> dict[str, int]:
    """Sizes by name, of texts NAME=N, or NAME:N as onnxruntime_perf_test has it.

    Raises:
        InvalidArgument: A text is none, or a name is given two sizes.
    """
    found: dict[str, int] = {}
    for text in texts:
        parts = _SIZE.fullmatch(text)
        if parts is None or len(parts[2]) > 25 or not int(parts[2]):
            what = "It is not NAME=N, with a number above 0"
            raise InvalidArgument(message(flag, what, got=text))
        name, size = parts[1], int(parts[2])
        if size > _MOST_SIZE:
            raise InvalidArgument(message(flag, "No tensor is so large", got=text))
        if found.setdefault(name, size) != size:
            what = f"Two sizes of {name!r}: {found[name]} and {size}"
            raise InvalidArgument(message(flag, what))
    return found


def add_dimensions(parser: Any, help: str = "") -> None:
    """`--dim`: sizes of dimensions; `sizes_of(options.dim)` reads them."""
    parser.add_argument(
        "-f", "--dim", "--free-dim", dest="dim", action="append", default=[], metavar="NAME=N",
        help=help or "size of a dimension, by its name or as INPUT.AXIS (chosen, and printed)",
    )  # fmt: skip


def add_provider(parser: Any, help: str = "where it runs (cpu)") -> None:
    """`--provider`: `cpu` or `cuda`; onnxruntime's long names are known, too."""
    parser.add_argument(
        "-e", "--provider", type=provider, default="cpu", metavar="{cpu,cuda}", help=help
    )


def provider(text: str) -> str:
    """The short name of a provider."""
    from sardonyx.tools.providers import short_name

    try:
        return short_name(text)
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_threads(parser: Any) -> None:
    """`--threads`: of a run."""
    parser.add_argument(
        "-x", "--threads", type=whole(0, MOST_THREADS), default=0, metavar="N",
        help="threads of a run (0: all processors)",
    )  # fmt: skip


def add_seed(parser: Any, *flags: str) -> None:
    """`--seed`: of inputs that are made up."""
    parser.add_argument(
        *flags, "--seed", type=whole(0, _MOST_SEED), default=0, metavar="N",
        help="of inputs that are made up (0)",
    )  # fmt: skip
