"""Symbolic integers: rules that the planner relies on to come to an end."""

from __future__ import annotations

import itertools

import pytest

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.base.substitution import substitute
from sardonyx.plan.dims import DimReader, DimWriter
from sardonyx.plan.tape import Tape
from sardonyx.plan.tape import evaluate as tape_values

W = sizes.symbol("w")
EXTENTS: list[Dim] = [
    7,
    W,
    integer.floordiv(W - 1, 32) + 1,  # where w is 0 this is 0: its sign is not provable
    4 * integer.floordiv(integer.floordiv(W + 1, 2) - 1, 16) + 4,
    integer.maximum(W - 3, integer.floordiv(W, 2)),
]


@pytest.mark.parametrize("extent", EXTENTS, ids=repr)
def test_an_index_divided_by_its_extent_is_zero(extent: Dim) -> None:
    i, j = sizes.index(extent), sizes.index(sizes.symbol("rows"))
    assert integer.floordiv(i, extent) == 0
    assert integer.modulo(i, extent) == i
    place = j * extent + i
    assert integer.floordiv(place, extent) == j
    assert integer.modulo(place, extent) == i


def test_an_index_divided_by_less_than_its_extent_stays() -> None:
    i = sizes.index(W)
    assert sizes.atoms_of(integer.floordiv(i, integer.floordiv(W, 2)), "floordiv")


def test_a_choice_times_itself_is_itself() -> None:
    chosen, n = sizes.measured("chosen", 0, 1), sizes.symbol("n")
    kept, taken = n - chosen * (n - 1), 1 + chosen * (n - 1)
    assert chosen * chosen is chosen
    assert kept * taken is n  # an axis is in the one place or in the other
    number = sizes.measured("number", 0, 2)
    assert number * number is not number


@pytest.mark.parametrize("divisor", [2, 6, 16, 48, 64])
@pytest.mark.parametrize(
    ("factors", "constant"),
    [((1, 16), 0), ((1, 16), 5), ((3, 16), -7), ((1, 4, 32), 0), ((16, -16, 1), 3), ((6, 12), 5)],
)
def test_quotients_of_sums(factors, constant, divisor):
    """What is too small to matter is left out, and nothing else."""
    variables = [sizes.numbered_index(4, k, "q") for k in range(len(factors))]
    a = constant
    for variable, factor in zip(variables, factors, strict=True):
        a = sizes.add(a, sizes.multiply(variable, factor))
    found = integer.floordiv(a, divisor)
    for values in itertools.product(range(4), repeat=len(factors)):
        at = dict(zip(map(sizes.variable, variables), values, strict=True))
        plain = constant + sum(f * v for f, v in zip(factors, values, strict=True))
        assert sizes.evaluate(found, {}, at) == plain // divisor


def test_quotient_without_the_small_part():
    high, low = sizes.numbered_index(64, 0, "h"), sizes.numbered_index(16, 1, "l")
    assert integer.floordiv(16 * high + low, 256) == integer.floordiv(high, 16)
    assert integer.floordiv(16 * high + low, 16) == high


def test_quotient_of_a_number_that_is_left():
    n = sizes.symbol("n")
    assert integer.floordiv(2 * n - 1, 2) == n - 1
    a, b = sizes.numbered_index(9, 0, "a"), sizes.numbered_index(9, 1, "b")
    assert integer.floordiv(6 * a + 10 * b, 30) == integer.floordiv(3 * a + 5 * b, 15)


_TALL, _WIDE = integer.maximum(0, W - 5), sizes.symbol("v")


@pytest.mark.parametrize(
    ("written", "shorter"),
    [
        (integer.floordiv(W - 1, 4) + 1, integer.ceildiv(W, 4)),
        (integer.floordiv(W - 9, 4), integer.floordiv(W + 3, 4) - 3),
        (integer.floordiv(integer.floordiv(W - 1, 2), 2) + 1, integer.floordiv(W + 3, 4)),
        (integer.floordiv(integer.floordiv(W, 3) + 2, 5), integer.floordiv(W + 6, 15)),
        (
            integer.floordiv(integer.floordiv(W, _WIDE) - 1, 5),
            integer.floordiv(W + 4 * _WIDE, 5 * _WIDE) - 1,
        ),
        (integer.minimum(3, integer.floordiv(W + 1, 2) - integer.floordiv(W - 1, 2)), 1),
    ],
    ids=repr,
)  # fmt: skip
def test_quotients_have_one_form(written, shorter):
    """What is subtracted before a division, and windows behind windows."""
    assert written is shorter
    for w, v in itertools.product(range(40), range(1, 6)):
        at = {"w": w, "v": v}
        assert sizes.evaluate(sizes.add(written, 0), at) == sizes.evaluate(shorter, at)


