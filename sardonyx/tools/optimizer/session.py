"""What a session writes to `optimized_model_filepath`."""

from __future__ import annotations

from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.compiler.options import EngineOptions
from sardonyx.loader.writer import EXTERNAL_THRESHOLD_BYTES, write
from sardonyx.passes.dimensions import fix_denoted
from sardonyx.tools.optimizer.model import open_model, optimize_graph, set_dimensions
from sardonyx.tools.targets import check_targets

_LEAST_KEY = "session.optimized_model_external_initializers_min_size_in_bytes"


def write_optimized(
    source: Any, path: str, options: EngineOptions, location: str = "", least: str = ""
) -> None:
    """Write a model as the session's level of optimisation leaves it, in ONNX's own operators.

    Args:
        source: What `loader.load` takes.
        path: The file to write.
        options: Of the session.
        location: The file that weights go to; "" for none, as long as the model has less than 2 GB.
        least: Weights of so many bytes go there; "" for 1024.

    Raises:
        InvalidArgument: `least` is no number, the file cannot have this name, or it is one of the
            model's own.
    """
    if least and not (least.isascii() and least.isdecimal() and len(least) < 19):
        raise InvalidArgument(message(_LEAST_KEY, "It is a number of bytes", got=least))
    check_targets(source, path)
    graph = open_model(
        source, folder=options.folder, initializers=options.initializers,
        data_files=options.data_files,
    )  # fmt: skip
    fix_denoted(graph, options.denoted_sizes, options.free_dimension_overrides)
    names = {repr(d) for v in graph.inputs for d in v.shape or () if not isinstance(d, int)}
    numbers = {k: v for k, v in options.free_dimension_overrides.items() if k in names}
    set_dimensions(graph, numbers)
    optimize_graph(graph, min(options.optimization_level, 1), without=options.without)
    external = (int(least) if least else EXTERNAL_THRESHOLD_BYTES) if location else None
    write(graph, path, external, location or None)
