"""The tools of `sardonyx` beside those they stand for.

    python benchmarks/tools.py fused bert bert_base.onnx     counts of fused operators
    python benchmarks/tools.py quantised resnet50.onnx       files of both quantisers
    python benchmarks/tools.py profiled FOLDER               what a profile costs

Models have their feeds beside them (`NAME.onnx.feeds.npz`), as `../shared/bench/compare.py --cache
FOLDER` leaves them. `fused` wants the model's type, for onnxruntime's optimiser, and the package
sympy. `quantised` wants a network of pictures (static, after pre-processing) or of tokens
(dynamic). Engines and files take turns; times are ratios of the least ones;
what a profile costs is a median of ratios by turns, too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization as theirs

import sardonyx
from sardonyx import quantization as ours
from sardonyx.tools.optimizer.model import optimize_model

_SAMPLES, _SECONDS = 16, 10.0
_NORMS = ("LayerNormalization", "SkipLayerNormalization")


def _quiet() -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Threads that spin between runs take a processor from whose turn it is.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _theirs(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, _quiet(), providers=["CPUExecutionProvider"])


def _feeds(model: Path) -> dict[str, Any]:
    return dict(np.load(f"{model}.feeds.npz"))


def _times(*calls: Callable[[], object], seconds: float = _SECONDS) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(found[0]) < 10:
        for number in np.random.permutation(len(calls)):
            begin = time.perf_counter()
            calls[number]()
            found[number].append(time.perf_counter() - begin)
    return found


# -- fused operators ------------------------------------------------------------------------------


def _fused(path: Path) -> Counter[str]:
    nodes = onnx.load(path, load_external_data=False).graph.node
    return Counter(
        n.op_type for n in nodes if n.domain == "com.microsoft" or n.op_type in _NORMS
    )  # fmt: skip


def fused(kind: str, model: Path, heads: int, width: int) -> None:
    """Count what both optimisers fuse; compare what the files give with the model's results."""
    from onnxruntime.transformers import optimizer

    with tempfile.TemporaryDirectory() as folder:
        mine, other = Path(folder, "ours.onnx"), Path(folder, "theirs.onnx")
        optimize_model(str(model)).save_model_to_file(str(mine))
        made = optimizer.optimize_model(
            str(model), model_type=kind, opt_level=0, num_heads=heads, hidden_size=width
        )
        made.save_model_to_file(str(other))
        counts = _fused(mine), _fused(other)
        for name in sorted(counts[0] | counts[1]):
            print(f"  {name:32} {counts[0][name]:4} onnxruntime {counts[1][name]:4}")
        feeds = _feeds(model)
        want = _theirs(model).run(None, feeds)
        for name, session in (
            ("onnxruntime", _theirs(mine)), ("sardonyx", sardonyx.InferenceSession(mine)),
        ):  # fmt: skip
            got = session.run(None, feeds)
            rows = zip(got, want, strict=True)
            error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-9)) for a, b in rows)
            print(f"  largest error of our file in {name}: {error:.1e}")


# -- quantised models -----------------------------------------------------------------------------


def _draw(session: Any, random: np.random.Generator) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for node in session.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in node.shape]
        if len(shape) == 4:
            feeds[node.name] = random.standard_normal(shape, np.float32)
        elif "mask" in node.name:
            feeds[node.name] = np.ones((4, 128), np.int64)
        else:
            feeds[node.name] = random.integers(0, 30000, (4, 128))
    return feeds


class _Samples(theirs.CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    def __init__(self, session: Any) -> None:
        random = np.random.default_rng(5)
        self._left: Iterator[dict[str, Any]] = iter(
            [_draw(session, random) for _ in range(_SAMPLES)]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self._left, None)


def _quantise(package: Any, model: Path, target: Path, reader: Any) -> None:
    if reader is None:
        package.quantize_dynamic(str(model), str(target), weight_type=package.QuantType.QInt8)
        return
    shape_inference = __import__(f"{package.__name__}.shape_inference", fromlist=["_"])
    ready = target.with_suffix(".ready.onnx")
    shape_inference.quant_pre_process(str(model), str(ready))
    package.quantize_static(
        str(ready), str(target), reader, quant_format=package.QuantFormat.QDQ,
        activation_type=package.QuantType.QUInt8, weight_type=package.QuantType.QInt8,
    )  # fmt: skip


def quantised(model: Path, runs: int) -> None:
    """Files of both quantisers in both engines: speed, errors, and decisions that stay."""
    real = sardonyx.InferenceSession(model)
    is_static = any(len(node.shape) == 4 for node in real.get_inputs())
    with tempfile.TemporaryDirectory() as folder:
        sessions = {}
        for name, package in (("ours", ours), ("theirs", theirs)):
            target = Path(folder, f"{name}.onnx")
            _quantise(package, model, target, _Samples(real) if is_static else None)
            sessions["sardonyx", name] = sardonyx.InferenceSession(target)
            sessions["onnxruntime", name] = _theirs(target)
        random = np.random.default_rng(99)
        errors, kept = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        total = same = 0
        for _ in range(runs):
            feeds = _draw(real, random)
            want = real.run(None, feeds)[0]
            results = {key: s.run(None, feeds)[0] for key, s in sessions.items()}
            total += want[..., 0].size
            for key, got in results.items():
                errors[key] += np.abs(got - want).mean() / np.abs(want).mean()
                kept[key] += int((got.argmax(-1) == want.argmax(-1)).sum())
            first, second = results["sardonyx", "ours"], results["sardonyx", "theirs"]
            same += np.array_equal(first, second)
        times = _times(*((lambda s=s: s.run(None, feeds)) for s in sessions.values()))
        for key, taken in zip(sessions, times, strict=True):
            print(
                f"  {key[0]:12} file {key[1]:7} mean error {errors[key] / runs:.5f}, largest"
                f" element stays {100 * kept[key] / total:.3f} % of {total}, least time over ours"
                f" {min(taken) / min(times[0]):.3f}"
            )
        print(f"  both files give the same bits here in {same} of {runs} runs")


# -- profiles -------------------------------------------------------------------------------------


def profiled(folder: Path) -> None:
    """Each model with a profile and without, in turns."""
    for model in sorted(folder.glob("*.onnx")):
        feeds = _feeds(model)
        plain = sardonyx.InferenceSession(model)
        options = sardonyx.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        noted = sardonyx.InferenceSession(model, options)
        off, on = _times(lambda: plain.run(None, feeds), lambda: noted.run(None, feeds))  # noqa: B023 - called at once
        os.unlink(noted.end_profiling())
        # A machine that others use changes its speed: what was measured one after the other counts.
        ratio = np.median(np.array(on) / np.array(off))
        print(
            f"{model.stem:24} {1e3 * min(off):8.3f} ms, with a profile {min(on) / min(off):.3f} of"
            f" the least time and {ratio:.3f} by turns",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    what = parser.add_subparsers(dest="what", required=True)
    sub = what.add_parser("fused")
    sub.add_argument("kind")
    sub.add_argument("model", type=Path)
    sub.add_argument("--heads", type=int, default=12)
    sub.add_argument("--width", type=int, default=768)
    sub = what.add_parser("quantised")
    sub.add_argument("model", type=Path)
    sub.add_argument("--runs", type=int, default=100)
    sub = what.add_parser("profiled")
    sub.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    if chosen.what == "fused":
        fused(chosen.kind, chosen.model, chosen.heads, chosen.width)
    elif chosen.what == "quantised":
        quantised(chosen.model, chosen.runs)
    else:
        profiled(chosen.folder)


if __name__ == "__main__":
    main()
