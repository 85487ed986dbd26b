"""What operators that choose do with NaN, and floats that no integer is: see docs/moving.md."""

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of

NAN, INF = np.nan, np.inf
#: NaN first, in the middle, last, everywhere and nowhere.
ROWS = [[NAN, 2, 1], [1, NAN, 3], [1, 2, NAN], [NAN, NAN, NAN], [1, 3, 2]]

# Operator, its result for each row.
CHOICES = {
    "int64[N] y": {
        "y = ArgMax<axis = 1, keepdims = 0>(x)": [0, 1, 2, 0, 1],
        "y = ArgMin<axis = 1, keepdims = 0>(x)": [0, 1, 2, 0, 0],
        "v, i = TopK<axis = 1>(x, one) y = Squeeze(i, one)": [0, 1, 2, 0, 1],
    },
    "T[N] y": {
        "y = ReduceMax<axes = [1], keepdims = 0>(x)": [NAN, NAN, NAN, NAN, 3],
        "y = ReduceMin<axes = [1], keepdims = 0>(x)": [NAN, NAN, NAN, NAN, 1],
        "i = Unsqueeze(x, one) p = MaxPool<kernel_shape = [3]>(i) y = Reshape(p, all)": [
            NAN, NAN, NAN, NAN, 3,
        ],
    },
}  # fmt: skip
CASES = [(result, body, row) for result, table in CHOICES.items() for body, row in table.items()]


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("result", "body", "expected"), CASES, ids=[b for _, b, _ in CASES])
def test_choices_see_nan(result, body, expected, kind):
    name = {2: "float16", 4: "float", 8: "double"}[np.dtype(kind).itemsize]
    model = model_of(
        f"g ({name}[N, 3] x) => ({result.replace('T', name)}) {{ {body} }}",
        {"one": np.array([1]), "all": np.array([-1])},
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    for count in (len(ROWS), 40 * len(ROWS)):
        x = np.array(ROWS * (count // len(ROWS)), kind)
        (found,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(found, np.array(expected * (count // len(ROWS))))


FLOATS = [1e10, -1e10, INF, -INF, NAN, 300.7, -1.5]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("int8", 3, [127, -128, 127, -128, 0, 127, -1]),
        ("uint8", 2, [255, 0, 255, 0, 0, 255, 0]),
        ("int16", 5, [2**15 - 1, -(2**15), 2**15 - 1, -(2**15), 0, 300, -1]),
        ("int32", 6, [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 300, -1]),
        ("uint32", 12, [2**32 - 1, 0, 2**32 - 1, 0, 0, 300, 0]),
        ("int64", 7, [10**10, -(10**10), 2**63 - 1, -(2**63), 0, 300, -1]),
        ("uint64", 13, [10**10, 0, 2**64 - 1, 0, 0, 300, 0]),
    ],
)
def test_floats_beyond_integers(name, number, expected, kind):
    given = "float" if kind is np.float32 else "double"
    model = model_of(f"g ({given}[N] x) => ({name}[N] y) {{ y = Cast<to = {number}>(x) }}")
    (found,) = sardonyx.InferenceSession(model.SerializeToString()).run(
        None, {"x": np.array(FLOATS * 9, kind)}
    )
    assert found.tolist() == expected * 9
