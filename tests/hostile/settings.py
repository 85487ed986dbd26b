"""Settings, options, switches and JSON that nobody expects.

python -m tests.hostile.settings --seconds 3600   # until then; defects are printed with seeds
python -m tests.hostile.settings --seed 17        # one case again, in this process

Files of settings, options in a model's metadata, results of tuning, ranges of calibration,
journals, profiles; properties and entries of sessions and runs, options of providers, switches in
the environment. What is not taken ends in an error with a name, whose text, like all that is
logged, can be printed. What is taken leaves a session right. No file but a result appears, and none
changes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import random
import sys
import tempfile
import traceback
import unicodedata
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

import sardonyx
from sardonyx.api import settings as stored
from sardonyx.api.config_keys import RUN_KEYS, SESSION_KEYS
from sardonyx.base import knobs
from sardonyx.base.errors import EngineError, SardonyxError
from tests.hostile.children import run_cases
from tests.hostile.hostile_json import BAD_TEXT, STRANGE, changed, text_of
from tests.support.session import model_of

_X = np.arange(8, dtype=np.float32).reshape(2, 4)
_WEIGHTS = np.eye(4, dtype=np.float32) * 2


@cache
def _model(metadata: str = "") -> bytes:
    model = model_of("g (float[N, 4] x) => (float[N, 4] y) { y = MatMul(x, w) }", {"w": _WEIGHTS})
    if metadata:
        onnx.helper.set_model_props(model, {"ort_config": metadata})
    return model.SerializeToString()


def _check(session: Any, **run: Any) -> None:
    (got,) = session.run(None, {"x": _X}, **run)
    assert np.array_equal(got, _X * 2), f"other values {got}"


def _entry() -> dict[str, Any]:
    """An entry of a file of settings, with everything that may be set."""
    return {
        "model": stored.model_digest("m.onnx"), "device": stored.device(),
        "settings": {
            "execution_provider": "CPUExecutionProvider", "provider_options": {},
            "session_options": {
                "intra_op_num_threads": 2, "inter_op_num_threads": 1, "execution_mode": 0,
                "graph_optimization_level": 99,
                "extra_session_config": {
                    "session.dynamic_block_base": "4", "session.disable_winograd": "1",
                    "optimization.disable_specified_optimizers": "ConstantFolding",
                },
            },
            "tuning_results": _tuning(), "io_bind": True, "concurrency": 2, "batch_size": 1,
        },
    }  # fmt: skip


@cache
def _validators() -> dict[str, Any]:
    from sardonyx.api.tuning_results import _validators as own

    return dict(own())


def _tuning() -> list[dict[str, Any]]:
    results = {"0" * 32: {"rows": 48}, "1" * 32: {"vectors": 1, "elements": 512}}
    entry = {"ep": "CPUExecutionProvider", "results": results, "validators": _validators()}
    return [entry]


# -- what is done ----------------------------------------------------------------------------


def _settings_file(rnd: random.Random) -> None:
    document = {"format": stored.FORMAT, "entries": [_entry()] * rnd.choice((1, 1, 2))}
    Path("s.json").write_bytes(text_of(rnd, document))
    options = sardonyx.SessionOptions()
    by_variable = {"SARDONYX_SETTINGS": "s.json"} if rnd.random() < 0.3 else {}
    if not by_variable:
        options.add_session_config_entry("session.settings_file", "s.json")
    with mock.patch.dict(os.environ, by_variable):
        _check(sardonyx.InferenceSession("m.onnx", options))


def _metadata(rnd: random.Random) -> None:
    options = {"intra_op_num_threads": 1, "execution_mode": 0, "graph_optimization_level": 99}
    text = text_of(rnd, {"session_options": options | {"use_per_session_threads": 1}})
    with mock.patch.dict(os.environ, {"ORT_LOAD_CONFIG_FROM_MODEL": "1"}):
        _check(sardonyx.InferenceSession(_model(text.decode(errors="replace") or "{")))


def _tuned(rnd: random.Random) -> None:
    session = sardonyx.InferenceSession(_model())
    try:
        session.set_tuning_results(changed(rnd, _tuning()), error_on_invalid=rnd.random() < 0.5)
    finally:
        _check(session)


def _ranges(rnd: random.Random) -> None:
    from sardonyx.quantization.calibration_data import load_tensors_data

    array = {"data": [0.5, 1.5], "dtype": "float32", "CLS": "numpy.array"}
    pair = {"CLS": "TensorData", "lowest": array, "highest": array}
    document = {"CLS": "TensorsData", "data": {"x": pair}, "calibration_method": "MinMax"}
    Path("r.json").write_bytes(text_of(rnd, document))
    load_tensors_data("r.json")


def _journal(rnd: random.Random) -> None:
    from sardonyx.tools.tune.journal import Journal
    from sardonyx.tools.tune.outcome import DEFAULT, Outcome

    header = {"model": "m"}
    outcome = Outcome(DEFAULT, seconds=(0.1, 0.2)).to_json()
    documents = [outcome, {"kernels": "k", "results": _tuning()}]
    lines = [json.dumps(d).encode() for d in (header, *documents)]
    which = rnd.randrange(1, 3)
    lines[which] = text_of(rnd, documents[which - 1]).replace(b"\n", b" ")
    Path("j.jsonl").write_bytes(b"\n".join(lines) + rnd.choice((b"\n", b"", b"\n{")))
    Journal(Path("j.jsonl"), header, mock.Mock(), resume=True)


def _profile(rnd: random.Random) -> None:
    from sardonyx.cli.main import main

    event = {
        "cat": "Node", "name": "a_kernel_time", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1,
        "args": {"op_name": "Add", "node_index": "1", "provider": "CPUExecutionProvider"},
    }  # fmt: skip
    Path("p.json").write_bytes(text_of(rnd, [event, dict(event)]))
    with contextlib.suppress(SystemExit):
        main(["view", "p.json", "--output", "result.html"])


def _value(rnd: random.Random, *usual: Any) -> Any:
    return rnd.choice((*usual, *usual, *usual, *STRANGE)) if usual else rnd.choice(STRANGE)


#: Writes files by what they are for, or makes what a caller asks for in bytes.
_LEFT_OUT = {
    "session.settings_file", "session.load_model_format", "session.memory_limit_bytes",
    "optimized_model_filepath", "profile_file_prefix", "enable_profiling",
}  # fmt: skip


def _options(rnd: random.Random) -> None:
    options = sardonyx.SessionOptions()
    for _ in range(rnd.choice((1, 1, 3))):
        how = rnd.random()
        if how < 0.4:
            names = [n for n in dir(options) if not n.startswith("_") and n not in _LEFT_OUT]
            names = [n for n in names if not callable(getattr(options, n))]
            setattr(options, rnd.choice((*names, BAD_TEXT, "intra_op_num_threadz")), _value(rnd))
        elif how < 0.85:
            key = rnd.choice([k for k in SESSION_KEYS if k not in _LEFT_OUT] + [BAD_TEXT, ""])
            options.add_session_config_entry(key, _value(rnd, "0", "1"))
        elif how < 0.95:
            options.add_free_dimension_override_by_name(_value(rnd, "N"), _value(rnd, 2))
        else:
            options.add_initializer(_value(rnd, "w"), _value(rnd))
    _check(sardonyx.InferenceSession(_model(), options))


def _run_options(rnd: random.Random) -> None:
    session, options = sardonyx.InferenceSession(_model()), sardonyx.RunOptions()
    try:
        for _ in range(rnd.choice((1, 1, 3))):
            if rnd.random() < 0.5:
                names = [n for n in dir(options) if not n.startswith("_") and n != "terminate"]
                names = [n for n in names if not callable(getattr(options, n))]
                setattr(options, rnd.choice((*names, BAD_TEXT)), _value(rnd))
            else:
                key = rnd.choice([*RUN_KEYS, BAD_TEXT, ""])
                options.add_run_config_entry(key, _value(rnd, "0", "1"))
        if rnd.random() < 0.3:
            _check(session, timeout=_value(rnd, 5.0))
        session.run(None, {"x": _X}, options)
    finally:
        _check(session)


def _providers(rnd: random.Random) -> None:
    cpu: Any = ("CPUExecutionProvider", {})
    given: Any = [list(cpu)] if rnd.random() < 0.2 else [cpu]
    given = changed(rnd, [list(p) for p in given])
    if isinstance(given, list):
        given = [tuple(p) if isinstance(p, list) and len(p) == 2 else p for p in given]
    more = {"provider_options": changed(rnd, [{}])} if rnd.random() < 0.4 else {}
    _check(sardonyx.InferenceSession(_model(), providers=given, **more))


#: Folders and processors: tested where they are read.
_NOT_VARIED = {"SARDONYX_CACHE", "SARDONYX_SETTINGS"}


def _switches(rnd: random.Random) -> None:
    texts = [s for s in STRANGE if isinstance(s, str) and "\0" not in s and "\ud800" not in s]
    texts += ["2", "-0", "1_0", "0x1", "1.0", "1GB", "10 MiB", "avx2", "AVX2", "sse"]
    names = [k.name for k in knobs.all_knobs() if k.name not in _NOT_VARIED]
    chosen = {rnd.choice(names): rnd.choice(texts) for _ in range(rnd.choice((1, 1, 2)))}
    with mock.patch.dict(os.environ, chosen):
        _check(sardonyx.InferenceSession(_model()))


KINDS: dict[str, Callable[[random.Random], None]] = {
    "settings": _settings_file, "metadata": _metadata, "tuning": _tuned, "ranges": _ranges,
    "journal": _journal, "profile": _profile, "options": _options, "run": _run_options,
    "providers": _providers, "switches": _switches,
}  # fmt: skip


# -- what is checked --------------------------------------------------------------------------


def _unprintable(text: str) -> str:
    """What terminals obey, or what hides text; lines of their own and tabs are none."""
    return "".join(c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")
                   and c not in "\n\t")  # fmt: skip


class _Said(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += self.format(record) + "\n"


def run_case(seed: int) -> tuple[str, str]:
    """The kind of outcome, and what is wrong with it: "" for nothing."""
    rnd = random.Random(seed)
    name = rnd.choice(list(KINDS))
    kind, defect, said, shown = f"{name} taken", "", _Said(), io.StringIO()
    logger, before = logging.getLogger("sardonyx"), os.getcwd()
    logger.addHandler(said)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("m.onnx").write_bytes(_model())
        Path("precious").write_text("precious")
        try:
            with (
                warnings.catch_warnings(record=True) as warned,
                contextlib.redirect_stdout(shown),
                contextlib.redirect_stderr(shown),
            ):
                warnings.simplefilter("always")
                KINDS[name](rnd)
        except EngineError:
            defect = traceback.format_exc()
        except (SardonyxError, AttributeError) as error:
            kind = f"{name} refused"
            is_named = isinstance(error, SardonyxError) or str(error).startswith("[")
            defect = "" if is_named else traceback.format_exc()
            shown.write(str(error) + repr(error))
        except BaseException:
            defect = traceback.format_exc()
        finally:
            logger.removeHandler(said)
            os.chdir(before)
        texts = (shown.getvalue(), said.text, *(str(w.message) for w in warned))
        bad = "".join(map(_unprintable, texts))
        if bad and not defect:
            defect = f"It says {bad!r}: {[t for t in texts if _unprintable(t)]!r}"
        made = {p.name for p in Path(folder).iterdir()}
        made -= {"m.onnx", "precious", "s.json", "r.json", "j.jsonl", "p.json", "result.html"}
        if made or Path(folder, "precious").read_text() != "precious":
            defect = defect or f"FILES {sorted(made)}"
    return kind, defect


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.settings")
    parser.add_argument("--seed", type=int, help="one case, in this process")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10**9, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so long")
    options = parser.parse_args()
    os.environ.setdefault("SARDONYX_COMPILE_PROCESSES", "1")
    if options.seed is not None:
        kind, defect = run_case(options.seed)
        sys.stdout.write(f"{kind}\n{defect}\n")
        return 1 if defect else 0

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    seeds = range(options.first, options.first + options.count)
    tally = run_cases(run_case, seeds, options.seconds, say)
    say(f"{sum(tally.values())} cases from seed {options.first}: {dict(tally.most_common())}")
    return 1 if tally["defect"] else 0


if __name__ == "__main__":
    sys.exit(main())
