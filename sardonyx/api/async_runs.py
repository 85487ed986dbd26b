"""Runs that are under way while their caller does something else: callbacks, `await`, pipelines."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sardonyx.api import feeds as feeding
from sardonyx.api.array_runs import ArrayRuns, CallOptions
from sardonyx.api.run_options import RunOptions
from sardonyx.base.errors import InvalidArgument, SardonyxError, WrongType, message
from sardonyx.base.log import get_logger
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.run_threads import RunLane, Task, begin, lane_of
from sardonyx.runtime.storage import OutputPlacement

_logger = get_logger("async")

#: So long a run that is awaited is asked for in turn with the loop's other tasks: a short one is
#: over before the device could wake the loop.
_ASKED_SECONDS = 1e-4
#: After a failure of a device the driver tells nobody: so often an awaited run is looked at.
_LOOK_SECONDS = 1.0
#: So long a cancelled run may take to end: then nobody waits for it, and what it has of the
#: caller's memory is in use still. Kernels end in a few milliseconds, functions of Python need not.
_END_SECONDS = 1.0
_STEP_SECONDS = 1e-3


class Callback(NamedTuple):
    """Who is told of a run that is over, and with what of the caller's."""

    function: Callable[[list[Any], Any, str], None]
    user_data: Any

    def told(self, task: Task) -> None:
        """Tell what a task gave, or what went wrong."""
        try:
            results = task.result()
        except Exception as error:  # noqa: BLE001 - the callback gets every error
            self.function([], self.user_data, str(error))
        else:
            self.function(results, self.user_data, "")


class AsyncRuns:
    """The part of `InferenceSession` that does not wait for its runs.

    Args:
        runs: With arrays.
    """

    def __init__(self, runs: ArrayRuns) -> None:
        self._runs = runs
        self._lane: RunLane | None = None

    def begin(
        self,
        names: Sequence[str] | Mapping[str, Any] | None,
        feeds: Mapping[str, Any] | None,
        callback: Callback | None,
        call: CallOptions,
    ) -> Any:
        """See `InferenceSession.run_async`.

        Raises:
            InvalidArgument: A feed is missing, the options are none or name memory that the session
                does not have, the callback is no function, or there is a stream on the processor.
        """
        if isinstance(names, Mapping):
            names, feeds = None, names
        if feeds is None:
            raise InvalidArgument(message("run_async", "There are no feeds"))
        if callback is not None and not callable(callback.function):
            got = type(callback.function).__name__
            raise WrongType(message("run_async", "The callback is no function", got=got))
        feeding.check_mapping(feeds)
        given = call.run_options
        options = RunOptions() if given is None else self._runs.checked(given)
        self._runs.check_stream(call.stream)
        feeding.check_complete(self._runs.loaded.engine.inputs, options.with_adapters(feeds))
        options = options.ended_apart()
        call = call._replace(run_options=options)
        if callback is None:
            return self._awaited(names, feeds, options, call)
        work = partial(self._runs.run, names, feeds, call)
        begin(self._own_lane(), work, options.cancel_flag, callback.told)
        return None

    def _own_lane(self) -> RunLane:
        lane = self._lane = lane_of(self._lane)
        return lane

    def in_a_thread(self, work: Callable[[], Any], flag: CancelFlag) -> Coroutine[Any, Any, Any]:
        """What gives, awaited, what the work gives; cancelled, it sets the flag."""
        return _in_a_thread(self._own_lane(), work, flag)

    def _awaited(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        options: RunOptions,
        call: CallOptions,
    ) -> Coroutine[Any, Any, list[Any]]:
        runs, loaded = self._runs, self._runs.loaded
        engine, chosen = (loaded.engine, None) if names is None else runs.chosen(names)
        places = loaded.every if chosen is None else chosen
        has_limit = call.timeout is not None or options.timeout_seconds is not None
        is_plain = engine is loaded.engine and call.out is None and not has_limit
        if is_plain and not loaded.is_on_host and engine.is_asynchronous:
            return self._on_device(places, feeds, options, call.stream)

        def work() -> list[Any]:
            convert = feeding.converter(feeds.values())
            if convert is None or loaded.is_on_host:
                found = runs.run_chosen(engine, chosen, feeds, call)
            else:
                found = runs.run_into(engine, chosen, feeds, call, loaded.kind)
                if options.is_left:
                    engine.settle()
            if convert is None:
                return found
            held = [None] * len(found) if call.out is None else call.out
            return [
                feeding.like_feeds(convert, x) if mine is None else x
                for x, mine in zip(found, held, strict=True)
            ]

        # The processor needs a thread; so does a plan that the host controls, or an inner value.
        return self.in_a_thread(work, options.cancel_flag)

    async def _on_device(
        self, places: list[int], feeds: Mapping[str, Any], options: RunOptions, stream: Any
    ) -> list[Any]:
        convert = feeding.converter(feeds.values())
        runs, loaded = self._runs, self._runs.loaded
        engine, given = runs.fed(options.with_adapters(feeds))
        targets: list[Any] = [loaded.kind] * len(loaded.output_names)
        for place in places:
            targets[place] = None if convert is None else loaded.kind
        with options.graph():
            started = engine.start(
                given, OutputPlacement(targets, stream, waits=False), options.cancel_flag
            )
        try:
            await _until_over(started)
        except BaseException as error:
            options.cancel_flag.set()
            if not isinstance(error, GeneratorExit):
                await _ended(started)
            raise
        results = started.finish()
        del started  # else it had memory that is given back
        runs.after_run(options)
        found = [results[place] for place in places]
        return found if convert is None else [feeding.like_feeds(convert, x) for x in found]


async def _in_a_thread(lane: RunLane, work: Callable[[], Any], flag: CancelFlag) -> Any:
    import asyncio  # programs that await have it

    loop, over = asyncio.get_running_loop(), asyncio.Event()
    # The event refers to who waits for it: of a loop that has stopped the thread keeps nothing.
    known = weakref.ref(over)

    def tell(_task: Task) -> None:
        event = known()
        if event is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(event.set)

    task = begin(lane, work, flag, tell)
    try:
        await over.wait()
    except BaseException as error:
        if not task.cancel() and not isinstance(error, GeneratorExit):
            try:
                await asyncio.wait_for(over.wait(), _END_SECONDS)
            except TimeoutError:
                _logger.warning("%s", _LEFT_BEHIND)
        raise
    return task.result()


_LEFT_BEHIND = (
    "a cancelled run has not ended: what is fed to it, and what it writes to, is in use still"
)


async def _ended(started: AsyncRun) -> None:
    """Wait until a run of a device that is to end has ended; nobody wants what it gives."""
    import asyncio

    deadline = time.perf_counter() + _END_SECONDS
    while not started.is_over:
        if time.perf_counter() > deadline:
            _logger.warning("%s", _LEFT_BEHIND)
            return
        await asyncio.sleep(_STEP_SECONDS)
    try:
        started.finish()
    except SardonyxError as error:
        _logger.debug("a cancelled run ended: %s", error)


async def _until_over(started: AsyncRun) -> None:
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
