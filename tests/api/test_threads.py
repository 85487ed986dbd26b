"""Threads that users make, where they run, and how they wait."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api import thread_pool
from sardonyx.api.inspection import inspect
from sardonyx.api.thread_pool import setup_setting
from sardonyx.base import errors
from sardonyx.native.layout import POOL
from sardonyx.runtime import pool
from sardonyx.runtime.thread_setup import read_affinities
from tests.support.session import model_of
from tests.support.tolerances import assert_near

MODEL = model_of("agraph (float[n, 256] x) => (float[n, 256] y) { y = MatMul(x, x) }")
DATA = MODEL.SerializeToString()
X = np.random.default_rng(0).standard_normal((256, 256), np.float32)


def options(threads: int = 3, **given: Any) -> sardonyx.SessionOptions:
    made = sardonyx.SessionOptions()
    made.intra_op_num_threads = threads
    for name, value in given.items():
        setattr(made, name, value)
    return made


class Maker:
    """Makes threads, and keeps count."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, threading.Thread]] = []
        self.joined: list[threading.Thread] = []

    def create(self, user_data: Any, work: Any) -> threading.Thread:
        thread = threading.Thread(target=work, name="of the user")
        thread.start()
        self.made.append((user_data, thread))
        return thread

    def join(self, thread: threading.Thread) -> None:
        thread.join(10)
        self.joined.append(thread)


def check(session: sardonyx.InferenceSession) -> None:
    for _ in range(5):
        assert_near(session.run(None, {"x": X})[0], X @ X, "float: which result it is")


def test_threads_of_a_session_are_made_and_joined_by_functions() -> None:
    maker, given = Maker(), options()
    given.set_custom_create_thread_fn(maker.create)
    given.set_custom_thread_creation_options("mine")
    given.set_custom_join_thread_fn(maker.join)
    session = sardonyx.InferenceSession(DATA, given)
    check(session)
    assert [data for data, _ in maker.made] == ["mine", "mine"]
    assert all(thread.is_alive() for _, thread in maker.made)
    other = sardonyx.InferenceSession(DATA, options())
    check(other)
    assert len(maker.made) == 2
    del session
    gc.collect()
    assert maker.joined == [thread for _, thread in maker.made]
    assert not any(thread.is_alive() for thread in maker.joined)


def test_threads_that_sessions_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "_shared_sizes", None)
    maker = Maker()
    sardonyx.set_global_thread_pool_sizes(2, 0)
    sardonyx.set_global_thread_functions(maker.create, maker.join, 7)
    try:
        made = [
            sardonyx.InferenceSession(DATA, options(1, use_per_session_threads=False))
            for _ in range(3)
        ]
    finally:
        sardonyx.set_global_thread_functions(None)
    for session in made:
        check(session)
    assert [data for data, _ in maker.made] == [7]
    del made, session
    gc.collect()
    assert len(maker.joined) == 1


def test_functions_that_fail() -> None:
    def broken(user_data: Any, work: Any) -> None:
        if user_data:
            raise OSError("no threads today")

    for data, text in ((0, "gave no handle"), (1, "no threads today")):
        given = options()
        given.set_custom_create_thread_fn(broken)
        given.set_custom_join_thread_fn(print)
        given.set_custom_thread_creation_options(data)
        with pytest.raises(errors.Fail, match=text):
            check(sardonyx.InferenceSession(DATA, given))
    with pytest.raises(errors.InvalidArgument, match="no function"):
        options().set_custom_create_thread_fn(3)  # type: ignore[arg-type]
    alone = options()
    alone.set_custom_create_thread_fn(broken)
    with pytest.raises(errors.InvalidArgument, match="need both functions"):
        sardonyx.InferenceSession(DATA, alone)


def test_affinities_are_kept() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    text = f"{allowed[0] + 1};{allowed[-1] + 1},{allowed[0] + 1}"
    given = options()
    given.add_session_config_entry("session.intra_op_thread_affinities", text)
    session = sardonyx.InferenceSession(pickle.loads(pickle.dumps(DATA)), given)
    check(session)
    found = [os.sched_getaffinity(native) for native in inspect(session).worker_ids]
    assert found == [{allowed[0]}, {allowed[0], allowed[-1]}]
    assert sorted(os.sched_getaffinity(0)) == allowed


