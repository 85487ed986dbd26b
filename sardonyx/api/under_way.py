"""Runs that are under way while their caller does something else: callbacks, `await`, pipelines."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.api import feeds as feeding
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session_facts import SessionFacts
from sardonyx.base.errors import InvalidArgument, WrongType, message
from sardonyx.runtime.started import Started
from sardonyx.runtime.storage import Wanted

if TYPE_CHECKING:
    from sardonyx.api.pipeline import Pipeline
    from sardonyx.runtime.engine import Engine

#: So long a run that is awaited is asked for in turn with the loop's other tasks: a short one is
#: over before the device could wake the loop.
_ASKED_SECONDS = 1e-4
#: After a failure of a device the driver tells nobody: so often an awaited run is looked at.
_LOOK_SECONDS = 1.0


class UnderWay(SessionFacts):
    """The part of `InferenceSession` that does not wait for its runs."""

    _output_names: list[str]
    _every: list[int]
    run: Callable[..., list[Any]]
    _chosen: Callable[[Sequence[str]], tuple[Engine, list[int] | None]]
    _fed: Callable[[Mapping[str, Any]], tuple[Engine, list[Any]]]
    _run_into: Callable[..., list[Any]]

    def run_async(
        self,
        output_names: Sequence[str] | Mapping[str, Any] | None,
        input_feed: Mapping[str, Any] | None = None,
        callback: Callable[[list[Any], Any, str], None] | None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
        *,
        out: Sequence[Any] | None = None,
        timeout: float | None = None,
        stream: Any = None,
    ) -> Any:
        """Run while the caller goes on.

        With a callback: in another thread; `callback(results, user_data, error_text)` gets what
        `run` gives. Without one what is returned can be awaited:
        `await session.run_async({"x": x})`, or with names of outputs first. On a device no thread
        is held meanwhile: the device itself wakes the event loop. Runs that are awaited at the same
        time work in streams of their own.

        Args:
            output_names: Which outputs; None for all. Feeds may stand here, with names left out.
            input_feed: As `run` takes them. They must not change before the run is over. If one is
                missing, that is an error at once; other errors come with the run.
            callback: Gets the results.
            user_data: Is passed to it.
            run_options: As of `run`.
            out: As of `run`.
            timeout: As of `run`.
            stream: As of `run`.

        Returns:
            None; or what gives, awaited, NumPy arrays, or arrays of the library whose arrays are
            fed, on the session's device.

        Raises:
            InvalidArgument: A feed is missing, the options are none or name memory that the session
                does not have, the callback is no function, or there is a stream on the processor.
        """
        if isinstance(output_names, Mapping):
            output_names, input_feed = None, output_names
        if input_feed is None:
            raise InvalidArgument(message("run_async", "There are no feeds"))
        if callback is not None and not callable(callback):
            got = type(callback).__name__
            raise WrongType(message("run_async", "The callback is no function", got=got))
        feeding.check_mapping(input_feed)
        options = RunOptions() if run_options is None else self._checked(run_options)
        self._check_stream(stream)
        feeding.check_complete(self._engine.inputs, options.with_adapters(input_feed))
        names, feeds, given = output_names, input_feed, (out, timeout, stream)
        if callback is None:
            return self._awaited(names, feeds, options, *given)
        tell = callback

        def work() -> None:
            try:
                results = self.run(
                    names, feeds, run_options, out=out, timeout=timeout, stream=stream
                )
            except Exception as error:  # noqa: BLE001 - the callback gets every error
                tell([], user_data, str(error))
            else:
                tell(results, user_data, "")

        threading.Thread(target=work, daemon=True).start()
        return None

    def _awaited(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        options: RunOptions,
        out: Sequence[Any] | None,
        timeout: float | None,
        stream: Any,
    ) -> Coroutine[Any, Any, list[Any]]:
        engine, chosen = (self._engine, None) if names is None else self._chosen(names)
        places = self._every if chosen is None else chosen
        has_limit = timeout is not None or options.timeout_seconds is not None
        is_plain = engine is self._engine and out is None and not has_limit
        if is_plain and not self._is_on_host and engine.is_asynchronous:
            return self._on_device(places, feeds, options, stream)

        def work() -> list[Any]:
            convert = feeding.converter(feeds.values())
            if convert is None or self._is_on_host:
                found = self.run(names, feeds, options, out=out, timeout=timeout, stream=stream)
            else:
                found = self._run_into(
                    engine, feeds, chosen, out, options, timeout, stream, self._kind
                )
                if options.is_left:
                    engine.settle()
            if convert is None:
                return found
            held = [None] * len(found) if out is None else out
            return [
                feeding.like_feeds(convert, x) if mine is None else x
                for x, mine in zip(found, held, strict=True)
            ]

        # The processor needs a thread; so does a plan that the host steers, or an inner value.
        return _in_a_thread(work)

    async def _on_device(
        self, places: list[int], feeds: Mapping[str, Any], options: RunOptions, stream: Any
    ) -> list[Any]:
        convert = feeding.converter(feeds.values())
        engine, given = self._fed(options.with_adapters(feeds))
        targets: list[Any] = [self._kind] * len(self._output_names)
        for place in places:
            targets[place] = None if convert is None else self._kind
        with options.graph():
            started = engine.start(given, Wanted(targets, stream, waits=False), options.cancel_flag)
        await _until_over(started)
        results = started.finish()
        del started  # else it had memory that is given back
        self._after_run(options)
        found = [results[place] for place in places]
        return found if convert is None else [feeding.like_feeds(convert, x) for x in found]

    def pipeline(self, depth: int = 3) -> Pipeline:
        """Runs one after another, with copies to the device, work and copies back overlapping.

        See `Pipeline`; its runs have no options, time limit or stream of the caller's.

        Args:
            depth: How many runs are under way at once.

        Raises:
            InvalidArgument: The depth is no number from 1 to 64.
        """
        from sardonyx.api.pipeline import Pipeline

        return Pipeline(self, depth)


async def _in_a_thread(work: Callable[[], list[Any]]) -> list[Any]:
    import asyncio  # programs that await have it

    return await asyncio.get_running_loop().run_in_executor(None, work)


async def _until_over(started: Started) -> None:
    """Wait for a run in the event loop: the device closes one end of a pipe when it is over."""
    import asyncio

    deadline = time.perf_counter() + _ASKED_SECONDS
    while time.perf_counter() < deadline:
        if started.is_over:
            return
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    try:
        is_told = False
        try:
            is_told = started.close_when_over(writing)
        finally:
            if not is_told:
                os.close(writing)
        if not is_told:
            return
        closed = asyncio.Event()
        loop.add_reader(reading, closed.set)
        try:
            # Whether or not it fails, the other end is the driver's to close.
            while not closed.is_set() and not started.is_over:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(closed.wait(), _LOOK_SECONDS)
        finally:
            loop.remove_reader(reading)
    finally:
        os.close(reading)
