import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.compiler.plan_store import StoredPlan
from sardonyx.selection import matmul_candidates
from sardonyx.store.cache import default_cache
from sardonyx.store.kernel_store import KernelStore
from sardonyx.store.layer_store import LayerStore
from tests.support.session import model_of
from tests.support.tolerances import assert_near

RNG = np.random.default_rng(0)


def values(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


#: Name -> text of a graph, shapes of its weights, a feed.
MODELS = {
    "product": (
        "g (float[N, 16] x) => (float[N, 4] y) { z = MatMul (x, w) y = Softmax (z) }",
        {"w": (16, 4)},
        values(3, 16),
    ),
    "convolutions": (
        """g (float[1, 16, 20, 20] x) => (float[1, 16, 20, 20] y) {
          a = Conv <pads=[1,1,1,1]> (x, w, b)
          c = Relu (a)
          d = Conv <pads=[1,1,1,1], group=16> (c, v)
          e = Conv (d, u)
          y = Add (e, x)
        }""",
        {"w": (16, 16, 3, 3), "b": (16,), "v": (16, 1, 3, 3), "u": (16, 16, 1, 1)},
        values(1, 16, 20, 20),
    ),
    "attention": (
        """g (float[1, 4, S, 8] x) => (float[1, 4, S, 8] y) {
          k = MatMul (x, w)
          t = Transpose <perm=[0,1,3,2]> (k)
          s = MatMul (x, t)
          p = Softmax <axis=-1> (s)
          y = MatMul (p, k)
        }""",
        {"w": (8, 8)},
        values(1, 4, 9, 8),
    ),
    "norm": (
        """g (float[N, 40] x) => (float[N, 40] y) {
          y = LayerNormalization <axis=-1> (x, w)
        }""",
        {"w": (40,)},
        values(5, 40),
    ),
}


@pytest.fixture
def counts(tmp_path, monkeypatch):
    """(kernels that were known, kernels that were built) of each session.

    All are planned, and no layer is known.
    """
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path))
    monkeypatch.setattr(StoredPlan, "find", lambda *_: None)
    monkeypatch.setattr(LayerStore, "find", lambda *_: None)
    found = []
    write = KernelStore.write

    def written(self):
        found.append((self.found, self.made))
        write(self)

    monkeypatch.setattr(KernelStore, "write", written)
    return found


def check(name):
    """A new model of the structures, with weights of its own."""
    text, weights, x = MODELS[name]
    model = model_of(text, {n: values(*shape) / 4 for n, shape in weights.items()}, 18)
    (got,) = create_engine(model.SerializeToString(), EngineOptions()).run([x])
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert_near(got, want, "float: layers")


@pytest.mark.parametrize("name", MODELS)
def test_known_structures_are_not_formed_again(name, counts, monkeypatch):
    check(name)
    first = counts[-1]
    assert first[0] == 0
    assert first[1] > 0
    monkeypatch.setattr(matmul_candidates, "KERNELS", None)
    monkeypatch.setattr("sardonyx.kernel.attention.kernel.AttentionKernel", None)
    monkeypatch.setattr("sardonyx.kernel.loops.loop_nest.LoopNestKernel", None)
    check(name)
    assert counts[-1] == (first[1], 0)


def test_products_of_other_sizes_are_known(counts):
    text = "g (float[{n}, {c}] x) => (float[{n}, {d}] y) {{ a = MatMul(x, w) y = Relu(a) }}"
    for n, rows, c, d in ((40, 40, 64, 256), (17, 17, 128, 192), ("N", 3, 320, 128)):
        w = values(c, d) / 4
        model = model_of(text.format(n=n, c=c, d=d), {"w": w})
        x = values(rows, c)
        (got,) = create_engine(model.SerializeToString(), EngineOptions()).run([x])
        assert_near(got, np.maximum(x @ w, 0), "float: layers")
    assert counts[0][1] > 0
    assert [made for _, made in counts[1:]] == [0, 0]


def test_options_that_change_kernels_have_kernels_of_their_own(counts):
    check("convolutions")
    text, weights, x = MODELS["convolutions"]
    model = model_of(text, {n: values(*shape) / 4 for n, shape in weights.items()}, 18)
    engine = create_engine(model.SerializeToString(), EngineOptions(winograd=False))
    assert counts[-1][0] == 0
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert_near(engine.run([x])[0], want, "float: layers")


def test_kernels_whose_code_is_gone_are_formed_again(counts, tmp_path):
    check("product")
    for path in (tmp_path / "kernel").iterdir():
        path.unlink()
    check("product")
    assert counts[-1] == (0, counts[0][1])


def exchanged(paths):
    contents = [default_cache().read(path.name, path.parent.name) for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        default_cache().put(path.name, path.parent.name, content)


def cut(paths):
    for path in paths:
        path.write_bytes(path.read_bytes()[:-40])


def changed(paths):
    for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def emptied(paths):
    for path in paths:
        default_cache().put(path.name, path.parent.name, b"[]")


@pytest.mark.parametrize("damage", [exchanged, cut, changed, emptied])
def test_a_damaged_library_is_made_again(damage, counts, tmp_path):
    check("convolutions")
    entries = sorted((tmp_path / "formed").iterdir())
    assert len(entries) == counts[0][1]
    damage(entries)
    check("convolutions")
    assert counts[-1] == (0, counts[0][1])
    check("convolutions")
    assert counts[-1] == (counts[0][1], 0)
