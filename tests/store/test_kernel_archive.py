"""Kernels compiled ahead are found by what they compute; see `store.kernel_archive`."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from sardonyx.base import knobs
from sardonyx.cli.main import main
from sardonyx.compiler.archive_writer import write_archive
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.compiler.targets import PROCESSORS, target_of
from sardonyx.llvm import compile
from sardonyx.native import functions
from sardonyx.selection.selector import KernelSelector
from sardonyx.store import cache as cache_module
from sardonyx.store import kernel_archive, layer_store
from sardonyx.store.kernel_archive import KernelArchive
from sardonyx.store.layer_store import LayerStore
from sardonyx.targets.target import host_target
from tests.support.session import model_of
from tests.support.tolerances import assert_near

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
#: Name -> text of a graph, shapes of its weights, of its feed.
MODELS = {
    "convolutions": (
        """g (float[1, 16, 20, 20] x) => (float[1, 16, 20, 20] y) {
          a = Conv <pads=[1,1,1,1]> (x, w, b) c = Relu (a)
          d = Conv <pads=[1,1,1,1], group=16> (c, v) e = Conv (d, u) y = Add (e, x)
        }""",
        {"w": (16, 16, 3, 3), "b": (16,), "v": (16, 1, 3, 3), "u": (16, 16, 1, 1)},
        (1, 16, 20, 20),
    ),
    "products": (
        """g (float[N, 64] x) => (float[N, 64] y) {
          a = MatMul (x, w) b = Relu (a) c = MatMul (b, v) d = Softmax (c) y = Add (d, x)
        }""",
        {"w": (64, 128), "v": (128, 64)},
        (5, 64),
    ),
    "norm": (
        "g (float[N, 40] x) => (float[N, 40] y) { y = LayerNormalization <axis=-1> (x, w) }",
        {"w": (40,)},
        (5, 40),
    ),
}


def made(name, text=None):
    """A model with weights of its own."""
    whole, weights, _ = MODELS[name]
    given = {n: RNG.standard_normal(s).astype(np.float32) / 4 for n, s in weights.items()}
    return model_of(text or whole, given, 18).SerializeToString()


def feed(name):
    return RNG.standard_normal(MODELS[name][2]).astype(np.float32)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Writes an archive of models, which sessions use from then on, with an empty cache."""

    def write(*names, target=None):
        folder = tmp_path / "kernels"
        path = write_archive(folder, target or host_target(), [(n, made(n)) for n in names])
        monkeypatch.setenv("SARDONYX_KERNELS", str(folder))
        monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path / "cache"))
        forget()
        return path

    def forget():
        kernel_archive._opened.cache_clear()
        kernel_archive._archive.cache_clear()

    yield write
    forget()


def compiled_by(make):
    """What a function gives, and how many modules were compiled meanwhile."""
    before = compile.COUNTS["modules"]
    result = make()
    return result, compile.COUNTS["modules"] - before


def run(model, x, **options):
    (got,) = create_engine(model, EngineOptions(**options)).run([x])
    return got


@pytest.mark.parametrize("name", MODELS)
def test_a_session_builds_and_compiles_nothing(name, archive, monkeypatch):
    """The same bits as without an archive, for a model with other weights."""
    model, x = made(name), feed(name)
    want = run(model, x)
    archive(name)
    monkeypatch.setattr(KernelSelector, "form", None)
    got, compiled = compiled_by(lambda: run(model, x))
    assert compiled == 0
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("cache", ["off", "a folder that cannot be written"])
def test_no_cache_is_needed(cache, archive, monkeypatch, tmp_path):
    archive("products")
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("SARDONYX_CACHE", "off" if cache == "off" else str(file))
    _, compiled = compiled_by(lambda: run(made("products"), feed("products")))
    assert compiled == 0


def test_what_is_new_is_compiled(archive):
    archive("products")
    text = MODELS["products"][0].replace("y = Add (d, x)", "e = Add (d, x) y = Erf (e)")
    model, x = made("products", text), feed("products")
    got, compiled = compiled_by(lambda: run(model, x))
    assert 0 < compiled < 3
    with knobs.override("SARDONYX_KERNELS", "off"):
        np.testing.assert_array_equal(got, run(model, x, use_cache=False))


def test_other_source_finds_machine_code_alone(archive, monkeypatch):
    path = archive("products")
    monkeypatch.setattr(cache_module, "kernel_digest", lambda: "0" * 40)
    for module in ("kernel_store", "kernel_archive"):
        monkeypatch.setattr(f"sardonyx.store.{module}.kernel_digest", lambda: "0" * 40)
    assert not KernelArchive(path).is_current
    model, x = made("products"), feed("products")
    got, compiled = compiled_by(lambda: run(model, x))
    assert compiled == 0  # equal texts, which were written anew
    with knobs.override("SARDONYX_KERNELS", "off"):
        np.testing.assert_array_equal(got, run(model, x, use_cache=False))


def test_another_target_has_another_archive(archive):
    other = next(t for t in map(target_of, ("sse", "neon")) if t.key != host_target().key)
    path = archive("norm", target=other)
    assert kernel_archive.archive_for(host_target()) is None
    assert kernel_archive.archive_for(other).path == path