def test_numbers_of_quotients_stay_in_a_word():
    """Steps to the end of all integers: no product of them is written."""
    far = integer.floordiv(integer.floordiv(W, 1 << 62) + 1, 1 << 62)
    written = [sizes.terms_of(a) for x in sizes.atoms_of(far) for a in x.arguments]
    assert all(abs(c) < 1 << 63 for terms in written for _, c in terms)


@pytest.mark.parametrize("scale", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 4, 6, 8, 24])
def test_quotient_without_the_place_in_an_image(count, scale):
    """Channels in groups of `count`, in images whose size only a run brings."""
    channels, tall, wide = 24, scale * sizes.symbol("h"), scale * W
    n, c = sizes.numbered_index(5, 0, "n"), sizes.numbered_index(channels, 1, "c")
    y, x = sizes.numbered_index(tall, 2, "y"), sizes.numbered_index(wide, 3, "x")
    place = ((n * channels + c) * tall + y) * wide + x
    found = integer.floordiv(place, count * tall * wide)
    assert found is integer.floordiv(n * channels + c, count)
    crossing = integer.floordiv(place + 1, count * tall * wide)
    plain = ((4 * channels + 3) * 2 * scale + 2 * scale - 1) * 3 * scale + 3 * scale
    at = {n: 4, c: 3, y: 2 * scale - 1, x: 3 * scale - 1}
    values = {sizes.variable(k): v for k, v in at.items()}
    expected = plain // (count * scale * scale * 6)
    assert sizes.evaluate(crossing, {"h": 2, "w": 3}, values) == expected


def test_quotient_without_the_place_in_a_row():
    """Channels and rows as one axis, beside columns: what is left hangs on the rows alone."""
    h, columns = sizes.symbol("h"), 2 * W
    y, x = sizes.numbered_index(4 * h, 0, "y"), sizes.numbered_index(columns, 1, "x")
    found = integer.floordiv(y * columns + x, 4 * h * W)
    assert found is integer.floordiv(y, 2 * h)
    assert integer.floordiv(6 * y * columns + x, 12 * h * W) is integer.floordiv(y, h)


def test_sizes_of_images_behind_windows_stay_short():
    """A list of places of all levels of a pyramid, cut where one level ends: no bound is asked."""
    levels = [
        (integer.floordiv(_TALL - 1, k) + 1) * (integer.floordiv(_WIDE - 1, k) + 1)
        for k in (4, 8, 16, 32, 64)
    ]
    every = sizes.total(levels)
    end = 0
    for level in levels:
        start, end = end, sizes.add(end, level)
        cut = sizes.add(integer.minimum(end, every), -integer.minimum(start, every))
        assert integer.maximum(0, cut) is level


@pytest.mark.parametrize(
    "summands",
    [
        [], [3], [3, 4, -7], [sizes.symbol("n")], [sizes.symbol("n"), 0], [2, sizes.symbol("n"), 5],
        [sizes.symbol("n"), -sizes.symbol("n")], [sizes.symbol("n") + 1, -sizes.symbol("n"), 4],
        [sizes.symbol("n") * 2 + 3, sizes.symbol("m"), -3, sizes.symbol("n")],
    ],
)  # fmt: skip
def test_a_total_is_the_sum_in_turn(summands):
    expected = 0
    for summand in summands:
        expected = sizes.add(expected, summand)
    assert sizes.total(summands) == expected
    assert sizes.total(reversed(summands)) == expected


