"""Threads that sessions share."""

from __future__ import annotations

from sardonyx.api.enums import ExecutionMode
from sardonyx.api.options import SessionOptions
from sardonyx.base.errors import InvalidArgument, message

_shared_size = 0
_shared_branches = 0


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Threads of runs of sessions made with `use_per_session_threads = False`; 0 for all.

    Raises:
        InvalidArgument: A number is negative.
    """
    global _shared_size, _shared_branches
    if intra_op_num_threads < 0 or inter_op_num_threads < 0:
        raise InvalidArgument(message("set_global_thread_pool_sizes", "A number is negative"))
    _shared_size = int(intra_op_num_threads)
    _shared_branches = int(inter_op_num_threads)


def thread_setting(options: SessionOptions) -> int:
    """How many threads a session with these options asks for; 0 for all."""
    return int(options.intra_op_num_threads if options.use_per_session_threads else _shared_size)


def branch_setting(options: SessionOptions) -> int | None:
    """How many branches a session with these options runs at once: 0 for all, None for one."""
    if options.execution_mode is not ExecutionMode.ORT_PARALLEL:
        return None
    if not options.use_per_session_threads:
        return _shared_branches
    return int(options.inter_op_num_threads)
