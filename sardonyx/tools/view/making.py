"""From profiles and models to a page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.base.log import get_logger
from sardonyx.profiling.profile import Profile
from sardonyx.tools.view import comparing, document, placement
from sardonyx.tools.view.reading import events_of, is_profile, read_events
from sardonyx.tools.view.trace import Trace, trace_of

_logger = get_logger("view")
Path = str | os.PathLike[str]
#: Runs of a model in a profile, after one that is not in it.
_RUNS = 5


def page(
    *sources: Profile | Path,
    dims: Mapping[str, int] | None = None,
    runs: int = _RUNS,
    provider: str | None = None,
) -> str:
    """A page about one profile or two: HTML that needs no other file and no network.

    Args:
        sources: Each a `Profile`, the path of a profile of this engine or of onnxruntime, or the
            path of a model, which is run on random inputs. Two are compared.
        dims: For models, sizes of dimensions by name, or by INPUT.AXIS.
        runs: For models, how often they are run.
        provider: For models, where: `cpu` (the default), `cuda`, or onnxruntime's name of it.

    Raises:
        Fail: The charts' library (plotly) is not installed.
        InvalidArgument: There are none or more than two, or a file is neither.
        OSError: A file cannot be read.
    """
    if not 1 <= len(sources) <= 2:
        what = "A page is about one profile, or compares two"
        raise InvalidArgument(message("view", what, got=f"{len(sources)}"))
    if runs < 1:
        raise InvalidArgument(message("view", "A model is run at least once", got=str(runs)))
    document.library_text()
    parts = [_part(source, dims or {}, runs, provider) for source in sources]
    title = " against ".join(part["trace"]["title"] for part in parts)
    data: dict[str, Any] = {"profiles": parts}
    if len(parts) == 2:
        traces = [part.pop("columns") for part in parts]
        data["comparison"] = comparing.to_json(comparing.compare(*traces))
    for part in parts:
        part.pop("columns", None)
    return document.document(data, title)


def write_page(
    target: Path, *sources: Profile | Path, dims: Mapping[str, int] | None = None,
    runs: int = _RUNS, provider: str | None = None,
) -> None:  # fmt: skip
    """Write a page to a file, which appears when it is whole; see `page`."""
    from sardonyx.loader.external_writer import replacing

    text = page(*sources, dims=dims, runs=runs, provider=provider)
    with replacing(os.fspath(target)) as file:
        file.write(text.encode())


def _part(
    source: Profile | Path, dims: Mapping[str, int], runs: int, provider: str | None
) -> dict[str, Any]:
    """What the page knows of one source; `columns` is its trace as an object."""
    if isinstance(source, Profile):
        trace = trace_of(events_of(source), "profile")
        return _joined(trace, placement.placement_of_trace(trace), [])
    title = FilePath(source).name
    if is_profile(source):
        trace = trace_of(read_events(source), title)
        return _joined(trace, placement.placement_of_trace(trace), [])
    return _of_model(source, title, dims, runs, provider)


def _of_model(
    path: Path, title: str, dims: Mapping[str, int], runs: int, provider: str | None
) -> dict[str, Any]:
    from sardonyx.api.options import SessionOptions
    from sardonyx.api.session import InferenceSession
    from sardonyx.tools.feeds import random_feeds
    from sardonyx.tools.made_up import check_sizes, explained, input_sizes
    from sardonyx.tools.providers import only

    settings = SessionOptions()
    session = InferenceSession(path, settings, providers=only(settings, provider or "cpu"))
    inputs = session.get_inputs()
    check_sizes(inputs, dims)
    trace = Trace(title)
    remarks = []
    sizes = input_sizes(inputs, dims)
    try:
        feeds = random_feeds(inputs, dims)
        with explained(sizes, others=""):
            session.run(None, feeds)  # what only the first run does is not in the profile
        with session.profile() as profile:
            for _ in range(runs):
                session.run(None, feeds)
        trace = trace_of(events_of(profile), title)
        remarks += [told for told in [sizes.told()] if told]
    except SardonyxError as error:
        remarks.append(f"It was not run: {error}")
        _logger.warning("%s was not run, so the page has placement alone: %s", title, error)
    rows, lines = placement.placement_of_model(session, path)
    trace.remarks += remarks
    return _joined(trace, rows, lines)


def _joined(trace: Trace, rows: list[placement.Placed], lines: list[str]) -> dict[str, Any]:
    return {
        "trace": trace.to_json(),
        "placement": placement.to_json(rows),
        "explain": lines,
        "columns": trace,
    }
