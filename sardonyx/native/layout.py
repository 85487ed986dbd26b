"""Records that Python and the native functions share: 64-bit words at fixed places.

IMAGE is what one executable's frames have in common, FRAME is one run's state, POOL the state of a
thread pool. The tables that they point to are records too. All are parts of int64 arrays.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, SsaValue
from sardonyx.kernel.language.types import I64, PTR, Type

#: Bytes per word; loads and stores below count in words.
WORD = 8


class LayoutRecord:
    """Names of consecutive words; `record["name"]` is the place of one."""

    def __init__(self, names: str) -> None:
        self.names = tuple(names.split())
        self._places = {name: k for k, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> int:
        return self._places[name]

    @property
    def words(self) -> int:
        """How many words a record has."""
        return len(self.names)

    def read(self, b: Builder, base: Operand, name: str, type: Type = I64) -> SsaValue:
        """A word of the record at `base`."""
        return b.load(type, base, self._places[name])

    def pointer(self, b: Builder, base: Operand, name: str) -> SsaValue:
        """A word that is an address."""
        return b.load(PTR, base, self._places[name])

    def write(self, b: Builder, base: Operand, name: str, value: Operand | int) -> None:
        """Set a word of the record at `base`."""
        lifted = b.constant(I64, value) if isinstance(value, int) else value
        b.store(lifted, base, self._places[name])

    def place(self, b: Builder, base: Operand, name: str) -> SsaValue:
        """The address of a word."""
        return b.offset(base, self._places[name], WORD)

    def at(self, b: Builder, table: Operand, number: Operand) -> SsaValue:
        """The record `number` of a table of them."""
        return b.offset(table, number, WORD * self.words)


#: Tables have an address and a count.
IMAGE = LayoutRecord(
    "array_type inputs input_count axes axis_count binds bind_count tape tape_count"
    " guards guard_count buffers buffer_count sized sized_count events event_count"
    " commands command_count scheduled scheduled_count pointers pointer_count"
    " numbers number_count measures measure_count needed needed_count grown grown_count"
    " outputs output_count shapes shape_count segments segment_count parts part_count threads"
    " branches share"
)
#: What of the tables belongs to one segment: from, up to. `moving` and `resting` are pointers:
#: those to feeds and results are written in every run. `later` is 1 if results get their memory
#: in it.
SEGMENT = LayoutRecord(
    "tape tape_end guards guards_end sized sized_end events events_end scheduled scheduled_end"
    " moving moving_end resting resting_end numbers numbers_end measures measures_end"
    " needed needed_end later"
)
#: Of each segment in a frame. `stamp` is 0, or grows with every time that it is resolved; `given`
#: is 1 once its results have memory in this run; `dirty` is 1 until its pointers are written.
STATE = LayoutRecord("stamp arena arena_bytes capacity given dirty")
#: A measured symbol: its slot, the buffer where its value lies, slots: at which byte, its limits.
MEASURE = LayoutRecord("slot buffer offset low high")
#: A growing buffer: itself, and its pointers, of which the table `pointers` has a copy at its end.
GROWN = LayoutRecord("buffer pointers pointers_end")
#: Which array among those given to `execute`, and its buffer; its element type, its rank, and where
#: in the table `shapes` the slots of its sizes begin.
OUTPUT = LayoutRecord("item buffer descr rank first_axis")
INPUT = LayoutRecord("descr rank first_axis buffer")
#: A feed's axis that gives a symbol its value.
BIND = LayoutRecord("axis slot")
INSTRUCTION = LayoutRecord("operation result left right")
#: Two slots that must agree.
GUARD = LayoutRecord("left right")
#: A kernel with slots of sizes; or 0, the number of a step in place of the arguments, and up to
#: three words that mean what the step says. A kernel of a device is the step LAUNCH, with the slots
#: of sizes all the same.
COMMAND = LayoutRecord("kernel arguments blocks cost scratch")
ENTER, JUMP, JUMP_UNLESS, JUMP_IF_LESS, SET, GROW, HOST, LAUNCH, TOGETHER = range(9)
#: Commands from `first` up to `end`; the slot of how often most of them are done.
PART = LayoutRecord("first end trips")
#: An argument that is an address: its slot's number, the buffer, the tape's slot of the offset.
POINTER = LayoutRecord("argument buffer offset")
NUMBER = LayoutRecord("argument slot")

FRAME = LayoutRecord(
    "image slots dims bases offsets arguments jobs free states capacities valid clock"
    " scratch_bytes threads parallel_ns detail_a detail_b detail_c"
    " cancel cancel_word command block launches launcher"
    " fault fault_command fault_a fault_b fault_c pad1 pad2 pad3"
    " positions together stopped recorder pad4 pad5 pad6 pad7"
    " context_fault context_scratch context_scratch_bytes context_thread context_functions"
    " context_command context_cancel pad9"
)
#: What `resolve` says about a command. `grain`: blocks between two looks at the cancel flag,
#: `round`: blocks between two returns to Python, `cost`: on as many threads as it gets.
JOB = LayoutRecord("blocks threads grain round cost")
#: How a kernel of a device is launched: the driver's handle of it, a table of addresses of its
#: arguments, blocks for each thread block, the most thread blocks; then the driver's record of a
#: launch, two integers of 32 bits in a word: thread blocks in x and y, those in z and threads in x,
#: threads in y and z, bytes of shared memory; the queue, and a list of attributes with its length:
#: there is one for launches of up to `early` thread blocks.
LAUNCHED = LayoutRecord(
    "function parameters group most grid_xy grid_z_block_x block_yz shared stream attributes count"
    " early"
)
#: The driver's functions for launching and for waiting; the queue of work. `reads` is 1 if steps
#: read what kernels write: the driver's function `fetch` brings each such word to the table
#: `mirror`, where there is a place for each measure and, behind them, one for conditions.
LAUNCHER = LayoutRecord("launch wait stream reads fetch mirror")
#: What a replay of a graph needs: the device's context, how arguments are sent, the graph, its
#: stream, whether to wait; tables of where feeds and results lie and lay, and of what is written
#: where that differs; whether arguments are to be sent; where kernels note faults; then functions
#: of the driver, and room for what they give.
REPLAY = LayoutRecord(
    "context staging graph stream waits given known count writes write_count unsent fault"
    " look enter relax copy launch record wait before mode"
)
#: How arguments are sent: from where they are written, by way of memory that the device copies
#: from (0: there must be other memory first), to its own; how many bytes; the C library's memmove.
STAGING = LayoutRecord("content source target bytes move")
#: An argument's address, the number of the feed or result it lies in, and the bytes from there.
WRITE = LayoutRecord("argument number offset")
#: What `replay` gives, together: arguments were sent; a kernel has noted a fault. Or, alone: there
#: must be a `source` first, nothing was done.
SENT, FAULTY, NO_SOURCE = 1, 2, 4
#: What lets go of memory that others had: functions of Python that take its lock and give it back,
#: take the error that is on its way and put it back, the work itself; where the error is between.
LETTING_GO = LayoutRecord("lock unlock fetch restore work kind value trace")
#: A hole in the arena.
HOLE = LayoutRecord("offset bytes")

#: What a recorded run has: addresses of the kernels by command, and how many rows each of its
#: TRACKs, which lie behind it, has room for.
RECORDER = LayoutRecord("kernels capacity p2 p3 p4 p5 p6 p7")
#: Of one thread: how many rows there are, those without room too; where they lie.
TRACK = LayoutRecord("count rows p2 p3 p4 p5 p6 p7")
#: Blocks of a command that a thread did in one go, and what the clock said before and after.
SPAN = LayoutRecord("command begin end blocks started ended")

#: A set of processors as the system has it, one bit each; Linux knows 8,192 at most.
MASK_WORDS = 128
#: Words that different threads write lie on different cache lines.
POOL = LayoutRecord(
    "generation g1 g2 g3 g4 g5 g6 g7"
    " active a1 a2 a3 a4 a5 a6 a7"
    " open sleepers joining stop s1 s2 s3 s4"
    " kernel arguments limit command fault cancel functions grain"
    " share portions portion_count processor j4 j5 j6 j7"
    " spins system_call futex_number yield_address timeout_seconds timeout_ns walk workers"
    " processor_address getter_number setter_number identities allowed mask p6 p7"
)
#: Of a command's blocks: the next one, and the one behind the last. Portions follow each other, and
#: there are at most so many: to write one costs as much as to claim from it.
PORTION = LayoutRecord("next end p2 p3 p4 p5 p6 p7")
MOST_PORTIONS = 8

# What `resolve` can give.
(
    DONE, OVERFLOW, DIVISION, AXIS, UNEQUAL, BAD_SIZE, BAD_ARENA, BAD_BLOCKS, BAD_OFFSET,
    BAD_MEASURE,
) = range(10)  # fmt: skip

#: No buffer, and no arena, may be larger.
LARGEST_BYTES = 1 << 46
ALIGNMENT = 64
#: A run uses one more thread for each piece of work of this length.
NS_PER_THREAD = 2000
#: Serial work looks at the cancel flag about this often.
NS_PER_POLL = 1_000_000
#: A long run returns to Python about this often by the cost model, which a slow or shared machine
#: may exceed twice; handlers of signals can end it there. Threads meet then, which costs kernels of
#: so long about half a block each time.
NS_PER_ROUND = 10_000_000
#: What `execute` gives when it wants to be called again: just so; after the segment `detail_a` has
#: got memory; after its results have; after the growing buffer `detail_a` has got `detail_b` bytes
#: and kept the first `detail_c`. REFUSED: `detail_c` is what `resolve` gave for a segment.
#: NEED_HOST: after the host has done the command at which it stopped, and has counted it on.
#: NOT_LAUNCHED: never; the driver refused a kernel, and `detail_a` is its code.
UNFINISHED, NEED_MEMORY, NEED_RESULTS, NEED_GROWTH, REFUSED, NEED_HOST = -1, -2, -3, -4, -5, -6
NOT_LAUNCHED = -7
#: What `again` gives where it did nothing.
NOT_AGAIN = -8
#: What sharing a command costs beside its work.
NS_PER_JOIN = 1000
#: What a step counts as, so that a loop of nothing but steps is interrupted, too.
NS_PER_STEP = 30
#: Sleeping workers are woken only if that much work waits: waking takes 70 to 130 us.
NS_WORTH_WAKING = 60_000

# Where CPython keeps what `bind` reads; checked in arrays.py before use.
TYPE_OFFSET, DATA_OFFSET, RANK_OFFSET, DIMS_OFFSET = 8, 16, 24, 32
DESCR_OFFSET, FLAGS_OFFSET = 56, 64
#: Where a capsule of Python, and DLPack's two forms, have a word of whoever made them.
CAPSULE_CONTEXT_OFFSET, MANAGED_CONTEXT_OFFSET, VERSIONED_CONTEXT_OFFSET = 32, 48, 8
#: NumPy's C_CONTIGUOUS and ALIGNED, and WRITEABLE.
NEEDED_FLAGS, WRITEABLE_FLAG = 0x1 | 0x100, 0x400

#: Words of a row of each of an image's tables that has rows.
ROW_WORDS = {
    "inputs": INPUT.words, "binds": BIND.words, "tape": INSTRUCTION.words, "guards": GUARD.words,
    "commands": COMMAND.words, "pointers": POINTER.words, "numbers": NUMBER.words,
    "measures": MEASURE.words, "grown": GROWN.words, "outputs": OUTPUT.words,
    "segments": SEGMENT.words, "parts": PART.words,
}  # fmt: skip
