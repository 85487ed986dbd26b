"""A denoising loop: a small UNet makes an image of noise, and its latents stay on the device.

    python -m examples.denoise

Each step's result is the next step's input, in two pieces of memory that take turns; the host sees
the last one. The rule that takes a part of the noise away is in the graph, too. Without a GPU there
is no copy to save, and both ways take about the same time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import sardonyx as ort
from examples.device import device_of, milliseconds, session_of, without_a_gpu


def model(channels: int) -> tuple[str, dict[str, Any]]:
    """Two levels down, two up, with connections across, and the step of the sampler."""
    random, weights = np.random.default_rng(1), {}

    def filters(name: str, to: int, of: int, taps: int = 3) -> None:
        made = random.standard_normal((to, of, taps, taps)) / (of * taps * taps) ** 0.5
        weights[name] = made.astype(np.float32)

    c = channels
    filters("f_in", c, 4)
    filters("f_down", 2 * c, c)
    filters("f_middle", 2 * c, 2 * c)
    filters("f_up", c, 2 * c)
    filters("f_out", 4, 2 * c)
    weights["frequencies"] = np.exp(np.linspace(0, -6, c)).astype(np.float32)
    weights |= {"shape": np.array([1, c, 1, 1]), "scales": np.array([1, 1, 2, 2], np.float32)}
    text = """
    unet (float[1,4,H,W] latents, float[1] time, float[1] rate) => (float[1,4,H,W] next) {
      a = Conv<pads=[1,1,1,1]>(latents, f_in)
      angle = Mul(time, frequencies) sine = Sin(angle) embedded = Reshape(sine, shape)
      b = Add(a, embedded) b_sigmoid = Sigmoid(b) skip = Mul(b, b_sigmoid)
      d = Conv<pads=[1,1,1,1], strides=[2,2]>(skip, f_down)
      d_sigmoid = Sigmoid(d) e = Mul(d, d_sigmoid)
      m = Conv<pads=[1,1,1,1]>(e, f_middle) n = Add(m, e)
      m_sigmoid = Sigmoid(n) o = Mul(n, m_sigmoid)
      larger = Resize<mode="nearest">(o, , scales)
      u = Conv<pads=[1,1,1,1]>(larger, f_up)
      joined = Concat<axis=1>(u, skip)
      noise = Conv<pads=[1,1,1,1]>(joined, f_out)
      part = Mul(noise, rate) next = Sub(latents, part)
    }"""
    return text, weights


def schedule(steps: int) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Time and rate of each step."""
    return [
        (np.array([t], np.float32), np.array([1 / steps], np.float32))
        for t in np.linspace(1, 0, steps)
    ]


def plain(session: ort.InferenceSession, noise: Any, steps: int) -> Any:
    """All steps with arrays of NumPy."""
    latents = noise
    for time, rate in schedule(steps):
        (latents,) = session.run(None, {"latents": latents, "time": time, "rate": rate})
    return latents


class Bound:
    """All steps with latents on the device: one binding for each direction."""

    def __init__(self, session: ort.InferenceSession, shape: tuple[int, ...], steps: int) -> None:
        device = device_of(session)
        self._session = session
        self._latents = [
            ort.OrtValue.ortvalue_from_shape_and_type(list(shape), np.float32, device, 0)
            for _ in range(2)
        ]
        self._plan = [
            [ort.OrtValue.ortvalue_from_numpy(x, device, 0) for x in step]
            for step in schedule(steps)
        ]
        self._options = ort.RunOptions()
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        self._bindings = [session.io_binding() for _ in self._plan]
        for number, binding in enumerate(self._bindings):
            binding.bind_ortvalue_input("latents", self._latents[number % 2])
            for name, value in zip(("time", "rate"), self._plan[number], strict=True):
                binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output("next", self._latents[1 - number % 2])

    def run(self, noise: Any) -> Any:
        """The image."""
        self._latents[0].update_inplace(noise)
        for binding in self._bindings:  # the device has the next step before it ends the last one
            self._session.run_with_iobinding(binding, self._options)
        self._bindings[-1].synchronize_outputs()
        return self._latents[len(self._bindings) % 2].numpy()


def run(size: int = 64, channels: int = 64, steps: int = 30) -> dict[str, Any]:
    """Both ways; gives what each took."""
    session = session_of(*model(channels))
    noise = np.random.default_rng(2).standard_normal((1, 4, size, size)).astype(np.float32)
    session.warmup({"latents": noise.shape})  # libraries look for plans as long as this takes
    bound = Bound(session, noise.shape, steps)
    for _ in range(3):
        difference = np.abs(bound.run(noise) - plain(session, noise, steps)).max()
    per_step = 2 * noise.nbytes + 8
    return {
        "device": device_of(session), "steps": steps, "difference": float(difference),
        "bytes": 2 * noise.nbytes, "bytes, NumPy": steps * per_step,
        "ms": milliseconds(lambda: bound.run(noise)),
        "ms, NumPy": milliseconds(lambda: plain(session, noise, steps)),
    }  # fmt: skip


def told(found: dict[str, Any]) -> str:
    """What `run` found, in words."""
    copied = others = ""
    if found["device"] == "cuda":
        copied, others = f", {found['bytes']} bytes copied", f", {found['bytes, NumPy']} bytes"
    return (
        f"{found['steps']} steps on {found['device']}: {found['ms']:.2f} ms{copied};"
        f" with NumPy arrays {found['ms, NumPy']:.2f} ms{others}{without_a_gpu(found['device'])}"
    )


if __name__ == "__main__":
    print(told(run()))
