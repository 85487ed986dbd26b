"""What the cache finds is what was written by its owner, to the byte; else there is no entry."""

import errno
import os
import socket
import stat

import numpy as np
import pytest

from sardonyx.base import knobs
from sardonyx.base.errors import Fail
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.store import cache as cache_module
from sardonyx.store import checksums, folders
from sardonyx.store.cache import Cache, default_cache, find_folder
from sardonyx.store.folders import RefusedFolder, distrust, private_folder
from tests.support.session import model_of

LIMIT = 10**9
LARGE = np.random.default_rng(1).integers(0, 256, checksums.SMALL_BYTES + 54321, np.uint8).tobytes()
CONTENTS = {"small": b"content" * 1000, "large": LARGE}


@pytest.fixture(params=[True, False], ids=["by folders", "by paths"])
def cache(request, tmp_path, monkeypatch):
    """On systems that open names relative to folders, and on others."""
    monkeypatch.setattr(folders, "_RELATIVE", folders._RELATIVE and request.param)
    monkeypatch.setattr(cache_module, "_said", set())
    top = tmp_path / "cache"
    top.mkdir(mode=0o700)
    return Cache(top, LIMIT)


def change(path, act):
    """Change a file in its place."""
    data = bytearray(path.read_bytes())
    act(data)
    path.write_bytes(data)


def flip(at):
    def act(data):
        data[at] ^= 1

    return act


def zero(at):
    def act(data):
        data[at : at + 4096] = bytes(4096)

    return act


