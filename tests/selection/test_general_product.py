import numpy as np
import pytest

from sardonyx.llvm.module import emit_unit
from tests.support.session import check, model_of
from tests.support.targets import TARGETS, compiled_for

RANDOM = np.random.default_rng(0)


def weights(*shape):
    """Small whole numbers: sums are exact in any order."""
    return RANDOM.integers(-1, 2, shape).astype(np.float32)


def filters(*channels):
    """Weights `w0`, `w1`, ... of convolutions of 1 by 1 taps that follow each other."""
    pairs = zip(channels[1:], channels[:-1], strict=True)
    return {f"w{k}": weights(out, inner, 1, 1) for k, (out, inner) in enumerate(pairs)}


def images(*shape):
    return [{"x": weights(*shape)}]


# Name -> text, weights, feeds.
MODELS = {
    "channels": (
        "g (float[1, 16, 9, 9] x) => (float[1, 240, 9, 9] y) "
        "{ a = Conv(x, w0) b = Conv(a, w1) c = Conv(b, w2) y = Relu(c) }",
        filters(16, 96, 48, 240),
        images(1, 16, 9, 9),
    ),
    "images": (
        "g (float[N, 64, H, W] x) => (float[N, 64, I, J] y) "
        "{ a = Conv(x, w0) b = AveragePool<kernel_shape=[2, 2], strides=[2, 2]>(a) "
        "y = Conv(b, w1) }",
        filters(64, 64, 64),
        [*images(2, 64, 9, 5), *images(1, 64, 4, 26), *images(3, 64, 16, 16)],
    ),
    "last vector": (
        "g (float[1, 20, 7, 7] x) => (float[1, 130, 7, 7] y) "
        "{ a = Conv(x, w0) b = Conv(a, w1) y = Conv(b, w2) }",
        filters(20, 50, 114, 130),
        images(1, 20, 7, 7),
    ),
    "matrices": (
        "g (float[N, 80] x) => (float[N, 160] y) "
        "{ a = MatMul(x, u) b = Relu(a) c = MatMul(b, v) y = Relu(c) }",
        {"u": weights(80, 320), "v": weights(320, 160)},
        [{"x": weights(n, 80)} for n in (1, 2, 7, 300)],
    ),
    "residual": (
        "g (float[1, 32, 6, 6] x) => (float[1, 32, 6, 6] y) "
        "{ a = Conv(x, w0) b = Relu(a) c = Conv(b, w1, bias) y = Add(c, x) }",
        {**filters(32, 128, 32), "bias": weights(32)},
        images(1, 32, 6, 6),
    ),
}


def products(model, target):
    calls = compiled_for(model, TARGETS[target]).main.calls
    return [c for c in calls if c.kernel.startswith("product")]


def texts_of(model, target):
    """Each product's code as its text, in the order in which they run."""
    compiled = compiled_for(model, TARGETS[target])
    programs = {p.name: p for p in compiled.programs()}
    listed = list(programs.values())
    names = [c.kernel for c in compiled.main.calls if c.kernel.startswith("product")]
    return [emit_unit(programs[name], listed, TARGETS[target], "unit") for name in names]


@pytest.mark.parametrize("name", MODELS)
def test_products_of_other_sizes_are_right(name):
    text, held, feeds = MODELS[name]
    check(model_of(text, held), feeds)


def test_layers_that_differ_in_their_sizes_share_a_kernel():
    text = (
        "g (float[1, 64, 12, 12] x) => (float[1, 64, 12, 12] y) { "
        "a = Conv(x, w0) b = Relu(a) c = Conv(b, w1) d = Relu(c) e = Conv(d, w2) f = Relu(e) "
        "h = Conv(f, w3) i = Relu(h) y = Conv(i, w4) }"
    )
    model = model_of(text, filters(64, 128, 64, 192, 256, 64))
    check(model, images(1, 64, 12, 12))
    for target in TARGETS:
        calls = products(model, target)
        # The first finds its channels apart, and the last leaves them so.
        assert len(calls) == 5, target
        assert len({c.kernel for c in calls[1:-1]}) == 1, target


