"""Bundles: equal results, no compiler, no writable folder, no trust in strange bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import Fail, InvalidArgument, NoSuchFile, NotImplemented
from sardonyx.cli.main import main
from sardonyx.store import bundle as bundles
from sardonyx.store import checksums
from sardonyx.store.bundle import FRONT, MAGIC, SUFFIX, VERSION
from tests.support.session import model_of

ROOT = Path(__file__).resolve().parents[2]
RANDOM = np.random.default_rng(8)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Numbers to feed."""
    return RANDOM.standard_normal(shape).astype(np.float32)


#: Name -> (text, weights, feeds of some runs).
MODELS: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "products": (
        "g (float[n, 64] x) => (float[n, 32] y) { h = MatMul(x, w) y = Softmax(h) }",
        {"w": floats(64, 32)},
        [{"x": floats(3, 64)}, {"x": floats(17, 64)}],
    ),
    "no weights": (
        "g (float[n] x) => (float[n] y) { y = Exp(x) }", {}, [{"x": floats(5)}],
    ),
    "strings": (
        "g (string[n] x) => (string[n] y)"
        ' { y = StringNormalizer <case_change_action = "UPPER"> (x) }',
        {},
        [{"x": np.array(["one", "two"], object)}],
    ),
    "sizes of data": (
        "g (float[n] x) => (int64[1, m] y, float z)"
        " { y = NonZero(x) z = ReduceSum<keepdims=0>(x) }",
        {},
        [{"x": np.array([0, 1, 2, 0, 3], np.float32)}, {"x": np.zeros(2, np.float32)}],
    ),
    "loop": (
        "g (float[n] x, int64 k) => (float[n] y) { c = Constant <value = bool {1}> ()"
        " y = Loop <body = b (int64 i, bool u, float[n] v) => (bool o, float[n] w)"
        " { o = Identity(u) w = Add(v, v) }> (k, c, x) }",
        {},
        [{"x": floats(4), "k": np.array(3, np.int64)}],
    ),
}  # fmt: skip


def model_bytes(name: str) -> bytes:
    """A model of the table."""
    text, weights, _ = MODELS[name]
    return bytes(model_of(text, weights).SerializeToString())


def made(name: str, options: sardonyx.SessionOptions | None = None) -> bytes:
    """A bundle of a model of the table."""
    return sardonyx.ModelCompiler(
        options or sardonyx.SessionOptions(), model_bytes(name)
    ).compile_to_bytes()


@pytest.fixture(scope="module")
def products() -> bytes:
    return made("products")


@pytest.fixture(scope="module")
def large() -> bytes:
    text = "g (float[n, 1200] x) => (float[n, 1000] y) { y = MatMul(x, w) }"
    model = model_of(text, {"w": floats(1200, 1000)}).SerializeToString()
    return sardonyx.ModelCompiler(sardonyx.SessionOptions(), model).compile_to_bytes()


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a machine that made no bundle."""
    monkeypatch.setattr(bundles, "_made_here", set())
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path / "empty"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", ["path", "bytes"])
def test_results_are_the_models(name: str, form: str, tmp_path: Path) -> None:
    data = made(name)
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    model = sardonyx.InferenceSession(model_bytes(name))
    session = sardonyx.InferenceSession(path if form == "path" else data)
    assert [(v.name, v.type, v.shape) for v in session.get_inputs()] == [
        (v.name, v.type, v.shape) for v in model.get_inputs()
    ]
    for feeds in MODELS[name][2]:
        for got, want in zip(session.run(None, feeds), model.run(None, feeds), strict=True):
            np.testing.assert_array_equal(got, want, strict=True)


_BARE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llvmlite", "onnx"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
import ctypes, os
{before}
import numpy as np
import sardonyx

session = sardonyx.InferenceSession({path!r}, sardonyx.SessionOptions())
x = np.arange(128, dtype=np.float32).reshape(2, 64) / 128
want = session.run(None, {{"x": x}})[0]
with session.profile() as profile:
    got = session.run(None, {{"x": x}})[0]
assert (got == want).all() and abs(got.sum() - 2) < 1e-5, got
assert "MatMul" in str(profile.table()), profile.table()
assert "kernel" in session.explain()
loaded = [m for m in sys.modules if m.startswith(("sardonyx.ops", "sardonyx.llvm.module"))]
assert not loaded, loaded
maps = open("/proc/self/maps").read().splitlines() if os.path.exists("/proc/self/maps") else []
assert not [m for m in maps if m.split()[1].startswith("rwx")]
print("done")
"""
#: The system refuses memory that becomes executable: prctl(PR_SET_MDWE), of Linux 6.3.
_DENY = "ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)"


