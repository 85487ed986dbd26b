"""A plan: what a session became. Frozen plain data, with sizes that each run's feeds decide."""

from __future__ import annotations

from typing import Literal

from sardonyx.base import sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import EngineError, message
from sardonyx.base.printable import printable_lines
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.steps import Enter, Grow, Jump, JumpIfLess, JumpUnless, Segment, Step, Together

BufferKind = Literal["input", "output", "constant", "arena", "grown"]
BUFFER_KINDS: tuple[BufferKind, ...] = ("input", "output", "constant", "arena", "grown")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A feed. The first axis whose size is a bare symbol gives the symbol its value."""

    name: str
    dtype: DType
    dims: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """An output that continues an input: see `plan.inplace_append`.

    Attributes:
        input, output: Their numbers.
        axis: The axis that grows.
    """

    input: int
    output: int
    axis: int


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """A result, whose sizes are known in `segment`."""

    name: str
    dtype: DType
    dims: tuple[Dim, ...]
    segment: int = 0


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """Memory that commands use.

    Attributes:
        kind: Whose memory it is; `grown` has memory of its own, that `Grow` steps enlarge.
        number: Which input, output, constant or grown buffer; for the arena it means nothing.
        size_bytes: How much is used of it. Of a grown buffer nobody asks.
        first: The first command that uses it. Matters for the arena only.
        last: The last command that uses it; the memory may be another buffer's from the next on.
        segment: In which its size is known, at the latest.
    """

    kind: BufferKind
    number: int
    size_bytes: Dim
    first: int = 0
    last: int = 0
    segment: int = 0


@dataclass(frozen=True, slots=True)
class PointerArgument:
    """The address of a byte of a buffer."""

    buffer: int
    offset_bytes: Dim = 0


@dataclass(frozen=True, slots=True)
class SizeArgument:
    """A symbolic integer's value."""

    value: Dim


@dataclass(frozen=True, slots=True)
class BitsArgument:
    """64 bits known when the plan is made."""

    bits: int


Argument = PointerArgument | SizeArgument | BitsArgument


@dataclass(frozen=True, slots=True)
class HostResult:
    """What a host function gives, as memory of the plan.

    Attributes:
        dtype: Element type of the tensor; of a sequence and the like, its own type.
        rank: Number of axes of the tensor.
        held: The shape is known only now. The plan gets a number for `TAKE`, then the shape, as
            int64; what has the type and number of axes above is kept until it is taken.
    """

    dtype: DType
    rank: int
    held: bool = False

    @property
    def memory_rank(self) -> int:
        """Number of axes of what lies in the plan's memory."""
        return 1 if self.held else self.rank


@dataclass(frozen=True, slots=True)
class HostSignature:
    """How a function of `sardonyx.host` is called: with values that have no form as tensors.

    Of each tensor, the command's arguments are its address, the number of its first element, its
    sizes and its strides in elements.

    Attributes:
        function: `module.name` of the function.
        facts: Its keyword arguments.
        operands: Element type and number of axes of each tensor; None where one is omitted.
        results: What it gives; None for what nobody reads.
    """

    function: str
    facts: tuple[tuple[str, object], ...]
    operands: tuple[tuple[DType, int] | None, ...]
    results: tuple[HostResult | None, ...]


#: The function that gives what an earlier call has held back.
TAKE = "take"


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """What a provider's library does in place of a kernel, if it can at the sizes of a run.

    Attributes:
        function: What it does: `matmul`, `convolution` or `attention`.
        facts: What is known when the plan is made, by name: text, numbers, and tuples of them.
        count: How many of the command's arguments are the call's; they come last.
    """

    function: str
    facts: tuple[tuple[str, object], ...]
    count: int

    def __getitem__(self, name: str) -> object:
        return dict(self.facts)[name]


