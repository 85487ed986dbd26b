"""Checksums of memory: equal to what is written here, whoever works on them."""

import os
import zlib
from hashlib import blake2b

import numpy as np
import pytest

from sardonyx.base.interrupt import Interrupted, watching
from sardonyx.native.checksum import CHUNK_BYTES
from sardonyx.store import checksums
from sardonyx.store.checksums import Checksum, of_pieces, small

RANDOM = np.random.default_rng(5)
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 12345]


def data_of(size):
    return RANDOM.integers(0, 256, size, dtype=np.uint8)


def by_hand(data, name):
    """What the native function and the digest do, in NumPy."""
    state = blake2b(name.encode(), digest_size=16)
    end = data.size // CHUNK_BYTES * CHUNK_BYTES
    for start in range(0, end, CHUNK_BYTES):
        lanes = np.tile(np.arange(8, dtype=np.uint64), 4) + np.repeat(np.arange(4), 8).astype(
            np.uint64
        ) * np.uint64(8)
        for row in data[start : start + CHUNK_BYTES].view(np.uint64).reshape(-1, 32):
            lanes = (lanes ^ row) * np.uint64(0x9E3779B97F4A7C15)
            lanes = (lanes << np.uint64(29)) | (lanes >> np.uint64(35))
        state.update(lanes.tobytes())
    state.update(data[end:].tobytes())
    state.update((data.size - end).to_bytes(8, "little"))
    return state.digest()


@pytest.mark.parametrize("size", SIZES)
def test_it_is_what_is_written_here(size):
    data = data_of(size)
    assert Checksum(data, "name").finish() == by_hand(data, "name")


@pytest.mark.parametrize("size", [*SIZES, 33 * CHUNK_BYTES + 7])
def test_threads_and_pieces_give_the_same(size, monkeypatch):
    monkeypatch.setattr(checksums, "_BYTES_PER_THREAD", 2 * CHUNK_BYTES)
    data = data_of(size)
    found = {Checksum(data, "name", threads).finish() for threads in (1, 2, 5)}
    whole = data.tobytes()
    pieces = [whole[at : at + 2 * CHUNK_BYTES] for at in range(0, size, 2 * CHUNK_BYTES)]
    assert {*found, of_pieces(pieces, "name")} == found
    assert len(found) == 1


def test_every_word_counts():
    data = data_of(2 * CHUNK_BYTES + 100)
    seen = {Checksum(data, "a").finish(), Checksum(data, "b").finish()}
    places = [0, 7, 255, 256, CHUNK_BYTES - 1, CHUNK_BYTES, data.size - 1, *range(997, 9000, 997)]
    for place in places:
        data[place] ^= 0x80
        seen.add(Checksum(data, "a").finish())
        data[place] ^= 0x80
    data[: 2 * CHUNK_BYTES] = np.roll(data[: 2 * CHUNK_BYTES], CHUNK_BYTES)
    seen.add(Checksum(data, "a").finish())
    assert len(seen) == 2 + len(places) + 1


def test_two_high_bits_do_not_cancel():
    """As they would in a sum of words."""
    data = np.zeros(CHUNK_BYTES, np.uint8)
    seen = {Checksum(data, "a").finish()}
    for other in range(1, 40):
        data[:] = 0
        data[[7, 7 + 256 * other]] = 0x80
        seen.add(Checksum(data, "a").finish())
    assert len(seen) == 40


def test_small_ones_have_a_crc_of_name_and_content():
    assert small(b"content", "kind/key")[:4] == zlib.crc32(b"kind/keycontent").to_bytes(4, "little")


def test_work_that_shall_end_ends_with_its_threads(monkeypatch):
    monkeypatch.setattr(checksums, "_BYTES_PER_THREAD", 2 * CHUNK_BYTES)
    monkeypatch.setattr(checksums, "_CHUNKS_BETWEEN", 1)

    def end():
        raise Interrupted

    work = Checksum(data_of(64 * CHUNK_BYTES), "name", 1)
    with watching(end), pytest.raises(Interrupted):
        work.finish()
    assert work._helpers == []


def test_no_further_threads(monkeypatch):
    """A system that grants none: the caller does it all."""
    monkeypatch.setattr(checksums, "_BYTES_PER_THREAD", 2 * CHUNK_BYTES)
    data = data_of(20 * CHUNK_BYTES)
    want = Checksum(data, "name", 3).finish()

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(checksums.threading.Thread, "start", refuse)
    assert Checksum(data, "name", 3).finish() == want


def test_what_is_mapped(tmp_path):
    path = tmp_path / "file"
    data = data_of(CHUNK_BYTES + 5)
    path.write_bytes(data.tobytes())
    mapped = np.memmap(path, np.uint8, "r")
    assert Checksum(mapped, os.fspath("x")).finish() == Checksum(data, "x").finish()