@pytest.mark.parametrize("before", ["", _DENY], ids=["bare", "deny write execute"])
def test_runs_without_a_compiler_and_without_a_place_to_write(
    products: bytes, tmp_path: Path, before: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / f"m{SUFFIX}").write_bytes(products)
    home.chmod(0o500)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SARDONYX")}
    environment |= {"HOME": str(home), "TMPDIR": str(home), "SARDONYX_CACHE": "off"}
    code = _BARE.format(path=str(home / f"m{SUFFIX}"), before=before)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout == "done\n", done.stderr
    assert [p.name for p in home.iterdir()] == [f"m{SUFFIX}"]


def test_a_strange_bundle_is_opened_by_name_or_by_option_alone(
    products: bytes, tmp_path: Path, strange: None
) -> None:
    plain, named = tmp_path / "m.onnx", tmp_path / f"m{SUFFIX}"
    plain.write_bytes(products)
    named.write_bytes(products)
    for source in (plain, products):
        with pytest.raises(InvalidArgument, match="machine code.*ends with .sardonyx"):
            sardonyx.InferenceSession(source)
    trusting, never = sardonyx.SessionOptions(), sardonyx.SessionOptions()
    trusting.add_session_config_entry("session.load_model_format", "BUNDLE")
    never.add_session_config_entry("session.load_model_format", "ONNX")
    for source, options in ((plain, trusting), (products, trusting), (named, None)):
        assert sardonyx.InferenceSession(source, options).get_outputs()[0].name == "y"
    with pytest.raises(InvalidArgument, match="asks for a model"):
        sardonyx.InferenceSession(named, never)
    with pytest.raises(InvalidArgument, match="no bundle"):
        sardonyx.InferenceSession(model_bytes("products"), trusting)


def test_what_this_machine_made_may_not_have_changed(tmp_path: Path) -> None:
    weights = {"w": floats(1200, 1000)}  # more than is verified each time
    text = "g (float[n, 1200] x) => (float[n, 1000] y) { y = MatMul(x, w) }"
    model = model_of(text, weights).SerializeToString()
    path = tmp_path / "m.onnx"
    compiler = sardonyx.ModelCompiler(sardonyx.SessionOptions(), model)
    compiler.compile_to_file(path)
    sardonyx.InferenceSession(path)
    data = bytearray(path.read_bytes())
    offset, size, *_ = max(header_of(data)["sections"], key=lambda s: s[1])
    data[offset + size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Fail, match="damaged"):
        sardonyx.InferenceSession(path)
    assert main(["bundle", "--check", str(path)]) == 1


@pytest.mark.parametrize("form", ["path", "bytes"])
@pytest.mark.parametrize("damage", ["bit", "zeros", "last byte"])
def test_large_constants_of_a_trusted_bundle_are_checked(
    large: bytes, form: str, damage: str, tmp_path: Path
) -> None:
    data, path = bytearray(large), tmp_path / f"m{SUFFIX}"
    offset, size, *_ = max(header_of(data)["sections"], key=lambda s: s[1])
    assert size > checksums.SMALL_BYTES
    if damage == "bit":
        data[offset + size // 3] ^= 4
    elif damage == "zeros":
        data[offset + 8192 : offset + 12288] = bytes(4096)
    else:
        data[offset + size - 1] ^= 1
    path.write_bytes(data)
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "BUNDLE")
    with pytest.raises(Fail, match="damaged: section .* is not the one that was written"):
        sardonyx.InferenceSession(path if form == "path" else bytes(data), options)


def header_of(data: bytes | bytearray) -> dict[str, Any]:
    """The header of a bundle."""
    _, _, size, _ = FRONT.unpack_from(data)
    return dict(json.loads(bytes(data[FRONT.size : FRONT.size + size])))


