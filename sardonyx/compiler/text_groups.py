"""The work of a plan as text: groups, layouts of buffers, and which kernels were chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.compiler.blocks import RegionWork, WorkBlock
from sardonyx.compiler.compile_graph import Compiled
from sardonyx.compiler.text_names import TensorNames, listed
from sardonyx.ops.core.lower import LoweredGraph
from sardonyx.plan.attention import ATTENTION
from sardonyx.plan.axes import extent_of
from sardonyx.plan.grouping import GROUP
from sardonyx.plan.groups import Attention, Contraction, CustomKernel, Group, LoopNest
from sardonyx.plan.inline import INLINE, Materialized
from sardonyx.plan.layout import strides_in
from sardonyx.plan.reasons import Reasons
from sardonyx.plan.vendor_offers import Offer
from sardonyx.selection.invocation import Invocation
from sardonyx.selection.table import SelectionTrace
from sardonyx.tensor.region import Branches, Repetition
from sardonyx.tensor.tensor import Buffer, Tensor


@dataclass(eq=False, slots=True)
class Item:
    """A group, in the order of all.

    Attributes:
        name: `g0`, `g1` and so on.
        group: What it is.
        block: The work that it is part of.
        indent: The deeper the body that it is in, the more.
        heading: Which body begins with it; "" for none.
        around: The nodes of the branch or loop that it is in.
    """

    name: str
    group: Group
    block: WorkBlock
    indent: str
    heading: str = ""
    around: Sequence[str] = ()

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes of the file that are fused in it; of a body that has none, around."""
        origins = self.block.origins
        own = dict.fromkeys(n for r in self.group.roots for n in origins.get(r.tensor, ()))
        return list(own) or list(self.around)

    @property
    def made(self) -> Sequence[Invocation]:
        """Its kernels, those that pack for it too; none if its bodies have kernels of their own."""
        return self.block.made.get(self.group, ())

    @property
    def own(self) -> dict[Invocation, None]:
        """The kernels that write its results: others write what it needs."""
        results = {r.buffer for r in self.group.roots}
        return dict.fromkeys(i for i in self.made if results & set(i.writes))


class OfferNotes:
    """Takes note of what libraries would be asked for, and has none (`Accelerator`).

    Attributes:
        offers: All, in the order in which they were made.
    """

    def __init__(self) -> None:
        self.offers: list[Offer] = []

    def refusal(self, offer: Offer) -> str:
        """See `Accelerator.refusal`: kernels are planned as where no library is installed."""
        self.offers.append(offer)
        return "there is none here"

    def of(self, group: Group) -> list[Offer]:
        """The offers of a group that differ in what is asked for, each once."""
        roots = {r.tensor for r in group.roots}
        found = {(o.function, o.facts): o for o in self.offers if _result_of(o) in roots}
        return list(found.values())


def _result_of(offer: Offer) -> Tensor | None:
    """The tensor whose contraction or attention is offered."""
    number = 3 if offer.function == "attention" else 2
    match offer.operands[number].buffer.key:
        case Tensor() as tensor:
            return tensor
        case ("sums", Materialized() as root):
            return root.tensor
    return None


@dataclass(eq=False, frozen=True, slots=True)
class Notes:
    """What was noted while a plan was made.

    Attributes:
        offers: What was offered to libraries; None where a target has none.
        reasons: What planning passes did, and why.
        trace: Which candidates selection looked at, and why not.
    """

    offers: OfferNotes | None = None
    reasons: Reasons = field(default_factory=Reasons)
    trace: SelectionTrace = field(default_factory=SelectionTrace)


