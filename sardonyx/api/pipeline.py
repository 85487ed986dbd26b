"""`session.pipeline()`: a row of runs, each copied to the device while others work."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from sardonyx.api import feeds as feeding
from sardonyx.api.parts import async_runs_of, runs_of
from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.base.log import get_logger
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.overlaps import reads_written
from sardonyx.runtime.storage import OutputPlacement

if TYPE_CHECKING:
    from sardonyx.api.async_runs import AsyncRuns
    from sardonyx.api.session import InferenceSession

_logger = get_logger("pipeline")
#: More runs at once than any device has use for.
_MOST = 64


class _Row:
    """Runs of one `map` that are under way, the first one first."""

    __slots__ = ("flag", "is_ended", "runs")

    def __init__(self) -> None:
        self.runs: deque[_Given] = deque()
        self.is_ended = False
        self.flag = CancelFlag()

    def end(self) -> None:
        """End the runs, and drop their results: what is wrong with them is nobody's."""
        self.is_ended = True
        self.flag.set()
        while self.runs:
            try:
                self.runs.popleft().finish()
            except SardonyxError as error:
                _logger.info("a run whose result nobody took failed: %s", error)


class Pipeline:
    """Runs with the same model, one after another, of which some are under way at once.

    On a device a run's feeds are brought in one stream, and its results taken back in another,
    while the runs before and after it work: what takes longest of copying in, computing and copying
    out decides. Feeds and results in pinned memory (`OrtMemoryInfo("CudaPinned", ...)`) are copied
    by the device, also where they are parts of larger arrays, such as tiles of an image; others
    cost the caller's thread a copy. What lies on the device stays where it is. On the processor,
    and where the host controls a run (sizes from data), one follows the other.

        with session.pipeline(depth=3) as pipe:
            for result in pipe.map(tiles):
                ...

    The `with` block keeps the streams of copies from one `map` to the next; at its end it waits for
    what is under way. Without one each `map` has streams of its own. The streams of runs are the
    session's, and runs have no options and no limit of time: `run_async` has `stream` and
    `run_options`.

    Args:
        session: Whose model runs.
        depth: How many runs of a `map` are under way at once; each has memory of its own.

    Raises:
        InvalidArgument: The depth is no number from 1 to 64.
    """

    def __init__(self, session: InferenceSession, depth: int = 3) -> None:
        if not isinstance(depth, int) or not 1 <= depth <= _MOST:
            what = "The depth is not possible"
            raise InvalidArgument(
                message("pipeline", what, expected=f"1 to {_MOST}", got=repr(depth))
            )
        self._session, self._runs = session, runs_of(session)
        # Faults of runs that have happened already would come before the results of earlier ones.
        self._depth = depth if self._runs.loaded.engine.is_asynchronous else 1
        self._copy_streams: Any = None
        self._is_kept = False
        self._rows: list[_Row] = []

    def __enter__(self) -> Pipeline:
        self._is_kept = True
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what is under way; its results are not given to anyone."""
        self._is_kept = False
        for row in list(self._rows):
            self._end(row)
        self._close()

    def map(self, tiles: Iterable[Any], into: Iterable[Any] | None = None) -> Results:
        """The results for each of a row of feeds, in order, for `for` and `async for`.

        A feed is taken when there is room for its run, so `tiles` may be a generator; it must not
        change before its results have come. Several rows may be under way, and none sees results of
        another. A row ends with its feeds, with an error, when the iterator is dropped or closed,
        when an `async for` is cancelled, or with the `with` block, in whatever thread that ends:
        runs whose results nobody has taken are ended, and what they gave is dropped.

        Args:
            tiles: For each run an array, if the model has one input; arrays for all inputs, as a
                tuple; or a dict by name. They may lie anywhere, as feeds of `run` do.
            into: For each run what its result is written to, or a tuple with that, or None, for
                each output (runs may have a place in common, and write there in their order; a
                feed may be what an earlier run writes): an array, which may be a part of a larger
                one, an `OrtValue`, or an array of another library, on any device. None gives a new
                NumPy array.

        Returns:
            An iterator over results (see `Results`), tuples of them if there are several outputs:
            what `into` has, or, where that is larger than a result, an array (`OrtValue` on a
            device) on its first part; else NumPy arrays.

        Raises:
            InvalidArgument: A feed or a target does not fit, or `into` has fewer entries; two
                targets of a run overlap; or the `with` block has ended before the row.
        """
        row = _Row()
        return Results(async_runs_of(self._session), row.flag, self._results(row, tiles, into))

    def _results(
        self, row: _Row, tiles: Iterable[Any], into: Iterable[Any] | None
    ) -> Generator[Any, None, None]:
        self._rows.append(row)
        targets: Iterator[Any] = repeat(None) if into is None else iter(into)
        try:
            for tile in tiles:
                try:
                    target = next(targets)
                except StopIteration:
                    what = "There are fewer places for results than feeds"
                    raise InvalidArgument(message("pipeline", what)) from None
                row.runs.append(self._start(tile, target, row))
                if len(row.runs) >= self._depth:
                    yield _alone(row.runs.popleft().finish())
                    _check_open(row)
            while row.runs:
                yield _alone(row.runs.popleft().finish())
                _check_open(row)
        finally:
            self._end(row)

    def _end(self, row: _Row) -> None:
        row.end()
        if row in self._rows:
            self._rows.remove(row)
        if not self._rows and not self._is_kept:
            self._close()

    def _close(self) -> None:
        copy_streams, self._copy_streams = self._copy_streams, None
        if copy_streams is not None:
            copy_streams.close()

    def _start(self, tile: Any, target: Any, row: _Row) -> _Given:
        loaded = self._runs.loaded
        engine, given = self._runs.fed(self._named(tile))
        asked = self._asked(target)
        targets = feeding.targets(asked, loaded.engine.record.outputs)
        if loaded.is_on_host:
            results = engine.run_to(given, OutputPlacement(targets), row.flag)
            return _Given(AsyncRun(results), targets, asked)
        if reads_written(given, (x for run in row.runs for x in run.targets)):
            for run in row.runs:  # the feed is what they write
                run.finish()
        if self._copy_streams is None:
            from sardonyx.cuda.run.copy_streams import CopyStreams

            self._copy_streams = CopyStreams(loaded.kind)  # type: ignore[arg-type]  # it is no host's
        return _Given(self._copy_streams.start(engine, given, targets, row.flag), targets, asked)

    def _named(self, tile: Any) -> Mapping[str, Any]:
        if isinstance(tile, Mapping):
            return tile
        names = [v.name for v in self._runs.loaded.engine.inputs]
        values = tile if isinstance(tile, tuple) else (tile,)
        if len(values) != len(names):
            what = "The number of feeds is wrong"
            raise InvalidArgument(
                message("pipeline", what, expected=str(names), got=str(len(values)))
            )
        return dict(zip(names, values, strict=True))

    def _asked(self, target: Any) -> Sequence[Any] | None:
        """A target for each output, as the caller gave them; None if all are new arrays."""
        if target is None:
            return None
        found = target if isinstance(target, (tuple, list)) else [target]
        count = len(self._runs.loaded.output_names)
        if len(found) != count:
            what, got = "Results need a place for each output", str(len(found))
            raise InvalidArgument(message("pipeline", what, expected=str(count), got=got))
        return found


class Results:
    """What a row of runs gives: an iterator, for `for` and `async for`.

    An `async for` waits in a thread of the package, as `run_async` does; who cancels it ends the
    runs that are under way.
    """

    def __init__(
        self, runs: AsyncRuns, flag: CancelFlag, results: Generator[Any, None, None]
    ) -> None:
        self._runs, self._flag, self._results = runs, flag, results

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._results)

    def close(self) -> None:
        """End the row: runs that are under way end, and their results are dropped."""
        self._flag.set()
        state = inspect.getgeneratorstate(self._results)
        if state != inspect.GEN_RUNNING:  # else the thread that waits for results ends it
            self._results.close()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next results."""
        found = await self._runs.in_a_thread(lambda: next(self._results, self), self._flag)
        if found is self:
            raise StopAsyncIteration
        return found

    async def aclose(self) -> None:
        """`close`, without making the event loop wait."""
        await self._runs.in_a_thread(self.close, self._flag)


class _Given(AsyncRun):
    """A run whose results are what the caller gave for them."""

    def __init__(
        self, started: AsyncRun, targets: Sequence[Any], asked: Sequence[Any] | None
    ) -> None:
        super().__init__([])
        self._started, self.targets, self._asked = started, targets, asked

    def finish(self) -> list[Any]:
        """See `AsyncRun.finish`."""
        return feeding.given_back(self._started.finish(), self.targets, self._asked)


def _check_open(row: _Row) -> None:
    """Refuse to go on with a row whose runs were dropped.

    Raises:
        InvalidArgument: The `with` block has ended.
    """
    if row.is_ended:
        what = "The `with` block has ended, and the results that were left were dropped"
        raise InvalidArgument(message("pipeline", what, do="Take them before it ends"))


def _alone(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)
