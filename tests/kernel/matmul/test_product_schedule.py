"""Which axes of a contraction its rows walk where they lie."""

import numpy as np
import pytest

from sardonyx.kernel.loops.block_sizes import FEW_CORES
from sardonyx.kernel.matmul.code_factors import CodeFactors
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.factors import Factors
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.axes import extent_of
from sardonyx.plan.grouping import make_groups
from sardonyx.plan.groups import Contraction
from sardonyx.plan.inline import find_roots
from sardonyx.plan.integers import as_integers, integer_factors
from sardonyx.plan.layout import row_major
from sardonyx.plan.pad_input import with_borders
from sardonyx.tensor.traverse import loads_of
from tests.support.session import model_of

#: channels, window, type of the image, elements that a tap along the first axis of a window reads
FIRST_LAYERS = [
    (3, 7, "float", 21),
    (3, 3, "float", 9),
    (1, 9, "float", 9),
    (2, 5, "float", 10),
    # Codes are taken four at a time: 21 and 3 that belong to no tap, which 3 channels divide, too.
    (3, 7, "uint8", 24),
    (3, 5, "uint8", 16),
]


@pytest.mark.parametrize(("channels", "window", "kind", "run"), FIRST_LAYERS)
def test_runs_of_taps_and_channels_are_walked_whole(channels, window, kind, run):
    shape = (16, channels, window, window)
    text = f"g ({kind}[1, {channels}, 40, 40] x) => (float[1, 16, h, w] y) {{"
    if kind == "float":
        text, weights = text + "y = Conv(x, w) }", {"w": np.ones(shape, "f")}
    else:
        text += "a = DequantizeLinear(x, s, z) b = DequantizeLinear(w, s) y = Conv(a, b) }"
        weights = {"w": np.ones(shape, "i1"), "s": np.float32(0.1), "z": np.uint8(3)}
    graph = load(model_of(text, weights).SerializeToString())
    optimise(graph)
    roots = find_roots(list(lower(graph).outputs.values()), integers=True)
    (group,) = [g for g in map(as_integers, make_groups(roots)) if isinstance(g, Contraction)]
    _, _, group = with_borders(group)
    tensors = [
        x.tensor for body in (group.left, group.right, group.epilogue) for x in loads_of(body)
    ]
    strides = {t: row_major(t.shape) for t in (*tensors, group.root.buffer)}
    kind = Factors if integer_factors(group) is None else CodeFactors
    access = ContractionSchedule(group, strides, 16, FEW_CORES, kind).access
    assert access.direct
    assert extent_of(access.depth) == run
    assert access.tap_count() == window
