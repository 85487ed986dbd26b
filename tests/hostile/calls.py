"""Every public method of every public class, called with nonsense in place of each argument.

`SUBJECTS` says how objects are made, and which arguments make sense; names, parameters and
properties come from the classes themselves. A call may end in a result or in a named error.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import sardonyx as ort
from sardonyx.base.errors import SardonyxError
from sardonyx.datasets import get_example

X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


class Strange:
    """An object of nobody's."""


def _loop() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


#: What is put in place of each argument.
NONSENSE: dict[str, Any] = {
    "None": None, "an object": Strange(), "nan": float("nan"), "inf": float("inf"), "-1": -1,
    "2**70": 1 << 70, "-2**70": -(1 << 70), "2.5": 2.5, "True": True, "text": "nonsense",
    "no text": "", "a zero byte": "a\0b", "a lone surrogate": "\ud800", "bytes": b"\xff\x00",
    "a list": [1, "a", None], "a list in itself": _loop(), "a dict": {1: 2, "a": None},
    "a class": Strange, "a function": len, "a complex": 1j, "an object array": np.array([None, {}]),
    "a record": np.zeros(2, [("a", "i4")]), "dates": np.array(["2020"], "M8[D]"),
    "a name without a value": {"X": None}, "a huge shape": [1 << 40, 1 << 40], "a negative shape": [-3],
}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """Objects of one class.

    Attributes:
        make: A new object, or the module whose functions are called.
        good: For a method, arguments that make sense, in order; the default is none that do.
        left_out: Methods that are not called, each with a reason.
    """

    make: Callable[[], Any]
    good: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def session() -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(get_example("mul_1.onnx"), options)


def value() -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(X.copy())


def binding() -> ort.IOBinding:
    made = session().io_binding()
    made.bind_cpu_input("X", X)
    made.bind_output("Y")
    return made


def sparse() -> ort.SparseTensor:
    device = ort.OrtDevice.make("cpu", 0)
    values, indices = np.ones(2, np.float32), np.array([1, 3])
    return ort.SparseTensor.sparse_coo_from_numpy([3, 3], values, indices, device)


def _nothing(*_: Any) -> None:
    pass


_SHAPE, _CPU = [3, 2], ("cpu", 0)
_FIRST = {"X": X}
SUBJECTS: dict[str, Subject] = {
    "InferenceSession": Subject(
        session,
        {
            "run": (["Y"], _FIRST, None), "run_async": (["Y"], _FIRST, _nothing, None),
            "run_with_ort_values": (["Y"], {"X": value()}, None),
            "run_with_ortvaluevector": (None, ["X"], [value()], ["Y"], ort.capi._pybind_state.OrtValueVector(), [ort.OrtDevice.make("cpu", 0)]),
            "run_with_iobinding": (binding(),), "set_providers": (["CPUExecutionProvider"], [{}]),
            "create_ortvalue_from_shape_and_type": (_SHAPE, np.float32, "cpu", 0),
            "set_tuning_results": ([],), "set_ep_dynamic_options": ({},),
            "pipeline": (), "profile": (),
        },
    ),
    "OrtValue": Subject(
        value,
        {
            "ortvalue_from_numpy": (X, *_CPU), "ortvalue_from_numpy_with_onnx_type": (X, 1),
            "ortvalue_from_shape_and_type": (_SHAPE, np.float32, *_CPU), "from_dlpack": (X,),
            "ortvalue_with_room": (_SHAPE, np.float32, 0, 9), "update_inplace": (X,),
            "ort_value_from_sparse_tensor": (sparse(),),
        },
    ),
    "IOBinding": Subject(
        binding,
        {
            "bind_cpu_input": ("X", X), "bind_ortvalue_input": ("X", value()),
            "bind_ortvalue_output": ("Y", value()), "bind_output": ("Y", *_CPU, np.float32, _SHAPE),
        },
        {"bind_input": "any number may be an address: what lies there cannot be asked"},
    ),
    "SessionOptions": Subject(
        ort.SessionOptions,
        {
            "add_session_config_entry": ("session.set_denormal_as_zero", "0"),
            "get_session_config_entry": ("k",), "add_initializer": ("W", value()),
            "add_external_initializers": (["W"], [value()]), "add_provider": ("CPUExecutionProvider", {}),
            "add_free_dimension_override_by_name": ("N", 3),
            "add_free_dimension_override_by_denotation": ("N", 3),
            "add_external_initializers_from_files_in_memory": (["f"], [b"x"], [1]),
            "add_provider_for_devices": (ort.get_ep_devices(), {}), "set_provider_selection_policy": (1,),
        },
    ),
    "RunOptions": Subject(
        ort.RunOptions,
        {"add_run_config_entry": ("k", "v"), "get_run_config_entry": ("k",)},
    ),
    "OrtDevice": Subject(lambda: ort.OrtDevice.make("cpu", 0), {"make": _CPU}),
    "OrtMemoryInfo": Subject(
        lambda: ort.OrtMemoryInfo("Cpu", 1, 0, 0),  # type: ignore[arg-type]  # numbers do, too
        {"create_v2": ("Cpu", 0, 0, 0, 0, 0, 1)},
    ),
    "OrtArenaCfg": Subject(lambda: ort.OrtArenaCfg(0, -1, -1, -1)),
    "LoraAdapter": Subject(ort.LoraAdapter, {"Load": ("nowhere",)}),
    "AdapterFormat": Subject(
        ort.AdapterFormat,
        {"set_adapter_version": (1,), "set_model_version": (1,), "set_parameters": ({"a": value()},)},
        {"export_adapter": "it would write files of any name"},
    ),
    "SparseTensor": Subject(
        sparse,
        {
            "sparse_coo_from_numpy": ([3, 3], np.ones(1, np.float32), np.array([1]), ort.OrtDevice.make("cpu", 0)),
            "sparse_csr_from_numpy": ([3, 3], np.ones(1, np.float32), np.array([1]), np.array([0, 1, 1, 1]), ort.OrtDevice.make("cpu", 0)),
        },
    ),
    "ModelCompiler": Subject(
        lambda: ort.ModelCompiler(ort.SessionOptions(), get_example("mul_1.onnx")),
        left_out={"compile_to_file": "it would write files of any name"},
    ),
    "OrtValueVector": Subject(lambda: ort.capi._pybind_state.OrtValueVector([value()])),
    "sardonyx": Subject(
        lambda: ort,
        {
            "InferenceSession": (get_example("mul_1.onnx"), None, None, None),
            "ModelCompiler": (ort.SessionOptions(), get_example("mul_1.onnx")),
            "OrtMemoryInfo": ("Cpu", 1, 0, 0), "OrtDevice": ("cpu", 0),
            "create_and_register_allocator": (ort.OrtMemoryInfo("Cpu", 1, 0, 0), None),
            "create_and_register_allocator_v2": ("CPUExecutionProvider", ort.OrtMemoryInfo("Cpu", 1, 0, 0), {}, None),
            "copy_tensors": ([value()], [value()], None),
            "IOBinding": (session(),), "generate": (session(), [1, 2]),
            "OrtExternalInitializerInfo": ("f", 0, 4),
        },
        {
            "set_seed": "it changes what other tests draw",
            "set_global_thread_pool_sizes": "it changes the threads of other tests",
            "set_default_logger_severity": "it changes the log of other tests",
            "set_default_logger_verbosity": "it changes the log of other tests",
            "install_as_onnxruntime": "it changes what other tests import",
            "print_debug_info": "it prints",
            "OrtSyncStream": "it needs a GPU", "OrtValue": "made by its own methods alone",
            "Generation": "`generate` makes it", "NodeArg": "sessions make it",
        },
    ),
}  # fmt: skip

