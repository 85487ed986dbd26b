"""What groups became is kept by their structure; see `store.layer_store`."""

import os
from functools import cache
from itertools import groupby

import numpy as np
import pytest
from onnx import numpy_helper

from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.compiler.plan_store import StoredPlan
from sardonyx.selection.selector import KernelSelector
from sardonyx.selection.variants import Variant
from sardonyx.store import layer_store
from sardonyx.store.cache import Cache, default_cache
from sardonyx.store.layer_store import LayerStore
from sardonyx.store.tuning_choices import Everywhere
from tests.support.session import model_of
from tests.support.tolerances import assert_near

RNG = np.random.default_rng(0)


def values(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


CONVOLUTIONS = """g (float[1, 16, 20, 20] x) => (float[1, 16, 20, 20] y) {
  a = Conv <pads=[1,1,1,1]> (x, w, b)
  c = Relu (a)
  d = Conv <pads=[1,1,1,1], group=16> (c, v)
  e = Conv (d, u)
  y = Add (e, x)
}"""
FILTERS = {"w": (16, 16, 3, 3), "b": (16,), "v": (16, 1, 3, 3), "u": (16, 16, 1, 1)}
IMAGE = values(1, 16, 20, 20)
ROWS = values(40, 64)
DENSE = "g (float[40, 64] x) => (float[40, 64] y) { a = MatMul (x, w) y = Relu (a) }"
#: Name -> text of a graph, shapes of its weights, a feed.
MODELS = {
    "convolutions": (CONVOLUTIONS, FILTERS, IMAGE),
    "products": (
        """g (float[N, 64] x) => (float[N, 64] y) {
          a = MatMul (x, w) b = Relu (a) c = MatMul (b, v) d = Softmax (c) y = Add (d, x)
        }""",
        {"w": (64, 128), "v": (128, 64)},
        ROWS,
    ),
    "a weight used twice": (
        """g (float[40, 64] x) => (float[40, 64] y) {
          a = MatMul (x, w) b = Tanh (a) c = MatMul (b, w) d = Tanh (c) y = MatMul (d, v)
        }""",
        {"w": (64, 64), "v": (64, 64)},
        ROWS,
    ),
    "norm": (
        "g (float[N, 40] x) => (float[N, 40] y) { y = LayerNormalization <axis=-1> (x, w) }",
        {"w": (40,)},
        values(5, 40),
    ),
    "few rows": (
        "g (float[1, 40] x) => (float[1, 5] y) { y = Gemm <transB=1> (x, w, b) }",
        {"w": (5, 40), "b": (5,)},
        values(1, 40),
    ),
}


@pytest.fixture
def made_kernels(tmp_path, monkeypatch):
    """How many groups each session built by itself; all sessions are planned."""
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path))
    monkeypatch.setattr(StoredPlan, "find", lambda *_: None)
    found = []
    alone, begin, write = KernelSelector.form, LayerStore.__init__, LayerStore.write
    count = [0]

    def counted(*arguments):
        count[0] += 1
        return alone(*arguments)

    def begun(self, *arguments):
        count[0] = 0
        begin(self, *arguments)

    def written(self):
        found.append(count[0])
        write(self)

    monkeypatch.setattr(LayerStore, "__init__", begun)
    monkeypatch.setattr(KernelSelector, "form", counted)
    monkeypatch.setattr(LayerStore, "write", written)
    return found


def made(text, weights, version=18):
    return model_of(text, {n: values(*shape) / 4 for n, shape in weights.items()}, version)


def result(model, x, **options):
    (got,) = create_engine(model.SerializeToString(), EngineOptions(**options)).run([x])
    return got


def without_library(model, x, **options):
    return result(model, x, use_cache=False, **options)


def check(name):
    """A new model of the structures, with weights of its own: the same bits as without library."""
    text, weights, x = MODELS[name]
    model = made(text, weights)
    np.testing.assert_array_equal(result(model, x), without_library(model, x))


def files_of(folder):
    return sorted((folder / "layers").iterdir())


@pytest.mark.parametrize("name", MODELS)
def test_known_layers_are_not_formed_again(name, made_kernels):
    check(name)
    assert made_kernels.pop() > 0
    check(name)
    assert made_kernels.pop() == 0


def test_layers_are_those_of_any_model(made_kernels):
    check("products")
    first = made_kernels.pop()
    text, weights, _ = MODELS["products"]
    more = text.replace("y = Add (d, x)", "e = Add (d, x) y = Sigmoid (e)")
    model = made(more, weights)
    got = result(model, ROWS)
    assert 0 < made_kernels.pop() < first
    np.testing.assert_array_equal(got, without_library(model, ROWS))


