"""A model that differs from an earlier one in weights alone has the earlier one's plan."""

import json

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sardonyx.base.errors import NoSuchFile
from sardonyx.compiler import plan_store
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.store.cache import default_cache
from tests.support.session import model_of
from tests.support.tolerances import assert_near

IMAGE = (1, 8, 12, 12)


def values(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _of_layers(seed):
    return {"w": values(seed, 16, 8, 3, 3) / 4, "b": values(seed, 16), "v": values(seed, 16, 4)}


def _of_norm(seed):
    parts = {name: values(seed + k, 12) for k, name in enumerate("gbm")}
    return {"w": values(seed, 12, 8, 1, 1), **parts, "s": abs(values(seed, 12)) + 1}


#: Name -> graph, weights made of a number, shape of the feed.
MODELS = {
    "layers": (
        """g (float[1, 8, 12, 12] x) => (float[1, 12, 12, 4] y) {
          a = Conv <pads=[1,1,1,1]> (x, w, b)
          c = Relu (a)
          d = Transpose <perm=[0,2,3,1]> (c)
          y = MatMul (d, v)
        }""",
        _of_layers,
        IMAGE,
    ),
    "folded norm": (
        """g (float[1, 8, 12, 12] x) => (float[1, 12, 12, 12] y) {
          a = Conv (x, w)
          y = BatchNormalization (a, g, b, m, s)
        }""",
        _of_norm,
        IMAGE,
    ),
    "weights as they are": (
        "g (float[n, 8] x) => (float[n, 8] y, float[40, 8] z) { y = Add(x, b) z = Identity(w) }",
        lambda seed: {"b": values(seed, 3, 8), "w": values(seed, 40, 8)},
        (3, 8),
    ),
    "one weight twice": (
        """g (float[n, 16] x) => (float[n, 16] y) {
          a = MatMul (x, w)
          t = Transpose (w)
          y = MatMul (a, t)
        }""",
        lambda seed: {"w": values(seed, 16, 16)},
        (5, 16),
    ),
    "table": (
        """g (float[1, 8, 12, 12] x) => (float[1, 8, 12, 12] y) {
          s = Constant <value = float[4] {0.1, 0.2, 0.3, 0.4}> ()
          t = Constant <value_ints = [1, 1, 2, 2]> ()
          u = Reshape (s, t)
          v = Mul (w, u)
          y = Conv <pads=[0,0,1,1]> (x, v)
        }""",
        lambda seed: {"w": values(seed, 8, 8, 2, 2)},
        IMAGE,
    ),
}


def model(name, seed):
    text, weights, _ = MODELS[name]
    return model_of(text, weights(seed))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def is_planned(engine):
    """Whether it was planned itself."""
    assert "from cache" not in engine.timings
    return "lower" in engine.timings


def check(engine, proto, *feeds):
    names = [value.name for value in proto.graph.input]
    wanted = ReferenceEvaluator(proto).run(None, dict(zip(names, feeds, strict=True)))
    for got, want in zip(engine.run(feeds), wanted, strict=True):
        assert got.dtype == want.dtype
        assert_near(got, want, "float: layers")


@pytest.mark.parametrize("name", MODELS)
def test_other_weights_are_not_planned(name):
    x = values(0, *MODELS[name][2])
    for seed in (1, 2, 3):
        proto = model(name, seed)
        engine = create_engine(proto.SerializeToString())
        assert is_planned(engine) == (seed == 1)
        check(engine, proto, x)


def test_files_are_sessions_that_were_seen_then(tmp_path):
    x = values(0, *IMAGE)
    for seed in (1, 2):
        path, proto = tmp_path / f"{seed}.onnx", model("layers", seed)
        path.write_bytes(proto.SerializeToString())
        first, again = create_engine(str(path)), create_engine(str(path))
        assert is_planned(first) == (seed == 1)
        assert "from cache" in again.timings
        check(first, proto, x)
        np.testing.assert_array_equal(first.run([x])[0], again.run([x])[0])


_READ = {
    "shape": (
        "g (float[n, 24] x) => (float[a, b, c] y) { y = Reshape (x, w) }",
        [np.array(s) for s in ([-1, 4, 6, 1, 1], [-1, 2, 2, 3, 2], [-1, 24, 1, 1, 1])],
        (3, 24),
    ),
    "scales": (
        """g (float[1, 2, 5, 6] x) => (float[a, b, c, d] y) {
          y = Resize <mode="linear"> (x, , w)
        }""",
        [np.array(s, np.float32) for s in ([1, 1, 2, 2], [1, 1, 3, 2], [1, 1, 1.5, 1])],
        (1, 2, 5, 6),
    ),
    "bound": (
        "g (float[n, 8] x) => (float[n, 8] y) { y = Clip (x, w) }",
        [np.float32(s) for s in (0, -0.5, 0.25)],
        (3, 8),
    ),
}


@pytest.mark.parametrize("name", _READ)
def test_what_planning_read_belongs_to_the_plan(name):
    text, weights, shape = _READ[name]
    x = values(0, *shape)
    for k, weight in enumerate([*weights, *weights]):
        proto = model_of(text, {"w": weight, "spare": values(k, 20)})
        engine = create_engine(proto.SerializeToString())
        check(engine, proto, x)
        assert is_planned(engine) == (k < len(weights))


def test_plans_that_read_different_weights_come_to_have_one_key(monkeypatch):
    """What is read may depend on what was read before: the list grows until it serves all."""
    proto = model("layers", 1)
    for seed, read in ((1, [0]), (2, [0, 2])):
        kept = plan_store.StoredPlan.keep

        def keep(self, built, record, code, read=read, kept=kept):
            built.read = read
            kept(self, built, record, code)

        monkeypatch.setattr(plan_store.StoredPlan, "keep", keep)
        proto = model("layers", seed)
        assert is_planned(create_engine(proto.SerializeToString()))
        monkeypatch.setattr(plan_store.StoredPlan, "keep", kept)
    changed = model("layers", 2)
    changed.graph.initializer[1].CopyFrom(numpy_helper.from_array(values(9, 16), "b"))
    assert not is_planned(create_engine(changed.SerializeToString()))
    changed.graph.initializer[2].CopyFrom(numpy_helper.from_array(values(9, 16, 4), "v"))
    assert is_planned(create_engine(changed.SerializeToString()))


OPTIONS = {
    "level": {"optimization_level": 0},
    "winograd": {"winograd": False},
    "outputs": {"fetched": ("y",)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_other_options_have_plans_of_their_own(name):
    x = values(0, *IMAGE)
    create_engine(model("layers", 1).SerializeToString())
    for seed in (2, 3):
        proto = model("layers", seed)
        engine = create_engine(proto.SerializeToString(), EngineOptions(**OPTIONS[name]))
        assert is_planned(engine) == (seed == 2)
        check(engine, proto, x)


def _external(folder, proto):
    external_data_helper.convert_model_to_external_data(proto, location="data", size_threshold=0)
    folder.mkdir()
    onnx.save(proto, folder / "m.onnx")
    return str(folder / "m.onnx")


def test_weights_in_other_files(tmp_path):
    x = values(0, *IMAGE)
    for seed in (1, 2):
        proto = model("layers", seed)
        path = _external(tmp_path / str(seed), model("layers", seed))
        engine = create_engine(path)
        assert is_planned(engine) == (seed == 1)
        check(engine, proto, x)
        assert "from cache" in create_engine(path).timings
    (tmp_path / "2" / "data").write_bytes((tmp_path / "1" / "data").read_bytes())
    changed = create_engine(path)
    assert not is_planned(changed)
    check(changed, model("layers", 1), x)
    missing = _external(tmp_path / "3", model("layers", 3))
    (tmp_path / "3" / "data").unlink()
    with pytest.raises(NoSuchFile):
        create_engine(missing)


def test_weights_of_nodes_in_other_files_are_planned(tmp_path):
    """No list has them, so nobody sees that they were read."""
    for seed in (1, 2):
        proto = model_of("g (float[n, 8] x) => (float[n, 8] y) { y = Add(x, c) }")
        value = numpy_helper.from_array(values(seed, 3, 8), "c")
        proto.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=value))
        external_data_helper.set_external_data(proto.graph.node[0].attribute[0].t, "data")
        folder = tmp_path / str(seed)
        folder.mkdir()
        tensor = proto.graph.node[0].attribute[0].t
        (folder / "data").write_bytes(tensor.raw_data)
        tensor.ClearField("raw_data")
        (folder / "m.onnx").write_bytes(proto.SerializeToString())
        engine = create_engine(str(folder / "m.onnx"))
        assert is_planned(engine)
        x = values(0, 3, 8)
        np.testing.assert_array_equal(engine.run([x])[0], x + values(seed, 3, 8))


def _cut(path):
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize("kind", ["plan", "read"])
def test_damaged_entries_are_made_again(kind, cache):
    create_engine(model("layers", 1).SerializeToString())
    (entry,) = (cache / kind).iterdir()
    _cut(entry)
    for seed in (2, 3):
        proto = model("layers", seed)
        engine = create_engine(proto.SerializeToString())
        assert is_planned(engine) == (seed == 2)
        check(engine, proto, values(0, *IMAGE))


@pytest.mark.parametrize(
    ("limit", "read"), [("_MOST_TABLES_BYTES", [[0]]), ("_MOST_READ_BYTES", [[]])]
)
def test_large_tables_and_many_read_weights_are_not_kept(limit, read, monkeypatch, cache):
    monkeypatch.setattr(plan_store, limit, 3)
    create_engine(model("table", 1).SerializeToString())  # has a table, and reads no weight
    text, weights, _ = _READ["shape"]
    create_engine(model_of(text, {"w": weights[0]}).SerializeToString())
    found = [json.loads(default_cache().read(path.name, "read")) for path in cache.glob("read/*")]
    assert found == read
