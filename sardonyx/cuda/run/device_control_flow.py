"""Runs that the device controls: branches and loops are nodes of the run's graph.

The graph's kernels look their arguments up in a table in the device's memory, as those of other
graphs do. Here the table has the sizes and addresses behind the arguments, too, and control steps
(see `runtime.control_kernels`) bring it up to date on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sardonyx.base.errors import EngineError
from sardonyx.cuda.driver.conditional import (
    IF,
    KNOWS_CONDITIONS,
    KNOWS_OTHERWISE,
    WHILE,
    add_node,
    captured_into,
    new_condition,
)
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.plan.control_flow import (
    ControlChoice,
    ControlSteps,
    Launch,
    Loop,
    Node,
    NotOnDevice,
    ParallelParts,
)
from sardonyx.plan.plan import Plan

if TYPE_CHECKING:
    from sardonyx.cuda.run.library_calls import LibraryCalls
    from sardonyx.runtime.device_control_flow import DeviceControlFlow


class LeftToHost(EngineError):
    """The device cannot control a run after all; the host can."""


def find_control_flow(plan: Plan, device: Device) -> tuple[DeviceControlFlow | None, str]:
    """How a device controls a plan; if it does not, why. A plan without steps needs neither."""
    if len(plan.segments) < 2:
        return None, ""
    version = int(call("cuDriverGetVersion"))
    if version < KNOWS_CONDITIONS:
        number = f"{version // 1000}.{version % 1000 // 10}"
        return None, f"the driver, for CUDA {number}, has no conditional nodes (12.4 or later)"
    # What writes kernels is not imported for other plans.
    from sardonyx.runtime.device_control_flow import control_flow_of

    try:
        return control_flow_of(plan), ""
    except NotOnDevice as reason:
        return None, str(reason)


class Recorder:
    """Captures the nodes of a plan.

    Args:
        device: Where.
        libraries: What does commands that are no kernels.
        frame: What the run works in; its table is in use.
        control_flow: How.
        lent: Gets streams that take part until the capture ends; without it parts that need
            nothing of each other follow each other.
    """

    def __init__(
        self,
        device: Device,
        libraries: LibraryCalls,
        frame: CudaFrame,
        control_flow: DeviceControlFlow,
        lent: list[Stream] | None = None,
    ) -> None:
        self._libraries, self._frame, self._control_flow = libraries, frame, control_flow
        self._launches, self._device = frame.launches, device
        #: Streams for graphs of nodes, by how deep they lie.
        self._streams: list[Stream] = []
        self._lent = lent
        self._has_sides = int(call("cuDriverGetVersion")) >= KNOWS_OTHERWISE
        #: Whether the next kernel may begin before what is in front of it has ended: not behind
        #: a control step, which writes what kernels look up before they wait.
        self._is_early = False

    def record(self) -> None:
        """Capture all of it to the graph that the frame's stream is captured to."""
        before = self._launches.queue
        try:
            self._launches.table.clear_halt(before)
            self._nodes(self._control_flow.nodes, 0)
        finally:
            self._launches.use_stream(before)
            self._frame.libraries.lane = 0
            for stream in self._streams:
                self._device.take_back(stream)

    def _nodes(self, nodes: Sequence[Node], depth: int) -> None:
        queue = self._launches.queue
        self._is_early = False
        for place, node in enumerate(nodes, 1):
            match node:
                case Launch(command):
                    self._launch(command)
                    continue
                case ControlSteps(number) if number in self._control_flow.checked and place < len(
                    nodes
                ):
                    # The rest, if nothing is wrong.
                    condition = new_condition(queue, self._device.context)
                    self._control(node, condition)
                    self._add(queue, condition, IF, [nodes[place:]], depth)
                    return
                case ControlSteps():
                    self._control(node)
                case Loop(first, body, last):
                    condition = new_condition(queue, self._device.context)
                    self._control(first, condition)
                    self._add(queue, condition, WHILE, [body], depth, last)
                case ControlChoice():
                    self._choice(node, queue, depth)
                case ParallelParts(parts):
                    self._side_by_side(parts, queue, depth)
            self._is_early = False

    def _launch(self, command: int) -> None:
        if command in self._frame.image.hosted:
            self._frame.libraries.lane = self._control_flow.lanes[command]
            self._libraries.do(self._frame, command, early=False)
            self._is_early = False
        elif self._launches.launch(command, early=self._is_early):
            self._is_early = True

    def _control(self, control: ControlSteps, first: int = 0, second: int = 0) -> None:
        self._launches.launch_control(control, first, second)

    def _choice(self, choice: ControlChoice, queue: Stream, depth: int) -> None:
        sides = [choice.then, choice.otherwise]
        is_sure = choice.control.number not in self._control_flow.checked
        if all(sides) and is_sure and self._has_sides:
            condition = new_condition(queue, self._device.context)
            self._control(choice.control, condition)
            self._add(queue, condition, IF, sides, depth)
            return
        conditions = [new_condition(queue, self._device.context) if side else 0 for side in sides]
        self._control(choice.control, *conditions)
        for condition, side in zip(conditions, sides, strict=True):
            if side:
                self._add(queue, condition, IF, [side], depth)

    def _side_by_side(self, parts: Sequence[Sequence[Node]], queue: Stream, depth: int) -> None:
        """Capture parts as branches of the graph."""
        if self._lent is None:
            for part in parts:
                self._nodes(part, depth)
            return
        fork, ends = queue.record(), []
        try:
            for part in parts[1:]:
                stream = self._device.lend_stream()
                self._lent.append(stream)
                stream.wait_for(fork)
                self._launches.use_stream(stream)
                self._nodes(part, depth)
                ends.append(stream.record())
            self._launches.use_stream(queue)
            self._nodes(parts[0], depth)
            for end in ends:
                queue.wait_for(end)
        finally:
            self._launches.use_stream(queue)

    def _add(
        self,
        queue: Stream,
        condition: int,
        kind: int,
        sides: Sequence[Sequence[Node]],
        depth: int,
        last: ControlSteps | None = None,
    ) -> None:
        """Add a node, and fill its graphs."""
        graphs = add_node(queue, self._device.context, condition, kind, len(sides))
        while len(self._streams) <= depth:
            self._streams.append(self._device.lend_stream())
        inner = self._streams[depth]
        for graph, side in zip(graphs, sides, strict=True):
            with captured_into(inner, graph):
                self._launches.use_stream(inner)
                try:
                    trips = 1 if last is None else self._frame.trips_by_round.get(last.number, 1)
                    for left in range(trips - 1, -1, -1):
                        self._nodes(side, depth + 1)
                        if last is not None:
                            self._control(last, 0 if left else condition)
                finally:
                    self._launches.use_stream(queue)
