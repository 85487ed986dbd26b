import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import sardonyx
from sardonyx.base import knobs
from sardonyx.base.errors import InvalidArgument
from sardonyx.store import cache as cache_module
from sardonyx.store.cache import Cache, default_cache, digest, engine_digest, find_folder
from sardonyx.store.folders import TEMPORARY, Folder, private_folder

LIMIT = 10**9


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path, LIMIT)


def path_in(cache, key="key"):
    """Where an entry is."""
    return cache.folder / "kind" / key


def test_put_and_open(cache):
    assert cache.open("key", "kind") is None
    assert not cache.has("key", "kind")
    digest_of_it = cache.put("key", "kind", b"content")
    with cache.open("key", "kind") as entry:
        assert (entry.digest, entry.size) == (digest_of_it, 7)
        assert entry.map().tobytes() == entry.read() == b"content"
    assert cache.read("key", "kind") == b"content"
    assert path_in(cache).read_bytes().startswith(b"content")
    assert cache.read("key", "other") is None
    assert cache.put("key", "kind", b"newer") != digest_of_it
    assert cache.read("key", "kind") == b"newer"


def test_writer_callback(cache):
    def write(file):
        file.truncate(1000)
        file.seek(500)
        file.write(b"middle")

    cache.put("key", "kind", write)
    assert cache.read("key", "kind") == b"\0" * 500 + b"middle" + b"\0" * 494


def test_failing_writer_leaves_nothing(cache):
    def write(file):
        file.write(b"part")
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        cache.put("key", "kind", write)
    assert list(cache.folder.rglob(".*")) == []
    assert cache.open("key", "kind") is None


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\\b", "a\0"])
def test_names_are_checked(cache, name):
    with pytest.raises(InvalidArgument, match="cannot name an entry"):
        cache.open(name, "kind")
    with pytest.raises(InvalidArgument, match="cannot name an entry"):
        cache.put("key", name, b"")


