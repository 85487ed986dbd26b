"""Convolutions, perhaps in groups, as graphs of cuDNN's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.cuda.libraries.expected import Numbers, Reference, finished
from sardonyx.cuda.libraries.libraries import LibraryWork
from sardonyx.plan.vendor_convolution import convolution_numbers
from sardonyx.plan.vendor_offers import Offer
from sardonyx.runtime.storage import Array

_IMAGE, _FILTERS, _OUT, _BIAS, _RESIDUAL = range(1, 6)
#: cuDNN's names of types.
TYPES = {"float": "FLOAT", "double": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}


class ConvolutionForm:
    """See `cudnn.Form`."""

    def refusal(self, offer: Offer, exact: bool) -> str:
        """See `cudnn.Form.refusal`."""
        facts = dict(offer.facts)
        if facts["dtype"] not in TYPES:
            return f"cuDNN has no convolutions of {facts['dtype']}"
        if facts["activation"] not in ("", "relu"):
            return f"{facts['activation']} is not asked of cuDNN"
        finished = facts["bias"] or facts["residual"] or facts["activation"]
        if finished and (facts["dtype"] == "double" or exact):
            return "cuDNN adds to results of tensor cores alone"
        return ""

    def competes(self, work: LibraryWork) -> bool:
        """See `cudnn.Form.competes`: cuDNN is not good at all groups."""
        return _numbers(work)["groups"] > 1

    def is_worth(self, work: LibraryWork) -> bool:
        """See `cudnn.Form.is_worth`."""
        return True

    def pack(self, work: LibraryWork) -> dict[int, int]:
        """See `cudnn.Form.pack`."""
        found = {_IMAGE: work.left, _FILTERS: work.right, _OUT: work.out}
        if work.bias:
            found[_BIAS] = work.bias
        if work.residual:
            found[_RESIDUAL] = work.residual
        return found

    def operands(self, work: LibraryWork) -> dict[int, tuple[int, str]]:
        """See `cudnn.Form.operands`."""
        n, spatial = _numbers(work), int(str(work.call["spatial"]))
        out = _extent(n, spatial, "out", "out")
        filters = n["filters"] * n["channels"] // n["groups"]
        filters *= math.prod(n[f"filter_{axis}"] for axis in range(spatial))
        image = _extent(n, spatial, "image", "size")
        found = {
            _IMAGE: (image, work.dtype), _FILTERS: (filters, work.dtype), _OUT: (out, work.result),
        }  # fmt: skip
        if work.bias:
            found[_BIAS] = (n["filters"], work.result)
        if work.residual:
            found[_RESIDUAL] = (out, work.result)
        return found

    def result(self, work: LibraryWork) -> tuple[int, list[int], list[int]]:
        """See `cudnn.Form.result`."""
        n, axes = _numbers(work), range(int(str(work.call["spatial"])))
        shape = [n["n"], n["filters"], *(n[f"out_{axis}"] for axis in axes)]
        steps = [n["out_n"], n["out_filter"], *(n[f"out_step_{axis}"] for axis in axes)]
        return _OUT, shape, steps

    def reference(self, work: LibraryWork) -> Reference | None:
        """See `cudnn.Form.reference`."""
        n, spatial = _numbers(work), int(str(work.call["spatial"]))
        _, _, steps = self.result(work)
        channels, counts = n["channels"] // n["groups"], [n["filters"]]
        counts += [n[f"filter_{axis}"] for axis in range(spatial)]
        taps = np.indices((*counts[1:], channels)).reshape(spatial + 1, -1)

        def values(numbers: Numbers, at: Array) -> Array:
            filters = at[:, 1, None]
            group = filters // (n["filters"] // n["groups"])
            image = at[:, 0, None] * n["image_n"]
            image = image + (group * channels + taps[-1]) * n["image_channel"]
            inside = np.full(image.shape, fill_value=True)
            for axis in range(spatial):
                first = at[:, 2 + axis, None] * n[f"stride_{axis}"] - n[f"pad_{axis}"]
                place = first + taps[axis] * n[f"dilation_{axis}"]
                inside &= (place >= 0) & (place < n[f"size_{axis}"])
                image = image + place * n[f"image_step_{axis}"]
            pixels = np.where(inside, numbers(_IMAGE, np.where(inside, image, 0)), 0)
            size = taps.shape[1]
            total = (pixels * numbers(_FILTERS, filters * size + np.arange(size))).sum(1)
            added = [numbers(_BIAS, at[:, 1])] if work.bias else []
            if work.residual:
                added.append(numbers(_RESIDUAL, at @ np.array(steps)))
            return finished(total, added, work.activation)

        return Reference(taps.shape[1], values)

    def graph(self, cudnn: Any, handle: Any, work: LibraryWork) -> Any:
        """See `cudnn.Form.graph`: the convolution with what is added to it."""
        spatial, n = int(str(work.call["spatial"])), _numbers(work)
        kind = getattr(cudnn.data_type, TYPES[work.dtype])
        result = getattr(cudnn.data_type, TYPES[work.result])
        compute = cudnn.data_type.DOUBLE if work.dtype == "double" else cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=kind, intermediate_data_type=compute, compute_data_type=compute,
            handle=handle,
        )  # fmt: skip

        def each(name: str) -> list[int]:
            return [n[f"{name}_{axis}"] for axis in range(spatial)]

        # cuDNN's images have two spatial axes at least.
        filler = [1] if spatial == 1 else []
        filters = [n["filters"], n["channels"] // n["groups"], *filler, *each("filter")]
        dims = [n["n"], n["channels"], *filler, *each("size")]
        given = _filled(n["image_n"], n["image_channel"], each("image_step"), each("size"))
        image = graph.tensor(
            name="image", uid=_IMAGE, data_type=kind, dim=dims, stride=_walked(dims, given)
        )
        weights = graph.tensor(
            name="filters", uid=_FILTERS, data_type=kind, dim=filters,
            stride=_channels_last(filters),
        )  # fmt: skip
        before = each("pad")
        after = [_after(n, axis) for axis in range(spatial)]
        value = graph.conv_fprop(
            image=image, weight=weights, pre_padding=[*([0] * len(filler)), *before],
            post_padding=[*([0] * len(filler)), *after], stride=[*filler, *each("stride")],
            dilation=[*filler, *each("dilation")], compute_data_type=compute,
        )  # fmt: skip
        out = [n["n"], n["filters"], *filler, *each("out")]
        given = _filled(n["out_n"], n["out_filter"], each("out_step"), each("out"))
        steps, rank = _walked(out, given), len(out)
        if work.bias:
            shape = [1, n["filters"], *[1] * (rank - 2)]
            bias = graph.tensor(
                name="bias", uid=_BIAS, data_type=result, dim=shape, stride=_channels_last(shape)
            )
            value = graph.add(a=value, b=bias, compute_data_type=compute)
        if work.residual:
            residual = graph.tensor(
                name="residual", uid=_RESIDUAL, data_type=result, dim=out, stride=steps
            )
            value = graph.add(a=value, b=residual, compute_data_type=compute)
        if work.activation:
            value = graph.relu(input=value, compute_data_type=compute)
        value.set_output(True).set_uid(_OUT).set_data_type(result).set_dim(out).set_stride(steps)
        return graph


def _numbers(work: LibraryWork) -> dict[str, int]:
    names = convolution_numbers(int(str(work.call["spatial"])))
    return dict(zip(names, work.numbers, strict=True))


def _after(n: Mapping[str, int], axis: int) -> int:
    """Padding behind the image, so that there are as many windows as are wanted.

    Raises:
        ValueError: Windows end too far before the image does.
    """
    stride, pad = n[f"stride_{axis}"], n[f"pad_{axis}"]
    reach = n[f"dilation_{axis}"] * (n[f"filter_{axis}"] - 1) + 1
    needed = (n[f"out_{axis}"] - 1) * stride + reach - n[f"size_{axis}"] - pad
    for after in (pad, max(0, needed)):  # the same on both sides is the better known case
        if (n[f"size_{axis}"] + pad + after - reach) // stride + 1 == n[f"out_{axis}"]:
            return after
    raise ValueError("the image is longer than its windows reach")


def _extent(n: Mapping[str, int], spatial: int, what: str, sizes: str) -> int:
    """Elements from the first to the last of an image."""
    channel = "image_channel" if what == "image" else "out_filter"
    channels = n["channels"] if what == "image" else n["filters"]
    last = (n["n"] - 1) * n[f"{what}_n"] + (channels - 1) * n[channel]
    for axis in range(spatial):
        last += (n[f"{sizes}_{axis}"] - 1) * n[f"{what}_step_{axis}"]
    return last + 1


def _filled(first: int, channel: int, steps: list[int], sizes: list[int]) -> list[int]:
    """Strides, with one for the axis of size 1 that an image of one spatial axis gets."""
    filler = [steps[0] * sizes[0]] if len(steps) == 1 else []
    return [first, channel, *filler, *steps]


def _walked(dims: list[int], given: list[int]) -> list[int]:
    """Strides, with others than 0 for axes of size 1.

    Plans take them at their word: of a result whose images lie 0 elements apart some write nothing,
    and say nothing of it.
    """
    found = list(given)
    inner: list[int] = []
    for axis in (1, *range(len(dims) - 1, 1, -1), 0):
        if dims[axis] == 1 and found[axis] == 0:
            found[axis] = max((found[k] * dims[k] for k in inner), default=1)
        inner.append(axis)
    return found


def _channels_last(dims: list[int]) -> list[int]:
    strides = [0] * len(dims)
    step = 1
    for axis in (1, *range(len(dims) - 1, 1, -1), 0):
        strides[axis] = step
        step *= dims[axis]
    return strides
