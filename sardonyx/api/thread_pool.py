"""Threads that sessions share."""

from __future__ import annotations

import re
from typing import Any

from sardonyx.api.config_keys import AFFINITY_KEY, DENORMAL_KEY, SPIN_KEY, SPIN_TIME_KEY
from sardonyx.api.enums import ExecutionMode
from sardonyx.api.options import SessionOptions
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import Fail, InvalidArgument, message
from sardonyx.base.notes import note
from sardonyx.runtime.thread_setup import (
    ACTIVE_SPIN_NS,
    CreateThread,
    JoinThread,
    ThreadSetup,
    changed,
    checked_function,
    read_affinities,
)

#: How long threads wait awake at most, whatever an entry says.
_LONGEST_AWAKE_NS = 100_000_000

#: Of the threads that sessions share, and of their branches; None: nobody has asked for such.
_shared_sizes: tuple[int, int] | None = None
_shared_setup: ThreadSetup | None = None


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Threads of runs of sessions made with `use_per_session_threads = False`; 0 for all.

    From then on all sessions have to be made so, as with onnxruntime.

    Raises:
        InvalidArgument: A number is negative.
        Fail: It was called before.
    """
    global _shared_sizes
    if intra_op_num_threads < 0 or inter_op_num_threads < 0:
        raise InvalidArgument(message("set_global_thread_pool_sizes", "A number is negative"))
    if _shared_sizes is not None:
        what = "Global thread pools have already been created, cannot replace them"
        raise Fail(message("set_global_thread_pool_sizes", what))
    _shared_sizes = int(intra_op_num_threads), int(inter_op_num_threads)


def has_shared_threads() -> bool:
    """Whether sessions have to share threads."""
    return _shared_sizes is not None


def set_global_thread_functions(
    create: CreateThread | None, join: JoinThread | None = None, user_data: Any = None
) -> None:
    """What makes the threads of sessions with `use_per_session_threads = False` from now on.

    Args:
        create: As of `SessionOptions.set_custom_create_thread_fn`; None for Python's own threads.
        join: As of `SessionOptions.set_custom_join_thread_fn`.
        user_data: What `create` is given.

    Raises:
        InvalidArgument: These are no functions, or only one of them is there.
    """
    global _shared_setup
    where = "set_global_thread_functions"
    _shared_setup = _setup((), where, create=create, join=join, user_data=user_data)


@names_misfits
def set_global_thread_affinities(affinities: str) -> None:
    """Processors for the threads of sessions with `use_per_session_threads = False`.

    Args:
        affinities: As of the session-config entry `session.intra_op_thread_affinities`, for as many
            threads as `set_global_thread_pool_sizes` said; "" leaves threads alone.

    Raises:
        InvalidArgument: There are not as many lists as threads but the caller's.
    """
    global _shared_setup
    size = 0 if _shared_sizes is None else _shared_sizes[0]
    found = read_affinities(affinities, _count(size)) if affinities else ()
    _shared_setup = ThreadSetup(found) if found else None


def setup_setting(options: SessionOptions) -> ThreadSetup | None:
    """Where threads of a session with these options come from.

    Raises:
        InvalidArgument: Affinities are for another number of threads; or threads can be made, but
            not waited for, or the other way round.
    """
    if not options.use_per_session_threads:
        setup = _shared_setup
    else:
        text = options.config(AFFINITY_KEY)
        found = read_affinities(text, _count(options.intra_op_num_threads)) if text else ()
        setup = _setup(found, "SessionOptions", **options.thread_functions)
    return changed(
        setup,
        flushes_denormals=options.is_on(DENORMAL_KEY),
        awake_ns=_awake_ns(options),
    )


def _awake_ns(options: SessionOptions) -> int | None:
    """How long threads wait awake for work, as the entries about spinning say; None for nothing.

    Raises:
        InvalidArgument: An entry has a value that it cannot have.
    """
    is_set, spins = bool(options.config(SPIN_KEY)), options.is_on(SPIN_KEY)
    text = options.config(SPIN_TIME_KEY)
    if not re.fullmatch(r"-?\d{0,9}", text) or text == "-":
        raise InvalidArgument(
            message(SPIN_TIME_KEY, "This is no time", expected="microseconds", got=repr(text))
        )
    if is_set and not spins:
        return None
    if text and int(text) >= 0:
        return min(int(text) * 1000, _LONGEST_AWAKE_NS)
    return ACTIVE_SPIN_NS if spins else None


def _setup(
    affinities: tuple[frozenset[int], ...],
    where: str,
    create: Any = None,
    join: Any = None,
    user_data: Any = None,
) -> ThreadSetup | None:
    create, join = checked_function(where, create), checked_function(where, join)
    if (create is None) is not (join is None):
        what = "Threads need both functions: one that creates them, and one that joins them"
        raise InvalidArgument(message(where, what))
    if create is None and not affinities:
        return None
    return ThreadSetup(affinities, create, join, user_data)


def thread_setting(options: SessionOptions) -> int:
    """How many threads a session with these options asks for; 0 for all.

    Raises:
        Fail: Sessions share threads, and this one does not, or the other way round.
    """
    where = "use_per_session_threads"
    if options.use_per_session_threads:
        if _shared_sizes is not None:
            what = "It must be False when using a global thread pool"
            raise Fail(message(where, what, do="Set it, or leave set_global_thread_pool_sizes out"))
        return int(options.intra_op_num_threads)
    if _shared_sizes is None:
        what = "It is False, but there is no global thread pool"
        raise Fail(message(where, what, do="Call set_global_thread_pool_sizes first"))
    if options.intra_op_num_threads or options.inter_op_num_threads:
        note("intra_op_num_threads", "threads are those of set_global_thread_pool_sizes")
    return _shared_sizes[0]


def branch_setting(options: SessionOptions) -> int | None:
    """How many branches a session with these options runs at once: 0 for all, None for one."""
    if options.execution_mode is not ExecutionMode.ORT_PARALLEL:
        return None
    if not options.use_per_session_threads and _shared_sizes is not None:
        return _shared_sizes[1]
    return int(options.inter_op_num_threads)


def _count(requested: int) -> int:
    from sardonyx.cpu.threads import thread_count

    return thread_count(requested)
