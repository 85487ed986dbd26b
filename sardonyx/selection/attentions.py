"""Attention: the table of what can compute one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from sardonyx.base.forks import compiling
from sardonyx.base.sizes import Dim
from sardonyx.kernel.gpu.attention_shape import element_of
from sardonyx.kernel.language.types import Type
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Attention
from sardonyx.plan.reasons import Reason
from sardonyx.selection.general_attention import GeneralAttention
from sardonyx.selection.invocation import UNREAD, Invocation, invocation_of
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.table import Candidate, Table, always
from sardonyx.tensor.tensor import Buffer, Tensor

if TYPE_CHECKING:
    from sardonyx.kernel.attention.kernel import AttentionKernel
    from sardonyx.kernel.gpu.tile_attention import AttentionTileKernel
    from sardonyx.selection.selector import KernelSelector

_NO_LIBRARIES = Reason("the target has no libraries")
_SIZES = Reason("thread blocks take sizes as they are")
_NO_BLOCKS = Reason("the target has no thread blocks")
_NO_UNIT = Reason("matrix units take neither its types, nor columns of such a length")


class AttentionTask:
    """An attention that is to be computed.

    Args:
        selector: Builds kernels.
        group: The attention.
        strides: Of all buffers; an array that is made for a library is added.
    """

    def __init__(
        self, selector: KernelSelector, group: Attention, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> None:
        self.selector, self.group, self.strides = selector, group, strides

    @cached_property
    def offered(self) -> list[Invocation] | str:
        """What a library takes, or why it does not."""
        accelerator = self.selector.options.accelerator
        assert accelerator is not None  # noqa: S101 - `_no_library` looked
        with compiling:
            from sardonyx.selection.vendor_attention import accelerated_attention

        return accelerated_attention(self.selector, self.group, self.strides, accelerator)

    @property
    def refusal(self) -> str | None:
        """Why no library takes it, "" where none was asked; None if one does."""
        found = self.__dict__.get("offered", "")
        return found if isinstance(found, str) else None

    @cached_property
    def canonical(self) -> Canonical:
        """It over placeholders."""
        return self.selector.canonical(self.group, self.strides)

    @cached_property
    def general(self) -> GeneralAttention | Reason:
        """It for any numbers of queries and heads."""
        return self.selector.general_attention(self.canonical)

    @cached_property
    def element(self) -> Type | None:
        """How its factors lie in the memory of thread blocks."""
        tiling, group = self.selector.block_sizes.tiling, self.canonical.group
        assert isinstance(group, Attention)  # noqa: S101 - narrows the type for the checker
        return None if tiling is None else element_of(group, tiling)


def _no_library(task: AttentionTask) -> Reason | None:
    if task.selector.options.accelerator is None:
        return _NO_LIBRARIES
    return Reason(task.offered) if isinstance(task.offered, str) else None


def _library(task: AttentionTask) -> list[Invocation]:
    assert not isinstance(task.offered, str)  # noqa: S101 - `_no_library` looked
    return task.offered


def _not_general(task: AttentionTask) -> Reason | None:
    if task.selector.block_sizes.has_thread_blocks:
        return _SIZES
    return task.general if isinstance(task.general, Reason) else None


def _general(task: AttentionTask) -> list[Invocation]:
    assert not isinstance(task.general, Reason)  # noqa: S101 - `_not_general` looked
    return [task.selector.general(task.general, task.group, "attention")]


def _no_tiles(task: AttentionTask) -> Reason | None:
    if not task.selector.block_sizes.has_thread_blocks:
        return _NO_BLOCKS
    return _NO_UNIT if task.element is None else None


def _in_tiles(task: AttentionTask) -> list[Invocation]:
    def form() -> AttentionTileKernel:
        name, tiling = task.selector.name("attention"), task.selector.block_sizes.tiling
        assert tiling is not None and task.element is not None  # noqa: S101, PT018 - `_no_tiles` looked
        with compiling:
            from sardonyx.kernel.gpu.tile_attention import AttentionTileKernel

        return AttentionTileKernel(
            _placed(task), task.canonical.strides, tiling, task.element, name
        )

    return _own_kernel(task, form)


def _in_vectors(task: AttentionTask) -> list[Invocation]:
    def form() -> AttentionKernel:
        selector = task.selector
        name = selector.name("attention")
        with compiling:
            from sardonyx.kernel.attention.kernel import AttentionKernel

        return AttentionKernel(
            _placed(task), task.canonical.strides, selector.options.lanes, selector.block_sizes,
            name,
        )  # fmt: skip

    return _own_kernel(task, form)


def _placed(task: AttentionTask) -> Attention:
    group = task.canonical.group
    assert isinstance(group, Attention)  # noqa: S101 - narrows the type for the checker
    return group


def _own_kernel(
    task: AttentionTask, form: Callable[[], AttentionKernel | AttentionTileKernel]
) -> list[Invocation]:
    """A kernel for its sizes."""
    selector, canonical = task.selector, task.canonical
    key = (canonical.key, selector.block_sizes.tiling)

    def build() -> KernelRecord:
        kernel = form()
        made = kernel.build()
        selector.partials[key] = getattr(kernel, "partial", None)
        return KernelRecord(made)

    kernel = selector.kernel_of(key, build)
    actual = dict(canonical.buffers)
    partial = selector.partials.get(key)
    if partial is not None:
        spare = (UNREAD, task.group.root.buffer, 0)
        actual[partial] = Buffer(partial.shape, partial.dtype, spare)
    return [invocation_of(kernel, actual, task.group)]


#: Kernels alone.
ATTENTION_KERNELS: Table[AttentionTask, list[Invocation]] = (
    Candidate("attention of any number of queries", _not_general, _general),
    Candidate("tiles of thread blocks", _no_tiles, _in_tiles),
    Candidate("blocks of queries", always, _in_vectors),
)
#: A library, where there is one. The kernel that computes the same stays for what it cannot do.
ATTENTIONS: Table[AttentionTask, list[Invocation]] = (
    Candidate("library", _no_library, _library, tries=True), *ATTENTION_KERNELS,
)  # fmt: skip
