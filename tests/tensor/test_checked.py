"""Which operands may be dropped where they decide nothing: those that no run refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sardonyx.base import dtypes, sizes
from sardonyx.tensor import scalar
from sardonyx.tensor.checked import can_be_dropped, checks_of
from sardonyx.tensor.noted_checks import noting_checks
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import buffer

N, AT = sizes.symbol("N"), sizes.index(sizes.symbol("N"))
WHOLE = scalar.load(buffer("whole", (N,), dtypes.INT64), (AT,))
FLOAT = scalar.load(buffer("float", (N,), dtypes.FLOAT), (AT,))
BYTE = scalar.load(buffer("byte", (N,), dtypes.UINT8), (AT,))


def _at(index: Scalar) -> Scalar:
    return scalar.load(buffer("list", (N,), dtypes.INT64), (scalar.as_index(index, N),))


#: Expression, and whether it may be dropped.
DIVIDED: dict[str, tuple[Callable[[], Scalar], bool]] = {
    "by a constant": (lambda: scalar.binary("div", WHOLE, 3), True),
    "by a negative constant": (lambda: scalar.binary("rem", WHOLE, -3), True),
    "by the constant 0": (lambda: scalar.binary("div", WHOLE, 0), False),
    "by an element": (lambda: scalar.binary("div", 3, WHOLE), False),
    "remainder by an element": (lambda: scalar.binary("rem", WHOLE, WHOLE), False),
    "bytes": (lambda: scalar.binary("rem", BYTE, BYTE), False),
    "by a size": (lambda: scalar.binary("div", WHOLE, scalar.size(N)), False),
    "sizes of which one is positive":
        (lambda: scalar.binary("div", scalar.size(N), scalar.size(N + 1)), True),
    "floats": (lambda: scalar.binary("div", FLOAT, FLOAT), True),
    "remainder of floats": (lambda: scalar.binary("rem", FLOAT, FLOAT), True),
    "inside a sum": (lambda: scalar.binary("rem", WHOLE, WHOLE) + 1, False),
    "inside an index": (lambda: _at(scalar.binary("rem", WHOLE, WHOLE)), False),
    "inside a size":
        (lambda: scalar.size(scalar.as_index(scalar.binary("rem", WHOLE, WHOLE), N) + 1), False),
    "where it is chosen":
        (lambda: scalar.select(WHOLE > 0, scalar.binary("div", 3, WHOLE), 0), False),
}  # fmt: skip


@pytest.mark.parametrize("case", DIVIDED)
def test_what_may_divide_by_zero_stays(case: str) -> None:
    make, is_harmless = DIVIDED[case]
    with noting_checks() as noted:
        x = make()
    assert noted == ([] if is_harmless else ["divisor"])
    assert can_be_dropped(x) == is_harmless
    assert not checks_of(x)  # those are of indices, which are copied to where elements stay
    condition = scalar.compare("gt", x, 1)
    assert (scalar.select(condition, FLOAT, FLOAT) is FLOAT) == is_harmless
    never = scalar.constant(False, dtypes.BOOL)
    for both in (scalar.binary("and", condition, never), scalar.binary("and", never, condition)):
        assert (both is never) == is_harmless
