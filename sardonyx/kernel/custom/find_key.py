"""Where elements stand in a sorted table of keys.

Loop nest; steps of the search are written out::

    parallel block in 0..ceil(n / _CHUNK):
        for i in low..high:
            at = at + half where keys[at + half] <= x[i]      # half: of what is left of k
            result[i] = places[at] if keys[at] == x[i] else -1
"""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.kernel.custom.frame import KernelFrame
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64

#: Elements of a block.
_CHUNK = 256


@special("find_key")
def build_find_key(task: CustomTask, symbol: str) -> Kernel:
    """x (n), keys (k) ascending and different, places (k) int64 -> places of x, -1 if none.

    Halves the table until one key is left. NaN, if it is a key, is the last one.
    """
    frame = KernelFrame(task, symbol)
    b, (x, keys, places) = frame.builder, task.operands
    result = task.outputs[0]
    assert result is not None  # noqa: S101 - a kernel without result is never planned
    count = int(keys.shape[0])

    def is_nan(value: Operand) -> Operand:
        return b.ne(value, value)

    with b.parallel() as block:
        low = block * _CHUNK
        high = b.min(low + _CHUNK, frame.dim(x.shape[0]))
        with b.for_(low, high) as i:
            value = frame.load(x, [i])
            at: Operand = b.value(I64, 0)
            left = count
            while left > 1:
                half = left // 2
                middle = at + half
                key = frame.load(keys, [middle])
                goes_on = key <= value
                if value.type.is_float:
                    goes_on = goes_on | is_nan(value)
                at = b.select(goes_on, middle, at)
                left -= half
            if count:
                key = frame.load(keys, [at])
                same = b.eq(key, value)
                if value.type.is_float:
                    same = same | (is_nan(key) & is_nan(value))
                frame.store(result, [i], b.select(same, frame.load(places, [at]), -1))
            else:
                frame.store(result, [i], b.value(I64, -1))
    steps = 4 * max(1, count.bit_length())
    blocks = integer.ceildiv(x.shape[0], _CHUNK)
    return frame.kernel(blocks, x.shape[0] * steps)
