import subprocess
import sys

import pytest

from sardonyx.base import dtypes, integer, sizes
from sardonyx.plan.canonical import placeholder
from sardonyx.plan.identity import Identities
from sardonyx.tensor import scalar
from sardonyx.tensor.rounding import UNSATURATED
from sardonyx.tensor.tensor import buffer, indices

N, M = sizes.symbol("n"), sizes.symbol("m")
K, J = indices((4, N))
A = placeholder(0, (4, N), dtypes.FLOAT)
X = scalar.load(A, (K, J))

DIFFERENT = [
    0, False, 0.0, -0.0, None, "0", (), (0,), ((0,),), (0, 0), ("a", "b"), ("a,b",), ("a' , 'b",),
    dtypes.FLOAT, "float", N, M, N + M, N * M, N * 2, N + 2, K, J, indices((5,))[0],
    integer.floordiv(N, 2), integer.floordiv(N, 3), integer.maximum(N, M), integer.minimum(N, M),
    sizes.measured("n", 0), sizes.measured("n", 0, 5), A, placeholder(1, (4, N), dtypes.FLOAT),
    placeholder(0, (4, M), dtypes.FLOAT), placeholder(0, (4, N), dtypes.DOUBLE), X,
    scalar.load(A, (0, J)), -X, X + 1.0, X + 2.0, X * X, scalar.cast(X, dtypes.FLOAT8E4M3FN),
    scalar.cast(X, dtypes.FLOAT8E4M3FN, UNSATURATED), scalar.size(N),
    sizes.opaque(scalar.cast(X, dtypes.INT64), 0, 3),
    sizes.opaque(scalar.cast(X, dtypes.INT64), 0, 4),
]  # fmt: skip


def test_different_structures_have_different_names():
    names = [Identities().of(x) for x in DIFFERENT]
    assert None not in names
    assert len(set(names)) == len(DIFFERENT)
    identities = Identities()
    assert [identities.of(x) for x in DIFFERENT * 2] == names * 2


@pytest.mark.parametrize("x", [object(), [1], buffer(object(), (), dtypes.FLOAT)])
def test_what_means_nothing_elsewhere_has_no_name(x):
    assert Identities().of((1, x)) is None


SCRIPT = """
from sardonyx.base import dtypes, integer, sizes
from sardonyx.plan.canonical import placeholder
from sardonyx.plan.identity import Identities
from sardonyx.tensor import scalar
from sardonyx.tensor.tensor import indices
for name in {order}:
    sizes.symbol(name)
n, m, k = map(sizes.symbol, "nmk")
i, j = indices((n, m))
at = integer.floordiv(i * m * k + j * k, 3)
x = scalar.load(placeholder(0, (n * m * k,), dtypes.FLOAT), (at,))
print(Identities().of(((x * x + 1.5), n * m + k * n + m)))
"""


def test_names_do_not_depend_on_what_a_process_did_before():
    names = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT.format(order=order)],
            check=True, capture_output=True, text=True,
        ).stdout
        for order in ("'nmk'", "'kmn'")
    }  # fmt: skip
    assert len(names) == 1
    assert names != {"None\n"}