def cut(data):
    del data[len(data) // 2 :]


DAMAGES = {
    "first bit": flip(0),
    "bit in the middle": flip(3001),
    "last bit of the payload": flip(-33),
    "checksum": flip(-1),
    "4 KB of zeros": zero(0),
    "cut": cut,
    "emptied": lambda data: data.clear(),
    "longer": lambda data: data.extend(b"x"),
    "payload and footer apart": lambda data: data.insert(5, 0),
}
DAMAGES_OF_LARGE = {
    "a bit far behind": flip(checksums.SMALL_BYTES - 77),
    "a bit in the last part of a chunk": flip(len(LARGE) - 1),
    "zeros far behind": zero(2**20),
    "half a page exchanged": lambda data: data.__setitem__(
        slice(2**20, 2**20 + 4096), data[2**20 + 2048 : 2**20 + 4096] + data[2**20 : 2**20 + 2048]
    ),
}


@pytest.mark.parametrize(
    ("size", "damage"),
    [(s, d) for s in CONTENTS for d in DAMAGES] + [("large", d) for d in DAMAGES_OF_LARGE],
)
def test_damage_is_seen_wherever_it_is(cache, size, damage):
    cache.put("key", "kind", CONTENTS[size])
    path = cache.folder / "kind" / "key"
    change(path, (DAMAGES | DAMAGES_OF_LARGE)[damage])
    assert cache.read("key", "kind") is None
    assert not path.exists()
    cache.put("key", "kind", CONTENTS[size])
    change(path, (DAMAGES | DAMAGES_OF_LARGE)[damage])
    assert cache.open("key", "kind", threads=2) is None
    cache.put("key", "kind", CONTENTS[size])
    assert cache.read("key", "kind") == CONTENTS[size]


@pytest.mark.parametrize("size", CONTENTS)
def test_the_file_of_another_entry_is_none(cache, size):
    cache.put("one", "kind", CONTENTS[size])
    cache.put("two", "kind", CONTENTS[size][::-1])
    cache.put("one", "other", CONTENTS[size][::-1])
    for other in ("kind/two", "other/one"):
        (cache.folder / "kind/one").write_bytes((cache.folder / other).read_bytes())
        assert cache.read("one", "kind") is None
        cache.put("one", "kind", CONTENTS[size])


def test_a_large_entry_is_checked_before_it_is_used(cache):
    cache.put("key", "kind", LARGE)
    change(cache.folder / "kind/key", flip(2**21))
    with cache.open("key", "kind", later=True) as entry:
        entry.begin(2)
        assert entry.map().size == len(LARGE)
        assert not cache.checked(entry, "key", "kind")
    assert not (cache.folder / "kind/key").exists()


# -- what it is, and whose ------------------------------------------------------------------------


def _link(path):
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


def _outside(path):
    target = path.parents[2] / "outside"
    path.rename(target)
    path.symlink_to(target)


def _socket(path):
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def _other(make):
    def act(path):
        path.unlink()
        make(path)

    return act


STRANGE = {
    "link": (_link, "it is a link"),
    "link out of the tree": (_outside, "it is a link"),
    "link to nowhere": (_other(lambda p: p.symlink_to("nowhere")), "it is a link"),
    "link to a device": (_other(lambda p: p.symlink_to("/dev/zero")), "it is a link"),
    "pipe": (_other(os.mkfifo), "it is a pipe"),
    "socket": (_socket, "it is a socket"),
    "folder": (_other(os.mkdir), "it is a folder"),
    "mode 666": (lambda p: p.chmod(0o666), "others may write to it (mode 666)"),
    "mode 777": (lambda p: p.chmod(0o777), "others may write to it (mode 777)"),
    "group": (lambda p: p.chmod(0o620), "others may write to it (mode 620)"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_no_file_of_the_owner_is_removed(cache, name, caplog):
    act, reason = STRANGE[name]
    cache.put("key", "kind", b"content")
    path = cache.folder / "kind" / "key"
    act(path)
    assert cache.read("key", "kind") is None
    assert f"{path} is not used: {reason}" in caplog.text
    assert not os.path.lexists(path)
    cache.put("key", "kind", b"content")
    assert cache.read("key", "kind") == b"content"


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_no_file_of_the_owner_is_replaced(cache, name):
    cache.put("key", "kind", b"content")
    STRANGE[name][0](cache.folder / "kind" / "key")
    cache.put("key", "kind", b"newer")
    assert cache.read("key", "kind") == b"newer"


def test_a_folder_with_something_in_it_stays(cache, caplog):
    """Nobody knows whose it is."""
    (cache.folder / "kind/key/inner").mkdir(parents=True)
    (cache.folder / "kind").chmod(0o700)
    for _ in range(3):
        assert cache.read("key", "kind") is None
        assert cache.put("key", "kind", b"content") is None
    assert caplog.text.count("it is a folder") == 1
    assert (cache.folder / "kind/key/inner").is_dir()


def _folder_of_links(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


STRANGE_FOLDERS = {
    "mode 777": (lambda p: p.chmod(0o777), "others may write to it (mode 777)"),
    "group": (lambda p: p.chmod(0o770), "others may write to it (mode 770)"),
    "link": (_folder_of_links, "it is a link"),
    "pipe": (lambda p: (p.rename(p.with_name("x")), os.mkfifo(p)), "it is a pipe"),
    "file": (lambda p: (p.rename(p.with_name("x")), p.write_bytes(b"")), "it is a file"),
}


@pytest.mark.parametrize("name", STRANGE_FOLDERS)
def test_folders_of_kinds_are_looked_at(cache, name, caplog):
    act, reason = STRANGE_FOLDERS[name]
    for key in ("one", "two"):
        cache.put(key, "kind", b"content")
    act(cache.folder / "kind")
    for key in ("one", "two", "one"):
        assert cache.read(key, "kind") is None
        assert cache.put(key, "kind", b"content") is None
    assert caplog.text.count(f"{cache.folder / 'kind'} is not used: {reason}") == 1
    cache.put("one", "other", b"content")
    assert cache.read("one", "other") == b"content"


def test_the_folder_itself_is_looked_at_each_time(cache):
    cache.put("key", "kind", b"content")
    cache.folder.chmod(0o777)
    assert cache.read("key", "kind") is None
    assert cache.put("key", "kind", b"content") is None
    cache.folder.chmod(0o700)
    assert cache.read("key", "kind") == b"content"
    target = cache.folder.with_name("elsewhere")
    cache.folder.rename(target)
    cache.folder.symlink_to(target)
    assert cache.read("key", "kind") == b"content"
    assert Cache(cache.folder, LIMIT, follow_links=False).read("key", "kind") is None


def status(mode, owner):
    return os.stat_result((mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))


ME, ROOT, STRANGER = 1000, 0, 4321
STATUSES = [
    (stat.S_IFREG | 0o600, ME, "a file", ""),
    (stat.S_IFREG | 0o644, ROOT, "a file", ""),
    (stat.S_IFREG | 0o600, STRANGER, "a file", "it belongs to user 4321"),
    (stat.S_IFREG | 0o666, ME, "a file", "others may write to it (mode 666)"),
    (stat.S_IFDIR | 0o700, ME, "a folder", ""),
    (stat.S_IFDIR | 0o755, STRANGER, "a folder", "it belongs to user 4321"),
    (stat.S_IFDIR | 0o1777, ROOT, "a folder", "others may write to it (mode 1777)"),
    (stat.S_IFDIR | 0o700, ME, "a file", "it is a folder, not a file"),
    (stat.S_IFCHR | 0o600, ME, "a file", "it is a device, not a file"),
    (stat.S_IFBLK | 0o600, ME, "a file", "it is a device, not a file"),
    (stat.S_IFIFO | 0o600, ME, "a folder", "it is a pipe, not a folder"),
]


@pytest.mark.parametrize(("mode", "owner", "wanted", "reason"), STATUSES)
def test_owners_and_modes(mode, owner, wanted, reason, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: ME, raising=False)
    assert distrust(status(mode, owner), wanted) == reason


def test_systems_without_owners(monkeypatch):
    monkeypatch.delattr(os, "geteuid")
    assert distrust(status(stat.S_IFREG | 0o666, STRANGER), "a file") == ""
    assert distrust(status(stat.S_IFIFO | 0o666, STRANGER), "a file") != ""


@pytest.mark.parametrize(
    ("mode", "accepted"), [(0o755, True), (0o775, True), (0o1777, True), (0o777, False)]
)  # fmt: skip
def test_folders_above(tmp_path, mode, accepted, caplog):
    above = tmp_path / "above"
    (above / "between").mkdir(parents=True)
    above.chmod(mode)
    reason = private_folder(above / "between" / "cache")
    assert (reason == "") == accepted
    if not accepted:
        assert reason == f"others may exchange what is in {above} (mode 777)"
    (tmp_path / "link").symlink_to(above / "between")
    assert private_folder(tmp_path / "link/cache") == reason
    with knobs.override("SARDONYX_CACHE", str(above / "between/cache")):
        assert (find_folder() is not None) == accepted
        assert default_cache().folder == find_folder()
    assert ("not caching in" in caplog.text) == (not accepted)


def test_cleaning_does_not_follow_links(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_bytes(b"x" * 10**6)
    top = tmp_path / "cache"
    top.mkdir(mode=0o700)
    (top / "kind").symlink_to(outside)
    (top / "other").mkdir(mode=0o700)
    (top / "other/link").symlink_to(outside / "mine")
    cache = Cache(top, 1000)
    for index in range(5):
        cache.put(f"key{index}", "third", b"x" * 300)
    assert (outside / "mine").exists()
    assert cache.has("key4", "third")


# -- sessions -------------------------------------------------------------------------------------

MODEL = model_of(
    "g (float[n, 1200] x) => (float[n, 1000] y) { y = MatMul(x, w) }",
    {"w": np.random.default_rng(2).standard_normal((1200, 1000)).astype(np.float32)},
).SerializeToString()
X = np.random.default_rng(3).standard_normal((2, 1200)).astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_module, "_said", set())
    return tmp_path / "cache"


def result(is_from_cache):
    engine = create_engine(MODEL, EngineOptions(threads=2))
    assert ("from cache" in engine.timings) == is_from_cache
    return engine.run([X])[0]


WEIGHTS = {
    "a bit": flip(1_000_003),
    "zeros": zero(4096 * 700),
    "cut": cut,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_damaged_weights_give_no_other_numbers(folder, name):
    want = result(False)
    np.testing.assert_array_equal(result(True), want)
    (path,) = folder.glob("data/*")
    assert path.stat().st_size > checksums.SMALL_BYTES
    change(path, WEIGHTS[name])
    np.testing.assert_array_equal(result(False), want)
    np.testing.assert_array_equal(result(True), want)


@pytest.mark.parametrize("kind", ["session", "code", "data", "plan", "read"])
@pytest.mark.parametrize("act", ["folder", "full folder", "pipe", "mode 666", "kind of mode 777"])
def test_strange_entries_of_a_session(folder, kind, act):
    want = result(False)
    (path,) = folder.glob(f"{kind}/*")
    if act == "kind of mode 777":
        path.parent.chmod(0o777)
    elif act == "full folder":
        path.rename(path.with_name("x"))
        (path / "inner").mkdir(parents=True)
    else:
        STRANGE[act][0](path)
    needed = kind in ("session", "code", "data")
    np.testing.assert_array_equal(result(not needed), want)
    stays = act in ("full folder", "kind of mode 777")
    np.testing.assert_array_equal(result(not needed or not stays), want)


def test_parts_that_do_not_belong_together(folder, caplog):
    """As when processes write the same entries at once, with plans that differ."""
    caplog.set_level("INFO", logger="sardonyx")
    want = result(False)
    (path,) = folder.glob("data/*")
    kept = default_cache().read(path.name, "data")
    default_cache().put(path.name, "data", kept[::-1])
    np.testing.assert_array_equal(result(False), want)
    assert "parts that do not belong together" in caplog.text
    np.testing.assert_array_equal(result(True), want)


def test_too_many_open_files(folder, monkeypatch, caplog):
    """The cache is no reason for a session to fail."""
    want = result(False)

    def refuse(*_arguments, **_named):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(folders.os, "stat", lambda *_a, _stat=os.stat, **n: (
        refuse() if n.get("dir_fd") is not None else _stat(*_a, **n)
    ))  # fmt: skip
    np.testing.assert_array_equal(result(False), want)
    assert "is not used: [Errno 24] Too many open files" in caplog.text
    assert caplog.text.count("/session/") == 1


def test_too_many_open_files_for_the_source(monkeypatch):
    def refuse(_path):
        raise OSError(errno.EMFILE, "Too many open files", "sardonyx/runtime")

    monkeypatch.setattr(cache_module.os, "scandir", refuse)
    cache_module._source_digest.cache_clear()
    with pytest.raises(Fail, match="own files cannot be read.*Raise the limit of open files"):
        create_engine(MODEL)
    monkeypatch.undo()
    assert len(cache_module.engine_digest()) == 40


def test_refused_says_why(tmp_path):
    assert str(RefusedFolder(str(tmp_path), "it is a link")) == "it is a link"