@dataclass(frozen=True, slots=True)
class Command:
    """A call of one kernel, or of a function on the host.

    Attributes:
        kernel: Its symbol name, with the C type that llvm/module.py documents.
        blocks: Length of its parallel axis; with 0 the command does nothing.
        cost_ns: Estimated time of all blocks together on one thread.
        arguments: What its 8-byte argument slots hold.
        scratch_bytes: Memory of its own that each thread needs.
        origin: Names of the ONNX nodes that it came from.
        segment: The segment that it belongs to.
        host: What is called in place of a kernel.
        library: What a library may do instead.
        note: Why neither a library nor integers do it, where that was looked for.
    """

    kernel: str
    blocks: Dim
    cost_ns: Dim
    arguments: tuple[Argument, ...]
    scratch_bytes: Dim = 0
    origin: tuple[str, ...] = ()
    segment: int = 0
    host: HostSignature | None = None
    library: LibraryCall | None = None
    note: str = ""

    @property
    def kernel_arguments(self) -> tuple[Argument, ...]:
        """Those of the kernel itself."""
        others = self.library.count if self.library is not None else 0
        return self.arguments[: len(self.arguments) - others]

    @property
    def library_arguments(self) -> tuple[Argument, ...]:
        """Those of the call of a library."""
        return self.arguments[len(self.kernel_arguments) :]

    @property
    def where(self) -> str:
        """For errors: the nodes, or the kernel if it came from none."""
        names = self.origin
        if len(names) > 4:
            names = (*names[:2], "...", *names[-2:])
        return f"node {', '.join(names)}" if names else f"kernel {self.kernel}"


@dataclass(frozen=True, slots=True)
class Guard:
    """The plan holds only for feeds that make the two equal; `reason` says why, for people."""

    left: Dim
    right: Dim
    reason: str = ""
    segment: int = 0


