"""What changing shapes cost a detector: image sizes and numbers of boxes differ from run to run.

    python benchmarks/detector.py [--runs 10000] [--threads 1] [--peer]

The detector is made here: convolutions, a grid of centres, boxes and scores, NonMaxSuppression of
every class, and the best of what it keeps. Images have 64 to 320 rows and columns, and what a box
must score changes, so every run has sizes of its own. Printed are times as multiples of the median
of the same image size: wall, wall of the runs in which the system gave the processor to nobody
else meanwhile, and processor; resident memory quarter by quarter, and modules compiled. With
`--peer` onnxruntime runs in turn, on the same images.
"""

from __future__ import annotations

import argparse
import importlib
import random
import resource
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.llvm.compile import COUNTS

Feeds = dict[str, np.ndarray[Any, Any]]

_CLASSES = 8
_CHANNELS = (3, 16, 32, 48, 48)
#: A cell is as many pixels wide.
_STRIDE = 16

_TEXT = """
<ir_version: 9, opset_import: ["" : 17]>
detector (float[1,3,H,W] image, float[1] least)
=> (float[K,4] boxes, float[K] scores, int64[K] kind)
{
    LAYERS
    head = Conv(c4, w_head, b_head)
    grid = Shape<start = 2>(head)
    rows, columns = Split<axis = 0>(grid, halves)
    row_count = Squeeze(rows, axis0)
    column_count = Squeeze(columns, axis0)
    row = Range(zero, row_count, one)
    column = Range(zero, column_count, one)
    row_line = Unsqueeze(row, axis1)
    column_line = Unsqueeze(column, axis0)
    row_grid = Expand(row_line, grid)
    column_grid = Expand(column_line, grid)
    row_flat = Reshape(row_grid, column_shape)
    column_flat = Reshape(column_grid, column_shape)
    cells = Concat<axis = 1>(column_flat, row_flat)
    places = Cast<to = 1>(cells)
    last = Transpose<perm = [0, 2, 3, 1]>(head)
    flat = Reshape(last, list_shape)
    moves, extents, raw = Split<axis = 1>(flat, parts)
    moved = Sigmoid(moves)
    at = Add(places, moved)
    centres = Mul(at, stride)
    wide = Exp(extents)
    spans = Mul(wide, stride)
    all_boxes = Concat<axis = 1>(centres, spans)
    all_scores = Sigmoid(raw)
    box_batch = Unsqueeze(all_boxes, axis0)
    by_class = Transpose<perm = [1, 0]>(all_scores)
    score_batch = Unsqueeze(by_class, axis0)
    kept = NonMaxSuppression<center_point_box = 1>(box_batch, score_batch, most, overlap, least)
    kind_of = Gather<axis = 1>(kept, one)
    box_of = Gather<axis = 1>(kept, two)
    pairs = Slice(kept, axis1, three, axis1)
    own = GatherND(by_class, pairs)
    total = Shape(own)
    few = Min(total, hundred)
    scores, order = TopK(own, few)
    best = Gather(box_of, order)
    boxes = Gather(all_boxes, best)
    kind = Gather(kind_of, order)
}
"""


def model(seed: int = 0) -> onnx.ModelProto:
    """The detector, with random weights."""
    rng = np.random.default_rng(seed)
    layers = []
    weights: dict[str, Any] = {}
    for k, (before, after) in enumerate(zip(_CHANNELS, _CHANNELS[1:], strict=False), 1):
        source = "image" if k == 1 else f"c{k - 1}"
        node = f"Conv<strides = [2, 2], pads = [1, 1, 1, 1]>({source}, w{k}, b{k})"
        layers.append(f"a{k} = {node} c{k} = Relu(a{k})")
        scale = (2 / (before * 9)) ** 0.5
        weights[f"w{k}"] = rng.standard_normal((after, before, 3, 3)) * scale
        weights[f"b{k}"] = rng.standard_normal(after) * 0.1
    outputs = 4 + _CLASSES
    weights["w_head"] = rng.standard_normal((outputs, _CHANNELS[-1], 1, 1)) * 0.4
    weights["b_head"] = np.zeros(outputs)
    numbers = {
        "axis0": [0], "axis1": [1], "zero": 0, "one": 1, "two": 2, "three": [3], "hundred": [100],
        "column_shape": [-1, 1], "list_shape": [-1, outputs], "parts": [2, 2, _CLASSES],
        "most": [50], "halves": [1, 1],
    }  # fmt: skip
    weights |= {"overlap": [0.5], "stride": float(_STRIDE)}
    made = parser.parse_model(_TEXT.replace("LAYERS", "\n    ".join(layers)))
    arrays = {name: np.asarray(value, np.float32) for name, value in weights.items()}
    arrays |= {name: np.asarray(value, np.int64) for name, value in numbers.items()}
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return made


