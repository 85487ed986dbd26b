"""Contractions with a library in the place of their kernel, which stays for what it cannot do.

What of an epilogue no library knows becomes a kernel of its own, that changes the result in place.
Constant filters are put in the order that libraries want, channels last; so is an image that lies
otherwise. The kernel reads the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sardonyx.base import dtypes, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.axes import offset_of
from sardonyx.plan.grouping import pointwise
from sardonyx.plan.groups import Contraction, LoopNest, Stage
from sardonyx.plan.inline import Materialized
from sardonyx.plan.layout import row_major, strides_in
from sardonyx.plan.plan import LibraryCall
from sardonyx.plan.reasons import Reason
from sardonyx.plan.roles import index_atoms, roles
from sardonyx.plan.vendor_convolution import Windows
from sardonyx.plan.vendor_offers import (
    MATMUL,
    Accelerator,
    Matrices,
    Offer,
    OfferEpilogue,
    Operand,
    Strides,
    common_refusal,
    facts_of,
    is_constant,
    length_of,
    result_kinds,
    step_along,
)
from sardonyx.selection.table import Candidate, Table, always, choose
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import Buffer, Map, buffer, indices, make_map

if TYPE_CHECKING:
    from sardonyx.selection.invocation import Invocation
    from sardonyx.selection.selector import KernelSelector

#: One way to offer a contraction: gives the invocations, or why it cannot be.
_Way = Callable[["_Task", Contraction, OfferEpilogue], "list[Invocation] | str"]


@dataclass(frozen=True, slots=True)
class _Task:
    selector: KernelSelector
    strides: Strides
    accelerator: Accelerator


def accelerated(
    selector: KernelSelector, group: Contraction, strides: Strides, accelerator: Accelerator
) -> list[Invocation] | str:
    """The invocations of a contraction that a library takes, or why none does."""
    refusal = common_refusal(group)
    if refusal:
        return refusal
    task = _Task(selector, strides, accelerator)
    before = dict(selector.packed)
    group, steps = _one_bias(task, group)
    whole = OfferEpilogue.of(group)
    apart = _lies_otherwise(group, strides)
    offered = _OfferTask(task, group, whole, apart)
    found = choose(WAYS, offered, selector.trace)
    if found is not None:
        return [*steps, *found]
    selector.packed.go_back(before)
    return "; ".join(offered.reasons)


class _OfferTask:
    """A contraction that is offered in several ways.

    Attributes:
        reasons: Why not in the ways that were tried, each once.

    Args:
        task: What all ways know.
        group: The contraction; `contraction` here, as a way is no kernel of it.
        whole: The part of its epilogue that libraries know; None if that is not all of it.
        apart: Whether no library can write the result where it is wanted.
    """

    def __init__(
        self, task: _Task, group: Contraction, whole: OfferEpilogue | None, apart: bool
    ) -> None:
        self._task, self._contraction, self._whole, self._apart = task, group, whole, apart
        self.reasons: dict[str, None] = {}
        self._tried: dict[tuple[_Way, bool], list[Invocation] | Reason] = {}

    def offered(self, way: _Way, *, finishes: bool) -> list[Invocation] | Reason:
        """What a library takes, with the epilogue or without; why it does not."""
        if not finishes and self._whole == OfferEpilogue():
            return _NO_EPILOGUE
        key = way, finishes
        if key not in self._tried:
            self._tried[key] = self._try(way, self._whole if finishes else None)
        return self._tried[key]

    def _try(self, way: _Way, finish: OfferEpilogue | None) -> list[Invocation] | Reason:
        packed = self._task.selector.packed
        packings = dict(packed)
        if finish is not None and not self._apart:
            found = way(self._task, self._contraction, finish)
        else:
            found = _apart(self._task, self._contraction, way, finish, self._apart)
        if not isinstance(found, str):
            return found
        packed.go_back(packings)
        self.reasons[found] = None
        return Reason(found)


_NO_EPILOGUE = Reason("it has no epilogue that a kernel could compute behind it")


def _lies_otherwise(group: Contraction, strides: Strides) -> bool:
    """Whether no library can write the result where, or as, it is wanted."""
    if group.root.buffer.dtype not in result_kinds(group):
        return True
    offset = offset_of(strides[group.root.buffer], group.at)
    found = roles(group)
    return found is not None and all(step_along(offset, c) != 1 for c in found[2])


def _one_bias(task: _Task, group: Contraction) -> tuple[Contraction, list[Invocation]]:
    """Constants that are added along one axis, added up before any run."""
    finish = OfferEpilogue.of(group)
    if finish is None or finish.activation not in ("", "relu"):
        return group, []
    fixed = [x for x in finish.added if is_constant(x) and len(x.at) == 1]
    if len({x.at for x in fixed}) != 1 or len(fixed) < 2:
        return group, []
    shape = fixed[0].tensor.shape
    first, *others = [load(x.tensor, indices(shape)) for x in fixed]
    total = first
    for other in others:
        total = total + scalar.cast(other, first.dtype)
    packed, steps = task.selector.packed_buffer(make_map(shape, total), task.strides)
    task.strides[packed] = row_major(shape)
    value, kind = group.result, group.result.dtype
    for x in (load(packed, fixed[0].at), *(x for x in finish.added if x not in fixed)):
        value = value + scalar.cast(x, kind)
    if finish.activation:
        value = scalar.binary("max", value, 0)
    return replace(group, epilogue=scalar.cast(value, group.root.buffer.dtype)), steps


def _apart(
    task: _Task, group: Contraction, way: _Way, finish: OfferEpilogue | None, elsewhere: bool
) -> list[Invocation] | str:
    """A library for the sum, with `finish` if there is one; a kernel does the rest after it.

    The sum lies where the result will, or `elsewhere` with its columns side by side.
    """
    result = group.root.buffer
    held = _sums(task, group) if elsewhere else result
    sum_alone = replace(group, root=replace(group.root, buffer=held))
    if finish is None:
        sum_alone = replace(sum_alone, epilogue=scalar.cast(group.result, held.dtype))
    found = way(task, sum_alone, finish or OfferEpilogue())
    if isinstance(found, str):
        return found
    body = load(held, group.at)
    if finish is None:
        sum_ = scalar.cast(body, group.result.dtype)
        body = rewrite(group.epilogue, lambda x: sum_ if x is group.result else None)
    body = scalar.cast(body, result.dtype)
    stage = Stage(group.root, "map", body, group.at, False)
    rest = task.selector.rows(LoopNest(group.loops, (), [stage]), task.strides)
    rest.reads = tuple(dict.fromkeys((*rest.reads, held)))
    return [*found, rest]


def _sums(task: _Task, group: Contraction) -> Buffer:
    """Memory for the sums of a contraction, with its columns side by side."""
    shape, found = group.root.buffer.shape, roles(group)
    columns = {sizes.as_atom(c) for c in found[2]} if found is not None else set()
    last = [k for k, i in enumerate(group.at) if sizes.atoms_of(i, "index") & columns]
    order = (*(k for k in range(len(shape)) if k not in last), *last)
    kinds, wanted = result_kinds(group), group.root.buffer.dtype
    held = buffer(("sums", group.root), shape, wanted if wanted in kinds else kinds[0])
    task.strides[held] = strides_in(shape, order)
    return held


def _matrix(task: _Task, group: Contraction, finish: OfferEpilogue) -> list[Invocation] | str:
    """One matrix product, or one for each index of axes that both factors have."""
    return _offered(task, group, finish, may_cut=False)


def _matrices(task: _Task, group: Contraction, finish: OfferEpilogue) -> list[Invocation] | str:
    """Several matrix products that make up the rows, or the columns."""
    return _offered(task, group, finish, may_cut=True)


def _offered(
    task: _Task, group: Contraction, finish: OfferEpilogue, *, may_cut: bool
) -> list[Invocation] | str:
    form = Matrices(group, finish, task.strides)
    steps: list[Invocation] = []
    has_columns = roles(group) is not None
    deep = has_columns and _wants_depth(group, form)
    if has_columns and is_constant(group.right) and (form.right_is_scattered or deep):
        group, steps = _ordered(task, group, depth_last=deep)
        form = Matrices(group, finish, task.strides)
    if form.is_cut and not may_cut:
        form.refusal = "its rows or columns are several axes"
    if form.refusal:
        return f"no matrix product: {form.refusal}"
    if len(form.bias) > 1:
        return "no matrix product: it has two biases"
    facts = facts_of(group, bool(form.bias), bool(form.residual), finish.activation)
    operands = (*form.operands, *form.biases, *form.residuals)
    found = _called(task, group, Offer("matmul", facts, operands, form.numbers))
    return found if isinstance(found, str) else [*steps, *found]


def _wants_depth(group: Contraction, form: Matrices) -> bool:
    """Whether the right factor had better have its summed axis side by side.

    Hopper's matrix units take floats in no other order: cuBLASLt transposes them, or leaves the
    units alone, if they lie otherwise.
    """
    if group.right.dtype is not dtypes.FLOAT or form.refusal:
        return False
    return dict(zip(MATMUL, form.numbers, strict=True))["right_k"] != 1


def _ordered(
    task: _Task, group: Contraction, *, depth_last: bool
) -> tuple[Contraction, list[Invocation]]:
    """The constant right factor in the order of a matrix: the summed axes and the columns."""
    offset = offset_of(task.strides[group.root.buffer], group.at)
    found = roles(group)
    batch, _, columns = found if found is not None else ([], [], [])
    last = next((c for c in columns if step_along(offset, c) == 1), columns[-1])
    used = index_atoms(group.right)
    others = [v for v in (*batch, *columns) if v is not last and sizes.as_atom(v) in used]
    depth = [v for v in group.reduced if v != 0]
    order = (*others, last, *depth) if depth_last else (*others, *depth, last)
    return _packed(task, group, order)


def _packed(
    task: _Task, group: Contraction, order: tuple[Dim, ...]
) -> tuple[Contraction, list[Invocation]]:
    """The constant right factor with its axes in an order; what packs it."""
    shape = tuple(map(length_of, order))
    body = rewrite(group.right, atoms=sizes.in_place_of(order, indices(shape)))
    packed, steps = task.selector.packed_buffer(make_map(shape, body), task.strides)
    task.strides[packed] = row_major(shape)
    return replace(group, right=load(packed, order)), steps


def _patches(task: _Task, group: Contraction, finish: OfferEpilogue) -> list[Invocation] | str:
    """A convolution whose windows lie side by side: a product of its image, cut into patches."""
    left = group.left
    if left.op != "load":
        return "no product of patches: its image has a border"
    used, right = index_atoms(left), group.right
    depth = list(group.reduced)
    if right.op == "load":  # as the filters lie, so that their axes are one
        offset = offset_of(task.strides[right.tensor], right.at)
        steps = {v: step_along(offset, v) for v in depth}
        depth.sort(key=lambda v: -s if isinstance(s := steps[v], int) else 0)
    order = [v for v in (*group.loops, *depth) if sizes.as_atom(v) in used]
    shape = tuple(map(length_of, order))
    if sizes.product(shape) != sizes.product(left.tensor.shape) or len(group.reduced) < 2:
        return "no product of patches: its windows share elements"
    atoms = dict(zip(map(sizes.variable, order), indices(shape), strict=True))
    contents = make_map(shape, rewrite(left, atoms=atoms))
    cut, cutting = _laid_out(task, group, "patches", contents, row_major(shape))
    group = replace(group, left=load(cut, tuple(order)), reduced=tuple(depth))
    found = _offered(task, group, finish, may_cut=False)
    return found if isinstance(found, str) else [cutting, *found]


def _laid_out(
    task: _Task, group: Contraction, purpose: str, contents: Map, strides: tuple[Dim, ...]
) -> tuple[Buffer, Invocation]:
    """A buffer for one contraction with these contents, and what fills it."""
    held = buffer((purpose, contents, group.root), contents.shape, contents.dtype)
    task.strides[held] = strides
    root = Materialized(contents, held, (contents.body,))
    return held, task.selector.rows(pointwise(root), task.strides)


def _windows(task: _Task, group: Contraction, finish: OfferEpilogue) -> list[Invocation] | str:
    form = Windows(group, finish, task.strides)
    if form.refusal:
        return f"no convolution: {form.refusal}"
    if not is_constant(group.right):
        return "no convolution: a run computes its filters"
    if len(form.bias) > 1:
        return "no convolution: it has two biases"
    image = form.image.buffer
    facts = (
        *facts_of(group, bool(form.bias), bool(form.residual), finish.activation),
        ("spatial", len(form.image.at) - 2),
    )
    added = (*form.biases, *form.residuals)
    offer = Offer("convolution", facts, (Operand(image), Operand(image), form.out, *added), ())
    refusal = task.accelerator.refusal(offer)
    if refusal:
        return refusal
    group, steps = _packed(task, group, form.filters)
    packed, numbers = group.right.buffer, form.numbers
    if task.strides[image][1] != 1 and image.shape[1] != 1:
        reordered, reordering = _reordered(task, group, form)
        left = rewrite(group.left, lambda x: load(reordered, x.at) if x is form.image else None)
        group, image = replace(group, left=left), reordered
        numbers = form.numbers_with(task.strides[reordered])
        steps = [*steps, reordering]
    operands = (Operand(image), Operand(packed), form.out, *added)
    found = _called(task, group, replace(offer, operands=operands, numbers=numbers))
    return found if isinstance(found, str) else [*steps, *found]


def _reordered(task: _Task, group: Contraction, form: Windows) -> tuple[Buffer, Invocation]:
    """The image with its channels side by side, and what copies it."""
    image = form.image.buffer
    contents = make_map(image.shape, load(image, indices(image.shape)))
    order = (0, *range(2, len(image.shape)), 1)
    return _laid_out(task, group, "turned", contents, strides_in(contents.shape, order))


def _called(task: _Task, group: Contraction, offer: Offer) -> list[Invocation] | str:
    """The kernel of a contraction, with the call that is tried first."""
    refusal = task.accelerator.refusal(offer)
    if refusal:
        return refusal
    *steps, invocation = task.selector.product(group, task.strides, pack=False)
    arguments = [x for o in offer.operands for x in (o.buffer, o.offset)]
    invocation.call_arguments = (*arguments, *offer.numbers)
    count = len(invocation.call_arguments)
    invocation.call = LibraryCall(offer.function, offer.facts, count)
    buffers = [o.buffer for o in offer.operands if o.buffer is not group.root.buffer]
    invocation.reads = tuple(dict.fromkeys((*invocation.reads, *buffers)))
    return [*steps, invocation]


def _row(name: str, way: _Way, *, finishes: bool) -> Candidate[_OfferTask, list[Invocation] | None]:
    def why_not(task: _OfferTask) -> Reason | None:
        found = task.offered(way, finishes=finishes)
        return found if isinstance(found, Reason) else None

    def build(task: _OfferTask) -> list[Invocation] | None:
        found = task.offered(way, finishes=finishes)
        return None if isinstance(found, Reason) else found

    title = name if finishes else f"{name}, epilogue apart"
    return Candidate(title, why_not, build, tries=True)


def _in_no_way(task: _OfferTask) -> list[Invocation] | None:
    return None


#: Ways to offer a contraction to a library; the last one is not to.
WAYS: Table[_OfferTask, list[Invocation] | None] = (
    _row("matrix product", _matrix, finishes=True),
    _row("matrix product", _matrix, finishes=False),
    _row("product of patches", _patches, finishes=True),
    _row("product of patches", _patches, finishes=False),
    _row("convolution", _windows, finishes=True),
    _row("convolution", _windows, finishes=False),
    _row("matrix products", _matrices, finishes=True),
    _row("matrix products", _matrices, finishes=False),
    Candidate("no library", always, _in_no_way),
)
