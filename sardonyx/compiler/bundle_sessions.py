"""Sessions of bundles: nothing is compiled, and no file is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger
from sardonyx.compiler.cached_engines import engine_of, repeat_remarks
from sardonyx.compiler.drive import guarded, may_contradict, plain_source
from sardonyx.compiler.options import EngineOptions
from sardonyx.cpu.provider import CpuProvider
from sardonyx.cpu.threads import team_of
from sardonyx.native import functions
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.variants import Variants
from sardonyx.store.bundle import SUFFIX, Bundle

_logger = get_logger("session")


def open_bundle(source: Any, options: EngineOptions, *, trusted: bool = False) -> Engine:
    """The engine of a bundle.

    Args:
        source: A path or bytes, see `bundle.is_bundle`.
        options: How to run it. What decides on a plan must be what the bundle was made with.
        trusted: Whether the user says that the bundle's code may run. One whose name ends with
            `.sardonyx`, or that was made by this user's sessions, may in any case.

    Raises:
        InvalidArgument: The bundle is not trusted, or was made with other options.
        Fail: It is damaged, or is for another processor or package.
        OutOfMemory: Its constants need more memory than the session may have.
    """
    return guarded(options, lambda o: _open(plain_source(source), o, trusted))


def _open(source: Any, options: EngineOptions, trusted: bool) -> Engine:
    start = time.perf_counter()
    with Bundle(source) as bundle:
        if not trusted and not bundle.name.endswith(SUFFIX):
            _check_own(bundle)
        budget = options.budget or Budget(options.memory_limit_bytes)
        options = _checked(bundle, options)
        for kind, number in bundle.header["functions"].items():
            functions.provide(kind, partial(bundle.code, number))
        plans = {plan["for"]: plan for plan in bundle.header["plans"]}
        engine = _engine(bundle, plans[""], options, budget, start)
        again = partial(_other, source, bundle.identity, plans, replace(options, budget=budget))
        contradicts = "general" in plans and may_contradict(engine.record.plan)
        engine.use(Variants(again, contradicts, (options.least_level, options.logid)))
    return engine


def _check_own(bundle: Bundle) -> None:
    """Raise unless this machine made the bundle, and it is as it was then."""
    if not bundle.is_own:
        raise InvalidArgument(
            message(
                bundle.name,
                "This is a bundle: machine code that would run with all that this process may do",
                expected="an ONNX model",
                do=f"If you trust whoever made it, give it a name that ends with {SUFFIX}, or set"
                " session.load_model_format to BUNDLE",
            )
        )
    bundle.verify_all()


def _checked(bundle: Bundle, options: EngineOptions) -> EngineOptions:
    """The options that a bundle's plans are run with.

    Raises:
        InvalidArgument: They ask for another plan than there is.
    """
    has, wanted = bundle.header["options"], options.traits()
    if options.initializers:
        raise _misfit(bundle, f"other initializers: {', '.join(options.initializers)}")
    if options.data_files:
        raise _misfit(bundle, f"weights from memory: {', '.join(options.data_files)}")
    for kind in ("sizes", "denoted"):
        for name, size in wanted[kind].items():
            if has[kind].get(name) != size:
                raise _misfit(bundle, f"the size {name} = {size}")
    if has["winograd"] and not wanted["winograd"]:
        raise _misfit(bundle, "convolutions that are direct sums")
    if wanted["halves"] and not has["halves"]:
        raise _misfit(bundle, "products of bfloat16")
    if has["denormals"] and not wanted["denormals"]:
        raise _misfit(bundle, "zeros in place of denormal numbers")
    if wanted["denormals"] and not has["denormals"]:
        text = "%s was made with zeros in place of denormal numbers: its weights have none"
        _logger.warning(text, bundle.name)
    if set(wanted["without"]) - set(has["without"]):
        text = "%s was optimised when it was made: disabled optimisers have no effect"
        _logger.warning(text, bundle.name)
    if has["fuses"] and not wanted["fuses"]:
        text = "%s was optimised when it was made: ORT_DISABLE_ALL has no effect"
        _logger.warning(text, bundle.name)
    if wanted["branches"] and not has["branches"]:
        text = "%s was made without ORT_PARALLEL: branches run one after the other"
        _logger.warning(text, bundle.name)
    return replace(options, branches=options.branches if has["branches"] else None)


def _misfit(bundle: Bundle, what: str) -> InvalidArgument:
    return InvalidArgument(
        message(bundle.name, f"The bundle was made without {what}", do="Make one with it")
    )


def _engine(
    bundle: Bundle, plan: Mapping[str, Any], options: EngineOptions, budget: Budget, start: float
) -> Engine:
    record = bundle.record(plan)
    provider = CpuProvider()
    team = team_of(options.threads, options.branches, options.share, options.setup)
    constants = bundle.constants(plan["constants"], record, team.threads)
    budget.take(sum(c.nbytes for c in constants), "constants")
    code = bundle.code(plan["code"])
    executable = provider.executable(record.plan, code, constants, team, budget)
    bundle.checked()
    repeat_remarks(record)
    return engine_of(record, executable, {"from bundle": time.perf_counter() - start})


def _other(
    source: Any,
    identity: str,
    plans: Mapping[str, Mapping[str, Any]],
    options: EngineOptions,
    **changes: Any,
) -> Engine | None:
    """Another plan of the bundle.

    Raises:
        NotImplemented: It has none for this.
    """
    named = next((n for n in plans if changes == {n: True}), None)
    if named is None:
        raise errors.NotImplemented(
            message(
                "bundle", f"There is no plan for {_purpose(changes)}, and none is compiled",
                do="Make the bundle for such runs, or run the model",
            )
        )  # fmt: skip
    with Bundle(source) as bundle:
        if bundle.identity != identity:
            _logger.warning("%s was replaced: it has no other plans any more", bundle.name)
            return None
        budget = options.budget or Budget(options.memory_limit_bytes)
        return _engine(bundle, plans[named], options, budget, time.perf_counter())


_PURPOSES: dict[str, Callable[[Any], str]] = {
    "fed": lambda names: f"feeds of {', '.join(names)}",
    "fetched": lambda names: f"{', '.join(names)} alone",
    "ranks": lambda ranks: f"inputs of ranks {ranks}",
    "shapes": lambda shapes: f"tensors of shapes {shapes}",
    "ones": lambda _: "sizes of 1 that drop an axis",
    "general": lambda _: "feeds whose sizes contradict what the model says of them",
    "in_rooms": lambda _: "outputs that continue inputs",
}


def _purpose(changes: Mapping[str, Any]) -> str:
    return ", ".join(_PURPOSES[name](value) for name, value in changes.items() if value)