DAMAGES = {
    "emptied": lambda data: b"",
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "payload": lambda data: b"C" + data[1:],
    "zeroed": lambda data: b"\0" * len(data),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_entries_are_removed(cache, name):
    cache.put("key", "kind", b"content")
    path = path_in(cache)
    path.write_bytes(DAMAGES[name](path.read_bytes()))
    assert cache.open("key", "kind") is None
    assert not path.exists()
    cache.put("key", "kind", b"content")
    assert cache.read("key", "kind") == b"content"


def test_least_recently_used_entries_are_evicted(tmp_path):
    cache = Cache(tmp_path, 1000)
    for index in range(3):
        cache.put(f"key{index}", "kind", b"x" * 300)
        os.utime(path_in(cache, f"key{index}"), (index + 1, index + 1))
    assert cache.has("key0", "kind")  # touches it
    cache.put("key3", "kind", b"x" * 300)
    found = [index for index in range(4) if cache.has(f"key{index}", "kind")]
    assert found == [0, 3]


def test_entry_above_the_limit_is_not_kept(tmp_path):
    cache = Cache(tmp_path, 1000)
    cache.put("small", "kind", b"x")
    cache.put("large", "kind", b"x" * 2000)
    assert not cache.has("large", "kind")


def test_leftovers_of_dead_processes_go(cache):
    folder = cache.folder / "kind"
    folder.mkdir()
    old, fresh = folder / f"{TEMPORARY}old", folder / f"{TEMPORARY}fresh"
    old.write_bytes(b"x")
    fresh.write_bytes(b"x")
    os.utime(old, (1, 1))
    cache.put("key", "kind", b"x")
    assert (old.exists(), fresh.exists()) == (False, True)


def test_use_is_noted_at_most_daily(cache):
    cache.put("key", "kind", b"x")
    path = path_in(cache)
    before = path.stat().st_mtime - 1000
    os.utime(path, (before, before))
    cache.has("key", "kind")
    assert path.stat().st_mtime == pytest.approx(before, abs=1)
    os.utime(path, (before - 10**6, before - 10**6))
    cache.has("key", "kind")
    assert path.stat().st_mtime > before


def test_read_only_folder(cache, monkeypatch):
    cache.put("key", "kind", b"content")

    def refuse(*_args, **_named):
        raise OSError(30, "Read-only file system")

    os.utime(path_in(cache), (5, 5))
    monkeypatch.setattr(Folder, "temporary", refuse)
    monkeypatch.setattr(cache_module.os, "utime", refuse)
    assert cache.read("key", "kind") == b"content"
    assert cache.put("other", "kind", b"content") is None


def test_no_folder_at_all():
    cache = Cache(None, LIMIT)
    assert cache.put("key", "kind", b"content") is None
    assert cache.open("key", "kind") is None
    assert cache.read("key", "kind") is None


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No environment that names a folder, and a temporary folder of its own."""
    for name in ("SARDONYX_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    return temporary


def test_folder_of_the_home(bare, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_folder() == tmp_path / ".cache" / "sardonyx"
    assert (tmp_path / ".cache" / "sardonyx").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert find_folder() == tmp_path / "xdg" / "sardonyx"
    with knobs.override("SARDONYX_CACHE", str(tmp_path / "named")):
        assert find_folder() == tmp_path / "named"
    with knobs.override("SARDONYX_CACHE", "off"):
        assert find_folder() is None
        assert default_cache().folder is None


@pytest.mark.parametrize("home", ["/nonexistent-home", "/", ""])
def test_no_home(bare, monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    if not home:
        monkeypatch.setattr(cache_module, "_home", lambda: None)
    assert find_folder().parent == bare


def test_unwritable_home(bare, monkeypatch, tmp_path):
    (tmp_path / ".cache").write_text("a file where a folder would have to be made")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_folder().parent == bare


def test_untrusted_folders(bare, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("HOME", "/nonexistent-home")
    caplog.set_level("INFO", logger="sardonyx")
    folder = find_folder()
    folder.chmod(0o777)
    assert find_folder() is None
    assert "others may write to it (mode 777)" in caplog.text
    folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if folder.stat().st_uid != 0:
        assert find_folder() is None
    monkeypatch.undo()


def test_link_in_the_temporary_folder_is_not_followed(bare, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/nonexistent-home")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (bare / f"sardonyx-{os.getuid()}").symlink_to(elsewhere)
    assert find_folder() is None


def test_foreign_folder_is_refused(tmp_path, monkeypatch):
    class Status:
        st_uid, st_mode = 4321, 0o40700

    monkeypatch.setattr(Path, "stat", lambda *_args, **_named: Status)
    assert private_folder(tmp_path) == "it belongs to user 4321"


def test_many_writers(tmp_path):
    caches = [Cache(tmp_path, 2000) for _ in range(4)]
    faults = []

    def work(cache):
        for index in range(30):
            key = f"key{index % 5}"
            cache.put(key, "kind", key.encode() * 50)
            found = cache.read(key, "kind")
            if found not in (None, key.encode() * 50):
                faults.append(key)

    threads = [threading.Thread(target=work, args=(cache,)) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_digest_separates_parts():
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab") == digest(b"ab") == digest(memoryview(b"ab"))
    assert len(digest()) == 40


def test_source_digest_depends_on_content_alone(tmp_path, cache):
    folder = tmp_path / "source"
    folder.mkdir()
    file = folder / "a.py"
    file.write_text("one")
    first = cache_module.source_digest(folder, cache)
    assert cache_module.source_digest(folder, cache) == first
    file.write_text("two")
    assert cache_module.source_digest(folder, cache) != first
    file.write_text("one")
    os.utime(file, (5, 5))
    assert cache_module.source_digest(folder, cache) == first


@pytest.mark.parametrize(
    ("changed_seconds", "is_own"), [(-5, False), (5, True), (3600, False)],
    ids=["before it was imported", "since then", "by a clock that was set back"],
)  # fmt: skip
def test_source_that_changes_under_a_program(tmp_path, cache, monkeypatch, changed_seconds, is_own):
    """What runs is then neither the old source nor the new one: nobody else may have its code."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.py").write_text("one")
    others = cache_module.source_digest(tmp_path / "source", cache)
    changed_ns = (tmp_path / "source/a.py").stat().st_ctime_ns
    imported_ns = changed_ns - changed_seconds * 10**9
    if changed_seconds > 60:
        monkeypatch.setattr(cache_module.time, "time_ns", lambda: imported_ns + 10**9)
    found = cache_module.source_digest(tmp_path / "source", cache, (), imported_ns)
    assert (found != others) == is_own
    assert cache_module.source_digest(tmp_path / "source", cache, (), imported_ns) == found
    assert cache_module.source_digest(tmp_path / "source", cache) == others


def test_an_engine_that_is_exchanged_keeps_nothing_for_others(tmp_path):
    """The package is exchanged between its import and the first session of a process."""
    script = """
import os, sys, sardonyx.store.cache as cache
if len(sys.argv) > 1: os.utime(cache.__file__, (5, 5))
print(cache.engine_digest())
"""
    shutil.copytree(Path(sardonyx.__file__).parent, tmp_path / "sardonyx")
    environment = {
        **os.environ, "SARDONYX_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path),
    }  # fmt: skip

    def found(*words):
        command = [sys.executable, "-c", script, *words]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, check=True, text=True
        )
        return done.stdout, "has changed since it was imported" in done.stderr

    plain, exchanged, later = found(), found("exchange"), found()
    assert plain == later == (plain[0], False)
    assert exchanged == (exchanged[0], True) and exchanged[0] != plain[0]


def test_folders_that_do_not_count(tmp_path, cache):
    for place in ("a.py", "tools/b.py", "inner/tools/c.py"):
        (tmp_path / "source" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / place).write_text("one")

    def found():
        return cache_module.source_digest(tmp_path / "source", cache, {"tools"})

    first = found()
    (tmp_path / "source/tools/b.py").write_text("other")
    assert found() == first
    (tmp_path / "source/inner/tools/c.py").write_text("other")
    assert found() != first


def test_engine_digest_follows_the_processor():
    plain = engine_digest()
    assert engine_digest() == plain
    with knobs.override("SARDONYX_CPU", "neon"):
        assert engine_digest() != plain


def test_engine_digest_does_not_import_llvmlite(tmp_path):
    script = (
        "import sys; from sardonyx.store.cache import engine_digest; print(engine_digest());"
        "sys.exit('llvmlite' in sys.modules)"
    )
    environment = {**os.environ, "SARDONYX_CACHE": str(tmp_path), "PYTHONHASHSEED": "1"}
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
