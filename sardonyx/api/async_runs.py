"""Runs that are under way while their caller does something else: callbacks, `await`, pipelines."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.api import feeds as feeding
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session_facts import SessionFacts
from sardonyx.base.errors import InvalidArgument, SardonyxError, WrongType, message
from sardonyx.base.log import get_logger
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.run_threads import RunLane, Task, begin, lane_of
from sardonyx.runtime.storage import OutputPlacement

if TYPE_CHECKING:
    from sardonyx.api.pipeline import Pipeline
    from sardonyx.runtime.engine import Engine

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


class AsyncRuns(SessionFacts):
    """The part of `InferenceSession` that does not wait for its runs."""

    _lane: RunLane | None = None
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
        time work in streams of their own. On the processor threads of the package do it: 16 at most
        for one session, 64 for all, called `sardonyx-run`; further runs wait.

        Who cancels what awaits a run ends the run, as `terminate` of its options would: one that
        has not begun never does; one that has ends within milliseconds, and is waited for, so that
        its feeds and `out` are the caller's again. After 1 s (a function of Python may be in its
        way) it is left behind, with a warning in the log.

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
        options = options.ended_apart()
        names, feeds, given = output_names, input_feed, (out, timeout, stream)
        if callback is None:
            return self._awaited(names, feeds, options, *given)
        tell = callback

        def work() -> list[Any]:
            return self.run(names, feeds, options, out=out, timeout=timeout, stream=stream)

        def told(task: Task) -> None:
            try:
                results = task.result()
            except Exception as error:  # noqa: BLE001 - the callback gets every error
                tell([], user_data, str(error))
            else:
                tell(results, user_data, "")

        begin(self._own_lane(), work, options.cancel_flag, told)
        return None

    def _own_lane(self) -> RunLane:
        lane = self._lane = lane_of(self._lane)
        return lane

    def _in_a_thread(self, work: Callable[[], Any], flag: CancelFlag) -> Coroutine[Any, Any, Any]:
        """What gives, awaited, what the work gives; cancelled, it sets the flag."""
        return _in_a_thread(self._own_lane(), work, flag)

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

        # The processor needs a thread; so does a plan that the host controls, or an inner value.
        return self._in_a_thread(work, options.cancel_flag)

    async def _on_device(
        self, places: list[int], feeds: Mapping[str, Any], options: RunOptions, stream: Any
    ) -> list[Any]:
        convert = feeding.converter(feeds.values())
        engine, given = self._fed(options.with_adapters(feeds))
        targets: list[Any] = [self._kind] * len(self._output_names)
        for place in places:
            targets[place] = None if convert is None else self._kind
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
