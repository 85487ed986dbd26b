"""Contractions by kernels of their own: general ones, of images, of codes, Winograd's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sardonyx.base.forks import compiling
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule, Packing
from sardonyx.kernel.matmul.long_sums import is_long
from sardonyx.plan.blockwise import in_blocks
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Contraction
from sardonyx.plan.integers import integer_factors
from sardonyx.plan.layout import row_major
from sardonyx.plan.operand_order import in_order
from sardonyx.plan.pad_input import LEAST_ON_DEVICE, LEAST_RUN, with_borders
from sardonyx.plan.swap_operands import with_whole_image
from sardonyx.selection.general_contraction import GeneralContraction
from sardonyx.selection.invocation import Invocation, invocation_of, is_constant
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.variants import DEFAULT
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor, make_map, make_reduce
from sardonyx.tensor.traverse import loads_of

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector

#: How names of contractions begin that round their factors to bfloat16.
HALVES = "halves"
#: What is behind the beginning where they are computed in registers for matrices.
IN_MATRICES = "_in_matrices"
MATRICES = f"{HALVES}{IN_MATRICES}"
#: How names of contractions of 8-bit codes begin.
INTEGERS = "integers"
#: How names of convolutions begin that transform their inputs.
WINOGRAD = "winograd"
#: How names of contractions of floats begin.
PRODUCT = "product"


def product_of_kernels(
    selector: KernelSelector, group: Contraction, strides: dict[Tensor, tuple[Dim, ...]], pack: bool
) -> list[Invocation]:
    """The kernel of a contraction, after the packing of a right factor that never changes."""
    fixed = pack and all(is_constant(x.tensor) for x in loads_of(group.right))
    if fixed and not selector.block_sizes.has_thread_blocks and not _is_rounded(selector, group):
        general = selector.general_product(group, strides)
        if general is not None:
            return _general(selector, general, group, strides)
    image: list[Invocation] = []
    codes = in_blocks(group) if fixed and selector.options.dots and not _is_long(group) else None
    if codes is not None:
        with compiling:
            from sardonyx.selection.blockwise import blockwise_product

        return blockwise_product(selector, codes, strides)
    least_run = LEAST_ON_DEVICE if selector.block_sizes.has_thread_blocks else LEAST_RUN
    bordered = with_borders(group, least_run) if fixed else None
    if bordered is not None:
        contents, place, group = bordered
        image = [_image(selector, contents, place, strides, group)]
        strides = {**strides, place: row_major(place.shape)}
    elif not fixed and all(is_constant(x.tensor) for x in loads_of(group.left)):
        # Factors were exchanged: the right one is an image, which is packed in each run.
        whole = with_whole_image(group)
        if whole is not None:
            contents, place, group = whole
            image = [_image(selector, contents, place, strides, group)]
            strides = {**strides, place: row_major(place.shape)}
    if integer_factors(group) is not None:
        group, strides, before = _with_numbers(selector, group, strides)
        image += before
    canonical = selector.canonical(group, strides)
    # What has no image may get one below, and is another kernel then.
    key = (canonical.key, fixed, bool(image))
    if key not in selector.kernels and fixed and not image:
        moved = None if _stays(selector, key, canonical) else in_order(group)
        if moved is not None:
            contents, place, group = moved
            image = [_image(selector, contents, place, strides, group, "moved")]
            canonical = Canonical(group, {**strides, place: row_major(place.shape)})
            key = (canonical.key, fixed, True)

    def build() -> KernelRecord:
        with compiling:
            from sardonyx.selection.matmul_candidates import built

        return built(selector, canonical, fixed)

    kernel = selector.kernel_of(key, build)
    actual, steps = {**canonical.buffers}, list[Invocation]()
    for packing in selector.needs[key]:
        actual[packing.packed], before = selector.packed_buffer(
            contents_of(packing, canonical), strides
        )
        steps += before
    return [*image, *steps, invocation_of(kernel, actual, group)]


def _is_long(group: Contraction) -> bool:
    """Whether sums are added up in float64."""
    return bool(is_long(group.reduced, value_type(group.accumulator)))


def _is_rounded(selector: KernelSelector, group: Contraction) -> bool:
    """Whether the factors of a contraction are rounded to bfloat16."""
    if not selector.options.bf16_products:
        return False
    with compiling:
        from sardonyx.kernel.matmul.bf16_product import may_round

    return may_round(group)


def _general(
    selector: KernelSelector,
    general: GeneralContraction,
    group: Contraction,
    strides: dict[Tensor, tuple[Dim, ...]],
) -> list[Invocation]:
    """A contraction by a kernel that others of other sizes use, too."""

    def build() -> KernelRecord:
        return KernelRecord(*general.build(selector.options.lanes, selector.name(PRODUCT)))

    kernel = selector.kernel_of(general.key, build)
    actual, steps = {**general.actual}, list[Invocation]()
    for packing in selector.needs[general.key]:
        actual[packing.packed], before = selector.packed_buffer(general.contents(packing), strides)
        steps += before
    specific = selector.valued.of(kernel, general.values)
    return [*steps, invocation_of(specific, actual, group)]


def _stays(selector: KernelSelector, key: tuple[object, ...], canonical: Canonical) -> bool:
    """Whether a contraction needs no copy of its left factor: it walks rows where they lie."""
    group, structure = canonical.group, canonical.key
    assert isinstance(group, Contraction)  # noqa: S101 - narrows the type for the checker
    if structure in selector.walked:
        return selector.walked[structure]
    known, choices = None, selector.options.choices
    if choices is None or choices.of(key) == DEFAULT:
        known = selector.known(key, None, DEFAULT)
    if known is not None:
        selector.kernels[key], selector.needs[key] = known.kernel, known.packings
    elif integer_factors(group) is None:
        schedule = ContractionSchedule(
            group, canonical.strides, selector.options.lanes, selector.block_sizes
        )
        selector.walked[structure] = schedule.direct
        selector.schedules[structure] = schedule
        return schedule.direct
    return True


def _with_numbers(
    selector: KernelSelector, group: Contraction, strides: dict[Tensor, tuple[Dim, ...]]
) -> tuple[Contraction, dict[Tensor, tuple[Dim, ...]], list[Invocation]]:
    """A contraction of codes whose factors and terms of results lie in memory."""
    own, steps = dict(strides), list[Invocation]()

    def stored(contents: Map) -> Buffer:
        if contents.body.op == "constant":
            return selector.number(contents)
        packed, before = selector.packed_buffer(contents, strides)
        own[packed] = row_major(packed.shape)
        steps.extend(before)
        return packed

    with compiling:
        from sardonyx.plan.hoisting import with_numbers

    return with_numbers(group, stored), own, steps


def _image(
    selector: KernelSelector,
    contents: Map,
    place: Buffer,
    strides: dict[Tensor, tuple[Dim, ...]],
    group: Contraction,
    name: str = "image",
) -> Invocation:
    """What lays out the left factor of a contraction."""
    made = selector.pack(contents, place, strides, name)
    return replace(made, group=group)


def contents_of(packing: Packing, canonical: Canonical) -> Map | Reduce:
    """What is packed, of the buffers that a group has."""
    contents = packing.contents
    body = rewrite(
        contents.body,
        lambda x: load(canonical.buffers[x.buffer], x.at),
    )
    if isinstance(contents, Map):
        return make_map(contents.shape, body)
    return make_reduce(contents.shape, contents.extents, contents.kind, body, contents.dtype)
