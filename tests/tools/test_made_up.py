"""Sizes of made-up inputs that nobody gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sardonyx.base.errors import Fail, InvalidArgument
from sardonyx.tools.made_up import Sizes, explained, input_sizes


@dataclass
class Node:
    name: str
    shape: list[Any]
    type: str = "tensor(float)"


#: Shapes of inputs x0, x1 ..., sizes that are given, shapes that follow.
CASES: list[tuple[list[Any], dict[str, int], list[tuple[int, ...]]]] = [
    ([["N", 8]], {}, [(1, 8)]),
    ([[None, "S"]], {"S": 5}, [(1, 5)]),
    ([["N", 3, "H", "W"]], {}, [(1, 3, 224, 224)]),
    ([["N", 3, None, None]], {}, [(1, 3, 224, 224)]),
    ([["N", 3, -1, 48]], {}, [(1, 3, 224, 48)]),
    ([["N", 1, "x", "y"]], {}, [(1, 1, 224, 224)]),
    ([["N", "height", "width", 3]], {}, [(1, 224, 224, 3)]),
    ([[None, None, None, 3]], {}, [(1, 224, 224, 3)]),
    ([["batch", "channels", "height", "width"]], {}, [(1, 3, 224, 224)]),
    ([["batch", 4, "height", "width"], [1], ["batch", "sequence", 768]], {},
     [(1, 4, 64, 64), (1,), (1, 1, 768)]),
    ([[3, "h", "w"]], {}, [(3, 224, 224)]),
    ([["N", 3, "H", "W"]], {"H": 32, "x0.3": 64}, [(1, 3, 32, 64)]),
    # Masks and caches are no pictures.
    ([["B", 1, "S", "T"], ["B", "S"], ["B", "T"]], {}, [(1, 1, 1, 1), (1, 1), (1, 1)]),
    ([["B", 1, "past_sequence", 64]], {}, [(1, 1, 1, 64)]),
    ([["B", 3, "past_len", "len"]], {}, [(1, 3, 1, 1)]),
    ([["B", 1, None, 64]], {}, [(1, 1, 1, 64)]),
    ([["B", 12, None, None]], {}, [(1, 12, 1, 1)]),
    ([[None, None, None, None]], {}, [(1, 1, 1, 1)]),
    ([["B", 80, "T"]], {}, [(1, 80, 1)]),
    # A size of INPUT.AXIS holds for all of that name.
    ([["N", 2], ["N"]], {"x0.0": 7}, [(7, 2), (7,)]),
    ([[], [4]], {}, [(), (4,)]),
]  # fmt: skip


@pytest.mark.parametrize(("shapes", "given", "expected"), CASES, ids=lambda a: str(a)[:40])
def test_sizes(shapes: list[Any], given: dict[str, int], expected: list[tuple[int, ...]]) -> None:
    nodes = [Node(f"x{k}", shape) for k, shape in enumerate(shapes)]
    assert list(input_sizes(nodes, given).shapes.values()) == expected


def test_words_and_codes_are_no_pictures() -> None:
    assert input_sizes([Node("x", ["N", 3, "H2", "W2"], "tensor(int64)")]).shapes["x"][2] == 1
    assert input_sizes([Node("x", ["N", 3, None, None], "tensor(uint8)")]).shapes["x"][2] == 224


def test_what_was_chosen_is_told() -> None:
    sizes = input_sizes([Node("x", ["N", 3, "H", None])], {"H": 9})
    assert dict(sizes.chosen) == {"N": 1, "x.3": 224}
    assert sizes.told() == "sizes chosen: N=1, x.3=224 (others with --dim NAME=N)"
    assert input_sizes([Node("x", [2])]).told() == ""


_NOT_GIVEN = "Nobody gave N (1), x.3 (224). Try --dim N=N --dim x.3=N"


@pytest.mark.parametrize(
    ("shape", "others", "text"),
    [
        (["N", 3, 9, None], "--inputs FILE.npz", f"{_NOT_GIVEN}, or --inputs FILE.npz."),
        (["N", 3, 9, None], "", f"{_NOT_GIVEN}."),
        ([2], "--data FOLDER", "too small. Try --data FOLDER."),
    ],
)
def test_errors_on_made_up_inputs(shape: list[Any], others: str, text: str) -> None:
    sizes = input_sizes([Node("x", shape)])
    with pytest.raises(Fail) as caught, explained(sizes, others):
        raise InvalidArgument("too small")
    assert str(caught.value).endswith(text)
    assert "made up" in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "others"),
    [(input_sizes([Node("x", [2])]), ""), (Sizes({}, {}), "--inputs FILE.npz")],
    ids=["nothing else can be given", "nothing was made up"],
)
def test_other_errors_stay(sizes: Sizes, others: str) -> None:
    with pytest.raises(InvalidArgument, match="^as it is$"), explained(sizes, others):
        raise InvalidArgument("as it is")


def test_contradictions() -> None:
    nodes = [Node("x", ["N"]), Node("y", ["N"])]
    with pytest.raises(InvalidArgument, match="y.0 is 'N', which has two sizes: 2 and 3"):
        input_sizes(nodes, {"x.0": 2, "y.0": 3})