def test_variables_are_paired_with_what_replaces_them():
    i, j = sizes.numbered_index(3, 0, "i"), sizes.numbered_index(4, 2, "i")
    n = sizes.symbol("n")
    found = sizes.in_place_of((i, 0, j), (n, 7, 5))
    assert found == {sizes.variable(i): n, sizes.variable(j): 5}
    with pytest.raises(TypeError, match="not a single variable"):
        sizes.in_place_of((sizes.add(i, j),), (n,))
    with pytest.raises(ValueError, match="zip"):
        sizes.in_place_of((i, j), (n,))


def long_sum(count: int, name: str = "part") -> Dim:
    """A sum of so many sizes, each of four atoms, as Slices of free axes have."""
    parts = []
    for k in range(count):
        n = sizes.symbol(f"{name}{k}")
        parts.append(integer.maximum(integer.minimum(n, k + 3) - integer.minimum(n, k), 0))
    return sizes.total(parts)


def test_short_sizes_are_not_summarised() -> None:
    for dim in (7, W, *EXTENTS, long_sum(3)):
        assert integer.summarised(dim) is dim


def test_sizes_that_may_be_negative_are_not_summarised() -> None:
    dim = long_sum(20) - W
    assert integer.summarised(dim) is dim


def test_a_long_size_is_a_symbol_beside_constants_and_factors() -> None:
    dim = 4 * long_sum(20) + 8
    short = integer.summarised(dim)
    assert integer.weight(short) == 1
    assert integer.summarised(dim) is short
    assert integer.modulo(short, 4) == 0
    assert integer.is_nonnegative(short - 8)
    assert integer.known_equal(short, dim) is True
    assert integer.known_equal(short, dim + 1) is False
    numbers = {atom.name: 2 * k for k, atom in enumerate(sizes.leaves_of(dim))}
    assert {atom.name for atom in sizes.leaves_of(short)} == set(numbers)
    assert sizes.evaluate(short, numbers) == sizes.evaluate(dim, numbers)


def test_measured_sizes_are_seen_in_what_stands_for_them() -> None:
    assert sizes.is_measured(integer.summarised(long_sum(20) + sizes.measured("m", 0)))
    assert not sizes.is_measured(integer.summarised(long_sum(20)))


def test_replacements_reach_what_a_symbol_stands_for() -> None:
    short = integer.summarised(integer.summarised(long_sum(20)) * W + long_sum(20, "other"))
    (part,) = (atom for atom in sizes.leaves_of(short) if atom.name == "part7")
    moved = substitute(short, {part: 9 * W})
    numbers = {atom.name: 3 for atom in sizes.leaves_of(short)} | {"w": 5}
    assert part not in sizes.leaves_of(moved)
    assert sizes.evaluate(moved, numbers) == sizes.evaluate(short, numbers | {"part7": 45})


@pytest.mark.parametrize("count", [10, 3000])
def test_sizes_that_follow_from_sizes_stay_short(count: int) -> None:
    """Of thousands of definitions, one in the other, none is worked out by a call in a call."""
    total: Dim = 0
    for k in range(count):
        total = integer.summarised(total + sizes.symbol(f"n{k}") * (k % 3 + 1))
        assert integer.weight(total) <= 25
    numbers = {f"n{k}": k for k in range(count)}
    wanted = sum(k * (k % 3 + 1) for k in range(count))
    assert sizes.evaluate(total, numbers) == wanted
    tape = Tape()
    slot = tape.slot(total)
    assert tape_values(tape, numbers)[slot] == wanted
    writer = DimWriter()
    written = writer.dim(total)
    assert DimReader(writer.table).dim(written) is total
    doubled = substitute(total, {sizes.variable(sizes.symbol("n1")): 2})
    assert sizes.evaluate(doubled, numbers) == wanted + 2


@pytest.mark.parametrize("extent", EXTENTS[1:], ids=repr)
def test_operators_divide_as_integers_do(extent: Dim) -> None:
    i = sizes.index(W)
    assert (i * 5 + 3) // extent is integer.floordiv(i * 5 + 3, extent)
    assert 40 // extent is integer.floordiv(40, extent)
    assert extent // 3 is integer.floordiv(extent, 3)
    assert (i + 7) % extent is integer.modulo(i + 7, extent)
    assert 40 % extent is integer.modulo(40, extent)
    assert extent % 3 is integer.modulo(extent, 3)