def feeds_of(height: int, width: int, least: float, rng: np.random.Generator) -> Feeds:
    """An image of noise, and what a box must score."""
    image = rng.standard_normal((1, 3, height, width)).astype(np.float32)
    return {"image": image, "least": np.array([least], np.float32)}


def main() -> None:
    """Print the figures."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--runs", type=int, default=10000)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--peer", action="store_true", help="let onnxruntime run in turn")
    given = arguments.parse_args()
    session = _session(sardonyx, given.threads)
    sides = {"sardonyx": _Side(session)}
    if given.peer:
        sides["onnxruntime"] = _Side(
            _session(importlib.import_module("onnxruntime"), given.threads)
        )
    choose, rng = random.Random(0), np.random.default_rng(0)
    compiled, same = COUNTS["modules"], 0
    resident: list[int] = []
    for _ in range(given.runs):
        feeds = _draw(choose, rng)
        results = [side.run(feeds) for side in sides.values()]
        same += all(_agree(results[0], other) for other in results[1:])
        resident.append(_resident_kib())
    print(f"runs: {given.runs}, of {len(sides['sardonyx'].wall)} image sizes")
    for name, side in sides.items():
        side.report(name)
    if given.peer:
        print(f"runs whose results agree: {same}")
    quarter = max(1, given.runs // 4)
    parts = [max(resident[k * quarter : (k + 1) * quarter]) / 1024 for k in range(4)]
    print("resident, by quarter: " + ", ".join(f"{part:.1f}" for part in parts) + " MiB at most")
    plans = 1 + len(inspect(session).variants)
    print(f"plans: {plans}; modules compiled meanwhile: {COUNTS['modules'] - compiled}")


def _session(engine: Any, threads: int) -> Any:
    options = engine.SessionOptions()
    options.intra_op_num_threads = threads
    return engine.InferenceSession(model().SerializeToString(), options)


def _draw(choose: random.Random, rng: np.random.Generator) -> Feeds:
    height, width = (32 * choose.randint(2, 10) for _ in range(2))
    return feeds_of(height, width, choose.choice((0.5, 0.7, 0.9, 0.97, 0.995)), rng)


def _agree(one: list[Any], other: list[Any]) -> bool:
    if any(a.shape != b.shape for a, b in zip(one, other, strict=True)):
        return False
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(one, other, strict=True))


class _Side:
    """One engine's session, and what its runs took, by the size of the image."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.wall: defaultdict[tuple[int, ...], list[float]] = defaultdict(list)
        self.undisturbed: defaultdict[tuple[int, ...], list[float]] = defaultdict(list)
        self.processor: defaultdict[tuple[int, ...], list[float]] = defaultdict(list)
        self.kept: list[int] = []

    def run(self, feeds: Feeds) -> list[Any]:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        begin, own = time.perf_counter(), time.process_time()
        results: list[Any] = self.session.run(None, feeds)
        shape = feeds["image"].shape
        wall, processor = time.perf_counter() - begin, time.process_time() - own
        self.wall[shape].append(wall)
        self.processor[shape].append(processor)
        if resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw == before:
            self.undisturbed[shape].append(wall)
        self.kept.append(len(results[1]))
        return results

    def report(self, name: str) -> None:
        print(f"{name}: {min(self.kept)} to {max(self.kept)} boxes kept")
        for what, times in (
            ("wall", self.wall), ("undisturbed wall", self.undisturbed),
            ("processor", self.processor),
        ):  # fmt: skip
            ratios = np.concatenate([np.array(t) / np.median(t) for t in times.values()])
            most = np.quantile(ratios, (0.9, 0.99)) / np.median(ratios)
            usual = np.median(np.concatenate([np.array(t) for t in times.values()])) * 1e3
            print(
                f"  {what} time of {len(ratios)} runs: median {usual:.2f} ms;"
                f" 90 % under {most[0]:.2f}, 99 % under {most[1]:.2f} of the median of its size"
            )


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmRSS"))


if __name__ == "__main__":
    main()