#: A list's own methods and what enumerations, modules and exceptions have are Python's to refuse.
_NOT_OURS = (BaseException, int)


def methods(name: str) -> list[str]:
    """Public callables of a subject that are its own."""
    subject = SUBJECTS[name]
    made = subject.make()
    kind = made if inspect.ismodule(made) else type(made)
    found = []
    for member in sorted(dir(kind)):
        held = getattr(kind, member, None)
        if member.startswith("_") or member in subject.left_out or not callable(held):
            continue
        if inspect.isclass(held) and issubclass(held, _NOT_OURS):
            continue
        if isinstance(made, list) and hasattr(list, member):
            continue
        found.append(member)
    return found


def properties(name: str) -> list[str]:
    """Public attributes of a subject's object that may be set."""
    made = SUBJECTS[name].make()
    if inspect.ismodule(made):
        return []
    held = getattr(made, "_values", None)
    values = held if isinstance(held, dict) else {}
    own = [*values, *getattr(made, "_FIELDS", ()), *vars(made)] if hasattr(made, "__dict__") else []
    return sorted({n for n in own if not n.startswith("_") and n not in ("values", "load_flag")})


def calls(name: str, method: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The calls of one method: nonsense for each argument, for all of them, and the call twice."""
    subject = SUBJECTS[name]
    taken = getattr(subject.make(), method)
    try:
        parameters = list(inspect.signature(taken).parameters.values())
    except ValueError:
        return
    places = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
    good = subject.good.get(method, ())
    needed = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in places)
    positional = [p for p in places if p.kind is not p.KEYWORD_ONLY]
    for text, odd in NONSENSE.items():
        for k in range(max(len(positional), needed)):
            given = [*good, *[odd] * max(0, needed - len(good))]
            given = given[:k] + [odd] + given[k + 1 :] if k < len(given) else [*given, odd][: k + 1]
            yield f"{text} for argument {k}", _call(subject, method, given, {})
        for p in places:
            if p.kind is p.KEYWORD_ONLY and len(good) >= needed:
                yield f"{p.name}={text}", _call(subject, method, list(good), {p.name: odd})
    if len(good) >= needed:
        yield "twice", _twice(subject, method, good)


def _call(subject: Subject, method: str, given: list[Any], named: dict[str, Any]) -> Any:
    return lambda: getattr(subject.make(), method)(*given, **named)


def _twice(subject: Subject, method: str, good: tuple[Any, ...]) -> Any:
    def call() -> None:
        made = subject.make()
        for _ in range(2):
            getattr(made, method)(*good)

    return call


def ending(call: Callable[[], Any]) -> str:
    """How a call ended: "" in a result or a named error, else in what.

    Too few or too many arguments, and generators' ends, are Python's own errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call()
        except SardonyxError:
            return ""
        except AttributeError as error:
            return "" if str(error).startswith("[") else f"AttributeError: {error}"
        except TypeError as error:
            last = error.__traceback__
            while last is not None and last.tb_next is not None:
                last = last.tb_next
            here = last is None or Path(last.tb_frame.f_code.co_filename) == Path(__file__)
            return "" if here else f"{type(error).__name__}: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    if inspect.iscoroutine(found):
        found.close()
    return ""
