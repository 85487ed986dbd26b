"""`session.pipeline()`: a row of runs, each copied to the device while others work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.started import Started
from sardonyx.runtime.storage import Wanted, place

if TYPE_CHECKING:
    from sardonyx.api.under_way import UnderWay

#: More runs at once than any device has use for.
_MOST = 64


class Pipeline:
    """Runs with the same model, one after another, of which some are under way at once.

    On a device a run's feeds are brought in one stream, and its results taken back in another,
    while the runs before and after it work: what takes longest of copying in, computing and copying
    out decides. Feeds and results in pinned memory (`OrtMemoryInfo("CudaPinned", ...)`) are copied
    by the device, also where they are parts of larger arrays, such as tiles of an image; others
    cost the caller's thread a copy. On the processor one run follows the other.

        with session.pipeline(depth=3) as pipe:
            for result in pipe.map(tiles):
                ...

    Args:
        session: Whose model runs.
        depth: How many runs are under way at once; each has memory of its own.

    Raises:
        InvalidArgument: The depth is no number from 1 to 64.
    """

    def __init__(self, session: UnderWay, depth: int = 3) -> None:
        if not isinstance(depth, int) or not 1 <= depth <= _MOST:
            what = "The depth is not possible"
            raise InvalidArgument(
                message("pipeline", what, expected=f"1 to {_MOST}", got=repr(depth))
            )
        self._session = session
        self._depth = 1 if session._is_on_host else depth
        self._conveyor: Any = None
        self._under_way: deque[Started] = deque()

    def __enter__(self) -> Pipeline:
        if not self._session._is_on_host and self._conveyor is None:
            from sardonyx.cuda.conveyor import Conveyor

            self._conveyor = Conveyor(self._session._kind)  # type: ignore[arg-type]  # it is no host's
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what is under way; its results are not given to anyone."""
        try:
            while self._under_way:
                self._under_way.popleft().finish()
        finally:
            self._under_way.clear()
            if self._conveyor is not None:
                self._conveyor.close()
                self._conveyor = None

    def map(self, tiles: Iterable[Any], into: Iterable[Any] | None = None) -> Iterator[Any]:
        """The results for each of a row of feeds, in order.

        A feed is taken when there is room for its run, so `tiles` may be a generator; it must not
        change before its results have come.

        Args:
            tiles: For each run an array, if the model has one input; arrays for all inputs, as a
                tuple; or a dict by name.
            into: For each run an array that its result is written to, or a tuple of them; they may
                be parts of larger arrays.

        Returns:
            An iterator over NumPy arrays; tuples of them if there are several outputs.

        Raises:
            InvalidArgument: A feed does not fit, or `into` has fewer entries.
        """
        under_way = self._under_way
        targets: Iterator[Any] = repeat(None) if into is None else iter(into)
        for tile in tiles:
            try:
                target = next(targets)
            except StopIteration:
                what = "There are fewer places for results than feeds"
                raise InvalidArgument(message("pipeline", what)) from None
            under_way.append(self._start(tile, target))
            if len(under_way) >= self._depth:
                yield _alone(under_way.popleft().finish())
        while under_way:
            yield _alone(under_way.popleft().finish())

    def _start(self, tile: Any, target: Any) -> Started:
        session = self._session
        engine, given = session._fed(self._named(tile))
        outputs = self._targets(target)
        if self._conveyor is not None:
            started: Started = self._conveyor.start(engine, given, outputs)
            return started
        results = engine.run_to(given, Wanted([None] * len(outputs)))
        rows = zip(session._output_names, outputs, results, strict=True)
        return Started([_placed(name, to, found) for name, to, found in rows])

    def _named(self, tile: Any) -> Mapping[str, Any]:
        if isinstance(tile, Mapping):
            return tile
        names = [v.name for v in self._session._engine.inputs]
        values = tile if isinstance(tile, tuple) else (tile,)
        if len(values) != len(names):
            what = "The number of feeds is wrong"
            raise InvalidArgument(
                message("pipeline", what, expected=str(names), got=str(len(values)))
            )
        return dict(zip(names, values, strict=True))

    def _targets(self, target: Any) -> list[Any]:
        count = len(self._session._output_names)
        if target is None:
            return [None] * count
        found = list(target) if isinstance(target, (tuple, list)) else [target]
        if len(found) != count or not all(isinstance(t, np.ndarray) for t in found):
            what = "Results need an array for each output"
            raise InvalidArgument(message("pipeline", what, expected=str(count), got=repr(target)))
        return found


def _placed(name: str, target: Any, found: Any) -> Any:
    return found if target is None else place(name, target, found)


def _alone(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)
