"""Which blocks of a command a thread takes, and when: its own portion first."""

import ctypes

import pytest

from sardonyx.kernel.language.context import FIELDS, SIZE_BYTES
from sardonyx.native.functions import library
from sardonyx.native.layout import POOL, PORTION, WORD
from sardonyx.runtime.arena import address_of, aligned_words

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def claimed(thread, limit, portions, share=2, block_sizes=1 << 40, stop_behind=None):
    """What one thread takes, all alone, of portions from a block up to another."""
    taken = []
    cancel = aligned_words(1)

    def kernel(arguments, begin, end, context):
        taken.append((begin, end))
        cancel[0] = stop_behind is not None and end >= stop_behind

    called = _KERNEL(kernel)
    table, pool = aligned_words(PORTION.words * len(portions)), aligned_words(POOL.words)
    for k, (begin, end) in enumerate(portions):
        table[k * PORTION.words + PORTION["next"]] = begin
        table[k * PORTION.words + PORTION["end"]] = end
    fault, scratch = aligned_words(4), aligned_words(8)
    context = aligned_words(SIZE_BYTES // WORD)
    context[FIELDS["thread"] // WORD] = thread
    context[FIELDS["scratch"] // WORD] = address_of(scratch)
    context[FIELDS["scratch_bytes"] // WORD] = 64
    for name, value in {
        "kernel": ctypes.cast(called, ctypes.c_void_p).value, "cancel": address_of(cancel),
        "fault": address_of(fault), "limit": limit, "share": share, "grain": block_sizes,
        "portions": address_of(table), "portion_count": len(portions),
    }.items():  # fmt: skip
        pool[POOL[name]] = value
    claim = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    claim(library().code.address("claim"))(address_of(pool), address_of(context))
    return taken


def test_half_of_what_is_left_of_the_own_portion_then_of_others():
    assert claimed(1, 2, [(0, 6), (6, 14)]) == [
        (6, 10), (10, 12), (12, 13), (13, 14), (0, 3), (3, 4), (4, 5), (5, 6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("thread", "limit", "portions", "first"),
    [
        (0, 3, 3, 0), (1, 3, 3, 1), (2, 3, 3, 2),
        (5, 3, 3, 2),  # a pool of more threads than the command has
        (0, 16, 8, 0), (1, 16, 8, 0), (2, 16, 8, 1), (15, 16, 8, 7), (20, 16, 8, 2),
        (9, 11, 8, 6), (10, 11, 8, 7),
    ],
)  # fmt: skip
def test_every_thread_has_a_portion_and_all_blocks_are_taken_once(thread, limit, portions, first):
    ranges = [(100 * k, 100 * k + 100) for k in range(portions)]
    taken = claimed(thread, limit, ranges)
    assert taken[0][0] == 100 * first
    blocks = [block for begin, end in taken for block in range(begin, end)]
    assert sorted(blocks) == list(range(100 * portions))
    assert blocks == [*range(100 * first, 100 * portions), *range(100 * first)]


def test_threads_that_have_a_portion_in_common_take_less_at_once():
    assert claimed(0, 16, [(0, 80)] * 8)[0] == (0, 20)
    assert claimed(0, 8, [(0, 80)] * 8)[0] == (0, 40)


def test_no_more_at_once_than_asked_for_and_empty_portions():
    assert claimed(0, 2, [(3, 3), (3, 8)], block_sizes=2) == [(3, 5), (5, 6), (6, 7), (7, 8)]
    assert claimed(0, 2, [(3, 3), (3, 3)]) == []


def test_a_run_that_is_cancelled_takes_nothing_more():
    assert claimed(0, 2, [(0, 8), (8, 16)], stop_behind=6) == [(0, 4), (4, 6)]
