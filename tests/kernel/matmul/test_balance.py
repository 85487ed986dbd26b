"""Rows of a block."""

import pytest

from sardonyx.base import sizes
from sardonyx.kernel.matmul.balance import balanced_rows

N = sizes.symbol("N")


@pytest.mark.parametrize(
    "rows, others, most, wanted",
    [
        (49, 5, 96, 30),  # 10 blocks of 30 and 19 rows, not 5 of 49, for 2 threads
        (N * 49, 5, 96, 30),
        (49, N * 5, 96, 30),
        (196, 2, 96, 96),
        (12544, 3, 96, 96),
        (6, 1, 96, 96),
        (N, 12, 96, 96),
        (49, 5, 6, 6),
    ],
)
def test_rows_of_a_block(rows, others, most, wanted):
    assert balanced_rows(rows, others, most) == wanted
