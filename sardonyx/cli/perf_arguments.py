"""The flags of `sardonyx perf`: onnxruntime_perf_test's, each with a name that can be read."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cli.arguments import (
    MOST_BYTES,
    MOST_THREADS,
    add_dimensions,
    add_provider,
    add_seed,
    add_threads,
    real,
    sizes_of,
    whole,
)
from sardonyx.tools.perf.settings import LEVELS, PerfSettings

_DEFAULTS = PerfSettings()
_NO_LIBRARIES = "libraries of operators and providers made for onnxruntime cannot be loaded"
_NO_CONTEXTS = "compiled code is kept in the cache, not in models"

#: Flags of onnxruntime_perf_test without a meaning here, and why.
REFUSED = {
    ("-z",): "denormal numbers are always kept",
    ("-R", "--register_custom_op_lib"): _NO_LIBRARIES,
    ("-X", "--use_extensions"): _NO_LIBRARIES,
    ("--plugin_ep_libs",): _NO_LIBRARIES,
    ("--plugin_eps",): _NO_LIBRARIES,
    ("--plugin_ep_options",): _NO_LIBRARIES,
    ("--select_ep_devices",): "name a provider with -e, its device with -i 'device_id|N'",
    ("--filter_ep_devices",): "name a provider with -e, its device with -i 'device_id|N'",
    ("--compile_ep_context",): _NO_CONTEXTS,
    ("--compile_model_path",): _NO_CONTEXTS,
    ("--compile_binary_embed",): _NO_CONTEXTS,
    ("--opt_save_prepacks",): _NO_CONTEXTS,
    ("--enable_cuda_mempool",): "memory of the device comes from arenas of our own",
}

_ALGORITHMS = {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}


class _Refuse(argparse.Action):
    """Ends with the reason."""

    def __init__(self, reason: str, **kwargs: Any) -> None:
        super().__init__(nargs="?", help=argparse.SUPPRESS, **kwargs)
        self._reason = reason

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, flag: Any = None
    ) -> NoReturn:
        parser.error(f"{flag} is not supported: {self._reason}")


def _pairs(separator: str, what: str) -> Callable[[str], list[tuple[str, str]]]:
    """Of a text such as `key|value key|value`."""

    def parse(text: str) -> list[tuple[str, str]]:
        found = [part.partition(separator) for part in text.split()]
        if not found or not all(key and mark for key, mark, _ in found):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return [(key, value) for key, _, value in found]

    return parse


def add_perf_arguments(parser: argparse.ArgumentParser) -> None:
    """All of them, in groups."""
    parser.epilog = (
        "Flags are those of onnxruntime_perf_test. Example: sardonyx perf model.onnx -t 5 "
        "--against onnxruntime"
    )
    parser.add_argument("model", nargs="?", help="the ONNX file")
    parser.add_argument(
        "result", nargs="?", help="where results go: JSON if it ends in .json, else lines of CSV"
    )
    _add_length(parser.add_argument_group("how long"))
    _add_inputs(parser.add_argument_group("inputs"))
    _add_engine(parser.add_argument_group("how the model runs"))
    _add_results(parser.add_argument_group("results"))
    for flags, reason in REFUSED.items():
        name = flags[0].strip("-")
        parser.add_argument(*flags, action=_Refuse, reason=reason, dest=f"refused_{name}")


def _add_length(group: Any) -> None:
    add = group.add_argument
    add("-m", "--mode", choices=("duration", "times"), help="what ends it (duration; -r: times)")
    add("-t", "--seconds", type=real(above=True), metavar="S", help="how long (10)")
    add("-r", "--times", type=whole(1), metavar="N", help="how many requests (1000 with -m times)")
    add(
        "--warmup",
        type=whole(1),
        default=1,
        metavar="N",
        help="requests before those that count (1)",
    )
    add(
        "-c",
        "--concurrency",
        type=whole(1, 4096),
        default=1,
        metavar="N",
        help="requests at once (1)",
    )
    add("--against", metavar="MODULE", help="a module with onnxruntime's names, in turns")
    add("--rounds", type=whole(1, 10**6), metavar="N", help="turns of each, with --against (10)")


def _add_inputs(group: Any) -> None:
    add = group.add_argument
    add(
        "-I",
        "--generate",
        action="store_true",
        help="make inputs up, even if there are folders test_data_set_N beside the model",
    )
    add("--inputs", default="", metavar="FILE.npz", help="arrays by input name")
    add("--data", default="", metavar="FOLDER", help="has the folders test_data_set_N")
    add_seed(group, "-S")
    add_dimensions(group)
    add(
        "-F",
        "--free-denotation",
        action="append",
        default=[],
        metavar="WHAT:N",
        help="size of dimensions by what they denote",
    )
    add(
        "--tolerance",
        type=real(),
        default=_DEFAULTS.tolerance,
        metavar="X",
        help="relative error allowed against expected outputs in test_data_set_N (0.001)",
    )


def _add_engine(group: Any) -> None:
    add = group.add_argument
    pairs = _pairs("|", "'key|value key|value'")
    add_provider(group)
    add(
        "-i",
        "--provider-options",
        type=pairs,
        action="append",
        default=[],
        metavar="'KEY|VALUE ...'",
        help="options of the provider",
    )
    add_threads(group)
    add(
        "-y",
        "--inter-threads",
        type=whole(0, MOST_THREADS),
        default=0,
        metavar="N",
        help="branches at once, with -P",
    )
    add("-P", "--parallel", action="store_true", help="independent branches may run at once")
    add("-o", "--level", type=int, choices=LEVELS, default=99, help="of optimisation (99)")
    add(
        "-C",
        "--config",
        type=pairs,
        action="append",
        default=[],
        metavar="'KEY|VALUE ...'",
        help="entries of the session's configuration",
    )
    add("-u", "--optimized-model", default="", metavar="FILE", help="write the optimised model")
    add("--opt_data", "--opt-data", metavar="FILE", help="with -u: where its weights go")
    add(
        "--opt_weight_min_size",
        "--opt-weight-min-size",
        type=whole(0, MOST_BYTES),
        metavar="BYTES",
        help="with --opt_data: which weights go there",
    )
    add("-A", "--no-arena", action="store_true", help="give memory back after each run")
    add("-M", "--no-pattern", action="store_true", help="no plan of memory (a hint)")
    add(
        "--shrink_arena_between_runs",
        "--shrink-arena",
        metavar="'cpu:0;gpu:0'",
        help="whose memory is given back after each run",
    )
    add("-d", "--cudnn-search", choices=_ALGORITHMS, help="0 exhaustive, 1 heuristic, 2 default")
    add("-q", "--copy-stream", action="store_true", help="copies in streams of their own, on a GPU")
    add("-b", "-g", "--binding", action="store_true", help="inputs and outputs are bound once")
    add("-D", "--no-spin", action="store_true", help="threads that wait do not spin")
    add("-Z", "--no-spin-between", action="store_true", help="nor between runs")
    add("-T", "--affinity", metavar="LIST", help="processors of threads (a hint)")
    add("-l", "--from-memory", action="store_true", help="read the file into memory first")


def _add_results(group: Any) -> None:
    add = group.add_argument
    add("-s", "--statistics", action="store_true", help="print percentiles, with RESULT too")
    add("-p", "--profile", default="", metavar="PREFIX", help="write a profile of all runs")
    add("-n", "--load-only", action="store_true", help="end when the session is made")
    add("-v", "--verbose", action="store_true", help="log all that the engine does")
    add("--list_ep_devices", "--list-devices", action="store_true", help="print devices, and end")


def settings_of(options: argparse.Namespace) -> PerfSettings:
    """What flags say.

    Raises:
        InvalidArgument: A value is none that the setting takes.
    """
    _check_together(options)
    config = _joined(options.config)
    if options.no_spin:
        config["session.intra_op.allow_spinning"] = "0"
        config["session.inter_op.allow_spinning"] = "0"
    if options.no_spin_between:
        config["session.force_spinning_stop"] = "1"
    if options.affinity:
        config["session.intra_op_thread_affinities"] = options.affinity
    if options.opt_data:
        config["session.optimized_model_external_initializers_file_name"] = options.opt_data
    if options.opt_weight_min_size is not None:
        key = "session.optimized_model_external_initializers_min_size_in_bytes"
        config[key] = str(options.opt_weight_min_size)
    provider_options = _joined(options.provider_options)
    if options.cudnn_search:
        provider_options["cudnn_conv_algo_search"] = _ALGORITHMS[options.cudnn_search]
    if options.copy_stream:
        provider_options["do_copy_in_default_stream"] = "0"
    shrink = options.shrink_arena_between_runs
    mode = options.mode or ("times" if options.times is not None else "duration")
    times = 1000 if options.times is None else options.times
    return PerfSettings(
        provider=options.provider, provider_options=provider_options,
        seconds=_DEFAULTS.seconds if options.seconds is None else options.seconds,
        times=times if mode == "times" else 0,
        warmup=options.warmup, concurrency=options.concurrency,
        intra_threads=options.threads, inter_threads=options.inter_threads,
        parallel=options.parallel, level=options.level,
        free_dims=sizes_of(options.dim, "-f"),
        free_denotations=sizes_of(options.free_denotation, "-F"),
        config=config,
        run_config={"memory.enable_memory_arena_shrinkage": shrink} if shrink else {},
        profile=options.profile, optimized_model=options.optimized_model,
        arena=not options.no_arena, pattern=not options.no_pattern, binding=options.binding,
        from_memory=options.from_memory, verbose=options.verbose,
        generate=options.generate, seed=options.seed, inputs=options.inputs, data=options.data,
        tolerance=options.tolerance,
    )  # fmt: skip


def _check_together(options: argparse.Namespace) -> None:
    """Refuse flags that change nothing without another one."""
    needs: list[tuple[str, Any, str, Any]] = [
        ("--opt_data", options.opt_data, "-u", options.optimized_model),
        ("--opt_weight_min_size", options.opt_weight_min_size, "--opt_data", options.opt_data),
        ("--rounds", options.rounds, "--against", options.against),
        ("-y", options.inter_threads or None, "-P", options.parallel or None),
    ]
    for flag, value, other, wanted in needs:
        if value is not None and not wanted:
            raise InvalidArgument(message(flag, f"It has no effect without {other}"))


def _joined(lists: Sequence[Sequence[tuple[str, str]]]) -> dict[str, str]:
    return {key: value for pairs in lists for key, value in pairs}
