"""LinearAttention and CausalConvWithState of onnxruntime's domain against plain loops."""

import numpy as np
import pytest

from sardonyx.base.errors import NotImplemented
from tests.support.contrib import check_contrib

RNG = np.random.default_rng(81)
BATCH, LENGTH, DEPTH, WIDTH = 2, 3, 4, 5


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("queries", "keys"), [(4, 2), (2, 4), (2, 2)])
@pytest.mark.parametrize("window", [0, 2, 5])
def test_linear_attention(queries, keys, window):
    q = floats(BATCH, LENGTH, queries * DEPTH)
    k, v = floats(BATCH, LENGTH, keys * DEPTH), floats(BATCH, LENGTH, keys * WIDTH)
    decay, beta = floats(BATCH, LENGTH, keys), floats(BATCH, LENGTH, keys)
    past = floats(BATCH, keys, DEPTH, WIDTH)
    state, states, outputs = past.astype(float), [], []
    most = max(queries, keys)
    for t in range(LENGTH):
        a, b, c = (x[:, t].reshape(BATCH, n, -1).astype(float)
                   for x, n in ((q, queries), (k, keys), (v, keys)))  # fmt: skip
        state = state * np.exp(decay[:, t])[..., None, None]
        c = (c - np.einsum("bhdm,bhd->bhm", state, b)) * beta[:, t][..., None]
        state = state + b[..., None] * c[:, :, None]
        states.append(state)
        read, held = np.repeat(a, most // queries, 1), np.repeat(state, most // keys, 1)
        outputs.append(np.einsum("bhd,bhdm->bhm", read, held) / 2)
    result = np.stack(outputs, 1).reshape(BATCH, LENGTH, -1)
    given, present = past, states[-1]
    if window:
        given = np.concatenate([floats(window - 1, *past.shape), past[None]])
        zeros = [np.zeros_like(state)] * max(0, window - LENGTH)
        present = np.stack(zeros + states[-min(window, LENGTH) :])
    facts = {"q_num_heads": queries, "kv_num_heads": keys, "update_rule": "gated_delta"}
    facts |= {"state_window": window} if window else {}
    inputs = [q, k, v, given, decay, beta]
    check_contrib(
        "LinearAttention",
        inputs,
        facts,
        [result, present],
        engine=not window,
        tolerance="float: layers",
    )


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("window", [0, 2, 5])
def test_causal_convolution(last, dilation, window):
    channels, taps = 4, 3
    behind = (taps - 1) * dilation
    x, w, bias = floats(BATCH, channels, LENGTH), floats(channels, 1, taps), floats(channels)
    past = floats(BATCH, channels, behind)
    padded = np.concatenate([past, x], 2).astype(float)
    result = np.stack(
        [
            sum(padded[:, :, i + k * dilation] * w[:, 0, k] for k in range(taps)) + bias
            for i in range(LENGTH)
        ],
        2,
    )
    states = [padded[:, :, t + 1 : t + 1 + behind] for t in range(LENGTH)]
    zeros = [np.zeros_like(states[0])] * max(0, window - LENGTH)
    present = np.stack(zeros + states[-min(window, LENGTH) :]) if window else states[-1]
    given = np.concatenate([floats(window - 1, *past.shape), past[None]]) if window else past

    def ordered(y):
        if not last:
            return y
        moved = np.ascontiguousarray(y.swapaxes(-1, -2))
        return moved.reshape(*moved.shape[:-1], 2, 2)

    facts = {"dilation": dilation, "channels_last": last}
    facts |= {"state_window": window} if window else {}
    inputs = [ordered(x), w, bias, ordered(given)]
    expected = [ordered(result), ordered(present)]
    check_contrib("CausalConvWithState", inputs, facts, expected, engine=not window)


def test_images_are_refused():
    inputs = [floats(1, 2, 3, 3), floats(2, 1, 2, 2)]
    with pytest.raises(NotImplemented, match="Images of 2 axes"):
        check_contrib("CausalConvWithState", inputs, {"ndim": 2}, [None])
