import numpy as np
import pytest

from tests.support.session import check, model_of
from tests.support.targets import TARGETS, compiled_for

RANDOM = np.random.default_rng(0)


def weights(*shape):
    """Small whole numbers: sums are exact in any order."""
    return RANDOM.integers(-2, 3, shape).astype(np.float32)


def depthwise(channels, *steps, taps=3, pads=1):
    """Convolutions of each channel for itself, one after the other, between products."""
    text, held, last = [], {}, "a"
    for k, step in enumerate(steps):
        attributes = (
            f"group={channels}, strides=[{step}, {step}], pads=[{', '.join([str(pads)] * 4)}]"
        )
        text += [f"d{k} = Conv<{attributes}>({last}, v{k})", f"r{k} = Relu(d{k})"]
        held[f"v{k}"] = weights(channels, 1, taps, taps)
        last = f"r{k}"
    held |= {"u": weights(channels, 8, 1, 1), "w": weights(8, channels, 1, 1)}
    return f"a = Conv(x, u) {' '.join(text)} y = Conv({last}, w)", held


# Name -> body, weights, shape of the image, kernels of windows.
MODELS = {
    "halved": (*depthwise(32, 1, 2, 1, 2, 1), (1, 8, 56, 56), 2),
    "one block": (*depthwise(32, 1, 2, 1), (1, 8, 14, 14), 3),
    "oblong": (*depthwise(48, 1, 2), (2, 8, 5, 28), 2),
    "no whole blocks": (*depthwise(32, 1, 1), (1, 8, 11, 13), 1),
    "long windows": (*depthwise(16, 1, 2, taps=5, pads=2), (1, 8, 28, 28), 2),
    "no borders": (*depthwise(16, 1, 2, pads=0), (1, 8, 30, 16), 2),
    "part of a vector": (*depthwise(20, 1, 2), (1, 8, 28, 28), 2),
    "pool": (
        "a = Conv(x, u) b = MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(a) "
        "c = MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(b) "
        "d = AveragePool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(c) y = Conv(d, w)",
        {"u": weights(32, 8, 1, 1), "w": weights(8, 32, 1, 1)},
        (1, 8, 28, 28),
        3,
    ),
}


def model(name):
    body, held, shape, _ = MODELS[name]
    declared = ", ".join(map(str, shape))
    return model_of(f"g (float[{declared}] x) => (float[n, 8, h, w] y) {{ {body} }}", held)


@pytest.mark.parametrize("name", MODELS)
def test_windows_of_other_sizes_are_right(name):
    check(model(name), [{"x": weights(*MODELS[name][2])}])


def kernels_of(model, kind, target):
    """Names of the kernels of one kind, one for each call."""
    calls = compiled_for(model, TARGETS[target]).main.calls
    return [c.kernel for c in calls if c.kernel.startswith(kind)]


