"""One case: a mutated file is loaded and run, and must end in a result or a named error."""

from __future__ import annotations

import random
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx
from sardonyx.base.errors import EngineError, SardonyxError
from tests.hostile import onnx_changes, raw
from tests.hostile.corpus import Corpus
from tests.hostile.feeds import feeds_for

MEMORY_LIMIT_BYTES = 256 << 20
LOAD_SECONDS = 8.0
RUN_SECONDS = 2.0
#: Each with other sizes: making a session costs more than running it.
_RUNS = 4
#: What a case may take beyond its limits: time limits are looked at between pieces of work.
SLACK_SECONDS = 10.0


@dataclass(slots=True)
class Outcome:
    """How a case ended.

    Attributes:
        kind: `refused NAME` when loading, `failed NAME` when running, `ran`, `not fed`; or
            `DEFECT ...`.
        model: The name of the model that was mutated.
        changes: What was done to it.
        seconds: How long a processor took to load and run.
        detail: Of a defect: the error with its traceback.
    """

    kind: str
    model: str
    changes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    detail: str = ""

    @property
    def is_defect(self) -> bool:
        """Whether it should not have ended so."""
        return self.kind.startswith("DEFECT")


def make(seed: int, corpus: Corpus, model: str | None = None) -> tuple[str, list[str], bytes]:
    """The file of a case: model, changes, bytes."""
    name = model or corpus.choose(random.Random(f"model {seed}"))
    rnd = random.Random(f"changes {seed}")
    proto = corpus.build(name, rnd)
    changes: list[str] = []
    if rnd.random() < 0.85:
        changes += onnx_changes.mutate(rnd, proto)
    data = proto.SerializeToString()
    if not changes or rnd.random() < 0.1:
        for _ in range(rnd.choice((1, 1, 2))):
            data, change = raw.mutate(rnd, data)
            changes.append(change)
    return name, changes, data


def prepare_folder(folder: Path) -> None:
    """Other files beside the model, for data that lie elsewhere."""
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    contents = np.arange(2048, dtype=np.int64).tobytes()
    for name, data in (("data.bin", contents), ("short.bin", b"\1" * 7), ("empty.bin", b"")):
        (folder / name).write_bytes(data)
    (folder / "sub" / "data.bin").write_bytes(contents)
    for name, target in (("link", "/etc/passwd"), ("loop", "loop")):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)
    if not (folder / "pipe").exists():
        import os

        os.mkfifo(folder / "pipe")


def run(seed: int, corpus: Corpus, folder: Path, model: str | None = None) -> Outcome:
    """Make a case and see how it ends."""
    try:
        name, changes, data = make(seed, corpus, model)
    except Exception as error:  # noqa: BLE001 - a defect of the tests
        return Outcome("DEFECT mutator", model or "", detail=_text(error))
    outcome = Outcome("", name, changes)
    rnd = random.Random(f"feeds {seed}")
    source: Any = data
    if "external" in changes or rnd.random() < 0.05:
        source = folder / "model.onnx"
        source.write_bytes(data)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome.kind, outcome.detail = _attempt(rnd, source)
    outcome.seconds = time.process_time() - start
    if outcome.seconds > LOAD_SECONDS + 4 * RUN_SECONDS + SLACK_SECONDS:
        outcome.kind = "DEFECT slow"
    return outcome


def _attempt(rnd: random.Random, source: Any) -> tuple[str, str]:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = rnd.choice((1, 1, 1, 2))
    options.log_severity_level = 4
    if rnd.random() < 0.15:
        options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.memory_limit_bytes", str(MEMORY_LIMIT_BYTES))
    options.add_session_config_entry("session.load_timeout_seconds", str(LOAD_SECONDS))
    try:
        session = sardonyx.InferenceSession(source, options)
    except Exception as error:  # noqa: BLE001 - every kind is looked at
        return _judged("refused", error)
    kind = ("not fed", "")
    for _ in range(_RUNS):
        feeds = feeds_for(rnd, session.get_inputs())
        if feeds is None:
            continue
        try:
            session.run(None, feeds, timeout=RUN_SECONDS)
        except Exception as error:  # noqa: BLE001
            judged = _judged("failed", error)
            if judged[0].startswith("DEFECT"):
                return judged
            kind = judged if kind[0] != "ran" else kind
        else:
            kind = ("ran", "")
    return kind


def _text(error: BaseException) -> str:
    """Where the first of the errors came from, and what each says."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    frames = traceback.extract_tb(chain[-1].__traceback__)[-5:]
    places = [f"{'/'.join(Path(f.filename).parts[-2:])}:{f.lineno} {f.name}" for f in frames]
    said = [f"{type(e).__name__}: {str(e)[:500]}" for e in reversed(chain)]
    return " > ".join(places) + " | " + " => ".join(said)


def _judged(when: str, error: Exception) -> tuple[str, str]:
    text = _text(error)
    name = type(error).__name__
    if not isinstance(error, SardonyxError):
        return f"DEFECT {when} {name}", text
    if isinstance(error, EngineError):
        return f"DEFECT {when} {name}", text
    if not str(error).startswith("["):
        return f"DEFECT {when} {name} without a place", text
    return f"{when} {name}", ""
