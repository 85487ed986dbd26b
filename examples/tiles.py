"""A large image made twice as large, tile by tile: copies and work overlap.

    python -m examples.tiles

Image and result lie in pinned memory. The device takes each tile out of the image, and writes its
result into its place, while the tiles before and after it are copied or computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import sardonyx as ort
from examples.device import device_of, milliseconds, pinned, session_of


def model() -> tuple[str, dict[str, Any]]:
    """Super-resolution in its smallest form: two convolutions, then channels become pixels."""
    random = np.random.default_rng(3)
    shapes = {"f0": (8, 3, 3, 3), "f1": (12, 8, 3, 3)}
    weights = {
        name: (random.standard_normal(shape) / 8).astype(np.float32)
        for name, shape in shapes.items()
    }
    text = """
    larger (float[1,3,H,W] x) => (float[1,3,P,Q] y) {
      a = Conv<pads=[1,1,1,1]>(x, f0) b = Relu(a) c = Conv<pads=[1,1,1,1]>(b, f1)
      y = DepthToSpace<blocksize=2, mode="CRD">(c)
    }"""
    return text, weights


def places(height: int, width: int, tile: int) -> Iterator[tuple[Any, Any]]:
    """Where each tile lies in the image, and where its result lies."""
    for y in range(0, height, tile):
        for x in range(0, width, tile):
            yield (
                np.s_[:, :, y : y + tile, x : x + tile],
                np.s_[:, :, 2 * y : 2 * (y + tile), 2 * x : 2 * (x + tile)],
            )


def run(height: int = 8192, width: int = 4096, tile: int = 1024, depth: int = 3) -> dict[str, Any]:
    """The image one tile after the other, and overlapped; gives what each took, for one tile."""
    session = session_of(*model())
    device = device_of(session)
    image = pinned(device, (1, 3, height, width))
    random = np.random.default_rng(4)  # no two tiles are alike: one in another's place is found
    image[...] = random.random((height, 1), np.float32) * random.random((width,), np.float32)
    result = pinned(device, (1, 3, 2 * height, 2 * width))
    cut = list(places(height, width, tile))

    def plain() -> Any:
        found = np.empty_like(result)
        for source, target in cut:
            (found[target],) = session.run(None, {"x": np.ascontiguousarray(image[source])})
        return found

    def overlapped() -> None:
        with session.pipeline(depth) as pipe:
            tiles, targets = (image[s] for s, _ in cut), (result[t] for _, t in cut)
            for _ in pipe.map(tiles, targets):
                pass

    for shape in {image[source].shape for source, _ in cut}:
        session.warmup({"x": shape})  # libraries look for plans as long as this takes
    check = plain()
    overlapped()
    difference = float(np.abs(result - check).max())
    count = len(cut)
    found: dict[str, Any] = {
        "device": device, "tiles": count, "difference": difference,
        "ms": milliseconds(overlapped) / count, "ms, NumPy": milliseconds(plain, 3) / count,
    }  # fmt: skip
    return found | _alone(session, device, image, cut)


def _alone(
    session: ort.InferenceSession, device: str, image: Any, cut: list[tuple[Any, Any]]
) -> dict[str, float]:
    """Copy in, work and copy out, each without the others, for one tile."""
    if device == "cpu":
        return {}
    source, _ = cut[0]
    dense = pinned(device, image[source].shape)
    dense[...] = image[source]
    value = ort.OrtValue.ortvalue_from_numpy(dense, device, 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", device)
    session.run_with_iobinding(binding)
    (made,) = binding.get_outputs()
    return {
        "copy in": milliseconds(lambda: value.update_inplace(dense), 20),
        "work": milliseconds(lambda: session.run_with_iobinding(binding), 20),
        "copy out": milliseconds(made.numpy, 20),
    }


if __name__ == "__main__":
    found = run()
    names = [k for k in ("copy in", "work", "copy out") if k in found]
    parts = ", ".join(f"{k} {found[k]:.3f}" for k in names) or "no copies"
    print(
        f"{found['tiles']} tiles on {found['device']}: {found['ms']:.3f} ms each ({parts});"
        f" one after the other with NumPy arrays {found['ms, NumPy']:.3f}"
    )
