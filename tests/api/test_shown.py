"""What `repr` says of sessions, options, bindings and the like: one short line."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.iobinding import IOBinding, SessionIOBinding
from sardonyx.base.texts import counted, shortened
from tests.api.test_generate import decoder
from tests.support.session import model_of

_CPU = "CPUExecutionProvider"
_ADD = "adder (float[N] x, float[N] w) => (float[N] y) { y = Add(x, w) }"


def _options(**values: Any) -> ort.SessionOptions:
    made = ort.SessionOptions()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def _entries() -> ort.SessionOptions:
    made = _options(intra_op_num_threads=2, logid="a\nb")
    made.add_session_config_entry("session.disable_winograd", "1")
    made.add_session_config_entry("session.allow_bfloat16_products", "1")
    made.add_free_dimension_override_by_name("N", 3)
    made.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32)))
    made.add_provider(_CPU, {})
    return made


def _run_options() -> ort.RunOptions:
    made = ort.RunOptions()
    made.terminate = True
    made.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return made


def _binding(kind: type[IOBinding] = IOBinding) -> IOBinding:
    made = kind(ort.InferenceSession(model_of(_ADD)))
    made.bind_cpu_input("x", np.ones(3, np.float32))
    return made


def _generation(steps: int) -> Any:
    found = ort.generate(decoder(), [[1, 2], [3]], max_new_tokens=2)
    for _ in range(steps):
        next(found)
    return found


_ALLOCATOR = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR

_OFF = ort.GraphOptimizationLevel.ORT_DISABLE_ALL

SHOWN: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: ort.InferenceSession(model_of(_ADD)),
        f"<InferenceSession adder: 2 inputs, 1 output, {_CPU}>",
    ),
    (ort.SessionOptions, "<SessionOptions>"),
    (
        lambda: _options(intra_op_num_threads=2, graph_optimization_level=_OFF),
        "<SessionOptions graph_optimization_level=ORT_DISABLE_ALL, intra_op_num_threads=2>",
    ),
    (  # what entries say stays out: it may be long, or a secret
        _entries,
        r"<SessionOptions intra_op_num_threads=2, logid='a\nb', 2 config entries, "
        "1 fixed dimension, 1 initializer, 1 provider>",
    ),
    (lambda: _options(logid="x" * 99), f"<SessionOptions logid='{'x' * 58}…>"),
    (
        lambda: _options(
            intra_op_num_threads=2, inter_op_num_threads=3, log_severity_level=3,
            enable_profiling=True, use_per_session_threads=False, enable_cpu_mem_arena=False,
        ),
        "<SessionOptions enable_cpu_mem_arena=False, enable_profiling=True, "
        "intra_op_num_threads=2, inter_op_num_threads=3, 2 more>",
    ),
    (ort.RunOptions, "<RunOptions>"),
    (_run_options, "<RunOptions terminate=True, 1 config entry>"),
    (_binding, "<IOBinding 1 of 2 inputs, 0 of 1 output>"),
    (lambda: _binding(SessionIOBinding), "<SessionIOBinding 1 of 2 inputs, 0 of 1 output>"),
    (lambda: _generation(0), "<Generation 2 prompts, 0 new tokens, 0 ended>"),
    (lambda: _generation(2), "<Generation 2 prompts, 4 new tokens, 2 ended>"),
    (
        lambda: ort.OrtMemoryInfo("Cuda", _ALLOCATOR, 1, ort.OrtMemType.DEFAULT),
        "<OrtMemoryInfo Cuda of device 1>",
    ),
    (lambda: ort.OrtDevice("gpu:2"), "<OrtDevice cuda:2>"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), SHOWN, ids=[t[1:60] for _, t in SHOWN])
def test_shown(make: Callable[[], Any], text: str) -> None:
    assert repr(make()) == text


#: How a model's file is called, and what is shown of that.
FILES = [
    ("mobilenetv2.onnx", "mobilenetv2.onnx"), ("a b.onnx", "a b.onnx"),
    ("x" * 90 + ".onnx", "x" * 59 + "…"), ("two\nlines.onnx", "two lines.onnx"),
]  # fmt: skip


@pytest.mark.parametrize("as_path", [str, Path])
@pytest.mark.parametrize(("name", "title"), FILES, ids=[t[:20] for _, t in FILES])
def test_sessions_of_files(name: str, title: str, as_path: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(model_of(_ADD).SerializeToString())
    session = ort.InferenceSession(as_path(tmp_path / name))
    assert repr(session) == f"<InferenceSession {title}: 2 inputs, 1 output, {_CPU}>"


_CLASSES: list[type] = [
    ort.InferenceSession, ort.SessionOptions, ort.RunOptions, IOBinding, ort.Generation,
    ort.OrtMemoryInfo, ort.OrtDevice,
]  # fmt: skip


@pytest.mark.parametrize("kind", _CLASSES, ids=[k.__name__ for k in _CLASSES])
def test_what_is_not_made_yet_is_shown_too(kind: type) -> None:
    """As debuggers do when a constructor raises."""
    assert repr(object.__new__(kind)).startswith(f"<{kind.__name__}")


def test_copies_of_options_are_shown_alike() -> None:
    made = _entries()
    assert repr(copy.copy(made)) == repr(made)


COUNTS = [(0, "input", "0 inputs"), (1, "entry", "1 entry"), (2, "entry", "2 entries")]


@pytest.mark.parametrize(("count", "noun", "text"), COUNTS)
def test_counts(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


TEXTS = [("a\n b", "a b"), ("abcdef", "abcdef"), ("abcdefg", "abcde…"), ("", "")]


@pytest.mark.parametrize(("text", "short"), TEXTS)
def test_short_texts(text: str, short: str) -> None:
    assert shortened(text, 6) == short
