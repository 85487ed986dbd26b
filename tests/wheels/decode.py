"""What a user reads off the outputs: text, boxes, labels. Plain data, fit for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np


def text(outputs: list[Any], characters: str) -> list[str]:
    """The best character at each step, repetitions and blanks dropped.

    Args:
        outputs: probabilities (N, steps, classes).
        characters: the model's own list, one a line; class 0 is blank, the last one is a space.
    """
    alphabet = ["", *characters.splitlines(), " "]
    return ["".join(alphabet[index] for index in _changes(row)) for row in outputs[0].argmax(2)]


def classes(outputs: list[Any]) -> list[list[int]]:
    """The best class at each step (steps, N, classes), repetitions and the blank 0 dropped."""
    rows = outputs[0].argmax(2).T
    return [[int(index) for index in _changes(row) if index] for row in rows]


def _changes(row: Any) -> Any:
    return row[np.concatenate([[True], row[1:] != row[:-1]])]


def labels(outputs: list[Any]) -> list[int]:
    """The best class of each row of probabilities (N, classes)."""
    return [int(index) for index in outputs[0].argmax(1)]


def spans(outputs: list[Any], threshold: float = 0.5) -> list[list[list[int]]]:
    """For each row of probabilities (N, steps): where it rises over the threshold and falls."""
    return [[list(run) for run in _runs(row > threshold)] for row in outputs[0]]


def text_regions(outputs: list[Any], threshold: float = 0.3) -> list[list[int]]:
    """Left, top, right, bottom of the pieces in a map (1, 1, H, W): bands of rows, then columns."""
    mask = outputs[0][0, 0] > threshold
    found = []
    for top, bottom in _runs(mask.any(1)):
        band = mask[top:bottom]
        found += [[left, top, right, bottom] for left, right in _runs(band.any(0))]
    return found


def _runs(flags: Any) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def yolox(outputs: list[Any], height: int, width: int) -> list[list[float]]:
    """Boxes of YOLOX's output (1, anchors, 4 + objectness + classes), best first."""
    grids, strides = [], []
    for stride in (8, 16, 32):
        y, x = np.mgrid[: height // stride, : width // stride]
        grids.append(np.stack([x, y], -1).reshape(-1, 2))
        strides.append(np.full((len(grids[-1]), 1), stride))
    grid, step = np.concatenate(grids), np.concatenate(strides)
    rows = outputs[0][0].astype(np.float64)
    centre, size = (rows[:, :2] + grid) * step, np.exp(rows[:, 2:4]) * step
    boxes = np.concatenate([centre - size / 2, centre + size / 2], 1)
    return _best(boxes, rows[:, 4] * rows[:, 5:].max(1), 0.1)


def picodet(outputs: list[Any], height: int, width: int) -> list[list[float]]:
    """Boxes of PicoDet's scores and distances, four levels of each; the class comes last."""
    boxes, scores, classes = [], [], []
    for level, stride in enumerate((8, 16, 32, 64)):
        score, distance = outputs[level][0], outputs[level + 4][0].astype(np.float64)
        y, x = np.mgrid[: -(-height // stride), : -(-width // stride)]
        centre = (np.stack([x, y], -1).reshape(-1, 2) + 0.5) * stride
        odds = np.exp(distance.reshape(-1, 4, 8))
        reach = (odds * np.arange(8)).sum(-1) / odds.sum(-1) * stride
        boxes.append(np.concatenate([centre - reach[:, :2], centre + reach[:, 2:]], 1))
        scores.append(score.max(1))
        classes.append(score.argmax(1))
    return _best(np.concatenate(boxes), np.concatenate(scores), 0.4, np.concatenate(classes))


def _best(boxes: Any, scores: Any, least: float, classes: Any | None = None) -> list[list[float]]:
    """Boxes over the least score that overlap no better one by half, best first."""
    kept: list[int] = []
    for index in np.argsort(-scores, kind="stable"):
        if scores[index] <= least:
            break
        if all(_overlap(boxes[index], boxes[other]) < 0.5 for other in kept):
            kept.append(int(index))
    found = [[round(float(edge), 2) for edge in boxes[index]] for index in kept]
    if classes is not None:
        found = [[*box, int(classes[index])] for box, index in zip(found, kept, strict=True)]
    return found


def _overlap(one: Any, other: Any) -> float:
    common = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = float(common.clip(0).prod())
    areas = float((one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod())
    return shared / (areas - shared)
