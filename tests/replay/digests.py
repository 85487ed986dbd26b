"""Digests of what the compiler makes of a model: programs, plans and keys of the cache.

Nothing is compiled to machine code: kernels are digested as their printed programs.
"""

import hashlib
import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sardonyx.compiler.build import compile_lowered
from sardonyx.compiler.targets import TARGETS as NAMES
from sardonyx.compiler.targets import target_of
from sardonyx.kernel.language.text import to_text
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan import serial
from sardonyx.targets.target import Target

#: Name -> target: every instruction set, and two generations of GPUs.
TARGETS: dict[str, Target] = {name: target_of(name) for name in NAMES}


@dataclass(frozen=True)
class Row:
    """What one model is for one target.

    Attributes:
        model: Its name.
        target: The target's name.
        programs: Digest of all kernel programs.
        plans: Digest of the plans that run once and of the main one, and of which outputs it gives.
        parts: Name -> digest, of each program and plan.
    """

    model: str
    target: str
    programs: str
    plans: str
    parts: dict[str, str]

    def __str__(self) -> str:
        return f"{self.model} {self.target} programs={self.programs} plans={self.plans}"


def rows(name: str, path: Path, targets: Iterable[str] = TARGETS) -> Iterator[Row]:
    """The rows of the model at `path`.

    Sizes order their terms by when their atoms were made, so each target has a process of its own,
    in which nothing was compiled before.
    """
    graph = load(path)
    optimise(graph)
    lowered = lower(graph)
    fork = multiprocessing.get_context("fork")
    for target in targets:
        with ProcessPoolExecutor(
            1, mp_context=fork, initializer=_hold, initargs=(graph, lowered)
        ) as e:
            yield e.submit(_row, name, target).result()


_held: list[Any] = []


def _hold(*held: Any) -> None:
    _held[:] = held


def _row(name: str, target: str) -> Row:
    graph, lowered = _held
    compiled, places = compile_lowered(graph, lowered, TARGETS[target])
    programs = {p.name: digest(to_text(p)) for p in compiled.programs()}
    plans = {f"once {k}": p.plan for k, p in enumerate(compiled.preparations)}
    plans["main"] = compiled.main
    written = {key: digest(serial.to_bytes(plan)) for key, plan in plans.items()}
    return Row(
        name, target, digest(repr(sorted(programs.items()))),
        digest(repr((sorted(written.items()), places))), programs | written,
    )  # fmt: skip


def digest(text: str | bytes) -> str:
    """Twelve digits, enough to tell a change."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:12]