@pytest.mark.once
@pytest.mark.parametrize("target", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("name", MODELS)
def test_windows_that_differ_in_their_sizes_share_a_kernel(name, target):
    assert len(set(kernels_of(model(name), "rows", target))) == MODELS[name][3]


def sequences(*images, step=1):
    """Windows over images, (channels, height, width) each, which are handed on as sequences."""
    text, held = [], {}
    for k, (channels, height, width) in enumerate(images):
        text += [
            f"a{k} = MatMul(x{k}, u{k}) t{k} = Transpose<perm=[0, 2, 1]>(a{k})",
            f"i{k} = Reshape(t{k}, s{k})",
            f"c{k} = Conv<group={channels}, pads=[1, 1, 1, 1], strides=[{step}, {step}]>"
            f"(i{k}, v{k})",
            f"r{k} = Relu(c{k}) f{k} = Reshape(r{k}, l{k})",
            f"o{k} = Transpose<perm=[0, 2, 1]>(f{k}) y{k} = MatMul(o{k}, w{k})",
        ]
        held |= {
            f"u{k}": weights(8, channels), f"v{k}": weights(channels, 1, 3, 3),
            f"w{k}": weights(channels, 8), f"s{k}": np.array([0, 0, height, width]),
            f"l{k}": np.array([0, 0, -1]),
        }  # fmt: skip
    inputs = ", ".join(f"float[2, {h * w}, 8] x{k}" for k, (_, h, w) in enumerate(images))
    results = ", ".join(f"float[n, l{k}, 8] y{k}" for k in range(len(images)))
    return model_of(f"g ({inputs}) => ({results}) {{ {' '.join(text)} }}", held)


@pytest.mark.parametrize("step", [1, 2])
def test_windows_over_sequences_share_a_kernel(step):
    images = (32, 16, 32), (64, 8, 64), (48, 24, 32)
    made = sequences(*images, step=step)
    check(made, [{f"x{k}": weights(2, h * w, 8) for k, (_, h, w) in enumerate(images)}])
    for target in TARGETS:
        names = kernels_of(made, "rows", target)
        assert len(names) == len(images), target
        assert len(set(names)) == 1, target


def gated(pool, *images):
    """Gates times images, (channels, height, width) each, between products."""
    text, held = [], {}
    for k, (channels, height, width) in enumerate(images):
        text += [
            f"a{k} = Conv<strides=[{32 // height}, {32 // width}]>(x, u{k})",
            f"m{k} = {pool}(a{k}) h{k} = Conv(m{k}, w{k}) g{k} = Conv(h{k}, u{k})",
            f"b{k} = Mul(a{k}, g{k}) y{k} = Conv(b{k}, w{k})",
        ]
        held |= {f"u{k}": weights(channels, 8, 1, 1), f"w{k}": weights(8, channels, 1, 1)}
    results = ", ".join(f"float[n, 8, h{k}, w{k}] y{k}" for k in range(len(images)))
    return model_of(f"g (float[2, 8, 32, 32] x) => ({results}) {{ {' '.join(text)} }}", held)


# Name -> pool, images, kernels of maps and of pools for vectors of 16, 8 and 4 floats: short rows,
# parts of vectors and short reductions have kernels of their own.
GATED = {
    "means": ("GlobalAveragePool", ((128, 32, 32), (256, 16, 8), (144, 8, 8)), "111", "111"),
    "maxima": ("GlobalMaxPool", ((128, 32, 32), (256, 16, 8), (144, 4, 8)), "111", "111"),
    "short rows": ("GlobalAveragePool", ((32, 32, 32), (48, 16, 8)), "221", "221"),
    "part of a vector": ("GlobalMaxPool", ((128, 32, 32), (136, 16, 8), (160, 8, 8)), "211", "211"),
    "few to reduce": ("GlobalAveragePool", ((128, 4, 4), (256, 2, 2), (144, 32, 32)), "111", "333"),
}


@pytest.mark.parametrize("name", GATED)
def test_maps_and_means_of_other_sizes_are_right(name):
    pool, images, *_ = GATED[name]
    check(gated(pool, *images), [{"x": weights(2, 8, 32, 32)}])


@pytest.mark.once
@pytest.mark.parametrize("target", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("name", GATED)
def test_maps_and_means_of_other_sizes_share_kernels(name, target):
    pool, images, maps, pools = GATED[name]
    made = gated(pool, *images)
    width = (16, 8, 4).index(TARGETS[target].lanes(32))
    for kind, counts in ("map", maps), ("rows", pools):
        names = kernels_of(made, kind, target)
        assert len(names) == len(images)
        assert len(set(names)) == int(counts[width])


def test_maps_of_elements_that_lie_apart_keep_their_form():
    """Squares of an image whose channels come first are transposed in registers."""
    made = model_of(
        "g (float[2, 128, 8, 8] a, float[2, 8, 8, 128] b, float[2, 256, 16, 4] c, "
        "float[2, 16, 4, 256] d) => (float[n, h, w, k] y, float[n, i, j, l] z) { "
        "e = Transpose<perm=[0, 2, 3, 1]>(a) y = Add(e, b) "
        "f = Transpose<perm=[0, 2, 3, 1]>(c) z = Add(f, d) }"
    )
    shapes = {"a": (2, 128, 8, 8), "b": (2, 8, 8, 128), "c": (2, 256, 16, 4), "d": (2, 16, 4, 256)}
    check(made, [{name: weights(*shape) for name, shape in shapes.items()}])
    for target in TARGETS:
        assert len(set(kernels_of(made, "map", target))) == 2, target


def apart(node, *shapes, more=""):
    """The same node on tensors of several shapes.

    `more` has further inputs, `s{k}` and `b{k}`: as long as the rows of tensor k.
    """
    text, held, inputs, results = [], {}, [], []
    for k, shape in enumerate(shapes):
        given = more.format(k=k)
        text.append(f"y{k} = {node}(x{k}{given})")
        inputs.append(f"float[{', '.join(map(str, shape))}] x{k}")
        results.append(f"float[{', '.join(f'd{k}{axis}' for axis in range(len(shape)))}] y{k}")
        if more:
            held |= {f"s{k}": weights(shape[-1]), f"b{k}": weights(shape[-1])}
    graph = f"g ({', '.join(inputs)}) => ({', '.join(results)}) {{ {' '.join(text)} }}"
    return model_of(graph, held)


_AXIS = "axis = -1"
#: Name -> node, its further inputs, shapes, and how many kernels there are for vectors of 8.
ROWS = {
    "norms": (f"LayerNormalization<{_AXIS}>", ", s{k}, b{k}",
              [(2, 3, 512), (7, 264), ("N", "S", 768), (1, 2, 5, 1000)], 1),
    "norms of part of a vector": (f"LayerNormalization<{_AXIS}>", ", s{k}, b{k}",
                                  [(3, 259), (2, 3, 301)], 1),
    "softmax": ("Softmax", "", [(2, 3, 512), (7, 264), ("N", "S", 768)], 1),
    "means": ("ReduceMean<axes = [-1]>", "", [(3, 512), (2, 3, 400), ("N", 768)], 1),
    "short rows": ("Softmax", "", [(3, 64), (2, 5, 128), (7, 256)], 3),
    "maps": ("Sigmoid", "", [(2, 64, 6, 6), (3, 24, 2, 4), (1, 197, 768), (40, 16)], 1),
    "maps of some rows": ("Sigmoid", "", [("N", 64, 6, 6), ("N", 4, 24), ("M", 3, 40)], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_other_sizes_are_right(name):
    node, more, shapes, _ = ROWS[name]
    sizes = {"N": 3, "S": 4, "M": 2}
    feeds = {
        f"x{k}": weights(*(sizes.get(d, d) for d in shape)) / 4 for k, shape in enumerate(shapes)
    }
    check(apart(node, *shapes, more=more), [feeds], tolerance="float: layers near zero")


@pytest.mark.once
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_other_sizes_share_kernels(name):
    node, more, shapes, kernels = ROWS[name]
    names = kernels_of(apart(node, *shapes, more=more), ("rows", "map"), "avx2")
    assert len(names) == len(shapes)
    assert len(set(names)) == kernels


def test_rows_that_are_not_one_row_are_no_one_row():
    """A bias that begins anew with each row, and one whose rows lie apart."""
    made = model_of(
        "g (float[6, 5, 72] x, float[6, 1, 72] v) => (float[6, 5, 72] y, float[6, 5, 72] z, "
        "float[6, 5, 72] w) { y = Add(x, b) z = Mul(x, v) w = Sub(x, u) }",
        {"b": weights(72), "u": weights(5, 1)},
    )
    check(made, [{"x": weights(6, 5, 72), "v": weights(6, 1, 72)}])