class WorkText:
    """Prints the work of one plan.

    Attributes:
        items: Its groups, those of bodies behind the branch or loop that has them.

    Args:
        compiled: The plan.
        lowered: What it computes: values of the file have names there.
        notes: What was noted while it was made.
        on_device: Whether it is for a GPU, where parts of kernels' work are subgroups.
    """

    def __init__(
        self,
        compiled: Compiled,
        lowered: LoweredGraph,
        notes: Notes,
        *,
        on_device: bool = False,
    ) -> None:
        self._compiled, self._lowered, self._notes = compiled, lowered, notes
        self._on_device = on_device
        self._names = TensorNames(lowered)
        self.items = list(_walk(compiled.block, "", ""))
        for number, item in enumerate(self.items):
            item.name = f"g{number}"
            # Numbered names are the same in all texts.
            for buffer in (r.buffer for r in item.group.roots):
                self._names.of(buffer)
            for buffer in (b for i in item.made for b in i.writes):
                self._names.of(buffer)
        self._users = Counter(x for item in self.items for x in {_name(i) for i in item.own})
        #: Names of kernels that run when the session is made.
        self.once = {c.kernel for p in compiled.preparations for c in p.plan.calls}

    # -- groups -------------------------------------------------------------------------------

    def groups(self) -> Iterator[str]:
        """A line for each group: kind, outputs, loops, nodes of the file."""
        for item in self.items:
            if item.heading:
                yield item.heading
            nodes = " ".join(item.nodes)
            yield f"{item.indent}{self.group(item)}{f'  # {nodes}' if nodes else ''}"

    def group(self, item: Item) -> str:
        """A group: kind, outputs, loops."""
        group = item.group
        outputs = ", ".join(self._names.typed(r.buffer) for r in _stored(group))
        once = "; once" if all(r.never_changes for r in group.roots) else ""
        return f"{item.name} {_kind(group)} {outputs}; {_loops(group)}{once}"

    # -- layouts ------------------------------------------------------------------------------

    def layouts(self) -> Iterator[str]:
        """A line for each buffer: its axes as they lie in memory, the innermost last."""
        for buffer in self._lowered.inputs.values():
            yield f"{self._names.typed(buffer)} input, {_in_file(buffer)}"
        for buffer in self._read_constants():
            yield f"{self._names.typed(buffer)} constant, {_in_file(buffer)}"
        for item in self.items:
            yield from self.layouts_of(item)

    def layouts_of(self, item: Item) -> Iterator[str]:
        """The lines of the buffers that a group writes, and of those that are made for it."""
        own = item.own
        for root in _stored(item.group):
            order = item.block.orders.get(root.buffer, ())
            yield f"{self._names.typed(root.buffer)} of {item.name}, {_lies(root.buffer, order)}"
        for made in item.made:
            sources = ", ".join(map(self._names.of, made.reads)) or "nothing"
            for buffer in made.writes if made not in own else ():
                text = f"{self._names.typed(buffer)} for {item.name}"
                yield f"{text}, made by {_name(made)} of {sources}"

    def _read_constants(self) -> list[Buffer]:
        read = {b for i in self._compiled.invocations for b in i.reads}
        return [b for b in dict.fromkeys(self._lowered.constants.values()) if b in read]

    # -- choices ------------------------------------------------------------------------------

    def choices(self) -> Iterator[str]:
        """A line for each kernel of each group, for libraries' offers, and for each candidate."""
        for item in self.items:
            outputs = ", ".join(self._names.of(r.buffer) for r in _stored(item.group))
            for text in self.choices_of(item):
                yield f"{item.name} {_kind(item.group)} {outputs}: {text}"
            for text in self.candidates_of(item):
                yield f"  {text}"

    def candidates_of(self, item: Item, known: Mapping[str, int] | None = None) -> Iterator[str]:
        """A line for each candidate of a group: that it was taken, or why it was not; its cost.

        Args:
            item: The group.
            known: Sizes of dimensions, for costs.
        """
        candidates = [c for c in self._notes.trace.of(item.group) if c.is_own]
        last = max((k for k, c in enumerate(candidates) if c.reason is None), default=-1)
        # What is done once is done by the processor, which has a model.
        is_once = all(_name(i) in self.once for i in item.own)
        unit = "cycles of the device" if self._on_device and not is_once else "ns"
        for k, candidate in enumerate(candidates):
            cost = candidate.cost
            if k == last and cost is None and unit == "ns":
                cost = sizes.total(i.kernel.cost_ns for i in item.own)
            chooses = candidate.reason is None and k != last  # the next ones are its own
            text = "  " * candidate.depth + ("taken" if candidate.reason is None else "not")
            text += f" {candidate.name}"
            if cost is not None:
                text += f", {value_of(cost, known)!r} {unit}"
            elif candidate.is_possible and not chooses:
                text += ", no cost model"
            yield text if candidate.reason is None else f"{text}: {candidate.reason}"

    def passes_of(self, item: Item) -> Iterator[str]:
        """A line for each planning pass that looked at a group: what it did, and why.

        Where a pass is about the memory of tensors, they are named.
        """
        buffers = {r.tensor: r.buffer for r in item.group.roots}
        tensors: dict[tuple[str, bool, str], list[str]] = {}
        for o in (*self._notes.reasons.of(item.group), *self._notes.trace.passes(item.group)):
            named = tensors.setdefault((o.name, o.changed, str(o.reason)), [])
            if o.tensor is not None:
                named.append(self._names.of(buffers[o.tensor]))
        for (name, changed, reason), named in tensors.items():
            about = f" of {', '.join(dict.fromkeys(named))}" if named else ""
            yield f"{name}{about}{'' if changed else ' did nothing'}: {reason}"

    def apart_of(self, item: Item) -> Iterator[str]:
        """A line for each tensor that a group reads of another one: why they are not one kernel."""
        writers = {r.buffer: (other, r) for other in self.items for r in other.group.roots}
        for buffer in dict.fromkeys(b for made in item.made for b in made.reads):
            other, root = writers.get(buffer, (item, None))
            if other is item or root is None:
                continue
            nodes = " ".join(other.nodes)
            found = self._notes.reasons.apart(root.tensor, (INLINE, GROUP, ATTENTION))
            why = "; ".join(f"{o.name}: {o.reason}" for o in found) or "no pass joins them"
            told = f" ({nodes})" if nodes else ""
            yield f"{self._names.of(buffer)} of {other.name}{told}: {why}"

    def choices_of(self, item: Item) -> Iterator[str]:
        """The kernels of one group, and what libraries may do instead."""
        if item.group not in item.block.made:
            yield "its bodies have kernels of their own"
            return
        own = item.own
        for made in item.made:
            if made not in own:
                yield f"{', '.join(map(self._names.of, made.writes))} by {self._kernel(made)}"
        texts = Counter((_name(i), self._kernel(i)) for i in own)
        for (name, text), calls in texts.items():
            often = f", {calls} calls" if calls > 1 else ""
            yield f"{text}{often}, {_groups(self._users[name])}"
        found = self._notes.offers
        offers = [] if found is None else found.of(item.group)
        yield from dict.fromkeys(map(_offer_text, offers))
        if not offers:
            yield from dict.fromkeys(i.note for i in item.made if i.note)

    def _kernel(self, invocation: Invocation) -> str:
        kernel, name = invocation.kernel, _name(invocation)
        if kernel.host is not None:
            return f"{name} on the host"
        each = ", ".join(f"{what} {size!r}" for what, size in kernel.per_block)
        if kernel.program.kind == "block":
            each = f"thread block: {each}"
        is_once = name in self.once
        unit = "subgroups" if self._on_device and not is_once else "blocks"
        text = f"{name} in {kernel.blocks!r} {unit}{f' ({each})' if each else ''}"
        return f"{text}, once" if is_once else text


