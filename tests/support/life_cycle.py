"""Models whose runs are short, long, or of any rank, for tests of life cycles."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import sardonyx
from tests.support.session import model_of

X = np.ones((64, 512), np.float32)
#: Python 3.12 and later warn of every fork beside threads; such processes are what is tested.
FORKS = "ignore:This process:DeprecationWarning"
SUM = 64 * 256 * 256.0  # of the outputs of `short`


def short() -> bytes:
    """y = x @ w, of enough work for several threads."""
    text = "g (float[n,512] x) => (float[n,256] y) { z = MatMul(x, w) y = Relu(z) }"
    return model_of(text, {"w": np.full((512, 256), 0.5, np.float32)}).SerializeToString()


def long() -> bytes:
    """A loop of n iterations."""
    text = """g (float[128,128] x, int64 n) => (float[] y) { k = Constant <value_int=1> ()
    c = Cast <to=9> (k) y = Loop (n, c, x) <body = b (int64 i, bool k2, float[128,128] a)
    => (bool o, float[128,128] r) { o = Identity(k2) t = MatMul(a, x) u = Softmax(t) r = Add(u, x)
    }> }"""
    return model_of(text).SerializeToString()


def unranked() -> bytes:
    """y = sqrt(relu(x)), x of any rank."""
    model = model_of("g (float[n] x) => (float[n] y) { z = Relu(x) y = Sqrt(z) }")
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.ClearField("shape")
    return model.SerializeToString()


def long_feeds(iterations: int = 10**9) -> dict[str, Any]:
    """For `long`; by default a run that does not end."""
    return {"x": np.ones((128, 128), np.float32), "n": np.array(iterations)}


def session(model: bytes, threads: int = 4) -> sardonyx.InferenceSession:
    """A session of so many threads."""
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    return sardonyx.InferenceSession(model, options)


def check(made: sardonyx.InferenceSession) -> None:
    """Run `short` and look at what it gives."""
    assert made.run(None, {"x": X})[0].sum() == SUM


def in_child(work: Callable[[], Any], limit_seconds: int = 30) -> None:
    """Do something in a forked process, and wait for it to end well."""
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGALRM, chain=True)  # says where it hangs
        signal.alarm(limit_seconds)
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent sees the status
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    assert status == 0, f"the child ended with status {status}"