def with_header(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A bundle with another header, whose digest is right."""
    header = header_of(data)
    header = change(header) or header
    text = json.dumps(header).encode()
    digest = hashlib.blake2b(text, digest_size=16).digest()
    front = FRONT.pack(MAGIC, VERSION, len(text), digest) + text
    return front + data[len(front) :]


def flipped(section: str) -> Callable[[bytes], bytes]:
    """Changes a byte of a section of the first plan."""

    def change(data: bytes) -> bytes:
        header = header_of(data)
        offset, size, *_ = header["sections"][header["plans"][0][section]]
        place = offset + size // 2
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return change


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    return lambda data: with_header(data, change)


#: Name -> (what is done to the bytes, what the error says).
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "magic alone": (lambda d: d[:8], "cut short"),
    "front alone": (lambda d: d[: FRONT.size], "header is not the one"),
    "half": (lambda d: d[: len(d) // 2], "outside the file"),
    "last byte": (lambda d: d[:-1], "outside the file"),
    "header": (lambda d: d[:60] + b"?" + d[61:], "header is not the one"),
    "version": (lambda d: d[:8] + b"\x63" + d[9:], "of version 99"),
    "long header": (lambda d: d[:12] + b"\xff\xff\xff\xff" + d[16:], "header is not the one"),
    "record": (flipped("record"), "not the one that was written"),
    "code": (flipped("code"), "not the one that was written"),
    "constants": (flipped("constants"), "not the one that was written"),
    "no object": (changed(lambda h: [1]), "makes no sense"),
    "no plans": (changed(lambda h: h.pop("plans") and None), "makes no sense"),
    "empty plans": (changed(lambda h: h.update(plans=[])), "no such section"),
    "strange section": (changed(lambda h: h["plans"][0].update(code=99)), "no such section"),
    "negative": (changed(lambda h: h["plans"][0].update(code=-1)), "no such section"),
    "words": (changed(lambda h: h["sections"].insert(0, ["a", "b", "c", "d"])), "makes no sense"),
    "odd place": (changed(lambda h: h["sections"][0].__setitem__(0, 7)), "outside the file"),
    "deep": (changed(lambda h: h.update(sections={})), "no such section"),
    "engine": (changed(lambda h: h.update(run_time="0")), "another version of sardonyx"),
    "processor": (changed(lambda h: h.update(target="power-altivec")), "another processor"),
    "instructions": (changed(lambda h: h.update(features="+amx")), "more instructions"),
    "record as code": (
        changed(lambda h: h["plans"][0].update(code=h["plans"][0]["record"])), "damaged",
    ),
    "code as record": (
        changed(lambda h: h["plans"][0].update(record=h["plans"][0]["code"])), "cannot be read",
    ),
    "few constants": (
        changed(lambda h: h["plans"][0].update(constants=h["plans"][0]["record"])), "cut short",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("form", ["path", "bytes"])
def test_damaged_bundles_are_refused(name: str, form: str, products: bytes, tmp_path: Path) -> None:
    damage, text = DAMAGES[name]
    data = damage(products)
    path = tmp_path / f"m{SUFFIX}"
    path.write_bytes(data)
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "BUNDLE")
    with pytest.raises(Fail, match=text):
        sardonyx.InferenceSession(path if form == "path" else data, options)


def entry(key: str, value: str) -> Callable[[sardonyx.SessionOptions], None]:
    return lambda o: o.add_session_config_entry(key, value)


def initializer(o: sardonyx.SessionOptions) -> None:
    o.add_initializer("w", sardonyx.OrtValue.ortvalue_from_numpy(floats(64, 32)))


#: What a session asks of a bundle that was made without, and what it is told.
MISFITS: dict[str, tuple[Callable[[sardonyx.SessionOptions], None], str]] = {
    "size": (lambda o: o.add_free_dimension_override_by_name("n", 3), "without the size n = 3"),
    "weights": (initializer, "without other initializers: w"),
    "winograd": (entry("session.disable_winograd", "1"), "direct sums"),
    "halves": (entry("session.allow_bfloat16_products", "1"), "bfloat16"),
    "graph": (lambda o: setattr(o, "optimized_model_filepath", "x.onnx"), "no graph"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_options_that_a_bundle_was_not_made_with(name: str, products: bytes) -> None:
    change, text = MISFITS[name]
    options = sardonyx.SessionOptions()
    change(options)
    with pytest.raises(InvalidArgument, match=text):
        sardonyx.InferenceSession(products, options)


def test_options_that_it_was_made_with() -> None:
    options = sardonyx.SessionOptions()
    options.add_free_dimension_override_by_name("n", 3)
    options.execution_mode = sardonyx.ExecutionMode.ORT_PARALLEL
    options.intra_op_num_threads = 2
    session = sardonyx.InferenceSession(made("products", options), options)
    assert session.get_inputs()[0].shape == [3, 64]
    assert session.run(None, {"x": floats(3, 64)})[0].shape == (3, 32)
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": floats(4, 64)})


def test_sizes_that_contradict_names(tmp_path: Path) -> None:
    text = "g (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) { y = Add(x, z) }"
    (tmp_path / "m.onnx").write_bytes(model_of(text).SerializeToString())
    feeds = {"x": floats(5, 4), "z": floats(1, 4)}
    for flags, works in (([], False), (["--any-sizes"], True)):
        target = str(tmp_path / f"m{SUFFIX}")
        assert main(["bundle", str(tmp_path / "m.onnx"), target, *flags]) == 0
        session = sardonyx.InferenceSession(target)
        if works:
            np.testing.assert_array_equal(session.run(None, feeds)[0], feeds["x"] + feeds["z"])
        else:
            with pytest.raises(InvalidArgument):
                session.run(None, feeds)


def test_outputs_that_continue_inputs_have_their_plan() -> None:
    text = "g (float[1, n, 8] past, float[1, 1, 8] x) => (float[1, m, 8] y)"
    model = model_of(f"{text} {{ y = Concat <axis = 1> (past, x) }}").SerializeToString()
    data = sardonyx.ModelCompiler(sardonyx.SessionOptions(), model).compile_to_bytes()
    assert [p["for"] for p in header_of(data)["plans"]] == ["", "in_rooms"]
    session = sardonyx.InferenceSession(data)
    binding, past, want = session.io_binding(), floats(1, 2, 8), []
    for step in range(4):
        x = floats(1, 1, 8)
        binding.bind_cpu_input("x", x)
        if step == 0:
            want.append(past)
            binding.bind_cpu_input("past", past)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        want.append(x)
        (y,) = binding.get_outputs()
        np.testing.assert_array_equal(y.numpy(), np.concatenate(want, 1))
        binding.bind_ortvalue_input("past", y)


def test_what_a_bundle_cannot_say(products: bytes) -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    with pytest.raises(NotImplemented, match="no graph"):
        sardonyx.InferenceSession(products, options).get_provider_graph_assignment_info()


def test_unranked_inputs_are_refused() -> None:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises(NotImplemented, match="fix-shapes"):
        sardonyx.ModelCompiler(
            sardonyx.SessionOptions(), model.SerializeToString()
        ).compile_to_bytes()


def test_a_replaced_bundle_gives_no_other_plans(tmp_path: Path) -> None:
    path = tmp_path / f"m{SUFFIX}"
    path.write_bytes(made("products"))
    session = sardonyx.InferenceSession(path)
    x = floats(2, 64)
    want = session.run(None, {"x": x})[0]
    (tmp_path / "new").write_bytes(made("no weights"))
    os.replace(tmp_path / "new", path)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)


def test_only_paths_and_bytes_are_looked_at(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as file:
        for strange in (file.fileno(), None, 1.5, "no\0name", str(tmp_path)):
            assert not bundles.is_bundle(strange)
        file.write(b"is still open")


# -- ModelCompiler -------------------------------------------------------------------------------


def test_compiler_writes_files_bytes_and_streams(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    source.write_bytes(model_bytes("products"))
    compiler = sardonyx.ModelCompiler(sardonyx.SessionOptions(), source)
    compiler.compile_to_file()
    chunks: list[bytes] = []
    compiler.compile_to_stream(chunks.append)
    assert len(chunks) > 1
    x = floats(2, 64)
    want = sardonyx.InferenceSession(source).run(None, {"x": x})[0]
    for bundle in (tmp_path / "m_ctx.onnx", b"".join(chunks), compiler.compile_to_bytes()):
        got = sardonyx.InferenceSession(bundle).run(None, {"x": x})[0]
        np.testing.assert_array_equal(got, want)
    exists = sardonyx.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS
    careful = sardonyx.ModelCompiler(sardonyx.SessionOptions(), source, flags=exists)
    with pytest.raises(Fail, match="exists"):
        careful.compile_to_file(tmp_path / "m_ctx.onnx")


def test_a_model_without_nodes() -> None:
    model = model_of("g (float[n] x) => (float[n] x) { }").SerializeToString()
    flag = sardonyx.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED
    with pytest.raises(Fail, match="nothing to compile"):
        sardonyx.ModelCompiler(sardonyx.SessionOptions(), model, flags=flag).compile_to_bytes()


#: Arguments of ModelCompiler after the options, and the error.
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception]]] = {
    "no path": (("",), {}, ValueError),
    "no bytes": ((b"",), {}, ValueError),
    "number": ((3,), {}, ValueError),
    "missing": (("nosuch.onnx",), {}, NoSuchFile),
    "weights elsewhere": (
        (b"x",), {"external_initializers_file_path": "w.bin"}, NotImplementedError,
    ),
    "weights by function": (
        (b"x",), {"get_initializer_location_func": print}, NotImplementedError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_compiler_refuses(name: str) -> None:
    arguments, further, error = REFUSED[name]
    with pytest.raises(error):
        sardonyx.ModelCompiler(sardonyx.SessionOptions(), *arguments, **further)


def test_callbacks_are_checked() -> None:
    compiler = sardonyx.ModelCompiler(sardonyx.SessionOptions(), model_bytes("products"))
    compiler.set_ep_context_data_write_func(print)
    compiler.clear_ep_context_data_write_func()
    options = sardonyx.SessionOptions()
    options.set_ep_context_data_read_func(print, 100)
    options.clear_ep_context_data_read_func()
    with pytest.raises(InvalidArgument):
        compiler.set_ep_context_data_write_func(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        options.set_ep_context_data_read_func(print, -1)


# -- the command ---------------------------------------------------------------------------------


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / f"m{SUFFIX}"
    source.write_bytes(model_bytes("products"))
    assert main(["bundle", str(source), str(target), "--free-dim", "n=2"]) == 0
    assert "kernels for" in capsys.readouterr().out
    assert main(["bundle", "--check", str(target)]) == 0
    assert "whole" in capsys.readouterr().out
    assert sardonyx.InferenceSession(target).get_inputs()[0].shape == [2, 64]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 2), (["m.onnx"], 2), (["m.onnx", "o", "--free-dim", "n"], 2),
        (["m.onnx", "--check", "o"], 2), (["nosuch.onnx", "o"], 1), (["m.onnx", "no/such/o"], 2),
        (["--check", "m.onnx"], 1), (["--check", "nosuch"], 1), (["junk", "o"], 1),
        (["m.onnx", "m.onnx"], 2), (["m.onnx", "o", "--free-dim", "nosuch=2"], 2),
    ],
)  # fmt: skip
def test_command_fails_in_one_line_and_leaves_nothing(
    arguments: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(model_bytes("products"))
    (tmp_path / "junk").write_bytes(b"\x08junk")
    assert main(["bundle", *arguments]) == status
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["junk", "m.onnx"]
    assert (tmp_path / "m.onnx").read_bytes() == model_bytes("products")


@pytest.mark.parametrize("command", ["bundle --check", "run", "perf -r 1"])
@pytest.mark.parametrize(
    ("damage", "status"),
    [
        (lambda d: d, 0),
        (lambda d: d[:-1], 1),
        (flipped("code"), 1),
        (changed(lambda h: h.update(run_time="0")), 1),
        (changed(lambda h: h.update(target="power-altivec")), 1),
        (None, 2),
    ],
    ids=["whole", "cut short", "code", "version", "processor", "folder"],
)
def test_statuses(
    command: str, damage: Any, status: int, products: bytes, tmp_path: Path, capsys: Any
) -> None:
    """A file that is at fault has failed; something that is no file is a bad argument."""
    path = tmp_path / f"m{SUFFIX}"
    if damage is None:
        path.mkdir()
    else:
        path.write_bytes(damage(products))
    assert main([*command.split(), str(path)]) == status
    assert len(capsys.readouterr().err.splitlines()) == bool(status)
