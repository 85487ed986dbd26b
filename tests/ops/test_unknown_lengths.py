"""Lists of sizes whose own length only a run knows: it follows from what they are for."""

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.base.errors import InvalidArgument
from tests.support.tolerances import assert_near

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("body", "good", "bad"),
    [
        ("y = CenterCropPad <axes: ints = [1]> (x, s)", [5], [5, 5]),
        ("y = CenterCropPad (x, s)", [1, 5], [5]),
        ("y = Tile (x, s)", [2, 1], [2, 1, 1]),
        ("y = Pad (x, s)", [0, 1, 1, 0], [0, 1]),
        ("a = Constant <value_ints: ints = [1]> () y = Pad (x, s, , a)", [1, 2], [1, 2, 3]),
        ("y = Resize <mode: string = 'nearest'> (x, , , s)", [4, 6], [4, 6, 1]),
        ("y = Resize <mode: string = 'linear'> (x, , s)", [2.0, 3.0], [2.0, 3.0, 1.0]),
    ],
)
def test_the_length_is_the_one_that_is_needed(body: str, good: list, bad: list) -> None:
    kind = "float" if isinstance(good[0], float) else "int64"
    text = f'<ir_version: 10, opset_import: ["" : 18]> g (float[2,3] x, {kind}[b] s)'
    model = parser.parse_model(text + " => (float[p,q] y) {" + body.replace("'", '"') + "}")
    session = sardonyx.InferenceSession(model.SerializeToString())
    given = {"x": X, "s": np.array(good, np.float32 if kind == "float" else np.int64)}
    (expected,) = ReferenceEvaluator(model).run(None, given)
    assert_near(session.run(None, given)[0], expected, "float: one operation")
    with pytest.raises(InvalidArgument, match=rf"Expected {len(good)}, got {len(bad)} \(b\)"):
        session.run(None, {"x": X, "s": np.array(bad, given["s"].dtype)})
    assert_near(session.run(None, given)[0], expected, "float: one operation")
