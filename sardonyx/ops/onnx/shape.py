"""Shapes and their changes: Shape, Reshape, Transpose, Expand, Squeeze ..."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ops.core.contents import DataDependent, contents, integers, with_length
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import check_list
from sardonyx.ops.onnx.chosen_axes import chosen_axes, in_a_row, with_axes, without_axes
from sardonyx.tensor import language as t
from sardonyx.tensor import scalar
from sardonyx.tensor.assumptions import assume_equal
from sardonyx.tensor.symbolic import partial_elements_of
from sardonyx.tensor.tensor import Tensor, make_map

_SHAPE_ONLY = ("shape_only", "strings")
_VIEW = ("view", "strings")


@op("Shape", 1, 13, flags=_SHAPE_ONLY)
def shape_1(x: Tensor) -> Tensor:
    """The sizes."""
    return t.size_tensor(x.shape)


@op("Shape", 15, 19, 21, 23, 24, flags=_SHAPE_ONLY)
def shape_15(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    """The sizes from one axis to another, with Python's meaning of bounds."""
    return t.size_tensor(x.shape[start:end])


@op("Size", 1, 13, 19, 21, 23, 24, flags=_SHAPE_ONLY)
def size_1(x: Tensor) -> Tensor:
    """The number of elements."""
    return make_map((), scalar.size(sizes.product(x.shape)))


def _target_shape(x: Tensor, shape: Tensor, allowzero: int) -> tuple[Dim, ...]:
    check_list(shape, "The shape")
    known = partial_elements_of(shape)
    if known is None or None in known:
        resolved = _resolved_shape(x, shape, allowzero)
        return contents(resolved, "The shape", 0, most=sizes.MOST_AXES)
    wanted = contents(shape, "The shape", most=sizes.MOST_AXES)
    new: list[Dim] = []
    for axis, size in enumerate(wanted):
        if size == 0 and not allowzero:
            if axis >= len(x.shape):
                raise InvalidGraph(
                    message("Reshape", f"A 0 copies axis {axis} of {list(x.shape)}, which has none")
                )
            new.append(x.shape[axis])
        elif isinstance(size, int) and size < -1:
            raise InvalidGraph(message("Reshape", f"A size of {size} has no meaning"))
        else:
            new.append(size)
    if sum(1 for size in wanted if isinstance(size, int) and size == -1) > 1:
        raise InvalidGraph(message("Reshape", f"There are several -1 in {list(wanted)}"))
    return t.infer_reshape(x, new)


def _resolved_shape(x: Tensor, shape: Tensor, allowzero: int) -> Tensor:
    """The shape as a tensor, with 0 and -1 replaced by what they stand for in this run."""
    given = t.cast(shape, INT64)
    if not allowzero:
        (count,) = shape.shape
        if not isinstance(count, int):
            raise DataDependent(shape, "The number of axes")
        own = (*x.shape, *(0,) * count)
        given = t.where(t.equal(given, 0), t.size_tensor(own[:count]), given)
    rest = t.equal(given, -1)
    others = t.where(rest, 1, given).prod()
    total = t.size_tensor((sizes.product(x.shape),)).reshape()
    return t.where(rest, total / t.maximum(others, 1), given)


@op("Reshape", 1, flags=_VIEW)
def reshape_1(
    x: Tensor, *, consumed_inputs: Sequence[int] = (), shape: Sequence[int] = ()
) -> Tensor:
    """The same elements under another shape, given by attribute."""
    return reshape_5(x, t.size_tensor(shape))


@op("Reshape", 5, 13, flags=_VIEW)
def reshape_5(x: Tensor, shape: Tensor) -> Tensor:
    """The same elements under another shape; 0 copies a size, -1 is what remains."""
    return t.reshape(x, _target_shape(x, shape, 0))


