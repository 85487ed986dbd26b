"""Fused models: what they are made of, and that they compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx.base.errors import InvalidArgument
from sardonyx.tools.optimizer.model import OptimizedModel, optimize_model
from sardonyx.tools.optimizer.options import FusionOptions
from tests.support.layers import Net, bert, gpt, llama, vit
from tests.support.tolerances import assert_near

Made = tuple[Any, dict[str, Any]]


def t5() -> Made:
    """Two masks, no scale, normalisation by size alone, attention to another sequence."""
    net, size = Net(13), 24
    x = net.input("x", ["N", "S", size], net.weight(2, 5, size))
    other = net.input("other", ["N", "T", size], net.weight(2, 7, size))
    places = net.input("places", [1, 3, "S", "S"], net.weight(1, 3, 5, 5))
    mask = net.input(
        "mask", ["N", 1, 1, "S"], np.float32([[0] * 5, [0] * 3 + [-1e4] * 2])[:, None, None]
    )
    y = net.rms_norm(x, size)
    y = net.attention(y, 3, size, mask=places, second=mask, scale="none")
    x = net.op("Add", x, net.linear(y, size, size))
    y = net.attention(net.rms_norm(x, size), 3, size, other=other, scale="both")
    x = net.op("Add", x, net.linear(y, size, size))
    return net.model(net.rms_norm(x, size)), net.feeds


def clip() -> Made:
    """QuickGelu, a mask that is a constant."""
    net, size = Net(), 16
    x = net.input("x", [1, 4, size], net.weight(1, 4, size))
    mask = net.constant(np.triu(np.full((4, 4), -3.4e38), 1)[None, None])
    y = net.attention(net.norm(x, size), 2, size, mask=mask, scale="queries")
    x = net.op("Add", net.linear(y, size, size), x)
    y = net.linear(net.norm(x, size), size, size)
    y = net.op("Mul", y, net.op("Sigmoid", net.op("Mul", y, 1.702)))
    return net.model(net.op("Add", net.linear(y, size, size), x)), net.feeds


def chosen_scores(mask: Any, *, inverted: bool = False, guard: bool = False) -> Made:
    """A mask that chooses between scores and a number, or what is added; a guard against NaN."""
    net, size = Net(), 16
    x = net.input("x", ["N", "S", size], net.weight(2, 4, size))
    q, k, v = (net.linear(x, size, size) for _ in range(3))
    scores = net.op("MatMul", net.split(q, 2, 8), net.split(k, 2, 8, (0, 2, 3, 1)))
    scores = net.op("Mul", scores, 8**-0.5)
    length = net.op("Gather", net.op("Shape", x), np.array([1]))
    kept = mask
    if isinstance(mask, str):
        kept = net.input(mask, ["N", 1, "S", "S"], np.tril(np.ones((2, 1, 4, 4), np.int64)))
        kept = net.op("Cast", kept, to=TensorProto.BOOL)
    else:
        for axis in (2, 3):
            kept = net.op("Slice", kept, np.array([0]), length, np.array([axis]))
    if guard:
        added = net.op("Where", kept, 0.0, np.float32(-np.inf))
        chances = net.op("Softmax", net.op("Add", scores, added), axis=-1)
        chances = net.op("Where", net.op("IsNaN", chances), 0.0, chances)
    else:
        pair = (-1e4, scores) if inverted else (scores, -1e4)
        chances = net.op("Softmax", net.op("Where", kept, *pair), axis=-1)
    y = net.join(net.op("MatMul", chances, net.split(v, 2, 8)), x, size)
    return net.model(net.linear(y, size, size)), net.feeds


_TRIL = np.tril(np.ones((1, 1, 8, 8), bool))

#: A mask, how it is used, whether the attention can be fused.
MASKS: list[tuple[str, Any, dict[str, bool], bool]] = [
    ("constant", _TRIL, {}, True),
    ("inverted", ~_TRIL, {"inverted": True}, True),
    ("the wrong way round", ~_TRIL, {}, False),
    ("of the feeds", "mask", {}, False),
    ("guarded", _TRIL, {"guard": True}, True),
    ("guarded, all hidden", np.zeros((1, 1, 8, 8), bool), {"guard": True}, False),
    ("guarded, of the feeds", "mask", {"guard": True}, False),
]


@pytest.mark.parametrize(("name", "mask", "use", "fused"), MASKS, ids=[m[0] for m in MASKS])
def test_masks(name: str, mask: Any, use: dict[str, bool], fused: bool) -> None:
    model, feeds = chosen_scores(mask, **use)
    result = optimize_model(model)
    assert result.get_operator_statistics().get("Attention", 0) == int(fused)
    check_same(model, result, feeds)


#: Name, model, operators that must be there, in that number.
MODELS: list[tuple[str, Callable[[], Made], dict[str, int]]] = [
    ("bert", bert, {"EmbedLayerNormalization": 1, "Attention": 2, "BiasGelu": 2,
                    "SkipLayerNormalization": 4, "LayerNormalization": 0}),
    ("bert_13", lambda: bert(13), {"EmbedLayerNormalization": 1, "Attention": 2, "BiasGelu": 2,
                                   "SkipLayerNormalization": 4, "LayerNormalization": 0}),
    ("vit", vit, {"Attention": 2, "BiasGelu": 2, "SkipLayerNormalization": 4,
                  "LayerNormalization": 1, "Add": 0, "Softmax": 0}),
    ("gpt", gpt, {"MultiHeadAttention": 2, "FastGelu": 2, "SkipLayerNormalization": 4,
                  "EmbedLayerNormalization": 1}),
    ("t5", t5, {"Attention": 1, "MultiHeadAttention": 1, "SimplifiedLayerNormalization": 1,
                "SkipSimplifiedLayerNormalization": 2}),
    ("clip", clip, {"Attention": 1, "QuickGelu": 1, "SkipLayerNormalization": 1}),
    ("llama", llama, {"GroupQueryAttention": 2, "RotaryEmbedding": 4, "QuickGelu": 2,
                      "SimplifiedLayerNormalization": 1, "SkipSimplifiedLayerNormalization": 4}),
    ("llama with a table", lambda: llama(table=True), {
        "GroupQueryAttention": 2, "RotaryEmbedding": 4, "Cos": 0}),
    ("llama with heads of their own", lambda: llama(groups=4), {
        "MultiHeadAttention": 2, "RotaryEmbedding": 4}),
    ("llama that keeps keys", lambda: llama(past=True), {
        "MultiHeadAttention": 2, "RotaryEmbedding": 4, "GroupQueryAttention": 0}),
    ("llama that keeps keys of its own", lambda: llama(past=True, groups=4), {
        "MultiHeadAttention": 2, "RotaryEmbedding": 4, "Concat": 3}),
    ("llama that keeps keys of one item", lambda: llama(past=True, batch=1), {
        "GroupQueryAttention": 2, "RotaryEmbedding": 4}),
]  # fmt: skip


def outputs(model: Any, feeds: dict[str, Any]) -> list[Any]:
    return sardonyx.InferenceSession(model).run(None, feeds)


_UNFUSED: dict[Any, list[Any]] = {}


def unfused(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    """What a model gives as it is; many tests fuse the same one in other ways."""
    key = model, tuple((name, x.shape, x.tobytes()) for name, x in feeds.items())
    if key not in _UNFUSED:
        _UNFUSED[key] = outputs(model, feeds)
    return _UNFUSED[key]


def check_same(
    model: Any, fused: OptimizedModel, feeds: dict[str, Any], like: str = "float: layers"
) -> None:
    data = fused.to_bytes()
    want = unfused(model.SerializeToString(), feeds)
    results = [outputs(data, feeds)]
    try:
        import onnxruntime

        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        results.append(session.run(None, feeds))
    except ImportError:
        pass  # it is no dependency of the tests
    for got in results:
        for mine, theirs in zip(got, want, strict=True):
            assert mine.shape == theirs.shape
            assert_near(mine, theirs, like)


@pytest.mark.parametrize(("name", "make", "expected"), MODELS, ids=[m[0] for m in MODELS])
def test_fused(name: str, make: Callable[[], Made], expected: dict[str, int]) -> None:
    model, feeds = make()
    fused = optimize_model(model)
    counts = fused.get_operator_statistics()
    assert {k: counts.get(k, 0) for k in expected} == expected
    check_same(model, fused, feeds)


def test_other_sizes_of_a_run() -> None:
    model, feeds = bert()
    fused = optimize_model(model)
    feeds = {k: np.tile(v, (2, 2))[:3, :9] for k, v in feeds.items()}
    check_same(model, fused, feeds)


#: Option, value, operators that must be there, in that number.
OPTIONS: list[tuple[str, Any, dict[str, int]]] = [
    ("enable_attention", False, {"Attention": 0, "Softmax": 2}),
    ("enable_gelu", False, {"BiasGelu": 0, "Gelu": 0, "Erf": 2}),
    ("enable_bias_gelu", False, {"BiasGelu": 0, "Gelu": 2}),
    ("enable_skip_layer_norm", False, {"SkipLayerNormalization": 0, "LayerNormalization": 4}),
    ("enable_layer_norm", False, {"LayerNormalization": 0, "SkipLayerNormalization": 0}),
    ("enable_embed_layer_norm", False, {"EmbedLayerNormalization": 0, "LayerNormalization": 1}),
    ("enable_bias_skip_layer_norm", False, {"SkipLayerNormalization": 4, "Add": 4}),
    ("enable_gelu_approximation", True, {"FastGelu": 2, "BiasGelu": 0}),
    ("enable_gemm_fast_gelu", True, {"BiasGelu": 2}),
    ("use_multi_head_attention", True, {"MultiHeadAttention": 2, "Attention": 0}),
    ("use_raw_attention_mask", True, {"Attention": 2, "Expand": 0}),
    ("use_mask_index", True, {"Attention": 2, "ReduceSum": 1}),
    ("num_heads", 3, {"Attention": 0}),
    ("hidden_size", 32, {"Attention": 2}),
]


@pytest.mark.parametrize(("option", "value", "expected"), OPTIONS, ids=[o[0] for o in OPTIONS])
def test_options(option: str, value: Any, expected: dict[str, int]) -> None:
    model, feeds = bert(13)
    chosen = FusionOptions()
    setattr(chosen, option, value)
    fused = optimize_model(model, optimization_options=chosen)
    counts = fused.get_operator_statistics()
    assert {k: counts.get(k, 0) for k in expected} == expected
    is_other = option == "enable_gelu_approximation"
    check_same(model, fused, feeds, "float: approximations" if is_other else "float: layers")


def test_no_attention_mask() -> None:
    model, feeds = bert()
    chosen = FusionOptions()
    chosen.no_attention_mask = True
    fused = optimize_model(model, optimization_options=chosen)
    assert fused.get_operator_statistics()["Attention"] == 2
    assert fused.get_operator_statistics().get("Expand", 0) == 0
    feeds["mask"] = np.ones_like(feeds["mask"])
    check_same(model, fused, feeds)


def test_gemm_fast_gelu() -> None:
    net = Net()
    x = net.input("x", ["N", 8], net.weight(3, 8))
    model = net.model(net.tanh_gelu(net.op("MatMul", x, net.weight(8, 8))))
    chosen = FusionOptions()
    chosen.enable_gemm_fast_gelu = True
    fused = optimize_model(model, optimization_options=chosen)
    assert fused.get_operator_statistics() == {"GemmFastGelu": 1}


#: Ways to write GELU, and what each becomes.
GELUS: list[tuple[str, str, Callable[[Net, str], str]]] = [
    ("half first", "Gelu", lambda n, x: n.op("Mul", n.op("Mul", 0.5, x), n.op(
        "Add", 1.0, n.op("Erf", n.op("Div", x, np.sqrt(2.0)))))),
    ("half last", "Gelu", lambda n, x: n.gelu(x)),
    ("half of the sum", "Gelu", lambda n, x: n.op("Mul", x, n.op("Mul", n.op("Add", n.op(
        "Erf", n.op("Mul", x, np.sqrt(0.5))), 1.0), 0.5))),
    ("half inside", "Gelu", lambda n, x: n.op("Mul", x, n.op("Add", n.op("Mul", n.op(
        "Erf", n.op("Mul", x, np.sqrt(0.5))), 0.5), 0.5))),
    ("tanh of Pow", "FastGelu", lambda n, x: n.tanh_gelu(x)),
    ("tanh of products", "FastGelu", lambda n, x: n.op("Mul", n.op("Mul", x, 0.5), n.op(
        "Add", 1.0, n.op("Tanh", n.op("Mul", n.op("Mul", x, np.sqrt(2 / np.pi)), n.op("Add", n.op(
            "Mul", n.op("Mul", x, 0.044715), x), 1.0)))))),
    ("sigmoid", "QuickGelu", lambda n, x: n.op("Mul", x, n.op("Sigmoid", n.op("Mul", 1.702, x)))),
    ("silu", "QuickGelu", lambda n, x: n.op("Mul", n.op("Sigmoid", x), x)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fused", "write"), GELUS, ids=[g[0] for g in GELUS])
def test_gelus(name: str, fused: str, write: Callable[[Net, str], str]) -> None:
    net = Net()
    x = net.input("x", ["N", 5], 3 * net.weight(4, 5))
    model = net.model(write(net, x))
    result = optimize_model(model)
    assert result.get_operator_statistics() == {fused: 1}
    check_same(model, result, net.feeds)


def _not_closed(net: Net) -> list[str]:
    x = net.input("x", ["N", 4, 8], net.weight(2, 4, 8))
    bent = net.op("Erf", net.op("Div", x, np.sqrt(2.0)))
    y = net.op("Mul", net.op("Mul", x, net.op("Add", bent, 1.0)), 0.5)
    return [y, bent]


def _wider_constant(net: Net) -> list[str]:
    x = net.input("x", ["N"], net.weight(4))
    bent = net.op("Add", net.op("Erf", net.op("Div", x, np.sqrt(2.0))), 1.0)
    return [net.op("Mul", net.op("Mul", x, bent), np.full((1, 1), 0.5))]


def _broadcast_skip(net: Net) -> list[str]:
    x = net.input("x", ["N", 4, 8], net.weight(2, 4, 8))
    row = net.input("row", [1, 4, 8], net.weight(1, 4, 8))
    return [net.norm(net.op("Add", x, row), 8)]


def _other_axis(net: Net) -> list[str]:
    x = net.input("x", ["N", 4, 4], net.weight(2, 4, 4))
    centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[1]))
    deviation = net.op("Sqrt", net.op("Add", net.op(
        "ReduceMean", net.op("Pow", centred, 2.0), axes=[1]), 1e-5))  # fmt: skip
    normal = net.op("Div", centred, deviation)
    return [net.op("Add", net.op("Mul", normal, net.weight(4)), net.weight(4))]


def _shared_heads(net: Net) -> list[str]:
    x = net.input("x", ["N", 4, 8], net.weight(2, 4, 8))
    q = net.split(net.linear(x, 8, 8), 2, 4)
    k = net.split(net.linear(x, 8, 4), 1, 4, (0, 2, 3, 1))
    v = net.split(net.linear(x, 8, 4), 1, 4)
    scores = net.op("Softmax", net.op("Mul", net.op("MatMul", q, k), 0.5), axis=-1)
    return [net.join(net.op("MatMul", scores, v), x, 8)]


def _softmax_of_another_axis(net: Net) -> list[str]:
    x = net.input("x", ["N", 4, 8], net.weight(2, 4, 8))
    q, v = (net.split(net.linear(x, 8, 8), 2, 4) for _ in range(2))
    k = net.split(net.linear(x, 8, 8), 2, 4, (0, 2, 3, 1))
    scores = net.op("Softmax", net.op("Mul", net.op("MatMul", q, k), 0.5), axis=2)
    return [net.join(net.op("MatMul", scores, v), x, 8)]


def _rotated(net: Net, *, swapped: bool, even: bool) -> list[str]:
    x = net.input("x", ["N", 2, 4, 8], net.weight(2, 2, 4, 8))
    cos, sin = (np.tile(net.weight(1, 1, 4, 4), 2) for _ in range(2))
    if not even:
        cos[..., 5] += 1
    axis = np.array([3])
    lower = net.op("Slice", x, np.array([0]), np.array([4]), axis)
    upper = net.op("Slice", x, np.array([4]), np.array([8]), axis)
    if swapped:
        lower, upper = upper, lower
    other = net.op("Concat", net.op("Neg", upper), lower, axis=-1)
    return [net.op("Add", net.op("Mul", x, cos), net.op("Mul", other, sin))]


def _turned_the_other_way(net: Net) -> list[str]:
    return _rotated(net, swapped=True, even=True)


def _turned_unevenly(net: Net) -> list[str]:
    return _rotated(net, swapped=False, even=False)


def test_turned_by_constants() -> None:
    net = Net()
    model = net.model(*_rotated(net, swapped=False, even=True))
    fused = optimize_model(model)
    assert fused.get_operator_statistics()["RotaryEmbedding"] == 1
    check_same(model, fused, net.feeds)


#: What looks like a fused operator and is none.
LOOKALIKES = [
    _not_closed, _wider_constant, _broadcast_skip, _other_axis, _shared_heads,
    _softmax_of_another_axis, _turned_the_other_way, _turned_unevenly,
]  # fmt: skip


@pytest.mark.parametrize("write", LOOKALIKES, ids=lambda f: f.__name__)
def test_lookalikes_stay(write: Callable[[Net], list[str]]) -> None:
    net = Net(13 if write is _other_axis else 17)
    model = net.model(*write(net))
    fused = optimize_model(model)
    assert not any(":" in name for name in fused.get_operator_statistics(include_domain=True))
    check_same(model, fused, net.feeds)


def test_a_sum_that_is_read_elsewhere_is_given_out() -> None:
    net = Net()
    x = net.input("x", ["N", 4, 8], net.weight(2, 4, 8))
    y = net.input("y", ["N", 4, 8], net.weight(2, 4, 8))
    total = net.op("Add", x, y)
    model = net.model(net.norm(total, 8), net.op("Mul", total, 2.0), total)
    fused = optimize_model(model)
    assert fused.get_operator_statistics() == {"SkipLayerNormalization": 1, "Mul": 1}
    check_same(model, fused, net.feeds)


def test_merged_reshapes_hide_no_attention() -> None:
    model, feeds = vit()
    plain = optimize_model(model, only_onnxruntime=True)
    fused = optimize_model(plain.to_bytes())
    assert fused.get_operator_statistics()["Attention"] == 2
    check_same(model, fused, feeds)


def test_reasons_are_noted() -> None:
    net = Net()
    model = net.model(*_not_closed(net))
    report = optimize_model(model).report
    assert ("Gelu", "an inner value is read elsewhere") in report.refused


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "nonsense"}, "No such kind of model"),
    ({"num_heads": 3, "hidden_size": 32}, "32 channels cannot be shared by 3 heads"),
    ({"opt_level": 7}, "No such level"),
    ({"free_dimensions": {"M": 3}}, "No input has a dimension 'M'"),
    ({"free_dimensions": {"N": 0}}, "must be 1 or more"),
]


@pytest.mark.parametrize(("arguments", "text"), ERRORS, ids=[e[1] for e in ERRORS])
def test_errors(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        optimize_model(bert()[0], **arguments)


def test_free_dimensions() -> None:
    model, feeds = bert()
    fused = optimize_model(model, free_dimensions={"N": 2, "S": 6})
    session = sardonyx.InferenceSession(fused.to_bytes())
    assert [i.shape for i in session.get_inputs()] == [[2, 6]] * 3
    assert "Shape" not in fused.get_operator_statistics()
    check_same(model, fused, feeds)


def test_inputs_of_32_bits() -> None:
    model, feeds = bert()
    fused = optimize_model(model)
    assert fused.change_graph_inputs_to_int32() == 3
    session = sardonyx.InferenceSession(fused.to_bytes())
    assert {i.type for i in session.get_inputs()} == {"tensor(int32)"}
    got = session.run(None, {k: v.astype(np.int32) for k, v in feeds.items()})
    want = outputs(model.SerializeToString(), feeds)
    assert_near(got[0], want[0], "float: layers")


def test_is_fully_optimized() -> None:
    assert optimize_model(bert()[0]).is_fully_optimized()
    assert not optimize_model(bert()[0], only_onnxruntime=True).is_fully_optimized()


def test_options_are_onnxruntimes() -> None:
    with pytest.raises(ValueError, match="has no 'enable_nonsense'"):
        FusionOptions().enable_nonsense = True
    with pytest.raises(ValueError, match="fusions are safe only where shapes are known"):
        FusionOptions().enable_shape_inference = False


def unet() -> Made:
    """A block of a diffusion network: normalised groups, gates, convolutions, sums."""
    net = Net()
    x = net.input("x", ["N", 8, 6, 6], net.weight(2, 8, 6, 6))

    def normal(y: str, *, swish: bool) -> str:
        flat = net.op("Reshape", y, np.array([0, 4, -1]))
        ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
        flat = net.op("InstanceNormalization", flat, ones, zeros, epsilon=1e-5)
        y = net.op("Mul", net.op("Reshape", flat, net.op("Shape", y)), net.weight(8, 1, 1))
        y = net.op("Add", y, net.weight(8, 1, 1))
        return net.op("Mul", y, net.op("Sigmoid", y)) if swish else y

    y = net.op("Conv", normal(x, swish=True), net.weight(8, 8, 3, 3), net.weight(8), pads=[1] * 4)
    total = net.op("Add", x, y)
    y = net.op("Conv", normal(total, swish=False), net.weight(8, 8, 1, 1))
    y = net.op("Add", total, y)
    flat = net.op("Transpose", net.op("Reshape", y, np.array([0, 8, 36])), perm=[0, 2, 1])
    lower, upper = net.op("Split", net.linear(flat, 8, 16), np.array([8, 8]), axis=-1, outputs=2)
    y = net.op("Mul", lower, net.gelu(upper))
    return net.model(net.op("Add", net.linear(y, 8, 8), flat)), net.feeds


@pytest.mark.parametrize("channels_first", [False, True])
def test_operators_of_gpus(channels_first: bool) -> None:
    model, feeds = unet()
    chosen = FusionOptions("unet")
    chosen.use_group_norm_channels_first = channels_first
    counts = optimize_model(model).get_operator_statistics()
    assert not {"GroupNorm", "SkipGroupNorm", "NhwcConv", "BiasSplitGelu", "BiasAdd"} & set(counts)
    fused = optimize_model(model, use_gpu=True, optimization_options=chosen)
    counts = fused.get_operator_statistics()
    skips = 0 if channels_first else 1
    expected = {
        "GroupNorm": 2 - skips, "SkipGroupNorm": skips, "NhwcConv": 2, "BiasSplitGelu": 1,
        "BiasAdd": 1, "Sigmoid": 0, "InstanceNormalization": 0,
    }  # fmt: skip
    assert {name: counts.get(name, 0) for name in expected} == expected
    want = outputs(model.SerializeToString(), feeds)
    got = outputs(fused.to_bytes(), feeds)
    assert_near(got[0], want[0], "float: layers")


@pytest.mark.parametrize(
    "option", ["group_norm", "skip_group_norm", "nhwc_conv", "bias_splitgelu", "bias_add"]
)
def test_operators_of_gpus_that_are_not_wanted(option: str) -> None:
    chosen = FusionOptions("unet")
    setattr(chosen, f"enable_{option}", False)
    name = {"group_norm": "GroupNorm", "skip_group_norm": "SkipGroupNorm", "nhwc_conv": "NhwcConv",
            "bias_splitgelu": "BiasSplitGelu", "bias_add": "BiasAdd"}[option]  # fmt: skip
    fused = optimize_model(unet()[0], use_gpu=True, optimization_options=chosen)
    assert name not in fused.get_operator_statistics()
