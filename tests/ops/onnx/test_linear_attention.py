"""LinearAttention, CausalConvWithState, SwiGLU and FlexAttention against ONNX's reference."""

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph
from tests.support.ops import check_op, one_node_model
from tests.support.session import check, model_of
from tests.support.tolerances import assert_near

RNG = np.random.default_rng(27)


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("rule", "decay", "beta"),
    [
        ("linear", None, None),
        ("gated", floats(2, 3, 2), None),
        ("gated", floats(2, 3, 8), None),
        ("delta", None, floats(2, 3, 2)),
        ("gated_delta", floats(2, 3, 8), floats(2, 3, 1)),
    ],
)
@pytest.mark.parametrize("past", [None, floats(2, 2, 4, 5)])
def test_linear_attention(rule, decay, beta, past):
    inputs = [floats(2, 3, 16), floats(2, 3, 8), floats(2, 3, 10), past, decay, beta]
    attributes = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}
    check_op("LinearAttention", inputs, attributes, 27, outputs=2, symbolic=False)


def test_linear_attention_carries_on_from_its_state():
    model = model_of(
        """g (float[1, t, 6] q, float[1, t, 6] k, float[1, t, 6] v, float[1, 2, 3, 3] s,
             float[1, t, 2] beta) => (float[1, t, 6] y, float[1, 2, 3, 3] after)
           { y, after = LinearAttention<q_num_heads = 2, kv_num_heads = 2, update_rule = "delta">
               (q, k, v, s, , beta) }""",
        opset=27,
    )
    given = {name: floats(1, 5, 6) for name in "qkv"} | {"beta": floats(1, 5, 2)}
    start = {"s": floats(1, 2, 3, 3)}
    session = check(model, [given | start])
    whole, last = session.run(None, given | start)
    parts, state = [], start["s"]
    for begin, end in ((0, 2), (2, 3), (3, 5)):
        part = {name: x[:, begin:end] for name, x in given.items()}
        y, state = session.run(None, part | {"s": state})
        parts.append(y)
    assert_near(np.concatenate(parts, 1), whole, "float: sums")
    assert_near(state, last, "float: sums")


@pytest.mark.parametrize("taps", [1, 4])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_convolution(taps, length, activation):
    inputs = [floats(2, 3, length), floats(3, 1, taps), floats(3), floats(2, 3, taps - 1)]
    for given in (inputs, [*inputs[:3], None], inputs[:2]):
        attributes = {"activation": activation}
        check_op("CausalConvWithState", given, attributes, 27, outputs=2, symbolic=False)


def test_swiglu():
    check_op("SwiGLU", [floats(2, 5), floats(2, 5)], {"alpha": 1.5}, 28)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "text"),
    [
        ("SwiGLU", [floats(2, 5), floats(2, 4)], {}, "The second input"),
        (
            "LinearAttention",
            [floats(1, 2, 6)] * 3,
            {"q_num_heads": 2, "kv_num_heads": 2},
            "The update_rule gated_delta needs input decay",
        ),
        (
            "LinearAttention",
            [floats(1, 2, 6)] * 3,
            {"q_num_heads": 3, "kv_num_heads": 2, "update_rule": "linear"},
            "3 heads of queries",
        ),
        ("CausalConvWithState", [floats(2, 3, 4), floats(3, 2, 2)], {}, "The weight"),
        (
            "CausalConvWithState",
            [floats(2, 3, 4), floats(3, 1, 2)],
            {"activation": "relu"},
            "Bad activation",
        ),
    ],
)
def test_what_does_not_fit_is_refused(op_type, inputs, attributes, text):
    model = one_node_model(op_type, inputs, attributes, 28)
    with pytest.raises(InvalidGraph, match=text) as caught:
        sardonyx.InferenceSession(model.SerializeToString())
    assert op_type in str(caught.value)


FLEX = """<ir_version: 10, opset_import: ["" : 24, "ai.onnx.preview" : 1]>
g (float[b, 4, n, 8] q, float[b, 2, m, 8] k, float[b, 2, m, 6] v, float cap)
    => (float[b, 4, n, 6] y)
{ y = ai.onnx.preview.FlexAttention<score_mod = s (float[B, H, L, S] x) => (float[B, H, L, S] z)
    { small = Div(x, cap)  bent = Tanh(small)  z = Mul(bent, cap) }> (q, k, v) }"""


def test_a_graph_that_changes_scores_reads_what_is_around_it():
    import onnx

    session = sardonyx.InferenceSession(onnx.parser.parse_model(FLEX).SerializeToString())
    for n, m in ((3, 5), (1, 7)):
        q, k, v = floats(2, 4, n, 8), floats(2, 2, m, 8), floats(2, 2, m, 6)
        cap = np.float32(0.7)
        keys, values = (np.repeat(x, 2, axis=1).astype(np.float64) for x in (k, v))
        scores = q @ keys.swapaxes(2, 3) / np.sqrt(8)
        e = np.exp(np.tanh(scores / cap) * cap)
        expected = e / e.sum(-1, keepdims=True) @ values
        (got,) = session.run(None, {"q": q, "k": k, "v": v, "cap": cap})
        assert_near(got, expected, "float: sums")