@op("Reshape", 14, 19, 21, 23, 24, flags=_VIEW)
def reshape_14(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    """As before; 0 means 0 with `allowzero`."""
    return t.reshape(x, _target_shape(x, shape, allowzero))


@op("Flatten", 1, 9, flags=_VIEW)
def flatten_1(x: Tensor, *, axis: int = 1) -> Tensor:
    """As later, with an axis that is counted from the first one."""
    if axis < 0:
        what = "Its axis is not negative before version 11"
        raise InvalidGraph(message("Flatten", what, got=str(axis)))
    return flatten_11(x, axis=axis)


@op("Flatten", 11, 13, 21, 23, 24, flags=_VIEW)
def flatten_11(x: Tensor, *, axis: int = 1) -> Tensor:
    """Two axes: those before `axis`, and the others."""
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        raise InvalidGraph(message("Flatten", f"There is no axis {axis} in {list(x.shape)}"))
    cut = axis + rank if axis < 0 else axis
    return t.reshape(x, (sizes.product(x.shape[:cut]), sizes.product(x.shape[cut:])))


@op("Squeeze", 1, 11, flags=_VIEW)
def squeeze_1(x: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    """Without axes of size 1, given by attribute."""
    return t.squeeze(x, axes or None)


@op("Squeeze", 13, 21, 23, 24, flags=_VIEW)
def squeeze_13(x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Without axes of size 1, given by an input."""
    if axes is None:
        return t.squeeze(x)
    try:
        # As in onnxruntime, an empty list is no list.
        return t.squeeze(x, integers(axes, "The axes") or None)
    except DataDependent:
        listed = in_a_row(axes, "Squeeze")
        flags = chosen_axes(listed, x.rank, "Squeeze")
        for axis, (flag, d) in enumerate(zip(flags, x.shape, strict=True)):
            excess = flag * (d - 1)
            t.assume_equal(excess, 0, "Squeeze", f"Axis {axis} of {list(x.shape)} is not 1")
        return without_axes(x, flags, listed, "Squeeze")


@op("Unsqueeze", 1, 11, flags=_VIEW)
def unsqueeze_1(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    """With axes of size 1, given by attribute."""
    return t.unsqueeze(x, axes)


@op("Unsqueeze", 13, 21, 23, 24, flags=_VIEW)
def unsqueeze_13(x: Tensor, axes: Tensor) -> Tensor:
    """With axes of size 1, given by an input."""
    try:
        return t.unsqueeze(x, integers(axes, "The axes"))
    except DataDependent:
        return with_axes(x, in_a_row(axes, "Unsqueeze"), "Unsqueeze")


@op("Transpose", 1, 13, 21, 23, 24, flags=_VIEW)
def transpose_1(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    """Axes in another order."""
    return t.transpose(x, perm or None)


@op("Expand", 8, 13, flags=_VIEW)
def expand_8(x: Tensor, shape: Tensor) -> Tensor:
    """Repeated along axes of size 1; the shape may be a single number."""
    return t.expand(x, contents(shape, "The shape", 0, most=sizes.MOST_AXES))


@op("Tile", 1, flags=_VIEW)
def tile_1(x: Tensor, tiles: Tensor, axis: Tensor) -> Tensor:
    """Repeated along one axis."""
    (count,) = contents(t.reshape(t.cast(tiles, INT64), ()), "The number of repeats", 0)
    try:
        (chosen,) = integers(t.reshape(t.cast(axis, INT64), ()), "The axis")
    except DataDependent:
        more = count - 1
        flags = chosen_axes(in_a_row(t.cast(axis, INT64), "Tile"), x.rank, "Tile")
        return t.tile(x, [1 + flag * more for flag in flags])
    chosen = t.normalise_axis(chosen, x.rank, "Tile")
    return t.tile(x, [count if k == chosen else 1 for k in range(x.rank)])


@op("Tile", 6, 13, flags=_VIEW)
def tile_6(x: Tensor, repeats: Tensor) -> Tensor:
    """Repeated as a whole along every axis."""
    check_list(repeats, "The number of repeats")
    what = "The number of repeats"
    counts = contents(with_length(repeats, x.rank, what), what, 0)
    if len(counts) != len(x.shape):
        raise InvalidGraph(message("Tile", f"{len(counts)} repeats for {len(x.shape)} axes"))
    return t.tile(x, counts)


def _blocks(x: Tensor, blocksize: int, where: str) -> tuple[Dim, Dim, Dim, Dim]:
    if len(x.shape) != 4 or blocksize < 1:
        raise InvalidGraph(message(where, f"Four axes and a positive blocksize, not {blocksize}"))
    batch, channels, height, width = x.shape
    return batch, channels, height, width


@op("DepthToSpace", 1, 11, 13, flags=_VIEW, added={"mode": 11})
def depth_to_space_1(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels become blocks of pixels."""
    batch, channels, height, width = _blocks(x, blocksize, "DepthToSpace")
    if mode not in ("DCR", "CRD"):
        raise InvalidGraph(
            message("DepthToSpace", "Bad mode", expected="DCR or CRD", got=repr(mode))
        )
    b = blocksize
    depth = integer.floordiv(channels, b * b)
    what = f"The channels are no multiple of {b * b}"
    assume_equal(channels, depth * (b * b), "DepthToSpace", what)

    def source(n: Dim, c: Dim, h: Dim, w: Dim) -> tuple[Dim, ...]:
        offset_h, offset_w = integer.modulo(h, b), integer.modulo(w, b)
        block = offset_h * b + offset_w
        channel = block * depth + c if mode == "DCR" else c * (b * b) + block
        return n, channel, integer.floordiv(h, b), integer.floordiv(w, b)

    return t.reindex(x, (batch, depth, height * b, width * b), source)


@op("SpaceToDepth", 1, 13, flags=_VIEW)
def space_to_depth_1(x: Tensor, *, blocksize: int) -> Tensor:
    """Blocks of pixels become channels."""
    return space_to_depth_28(x, blocksize=blocksize)


@op("SpaceToDepth", 28, flags=_VIEW)
def space_to_depth_28(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """As before, with the order of the channels as a choice."""
    batch, channels, height, width = _blocks(x, blocksize, "SpaceToDepth")
    if mode not in ("DCR", "CRD"):
        raise InvalidGraph(
            message("SpaceToDepth", "Bad mode", expected="DCR or CRD", got=repr(mode))
        )
    b = blocksize
    for extent in (height, width):
        what = f"A size is no multiple of {b}"
        assume_equal(extent, integer.floordiv(extent, b) * b, "SpaceToDepth", what)

    def source(n: Dim, c: Dim, h: Dim, w: Dim) -> tuple[Dim, ...]:
        if mode == "DCR":
            block, channel = integer.floordiv(c, channels), integer.modulo(c, channels)
        else:
            block, channel = integer.modulo(c, b * b), integer.floordiv(c, b * b)
        row, column = integer.floordiv(block, b), integer.modulo(block, b)
        return n, channel, h * b + row, w * b + column

    shape = (batch, channels * (b * b), integer.floordiv(height, b), integer.floordiv(width, b))
    return t.reindex(x, shape, source)


@op("ConstantOfShape", 9, 20, 21, 23, 24)
def constant_of_shape_9(shape: Tensor, *, value: Constant | None = None) -> Tensor:
    """One number everywhere."""
    check_list(shape, "The shape")
    wanted = contents(shape, "The shape", 0, most=sizes.MOST_AXES)
    if value is None:
        return t.constant(0.0, dtypes.FLOAT, wanted)
    if value.element_count != 1:
        raise InvalidGraph(message("ConstantOfShape", f"A value of {value.element_count} elements"))
    return t.constant(value.array().reshape(-1)[0].item(), value.dtype, wanted)