#: Name -> layers of one structure, each with two nodes, and shapes of the weights of a layer.
REPEATED = {
    "depthwise": ("Conv <pads=[1,1,1,1], group=16>", (16, 1, 3, 3), (1, 16, 20, 20)),
    "convolution": ("Conv <pads=[1,1,1,1]>", (16, 16, 3, 3), (1, 16, 20, 20)),
    "product": ("MatMul", (64, 64), (40, 64)),
}


@pytest.mark.parametrize("name", REPEATED)
def test_commands_name_the_nodes_of_their_own_layer(name, made_kernels):
    """Not those of the layer that was built first, and not none in later sessions."""
    node, weight, shape = REPEATED[name]
    steps = "".join(f"a{k} = {node} (x{k}, w{k}) x{k + 1} = Tanh (a{k})\n" for k in range(3))
    text = f"g (float{list(shape)} x0) => (float{list(shape)} x3) {{ {steps} }}"
    for _ in range(2):
        model = made(text, {f"w{k}": weight for k in range(3)})
        for number, one in enumerate(model.graph.node):
            one.name = f"{one.op_type} of layer {number // 2}"
        engine = create_engine(model.SerializeToString(), EngineOptions())
        layers = [{n[-1] for n in call.origin} for call in engine.record.plan.calls]
        assert [one for one, _ in groupby(layers)] == [{"0"}, {"1"}, {"2"}]
    assert made_kernels.pop() == 0


