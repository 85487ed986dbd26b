"""Float contractions of dequantised codes become contractions of the codes themselves.

    sum of ((a - p) * s) * ((w - q) * t)  ->  float(sum of (a - p) * (w - q)) * (s * t)

where the scales do not change along the summed axes. The sum is exact, so the result is at least as
near to the exact one as a sum of floats is. Such contractions are found before it is known what
gets memory (`dequantised`), since their factors need none; here they are rewritten as groups.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sardonyx.base import dtypes, sizes
from sardonyx.plan.codes import Codes, codes_of, index_atoms
from sardonyx.plan.dequantised import unfit
from sardonyx.plan.groups import Contraction, Group, LoopNest, Stage
from sardonyx.plan.reasons import Reason
from sardonyx.plan.requantise import requantised
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Tensor, buffer
from sardonyx.tensor.traverse import loads_of

#: Name of the pass.
INTEGERS = "integers"

_SUMS = Reason("both factors are dequantised codes: the codes are multiplied")
_ARE_CODES = Reason("it is a sum of integers as it is")
_NOT_CODES = Reason("its factors are not dequantised from 8 bits")
_EXTREME = Reason("the largest of dequantised codes is the largest code")
_SHORTER = Reason("what it rounds to codes is computed in fewer steps")
_NO_CODES = Reason("nothing in it is dequantised, or rounded to codes")


def integer_factors(group: Contraction) -> tuple[Codes, Codes] | None:
    """The factors of a contraction in int32 that sums products of codes; None if it does not.

    The left zero point is one for all, that of the right factor one for each column.
    """
    if group.accumulator is not dtypes.INT32:
        return None
    left, right = codes_of(group.left), codes_of(group.right)
    if left is None or right is None:
        return None
    summed = {sizes.as_atom(v) for v in group.reduced}
    if index_atoms(left.zero) or index_atoms(right.zero) & summed:
        return None
    return left, right


def as_integers(group: Group) -> Group:
    """Contractions of dequantised codes as ones of codes, what is rounded to codes shortened.

    Other groups as they are.
    """
    if isinstance(group, Contraction):
        found = _of_codes(group)
        group = group if isinstance(found, Reason) else found
        return replace(group, epilogue=requantised(group.epilogue))
    if isinstance(group, LoopNest):
        stages = [replace(s, body=requantised(s.body)) for s in _extremes(group.stages)]
        return replace(group, stages=stages)
    return group


def why_integers(before: Group, after: Group) -> tuple[Reason, bool]:
    """Why `as_integers` made one group of another, or left it as it was; whether it changed it."""
    if isinstance(before, Contraction) and isinstance(after, Contraction):
        found = _of_codes(before)
        if not isinstance(found, Reason):
            return _SUMS, True
        shorter = after.epilogue is not before.epilogue
        return (_SHORTER, True) if shorter else (found, False)
    if isinstance(before, LoopNest) and isinstance(after, LoopNest):
        pairs = list(zip(before.stages, after.stages, strict=True))
        if any(a.root is not b.root for a, b in pairs):
            return _EXTREME, True
        if any(a.body is not b.body for a, b in pairs):
            return _SHORTER, True
    return _NO_CODES, False


def _of_codes(group: Contraction) -> Contraction | Reason:
    if group.accumulator is dtypes.INT32:
        return _ARE_CODES
    if group.accumulator is not dtypes.FLOAT or group.contraction.tensor.dtype is not dtypes.FLOAT:
        return _NOT_CODES
    left, right = codes_of(group.left), codes_of(group.right)
    extents = [atom.arguments[0] for atom in sizes.variables(group.reduced)]
    if left is None or right is None or left.scale is None or right.scale is None:
        remark = group.contraction.remark
        return Reason(remark.removeprefix("no integers: ")) if remark else _NOT_CODES
    refusal = unfit(left, right, group.reduced, extents)
    if refusal:
        return Reason(refusal)
    before = group.contraction.buffer
    sums = buffer(("codes", before), before.shape, dtypes.INT32)
    result = load(sums, group.result.at)
    number = scalar.cast(result, dtypes.FLOAT) * (left.scale * right.scale)
    epilogue = rewrite(group.epilogue, lambda x: number if x is group.result else None)
    return replace(
        group, contraction=replace(group.contraction, buffer=sums), left=left.whole,
        right=right.whole, accumulator=dtypes.INT32, result=result, epilogue=epilogue,
    )  # fmt: skip


def _extremes(stages: list[Stage]) -> list[Stage]:
    """The largest of dequantised codes is the largest code, dequantised.

    max over k of (a - p) * s  ->  (max over k of a - p) * s    for s > 0
    """
    found = list(stages)
    for k, stage in enumerate(stages):
        decoded = _decoded_extreme(stage)
        if decoded is None:
            continue
        body, number = decoded
        before = stage.root.buffer
        place = buffer(("codes", before), before.shape, body.dtype)
        found[k] = replace(stage, root=replace(stage.root, buffer=place), body=body)
        for j, other in enumerate(found):
            if j != k:
                found[j] = replace(other, body=_reading(other.body, before, place, number))
    return found


def _reading(body: Scalar, before: Tensor, place: Tensor, number: Codes) -> Scalar:
    """An expression that reads codes in place of what they stand for."""

    def replaced(x: Scalar) -> Scalar | None:
        if x.tensor is not before:
            return None
        whole = replace(number, code=load(place, x.at), window=None).whole
        return scalar.cast(whole, dtypes.FLOAT) * number.scale

    return rewrite(body, replaced)


def _decoded_extreme(stage: Stage) -> tuple[Scalar, Codes] | None:
    """The body over codes, and what they stand for; None where a stage is nothing like it."""
    body, ends = stage.body, {"max": (-math.inf, 0), "min": (math.inf, 255)}.get(stage.kind)
    if ends is None or stage.stored or body.dtype is not dtypes.FLOAT:
        return None
    outside, position = ends
    condition = None
    if body.op == "select":
        condition, body, other = body.arguments
        if loads_of(condition) or other.op != "constant" or other.payload != outside:
            return None
    found = codes_of(body)
    if found is None or found.scale is None or found.window is not None:
        return None
    if index_atoms(found.zero) or found.scale.op != "constant" or not found.scale.payload > 0:
        return None
    code = found.code
    if condition is not None:
        lowest = -128 if code.dtype is dtypes.INT8 else 0
        code = scalar.select(condition, code, lowest + position)
    return code, found
