"""Operators on values and literals append the instruction that the builder's method appends."""

from __future__ import annotations

import operator

import pytest

from sardonyx.base.errors import EngineError
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Literal
from sardonyx.kernel.language.text import to_text
from sardonyx.kernel.language.types import F32, I1, I64

BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.floordiv,
    "rem": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
COMPARE = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def _operands(b: Builder) -> dict[str, object]:
    return {"value": b.parameter("x"), "literal": b.constant(I64, 12), "number": 5}


def _written(compute) -> str:
    b = Builder("f", [("x", I64)], result=I64)
    compute(b)
    return to_text(b.program)


PAIRS = [
    (left, right)
    for left in ("value", "literal", "number")
    for right in ("value", "literal", "number")
    if (left, right) != ("number", "number")
]


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("op", BINARY)
def test_an_operator_is_its_instruction(op: str, left: str, right: str) -> None:
    def by_name(b: Builder) -> None:
        b.binary(op, _operands(b)[left], _operands(b)[right])

    def by_operator(b: Builder) -> None:
        BINARY[op](_operands(b)[left], _operands(b)[right])

    assert _written(by_operator) == _written(by_name)


@pytest.mark.parametrize(("left", "right"), [p for p in PAIRS if p[0] != "number"])
@pytest.mark.parametrize("op", COMPARE)
def test_a_comparison_is_its_instruction(op: str, left: str, right: str) -> None:
    def by_name(b: Builder) -> None:
        b.compare(op, _operands(b)[left], _operands(b)[right])

    def by_operator(b: Builder) -> None:
        COMPARE[op](_operands(b)[left], _operands(b)[right])

    assert _written(by_operator) == _written(by_name)


@pytest.mark.parametrize("operand", ["value", "literal"])
def test_signs_are_instructions(operand: str) -> None:
    assert _written(lambda b: -_operands(b)[operand]) == _written(
        lambda b: b.unary("neg", _operands(b)[operand])
    )
    assert _written(lambda b: ~_operands(b)[operand]) == _written(
        lambda b: b.binary("xor", _operands(b)[operand], -1)
    )


def test_a_truth_value_is_inverted() -> None:
    assert _written(lambda b: ~(b.parameter("x") < 3)) == _written(
        lambda b: b.binary("xor", b.compare("lt", b.parameter("x"), 3), True)
    )
    assert _written(lambda b: ~b.constant(I1, True)) == _written(
        lambda b: b.binary("xor", b.constant(I1, True), True)
    )


def test_floats_are_divided_by_a_slash() -> None:
    assert _written(lambda b: 1.0 / b.constant(F32, 3.0)) == _written(
        lambda b: b.binary("div", 1.0, b.constant(F32, 3.0))
    )


def test_literals_are_equal_whoever_made_them() -> None:
    made = Builder("f").constant(I64, 3)
    assert made == Literal(I64, 3)
    assert hash(made) == hash(Literal(I64, 3))


def test_literals_that_no_builder_made_say_so() -> None:
    with pytest.raises(EngineError, match="No builder is known that would compute with 3:i64"):
        Literal(I64, 3) + Literal(I64, 4)