def value_of(cost: Dim, known: Mapping[str, int] | None) -> Dim:
    """A size as a number, if all that it depends on is known."""
    try:
        return cost if isinstance(cost, int) or not known else sizes.evaluate(cost, known)
    except (KeyError, ZeroDivisionError):
        return cost


def _walk(
    block: WorkBlock, indent: str, heading: str, around: Sequence[str] = ()
) -> Iterator[Item]:
    regions = {id(w.region): w for w in block.works if isinstance(w, RegionWork)}
    for group in block.groups:
        item = Item("", group, block, indent, heading, around)
        yield item
        heading = ""
        if isinstance(group, CustomKernel):
            work = regions.get(id(dict(group.call.attributes).get("region")))
            for title, inner in _bodies(work):
                yield from _walk(inner, f"{indent}    ", f"{indent}  {title}:", item.nodes)


def _name(invocation: Invocation) -> str:
    kernel = invocation.kernel
    return kernel.program.name if kernel.host is None else kernel.host.function


def _offer_text(offer: Offer) -> str:
    facts = dict(offer.facts)
    dtype, result = facts.pop("dtype"), facts.pop("result")
    kinds = f"{dtype}" if dtype == result else f"{dtype} to {result}"
    told = [n if v is True else f"{n} {v}" for n, v in facts.items() if v not in (False, "", None)]
    text = f"a library may do {offer.function} of {kinds}" + "".join(f", {t}" for t in told)
    return f"{text}, no cost model"


def _groups(count: int) -> str:
    return "for this group alone" if count == 1 else f"shared by {count} groups"


def _bodies(work: RegionWork | None) -> list[tuple[str, WorkBlock]]:
    if work is None:
        return []
    titles = ("then", "else") if isinstance(work.region, Branches) else ("body",)
    return list(zip(titles, work.blocks, strict=True))


def _stored(group: Group) -> list[Materialized]:
    """What of a group's results lies in memory."""
    if not isinstance(group, LoopNest):
        return group.roots
    return [s.root for s in group.stages if s.stored or s.root.is_output]


def _kind(group: Group) -> str:
    match group:
        case LoopNest():
            return "loop nest"
        case Contraction():
            return "contraction"
        case Attention():
            return "attention"
        case CustomKernel():
            return group.call.kernel


def _loops(group: Group) -> str:
    match group:
        case LoopNest(outer=outer, inner=inner, stages=stages):
            steps = f"; inner {_extents(inner)}; {' '.join(s.kind for s in stages)}"
            return f"loops {_extents(outer)}{steps if inner else ''}"
        case Contraction(loops=loops, reduced=reduced):
            return f"loops {_extents(loops)}; sum over {_extents(reduced)}"
        case Attention():
            axes = {
                "batch": group.batch, "queries": (group.row,), "keys": (group.key,),
                "columns": (group.column,), "depth": group.depth,
            }  # fmt: skip
            return "; ".join(f"{name} {_extents(found)}" for name, found in axes.items())
        case CustomKernel():
            region = dict(group.call.attributes).get("region")
            if isinstance(region, Repetition):
                return f"at most {region.trips!r} times"
            return "one of its bodies" if region is not None else "loops of its own"


def _extents(variables: Sequence[Dim]) -> str:
    return listed(extent_of(v) for v in variables if v != 0) or "1"


def _in_file(buffer: Buffer) -> str:
    return _lies(buffer, tuple(range(len(buffer.shape))))


def _lies(buffer: Buffer, order: Sequence[int]) -> str:
    """The order of axes, and what it is not, if the file has another one."""
    natural = tuple(range(len(buffer.shape)))
    if tuple(order) == natural:
        return f"axes {_order(natural)}"
    steps = strides_in(buffer.shape, tuple(order))
    return f"axes {_order(order)}, not {_order(natural)} as in the file; strides {listed(steps)}"


def _order(order: Sequence[int]) -> str:
    return " ".join(map(str, order)) or "none"