#: What differs from `DENSE` and its weight `w`: text, shapes of weights, feed.
OTHERS = {
    "another function": (DENSE.replace("Relu", "Sigmoid"), {"w": (64, 64)}, ROWS),
    "another size": (
        DENSE.replace("float[40, 64] y", "float[40, 48] y"), {"w": (64, 48)}, ROWS
    ),
    "fewer rows": (DENSE.replace("40", "24"), {"w": (64, 64)}, values(24, 64)),
    "another name of a size": (DENSE.replace("40", "N"), {"w": (64, 64)}, ROWS),
    "a transposed weight": (
        DENSE.replace("a = MatMul (x, w)", "t = Transpose (w) a = MatMul (x, t)"),
        {"w": (64, 64)}, ROWS,
    ),
    "a factor that changes": (
        DENSE.replace("a = MatMul (x, w)", "a = MatMul (x, x)").replace("40", "64"), {},
        values(64, 64),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_structures_are_others(name, made_kernels):
    result(made(DENSE, {"w": (64, 64)}), ROWS)
    made_kernels.clear()
    text, weights, x = OTHERS[name]
    model = made(text, weights)
    got = result(model, x)
    assert made_kernels.pop() > 0
    np.testing.assert_array_equal(got, without_library(model, x))


def test_a_weight_that_is_fed_is_another_structure(made_kernels):
    model = made(DENSE, {"w": (64, 64)})
    weight = numpy_helper.to_array(model.graph.initializer[0])
    want = result(model, ROWS)
    made_kernels.clear()
    fed = model_of(DENSE.replace("x)", "x, float[64, 64] w)", 1), {}, 18)
    (got,) = create_engine(fed.SerializeToString(), EngineOptions()).run([ROWS, weight])
    assert made_kernels.pop() > 0
    assert_near(got, want, "float: sums")


def test_options_that_change_kernels_have_layers_of_their_own(made_kernels):
    check("convolutions")
    made_kernels.clear()
    model = made(CONVOLUTIONS, FILTERS)
    got = result(model, IMAGE, winograd=False)
    assert made_kernels.pop() > 0
    np.testing.assert_array_equal(
        got, without_library(model, IMAGE, winograd=False)
    )  # fmt: skip


def test_tuning_forms_each_structure(made_kernels, monkeypatch):
    check("convolutions")
    model = made(CONVOLUTIONS, FILTERS)
    kernels = []
    monkeypatch.setattr(LayerStore, "__init__", None)
    form = KernelSelector.kernel_of
    monkeypatch.setattr(KernelSelector, "kernel_of", lambda *a: kernels.append(a[1]) or form(*a))
    result(model, IMAGE, choices=Everywhere(Variant(winograd=0)))
    assert len(kernels) > 2


def test_choices_that_were_found_since_are_kept(made_kernels, tmp_path):
    check("convolutions")
    made_kernels.clear()
    (tmp_path / "choice").mkdir(mode=0o700)
    check("convolutions")
    assert made_kernels.pop() > 0


def test_layers_whose_code_is_gone_are_formed_again(made_kernels, tmp_path):
    check("products")
    first = made_kernels[0]
    for path in (tmp_path / "kernel").iterdir():
        path.unlink()
    made_kernels.clear()
    check("products")
    assert made_kernels == [first]


def on_payload(change):
    def damage(path):
        content = change(default_cache().read(path.name, "layers"))
        default_cache().put(path.name, "layers", content)

    return damage


def lines(change):
    return on_payload(lambda data: b"".join(line + b"\n" for line in change(data.splitlines())))


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def changed(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def named(names, texts):
    return [b"%s %s" % pair for pair in zip(names, texts, strict=True)]


def parts(found):
    return zip(*(line.split(b" ", 1) for line in found), strict=True)


def rewritten(change):
    """The text of each layer becomes another."""

    def of(found):
        names, texts = parts(found)
        return named(names, map(change, texts))

    return lines(of)


#: Name -> what is done to the file.
DAMAGES = {
    "cut short": cut,
    "another byte": changed,
    "nothing": on_payload(lambda _: b""),
    "empty lines": lines(lambda found: [b"" for _ in found]),
    "no text": rewritten(lambda _: b""),
    "an empty list": rewritten(lambda _: b"[]"),
    "half a text": rewritten(lambda text: text[: len(text) // 2]),
    "no table": rewritten(lambda text: b'[[["a","b",[]]],[],[[0,1,"",[1,1,0],[1],[0],[],[]]]]'),
    "other placeholders": rewritten(lambda text: text.replace(b'holder":[0', b'holder":[9')),
    "another kind of entry": rewritten(lambda text: text.replace(b"placeholder", b"plane")),
    "a number that is none": rewritten(lambda text: text.replace(b"[0,", b"[null,", 1)),
}  # fmt: skip


@cache
def three_alike():
    """Models of one structure with weights of their own, and what they give without the library."""
    models = [made(*MODELS["products"][:2]) for _ in range(3)]
    return [(model, without_library(model, ROWS)) for model in models]


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_layers_are_made_again(name, made_kernels, tmp_path):
    (model, _), (second, want), (third, want_of_third) = three_alike()
    made_kernels.clear()
    result(model, ROWS)
    (first,) = made_kernels
    for path in files_of(tmp_path):
        DAMAGES[name](path)
    made_kernels.clear()
    np.testing.assert_array_equal(result(second, ROWS), want)
    assert made_kernels == [first]
    made_kernels.clear()
    np.testing.assert_array_equal(result(third, ROWS), want_of_third)
    assert made_kernels == [0]


def test_a_file_under_the_name_of_another_has_nothing(made_kernels, tmp_path):
    model = made(CONVOLUTIONS, FILTERS)
    result(model, IMAGE, winograd=False)
    first = set(files_of(tmp_path))
    kept = b"".join(default_cache().read(path.name, "layers") for path in first)
    check("convolutions")
    others = set(files_of(tmp_path)) - first
    assert others
    for path in others:
        default_cache().put(path.name, "layers", kept)
    made_kernels.clear()
    check("convolutions")
    assert made_kernels[0] > 0


def test_the_oldest_layers_go_first(made_kernels, monkeypatch, tmp_path):
    monkeypatch.setattr(layer_store, "_part_of", lambda _: b"0")
    check("norm")
    (path,) = files_of(tmp_path)
    check("few rows")
    monkeypatch.setattr(layer_store, "_MOST_BYTES", path.stat().st_size)
    check("convolutions")
    assert path.stat().st_size <= layer_store._MOST_BYTES + 64
    made_kernels.clear()
    check("norm")
    assert made_kernels[0] > 0


def test_a_folder_that_cannot_be_written_changes_nothing(made_kernels, tmp_path):
    check("products")
    made_kernels.clear()
    (folder,) = {path.parent for path in files_of(tmp_path)}
    for path in files_of(tmp_path):
        path.unlink()
    os.rmdir(folder)
    folder.write_bytes(b"")
    check("products")
    assert made_kernels[0] > 0


def test_a_session_reads_only_the_parts_that_it_asks_for(made_kernels, monkeypatch, tmp_path):
    for name in MODELS:
        check(name)
    stored = {path.name for path in files_of(tmp_path)}
    read, original = list[str](), Cache.read

    def counted(self, key, kind):
        if kind == "layers":
            read.append(key)
        return original(self, key, kind)

    monkeypatch.setattr(Cache, "read", counted)
    check("norm")
    assert len(set(read)) == len(read) == 1
    assert len(stored) > 1 and set(read) < stored