def test_run_time_functions_are_in_it(archive):
    path = archive("norm")
    opened = KernelArchive(path)
    for kind in functions.kinds():
        assert opened.read(functions.archived_key(kind, host_target()), kind)
        assert opened.read(functions.archived_key(kind, host_target()), "another kind") is None


def test_every_entry_is_found_and_every_changed_byte_is_noticed(tmp_path, caplog):
    found = {(f"key {k}", "kind"): bytes([k]) * (k % 7) for k in range(200)}
    path = tmp_path / "some.kernels"
    kernel_archive.write_archive(path, found)
    opened = KernelArchive(path)
    assert {k: opened.read(*k) for k in found} == found
    assert opened.count == 200
    assert opened.read("key 200", "kind") is None
    data = path.read_bytes()
    for at in range(len(data) - 100, len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :])
        damaged = KernelArchive(path)
        with caplog.at_level(logging.WARNING, "sardonyx"):
            missing = [k for k in found if damaged.read(*k) is None]
        assert len(missing) == 1
        assert "is damaged: it is made anew" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    "damage",
    [lambda d: d[:-1], lambda d: b"", lambda d: d[:30], lambda d: b"x" + d[1:], lambda d: d + b"x"],
    ids=["cut", "empty", "a part of the header", "another magic", "longer"],
)
def test_a_file_that_is_none_is_not_used(damage, archive, caplog):
    path = archive("norm")
    path.write_bytes(damage(path.read_bytes()))
    x = RNG.standard_normal((5, 40)).astype(np.float32)
    weights = np.linspace(0.5, 2, 40, dtype=np.float32)
    model = model_of(MODELS["norm"][0], {"w": weights}, 18).SerializeToString()
    with caplog.at_level(logging.WARNING, "sardonyx"):
        got = run(model, x)
    wide = x.astype(np.float64)
    spread = np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert_near(got, (wide - wide.mean(-1, keepdims=True)) / spread * weights, "float: products")
    assert any("is not used" in r.getMessage() for r in caplog.records)


def test_the_command_writes_one_and_the_doctor_sees_it(archive, tmp_path, monkeypatch, capsys):
    archive()
    (tmp_path / "model.onnx").write_bytes(made("norm"))
    folder = tmp_path / "own"
    assert main(["archive", str(tmp_path / "model.onnx"), "--output", str(folder)]) == 0
    (path,) = folder.iterdir()
    printed = capsys.readouterr().out
    assert "new kernels: 1, known: 0" in printed
    assert f"{path}: {path.stat().st_size} bytes" in printed
    monkeypatch.setenv("SARDONYX_KERNELS", str(folder))
    _, compiled = compiled_by(lambda: run(made("norm"), feed("norm")))
    assert compiled == 0
    assert main(["doctor", "--quick"]) == 0
    assert f"{path.name}, {KernelArchive(path).count} entries" in capsys.readouterr().out


def test_a_pipe_in_its_place_is_not_waited_for(archive, caplog):
    path = archive("norm")
    path.unlink()
    os.mkfifo(path)
    with caplog.at_level(logging.WARNING, "sardonyx"):
        assert kernel_archive.archive_for(host_target()) is None
    assert any("is not used" in r.getMessage() for r in caplog.records)


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "model.onnx").write_bytes(made("norm"))
    (tmp_path / "file").write_text("")
    given = ["archive", str(tmp_path / "model.onnx"), "--output", str(tmp_path / "file" / "in")]
    assert main(given) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_package_is_found_where_modules_are(archive, tmp_path, monkeypatch):
    """Also when no folder is named, and no checkout has any."""
    path = archive("norm")
    package = tmp_path / "site" / "sardonyx_kernels"
    package.mkdir(parents=True)
    moved = path.rename(package / path.name)
    monkeypatch.delenv("SARDONYX_KERNELS")
    monkeypatch.setattr(kernel_archive, "_CHECKOUT", "no folder of this name")
    monkeypatch.chdir(tmp_path / "site")
    monkeypatch.syspath_prepend("")
    assert kernel_archive.archive_for(host_target()) is None
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert kernel_archive.archive_for(host_target()).path == moved


def test_archives_of_the_checkout_are_whole_and_for_targets_that_exist():
    """They may be for older source: `sardonyx doctor` says so."""
    names = {kernel_archive.file_name(target_of(name)) for name in PROCESSORS}
    for path in sorted((ROOT / "kernels" / "sardonyx_kernels").glob("*.kernels")):
        assert path.name in names
        assert KernelArchive(path).count > 1000


def test_an_archive_has_all_layers_though_a_cache_drops_some(archive, monkeypatch):
    with monkeypatch.context() as dropping:  # each graph's layers take the place of all others
        dropping.setattr(layer_store, "_part_of", lambda _: b"0")
        dropping.setattr(LayerStore, "_read", lambda *_: {})
        archive(*MODELS)
    monkeypatch.setattr(KernelSelector, "form", None)
    for name in MODELS:
        run(made(name), feed(name))