@pytest.mark.parametrize(
    ("text", "threads", "want"),
    [
        ("1,2;3-5", 3, [{0, 1}, {2, 3, 4}]),
        (" 7 ", 2, [{6}]),
        ("1", 3, "lists"),
        ("0", 2, "no list of processors"),
        ("3-2", 2, "no list of processors"),
        ("a;b", 3, "no list of processors"),
        ("1;", 3, "lists"),
        ("1-99999999999", 2, "no list of processors"),
    ],
)
def test_affinities_are_read(text: str, threads: int, want: Any) -> None:
    if isinstance(want, str):
        with pytest.raises(errors.InvalidArgument, match=want):
            read_affinities(text, threads)
    else:
        assert [set(x) for x in read_affinities(text, threads)] == want


def test_affinities_of_shared_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "_shared_sizes", None)
    sardonyx.set_global_thread_pool_sizes(3, 0)
    sardonyx.set_global_thread_affinities("1;1")
    found = setup_setting(options(1, use_per_session_threads=False))
    assert found is not None and found.affinities == (frozenset({0}),) * 2
    with pytest.raises(errors.InvalidArgument, match="2 lists"):
        sardonyx.set_global_thread_affinities("1")
    sardonyx.set_global_thread_affinities("")
    assert setup_setting(options(1, use_per_session_threads=False)) is None


@pytest.mark.parametrize(
    ("text", "wanted"), [("", 30_000), ("PASSIVE", 0), ("active ", 1_000_000), ("maybe", 30_000)]
)
def test_waiting_of_openmp(text: str, wanted: int, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", text)
    assert pool.waking_ns() == wanted
    assert ("ignored" in caplog.text) == (text == "maybe")
    monkeypatch.setattr(pool, "usable_processors", lambda: 8)
    made = pool.Pool(2)
    try:
        assert bool(made._words[pool.POOL["spins"]]) == bool(wanted)
    finally:
        made.close()


#: Texts that onnxruntime 1.31.1 takes for three threads, and the processors of two of them.
TAKEN = {
    "1;2": [{0}, {1}], "1,2;1-2": [{0, 1}, {0, 1}], "1;2;": [{0}, {1}], ";1;;2": [{0}, {1}],
    "1,;2": [{0}, {1}], "1,3-5;2": [{0, 2, 3, 4}, {1}],
}  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_forms_of_affinities(text: str) -> None:
    assert list(read_affinities(text, 3)) == TAKEN[text]


@pytest.mark.parametrize("text", ["1", "1;2;1", ";", "1;", "0;1", "2-1;1", "a;b", "*;*", ",;1"])
def test_what_are_no_affinities(text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="intra_op_thread_affinities"):
        read_affinities(text, 3)


#: Entries about spinning, and how long threads then wait awake.
WAITING: list[tuple[dict[str, str], int | None]] = [
    ({}, None),
    ({"allow_spinning": "0"}, None),
    ({"allow_spinning": "1"}, 1_000_000),
    ({"spin_duration_us": "200"}, 200_000),
    ({"spin_duration_us": "0"}, 0),
    ({"allow_spinning": "1", "spin_duration_us": "50"}, 50_000),
    ({"allow_spinning": "0", "spin_duration_us": "50"}, None),
    ({"allow_spinning": "1", "spin_duration_us": "-1"}, 1_000_000),
    ({"spin_duration_us": "999999999"}, 100_000_000),
]


@pytest.mark.parametrize(("entries", "awake_ns"), WAITING)
def test_how_long_threads_wait_awake(entries: dict[str, str], awake_ns: int | None) -> None:
    given = options(2)
    for key, value in entries.items():
        given.add_session_config_entry(f"session.intra_op.{key}", value)
    setup = setup_setting(given)
    assert (setup.awake_ns if setup is not None else None) == awake_ns
    check(sardonyx.InferenceSession(DATA, given))
    assert setup_setting(given) is setup  # sessions alike share their threads


def test_pools_wait_as_long_as_they_are_told() -> None:
    if pool.usable_processors() < 2:
        pytest.skip("threads never wait awake where they share a processor")
    spins = []
    for key, value in (
        ("session.intra_op.spin_duration_us", "0"),
        ("session.intra_op.spin_duration_us", "20"),
        ("session.intra_op.allow_spinning", "1"),
    ):
        given = options(2)
        given.add_session_config_entry(key, value)
        made = pool.shared_pool(2, setup_setting(given))
        assert made is not None
        spins.append(int(made._words[POOL["spins"]]))
    assert spins[0] == 0
    assert spins[0] < spins[1] < spins[2]


@pytest.mark.parametrize("entry", [("allow_spinning", "yes"), ("spin_duration_us", "1 ms")])
def test_entries_about_spinning_that_are_wrong(entry: tuple[str, str]) -> None:
    given = options(2)
    given.add_session_config_entry(f"session.intra_op.{entry[0]}", entry[1])
    with pytest.raises(errors.InvalidArgument, match=entry[0]):
        sardonyx.InferenceSession(DATA, given)
