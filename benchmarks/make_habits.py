"""Make models as exporters leave them: graphs that say simple things at length.

    python benchmarks/make_habits.py FOLDER [--torch]

writes, with random weights and a fixed seed, models with feeds beside them (`NAME.onnx.feeds.npz`):

* `channels_last_9`, `channels_last_13`: as tf2onnx writes a network of inverted residuals, with a
  Transpose on each side of each convolution and each batch norm, Pad nodes, biases that are
  squeezed and added, Clip or Min and Max;
* `old_7`, `old_9`: operator sets 7 and 9: Upsample, Pad with attributes, batch norms behind
  Identity, shapes from Shape, Gather, Unsqueeze and Concat, a channel shuffle, a detector's head;
* with `--torch`, by torch.onnx: `residual`, `encoder`, `attention` and `unet`, each `_dynamo`
  (fixed sizes), `_dynamic` (sizes that vary) and `_unfolded` (batch norms as in training).
"""

import argparse
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

random = numpy.random.default_rng(0)


class Graph:
    """Nodes and weights, named by counting."""

    def __init__(self, opset):
        self.opset, self.nodes, self.weights, self.count = opset, [], [], 0

    def name(self):
        self.count += 1
        return f"t{self.count}"

    def constant(self, value):
        name = self.name()
        self.weights.append(numpy_helper.from_array(numpy.asarray(value), name))
        return name

    def weight(self, *shape):
        scale = numpy.sqrt(1 / numpy.prod(shape[1:])) if len(shape) > 1 else 0.1
        return self.constant((random.standard_normal(shape) * scale).astype(numpy.float32))

    def numbers(self, *values):
        return self.constant(numpy.array(values, numpy.int64))

    def __call__(self, operator, *inputs, outputs=1, **attributes):
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def norm(self, x, channels):
        variance = random.uniform(0.5, 2, channels).astype(numpy.float32)
        given = [self.weight(channels) for _ in range(3)]
        return self("BatchNormalization", x, *given, self.constant(variance), epsilon=1e-3)

    def save(self, path, shape, x, result):
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        infos = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
            for n, s in (("x", shape), ("y", None))
        ]
        graph = helper.make_graph(self.nodes, path.stem, infos[:1], infos[1:], self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
        numpy.savez(f"{path}.feeds.npz", x=x)


def channels_last(opset):
    """Inverted residuals with squeeze and excitation, NHWC outside and NCHW inside."""
    g = Graph(opset)

    def planes(x):
        return g("Transpose", x, perm=[0, 3, 1, 2])

    def pixels(x):
        return g("Transpose", x, perm=[0, 2, 3, 1])

    def active(x, kind):
        if kind == "swish":
            return g("Mul", x, g("Sigmoid", x))
        if not kind:
            return x
        if opset < 11:
            return g("Clip", x, min=0.0, max=6.0)
        zero, six = (g.constant(numpy.float32(v)) for v in (0, 6))
        return g("Min", g("Max", x, zero), six)

    def convolution(x, inputs, outputs, taps, step=1, group=1, kind="clip", norm=True):
        x, weight = planes(x), g.weight(outputs, inputs // group, taps, taps)
        if step == 2:
            pads = [0, 0, 0, 0, 0, 0, 1, 1]
            x = g("Pad", x, pads=pads) if opset < 11 else g("Pad", x, g.numbers(*pads))
            x = g("Conv", x, weight, strides=[2, 2], group=group)
        else:
            x = g("Conv", x, weight, auto_pad="SAME_UPPER", group=group)
        x = pixels(x)
        if norm:
            x = pixels(g.norm(planes(x), outputs))
        else:
            axes = {"axes": [0]} if opset < 13 else {}
            extra = [] if opset < 13 else [g.numbers(0)]
            x = g("Add", x, g("Squeeze", g.weight(1, outputs), *extra, **axes))
        return active(x, kind)

    x = convolution("x", 3, 32, 3, 2)
    for inputs, outputs, step in (
        (32, 32, 1),
        (32, 64, 2),
        (64, 64, 1),
        (64, 128, 2),
        (128,) * 2 + (1,),
    ):
        wide, kind = inputs * 4, "swish" if outputs == 128 else "clip"
        y = convolution(x, inputs, wide, 1, kind=kind)
        y = convolution(y, wide, wide, 3, step, wide, kind)
        if outputs == 128:
            s = g("Reshape", g("ReduceMean", y, axes=[1, 2], keepdims=0), g.numbers(-1, 1, 1, wide))
            s = convolution(s, wide, 16, 1, kind="swish", norm=False)
            y = g("Mul", y, g("Sigmoid", convolution(s, 16, wide, 1, kind="", norm=False)))
        y = convolution(y, wide, outputs, 1, kind="")
        x = g("Add", x, y) if inputs == outputs and step == 1 else y
    x = g("MatMul", g("ReduceMean", x, axes=[1, 2], keepdims=0), g.weight(128, 100))
    x = g("Softmax", g("Add", x, g.weight(100)), axis=1)
    image = random.standard_normal((1, 160, 160, 3)).astype(numpy.float32)
    return g, ["N", 160, 160, 3], image, x


def old(opset):
    """A detector of two scales whose every shape is computed."""
    g = Graph(opset)

    def size(x, axis):
        picked = g("Gather", g("Shape", x), g.constant(numpy.array(axis, numpy.int64)), axis=0)
        return g("Unsqueeze", picked, axes=[0])

    def shape(*parts):
        return g("Concat", *parts, axis=0)

    def convolution(x, inputs, outputs, taps, step=1, group=1, active=True):
        if taps > 1:
            x = g("Pad", x, pads=[0, 0, 1, 1] * 2)
        x = g(
            "Conv",
            x,
            g.weight(outputs, inputs // group, taps, taps),
            strides=[step] * 2,
            group=group,
        )
        x = g.norm(g("Identity", x), outputs)
        return g("LeakyRelu", g("Dropout", x), alpha=0.1) if active else x

    def shuffled(x, channels):
        n, h, w = (size(x, k) for k in (0, 2, 3))
        x = g("Reshape", x, shape(n, g.numbers(2, channels // 2), h, w))
        x = g("Transpose", x, perm=[0, 2, 1, 3, 4])
        return g("Reshape", x, g("Cast", shape(n, g.numbers(channels), h, w), to=TensorProto.INT64))

    def twice(x, mode):
        scales = [1.0, 1.0, 2.0, 2.0]
        if opset < 9:
            return g("Upsample", x, mode=mode, scales=scales)
        return g("Upsample", x, g.constant(numpy.array(scales, numpy.float32)), mode=mode)

    first = convolution("x", 3, 24, 3, 2)
    x = convolution(first, 24, 48, 3, 2)
    for _ in range(3):
        left, right = g("Split", x, outputs=2, axis=1, split=[24, 24])
        right = convolution(convolution(right, 24, 24, 1), 24, 24, 3, group=24, active=False)
        right = convolution(right, 24, 24, 1)
        x = shuffled(g("Concat", left, right, axis=1), 48)
    y = convolution(convolution(x, 48, 96, 3, 2), 96, 48, 1)
    y = convolution(g("Concat", twice(y, "nearest"), x, axis=1), 96, 48, 3)
    y = convolution(g("Concat", twice(y, "linear"), first, axis=1), 72, 24, 3)
    y = g("Conv", y, g.weight(18, 24, 1, 1), g.weight(18))
    n, h, w = (size(y, k) for k in (0, 2, 3))
    y = g("Transpose", g("Reshape", y, shape(n, g.numbers(3, 6), h, w)), perm=[0, 1, 3, 4, 2])
    places, rest = g("Split", y, outputs=2, axis=4, split=[2, 4])
    y = g("Concat", g("Sigmoid", places), g("Exp", rest), axis=4)
    y = g("Reshape", y, shape(n, g.numbers(-1), g.numbers(6)))
    image = random.standard_normal((1, 3, 128, 128)).astype(numpy.float32)
    return g, ["N", 3, "H", "W"], image, y


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", action="store_true", help="also what torch.onnx exports")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for make, opsets in ((channels_last, (9, 13)), (old, (7, 9))):
        for opset in opsets:
            graph, *rest = make(opset)
            graph.save(given.folder / f"{make.__name__}_{opset}.onnx", *rest)
    if given.torch:
        from habits_torch import export_all

        export_all(given.folder)


if __name__ == "__main__":
    main()