# Layers of one form: channels, and what comes behind a convolution `s` of the image `x`.
ALIKE = {
    "whole vectors": ((64, 240), (64, 144), (64, 80), "y = Relu(s)"),
    "short and long sums": ((16, 64), (63, 64), (64, 64), (240, 64), "y = Relu(s)"),
    "long epilogue": ((16, 64), (64, 128), "r = Sigmoid(s) y = Mul(r, s)"),
    "part of a vector": ((20, 20), (72, 20), (72, 24), "y = Relu(s)"),
    "panels of one width": ((40, 128), (40, 112), "y = Relu(s)"),
}
# What takes more than one kernel: 20 channels are a panel of 24 lanes and one of 4 where vectors
# are short, 24 are one of 24.
WIDTHS = {("part of a vector", "avx2"): 2, ("part of a vector", "sse"): 2}


def of_one_structure(name):
    """The models of one row of `ALIKE`: a layer each, between two others."""
    *layers, behind = ALIKE[name]
    for inner, outer in layers:
        text = (
            f"g (float[1, 8, 6, 6] z) => (float[1, 8, 6, 6] t) {{ a = Conv(z, u) x = Relu(a) "
            f"s = Conv(x, w, b) {behind} t = Conv(y, v) }}"
        )
        held = {
            "u": weights(inner, 8, 1, 1), "w": weights(outer, inner, 1, 1), "b": weights(outer),
            "v": weights(8, outer, 1, 1),
        }  # fmt: skip
        yield model_of(text, held)


@pytest.mark.parametrize("name", ALIKE)
def test_layers_of_one_width_of_panels_are_right(name):
    for model in of_one_structure(name):
        check(model, [{"z": weights(1, 8, 6, 6)}])


