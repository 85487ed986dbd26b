import pytest

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import EngineError
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.types import I64, PTR
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.plan.canonical import placeholder
from sardonyx.selection.codec import CodeLocation
from sardonyx.selection.kernel_record import KernelRecord, from_bytes, to_bytes
from sardonyx.tensor import scalar
from sardonyx.tensor.rounding import UNSATURATED
from sardonyx.tensor.tensor import buffer, indices, make_map, make_reduce, reduced_indices

N = sizes.symbol("n")
M = sizes.measured("m", 0, N)
A = placeholder(0, (N, 24), dtypes.FLOAT)
B = placeholder(1, (24,), dtypes.INT64)
K, J = indices((6, 4))
(R,) = reduced_indices((8,))
AT = sizes.opaque(scalar.load(B, (4 * K + J,)), 0, 23)

CONTENTS = {
    "load": make_map((6, 4), scalar.load(A, (0, 4 * K + J))),
    "division": make_map((6, 4), scalar.load(A, (integer.floordiv(K, 2), J + 3))),
    "opaque": make_map((6, 4), scalar.load(A, (0, AT))),
    "select": make_map(
        (6, 4), scalar.select(scalar.size(K) < scalar.size(N), scalar.load(A, (0, J)), float("inf"))
    ),
    "cast": make_map((6, 4), scalar.cast(scalar.load(A, (0, K)), dtypes.FLOAT8E5M2, UNSATURATED)),
    "check": make_map((6, 4), scalar.check_index(scalar.load(B, (J,)), N)),
    "sum": make_reduce((6,), (8,), "sum", scalar.load(A, (K, R)) * -0.0, dtypes.FLOAT),
}


def kernel(arguments, blocks=1):
    b = Builder("rows_3", [("p0", PTR), ("p1", PTR), ("s0", I64)], kind="kernel")
    with b.parallel():
        pass
    return Kernel(b.program, arguments, blocks, 10, 64)


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_read_is_what_was_written(name):
    contents = CONTENTS[name]
    packed = buffer(("packed", contents), contents.shape, contents.dtype)
    blocks = integer.ceildiv(N, 96) * integer.maximum(M, 2)
    record = KernelRecord(kernel((A, packed, N), blocks), [Packing(packed, contents)])
    code = CodeLocation("rows", "code", (("micro", "other"),))
    written = from_bytes("k", to_bytes("k", record, code))
    assert written.code == code
    assert written.code.places("rows_3") == {"rows_3": "code", "micro": "other"}
    found = written.record("rows_8")
    (packing,) = found.packings
    # All but the packed buffer is interned: equal structure is the same object.
    assert packing.contents is contents
    assert (packing.packed.shape, packing.packed.dtype) == (contents.shape, contents.dtype)
    assert found.kernel.arguments == (A, packing.packed, N)
    assert found.kernel.blocks is blocks
    assert (found.kernel.cost_ns, found.kernel.scratch_bytes) == (10, 64)
    assert found.kernel.program.name == "rows_8"


def test_only_the_structure_asked_for_is_read():
    data = to_bytes("k", KernelRecord(kernel((A, B, N))), CodeLocation("rows", "code", ()))
    with pytest.raises(ValueError, match="another structure"):
        from_bytes("other", data)


@pytest.mark.parametrize(
    "argument", [buffer("b7", (N,), dtypes.FLOAT), buffer(object(), (3,), dtypes.FLOAT)]
)
def test_what_means_nothing_elsewhere_is_not_written(argument):
    with pytest.raises(EngineError, match="no meaning in another process"):
        to_bytes("k", KernelRecord(kernel((A, argument, N))), CodeLocation("rows", "code", ()))
