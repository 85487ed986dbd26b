"""Rows of steps read back as trees."""

from __future__ import annotations

import pytest

from sardonyx.base import sizes
from sardonyx.plan.control_flow import (
    ControlChoice,
    ControlSteps,
    Gate,
    Launch,
    Loop,
    NotOnDevice,
    commands_in_loops,
    hoisted,
    stretches_of,
    tree_of,
)
from sardonyx.plan.plan import Command, HostSignature, Plan
from sardonyx.plan.steps import (
    Enter,
    Grow,
    Jump,
    JumpIfLess,
    JumpUnless,
    Segment,
    SetSize,
    Together,
)

_COUNTER = sizes.measured("i", 0)
_WORK = Command("work", 1, 1, ())
_HOST = Command("", 1, 1, (), host=HostSignature("text.upper", (), (), ()), origin=("Upper_0",))


def _plan(*commands: object, segments: int = 1) -> Plan:
    listed = tuple(Segment(k - 1, conditional=k > 0) for k in range(segments))
    made = object.__new__(Plan)
    for name, value in {
        "inputs": (), "outputs": (), "buffers": (), "commands": commands, "guards": (),
        "segments": listed, "strings": ("",),
    }.items():  # fmt: skip
        object.__setattr__(made, name, value)
    return made


def _set(value: object) -> SetSize:
    return SetSize("i", value, 1)  # type: ignore[arg-type]  # sizes


LOOP = (
    _set(0), JumpUnless(0, 8), JumpIfLess(0, 5, 4), Jump(8),
    Enter(1), _WORK, _set(1), JumpIfLess(1, 5, 4),
)  # fmt: skip


@pytest.mark.parametrize(
    ("commands", "nodes"),
    [
        ((_WORK, _WORK), (Launch(0), Launch(1))),
        ((_WORK, Enter(1), _WORK), (Launch(0), ControlSteps(0, 1, (1,)), Launch(2))),
        ((Together(()), _WORK), (Launch(1),)),
        (
            (*LOOP, _WORK),
            (
                Loop(
                    ControlSteps(0, 0, (0,), Gate(1, 2, (4,))), (Launch(5),),
                    ControlSteps(1, 6, (6,), Gate(None, 7, (4,))),
                ),
                Launch(8),
            ),
        ),
        (
            (JumpUnless(0, 4), Enter(1), _WORK, Jump(6), Enter(2), Jump(6), _WORK),
            (
                ControlChoice(ControlSteps(0, 0, (), Gate(0, None, (1,), (4,))), (Launch(2),), ()),
                Launch(6),
            ),
        ),
    ],
)  # fmt: skip
def test_trees(commands: tuple[object, ...], nodes: object) -> None:
    assert tree_of(_plan(*commands))[0] == nodes


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ((_WORK, Grow(0, 8, 0)), "grows"),
        ((_HOST,), "node Upper_0 is done by the host"),
        ((Jump(0),), "step 0"),
        ((JumpIfLess(0, 5, 2), Jump(4), _WORK, _WORK), "does not go back"),
        ((JumpUnless(0, 2), _WORK, _WORK), "does not end"),
        ((JumpUnless(0, 3), _WORK, Jump(4), _WORK), "does not end"),
    ],
)
def test_what_is_no_tree(commands: tuple[object, ...], reason: str) -> None:
    with pytest.raises(NotOnDevice, match=reason):
        tree_of(_plan(*commands))


def test_commands_in_a_row_are_stretches() -> None:
    work = [_WORK] * 3
    plan = _plan(*work, *LOOP[:1], *work, Enter(1), _WORK, _HOST, *work, JumpUnless(0, 15), *work)
    found = stretches_of(plan, {5}, 2)
    assert found == [range(3), range(10, 13), range(15, 17)]
    assert stretches_of(plan, (), 3) == [range(3), range(4, 7), range(10, 13)]
    again = _plan(*work, JumpIfLess(0, 5, 1), *work)
    assert stretches_of(again, (), 1) == [range(1), range(4, 7)]
    assert commands_in_loops(again) == [1, 2]


def test_nothing_is_conditional_in_a_hoisted_plan() -> None:
    plan = hoisted(Plan((), (), (), (_WORK,), (), (Segment(-1), Segment(0, conditional=True))))
    assert not any(s.conditional for s in plan.segments)