@pytest.mark.once
@pytest.mark.parametrize("target", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("name", ALIKE)
def test_layers_of_one_width_of_panels_share_a_kernel(name, target):
    found = [texts_of(model, target) for model in of_one_structure(name)]
    assert {len(texts) for texts in found} == {3}
    kernels = {texts[1] for texts in found}
    assert len(kernels) == WIDTHS.get((name, target), 1)


def test_a_residual_is_added_by_one_kernel_from_either_side():
    found = {target: set() for target in TARGETS}
    for added in ("Add(c, b)", "Add(b, c)"):
        text = (
            "g (float[1, 8, 6, 6] x) => (float[1, 8, 6, 6] y) { a = Conv(x, w0) b = Relu(a) "
            f"c = Conv(b, w1, bias) d = {added} y = Conv(d, w2) }}"
        )
        model = model_of(text, {**filters(8, 64, 64, 8), "bias": weights(64)})
        check(model, images(1, 8, 6, 6))
        for target, texts in found.items():
            texts.add(texts_of(model, target)[1])
    assert {target: len(texts) for target, texts in found.items()} == dict.fromkeys(TARGETS, 1)


def test_projections_to_heads_share_a_kernel():
    """Heads of 16 elements, 4 and 2 of them, whose results lie head by head."""

    def projected(name, source, tokens, heads, width):
        return (
            f"a{name} = MatMul({source}, w{name}) b{name} = Add(a{name}, c{name}) "
            f"d{name} = Reshape(b{name}, s{name}) y{name} = Transpose<perm=[0, 2, 1, 3]>(d{name})"
        ), {
            f"w{name}": weights(width, heads * 16), f"c{name}": weights(heads * 16),
            f"s{name}": np.array([1, tokens, heads, 16], np.int64),
        }  # fmt: skip

    first, held = projected("p", "x", 40, 4, 64)
    second, more = projected("q", "z", 60, 2, 96)
    model = model_of(
        "g (float[1, 40, 64] x, float[1, 60, 96] z) => (float[1, 4, 40, 16] yp, "
        f"float[1, 2, 60, 16] yq) {{ {first} {second} }}",
        held | more,
    )
    check(model, [{"x": weights(1, 40, 64), "z": weights(1, 60, 96)}])
    for target in TARGETS:
        calls = products(model, target)
        assert len(calls) == 2, target
        assert len({c.kernel for c in calls}) == 1, target


def test_products_of_constants_in_doubles_have_one_micro_kernel():
    text = (
        "g (float[2, 96] x) => (float[2, 64] y, float[2, 32] z) { "
        "a = MatMul(u, v) b = Cast<to=1>(a) y = MatMul(x, b) "
        "c = MatMul(s, t) d = Cast<to=1>(c) z = MatMul(x, d) }"
    )
    held = {"u": weights(96, 80), "v": weights(80, 64), "s": weights(96, 50), "t": weights(50, 32)}
    model = model_of(text, {name: w.astype(np.float64) for name, w in held.items()})
    check(model, [{"x": weights(2, 96)}])
    for target in TARGETS:
        programs = compiled_for(model, TARGETS[target]).programs()
        names = {p.name for p in programs if "_f64_" in p.name}
        assert {name.split("_")[2].split("x")[0] for name in names} == {"1"}, target


@pytest.mark.parametrize("batch", ["N", 1])
def test_gates_of_all_sizes_share_kernels(batch):
    """Squeeze-and-excitation: few channels, part of a vector, short sums."""
    sizes = {8: 4, 20: 6, 96: 8, 130: 40}
    text, held = [], {}
    for k, (wide, narrow) in enumerate(sizes.items()):
        text += [
            f"a{k} = Conv(x, u{k}) m{k} = GlobalAveragePool(a{k}) d{k} = Conv(m{k}, v{k}, b{k})",
            f"r{k} = Relu(d{k}) e{k} = Conv(r{k}, w{k}) s{k} = Sigmoid(e{k})",
            f"g{k} = Mul(a{k}, s{k}) y{k} = Conv(g{k}, t{k})",
        ]
        held |= {
            f"u{k}": weights(wide, 8, 1, 1), f"v{k}": weights(narrow, wide, 1, 1),
            f"b{k}": weights(narrow), f"w{k}": weights(wide, narrow, 1, 1),
            f"t{k}": weights(8, wide, 1, 1),
        }  # fmt: skip
    results = ", ".join(f"float[n, 8, h, w] y{k}" for k in range(len(sizes)))
    model = model_of(f"g (float[{batch}, 8, 8, 8] x) => ({results}) {{ {' '.join(text)} }}", held)
    check(model, images(1, 8, 8, 8) + (images(5, 8, 8, 8) if batch == "N" else []))
    for target in TARGETS:
        calls = products(model, target)
        gates = [c.kernel for c in calls if c.kernel in {calls[1].kernel, calls[2].kernel}]
        assert len(calls) == 4 * len(sizes), target
        assert len(gates) == 2 * len(sizes), target


#: Products of a single row: depth and columns, and how many kernels they have for vectors of 8.
SINGLE_ROWS = {
    "whole panels": ([(16, 64), (60, 192), (300, 768), (768, 3072)], 1),
    "part of a vector": ([(16, 60), (100, 28)], 1),
    "narrow": ([(16, 8), (60, 8)], 1),
    "other panels": ([(16, 64), (16, 24)], 2),
}


def single_rows(name):
    sizes, _ = SINGLE_ROWS[name]
    text = "".join(f"a{k} = MatMul(x{k}, w{k}) y{k} = Add(a{k}, b{k}) " for k in range(len(sizes)))
    inputs = ", ".join(f"float[1, {depth}] x{k}" for k, (depth, _) in enumerate(sizes))
    results = ", ".join(f"float[1, n{k}] y{k}" for k in range(len(sizes)))
    held = {f"w{k}": weights(*shape) for k, shape in enumerate(sizes)}
    held |= {f"b{k}": weights(columns) for k, (_, columns) in enumerate(sizes)}
    return model_of(f"g ({inputs}) => ({results}) {{ {text} }}", held)


@pytest.mark.parametrize("name", SINGLE_ROWS)
def test_single_rows_are_right(name):
    sizes, _ = SINGLE_ROWS[name]
    check(single_rows(name), [{f"x{k}": weights(1, depth) for k, (depth, _) in enumerate(sizes)}])


@pytest.mark.once
@pytest.mark.parametrize("name", SINGLE_ROWS)
def test_single_rows_of_other_sizes_share_a_kernel(name):
    """And its one micro-kernel: blocks of a single row need no others."""
    sizes, kernels = SINGLE_ROWS[name]
    compiled = compiled_for(single_rows(name), TARGETS["avx2"])
    names = [c.kernel for c in compiled.main.calls]
    assert len(names) == len(sizes)
    assert len(set(names)) == kernels
    micro = {p.name for p in compiled.programs() if p.name.startswith("micro")}
    assert len(micro) <= kernels