@dataclass(frozen=True, slots=True)
class SizeSource:
    """The node, as errors name it, that is the first to make a shape: see `LoweredGraph.makers`."""

    dims: tuple[Dim, ...]
    element_bytes: int
    where: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run needs, but code and constants.

    Attributes:
        inputs: Feeds, in order.
        outputs: Results, in order.
        buffers: Memory.
        commands: Kernel calls and steps, in the order in which they are walked.
        guards: What must hold.
        segments: Where sizes become known; the first is known from the feeds' shapes.
        strings: What the codes in constants stand for; the first is "".
        makers: Who makes which shapes, in the order of the nodes; for errors.

    Raises:
        EngineError: The parts contradict each other.
    """

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    buffers: tuple[BufferSpec, ...]
    commands: tuple[Command | Step, ...]
    guards: tuple[Guard, ...] = ()
    segments: tuple[Segment, ...] = (Segment(-1),)
    strings: tuple[str, ...] = ("",)
    makers: tuple[SizeSource, ...] = ()

    def __post_init__(self) -> None:
        limits = {"input": len(self.inputs), "output": len(self.outputs)}
        written = [0] * len(self.outputs)
        for number, buffer in enumerate(self.buffers):
            if buffer.kind not in BUFFER_KINDS:
                raise _contradiction(f"Buffer {number} has the unknown kind {buffer.kind!r}")
            if not 0 <= buffer.number < limits.get(buffer.kind, buffer.number + 1):
                raise _contradiction(f"There is no {buffer.kind} {buffer.number}")
            if buffer.kind == "output":
                written[buffer.number] += 1
            if buffer.kind == "arena" and not 0 <= buffer.first <= buffer.last:
                raise _contradiction(f"Buffer {number} ends before it begins")
        for output, count in zip(self.outputs, written, strict=True):
            if count != 1:
                raise _contradiction(f"Output {output.name!r} has {count} buffers, not one")
        for number, segment in enumerate(self.segments):
            if not -1 <= segment.parent < number or (segment.parent < 0) != (number == 0):
                raise _contradiction(f"Segment {number} cannot follow segment {segment.parent}")
            for measure in segment.measures:
                self._check_buffer(f"Segment {number}", measure.buffer)
        for number, command in enumerate(self.commands):
            if isinstance(command, Command):
                for argument in command.arguments:
                    if isinstance(argument, PointerArgument):
                        self._check_pointer(number, argument)
            else:
                self._check_step(number, command)

    def _check_buffer(self, what: str, buffer: int) -> None:
        if not 0 <= buffer < len(self.buffers):
            raise _contradiction(f"{what} uses buffer {buffer}: there is none")

    def _check_step(self, number: int, step: Step) -> None:
        if isinstance(step, (JumpUnless, Grow)):
            self._check_buffer(f"Command {number}", step.buffer)
        if isinstance(step, Grow) and self.buffers[step.buffer].kind != "grown":
            raise _contradiction(f"Command {number} enlarges what cannot grow")
        if isinstance(step, (Jump, JumpUnless, JumpIfLess)):
            if not 0 <= step.target <= len(self.commands):
                raise _contradiction(f"Command {number} jumps out of the plan")
        elif isinstance(step, Together):
            bounds = [number + 1, *(part.end for part in step.parts)]
            if [part.first for part in step.parts] != bounds[:-1] or bounds != sorted(bounds):
                raise _contradiction(f"The parts behind command {number} are not in a row")
            if bounds[-1] > len(self.commands):
                raise _contradiction(f"The parts behind command {number} leave the plan")
        elif isinstance(step, Enter) and not 0 < step.segment < len(self.segments):
            raise _contradiction(f"Command {number} enters segment {step.segment}: there is none")

    def _check_pointer(self, number: int, argument: PointerArgument) -> None:
        self._check_buffer(f"Command {number}", argument.buffer)
        buffer = self.buffers[argument.buffer]
        if buffer.kind == "arena" and not buffer.first <= number <= buffer.last:
            raise _contradiction(
                f"Command {number} uses buffer {argument.buffer},"
                f" which lives from {buffer.first} to {buffer.last}"
            )

    @property
    def constant_count(self) -> int:
        """How many constants an executable of this plan is given."""
        return max((b.number + 1 for b in self.buffers if b.kind == "constant"), default=0)

    @property
    def calls(self) -> list[Command]:
        """The commands that call kernels."""
        return [c for c in self.commands if isinstance(c, Command)]

    @property
    def has_objects(self) -> bool:
        """Whether there are strings, sequences or the like in it."""
        dtypes = [x.dtype for x in self.inputs] + [x.dtype for x in self.outputs]
        return any(d.is_code for d in dtypes) or any(c.host is not None for c in self.calls)

    @property
    def only_draws(self) -> bool:
        """Whether calls of the host take nothing and give numbers, such as keys, and no more."""
        dtypes = [x.dtype for x in self.inputs] + [x.dtype for x in self.outputs]
        hosted = [c.host for c in self.calls if c.host is not None]
        dtypes += [r.dtype for h in hosted for r in h.results if r is not None]
        return not any(h.operands for h in hosted) and not any(d.is_code for d in dtypes)

    @property
    def grown_count(self) -> int:
        """How many buffers grow."""
        return max((b.number + 1 for b in self.buffers if b.kind == "grown"), default=0)

    def size_of(self, spec: InputSpec | OutputSpec) -> Dim:
        """Bytes of a feed or a result."""
        return sizes.product(spec.dims) * spec.dtype.size_bytes

    def __str__(self) -> str:
        lines = [f"input {x.name}: {x.dtype}{list(x.dims)}" for x in self.inputs]
        lines += [f"output {x.name}: {x.dtype}{list(x.dims)}" for x in self.outputs]
        for number, buffer in enumerate(self.buffers):
            life = f" live {buffer.first}..{buffer.last}" if buffer.kind == "arena" else ""
            what = buffer.kind if buffer.kind == "arena" else f"{buffer.kind} {buffer.number}"
            lines.append(f"b{number} = {what}, {buffer.size_bytes!r} bytes{life}")
        lines += [f"guard {g.left!r} == {g.right!r}  # {g.reason}" for g in self.guards]
        for number, command in enumerate(self.commands):
            if not isinstance(command, Command):
                lines.append(f"{number}: {command}")
                continue
            listed = ", ".join(map(_argument_text, command.arguments))
            lines.append(
                f"{number}: {command.kernel}({listed}) over {command.blocks!r} blocks,"
                f" {command.cost_ns!r} ns  # {' '.join(command.origin)}"
            )
        return printable_lines(lines)


def _argument_text(argument: Argument) -> str:
    match argument:
        case PointerArgument(buffer, offset):
            return f"b{buffer}" if offset == 0 else f"b{buffer} + {offset!r}"
        case SizeArgument(value):
            return repr(value)
        case BitsArgument(bits):
            return f"{bits:#x}"


def _contradiction(what: str) -> EngineError:
    return EngineError(message("plan", what))
