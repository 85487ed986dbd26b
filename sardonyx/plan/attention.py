"""Finds attention among the groups: product, softmax over its columns, product.

What exporters write differently (transposed keys, heads split by reshape, scale on either side,
masks added or selected) is index maps and pointwise work by now: one pattern is enough.
"""

from __future__ import annotations

from dataclasses import replace

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.plan.groups import Attention, Contraction, Group, LoopNest, Stage
from sardonyx.plan.reasons import Reason, Reasons
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, buffer
from sardonyx.tensor.traverse import loads_of

_HALVES = (dtypes.FLOAT16, dtypes.BFLOAT16)
#: Name of the pass.
ATTENTION = "attention"

_FUSED = Reason("its left factor is the softmax of another product's scores")
_COMPUTED = Reason("its left factor is computed where it is read: no softmax lies before it")
_NO_SOFTMAX = Reason("no softmax between two products")
_WEIGHTS_USED = Reason("something else reads the softmax")
_WEIGHTS_TWICE = Reason("its right factor reads the softmax, too")
_OTHER_AXIS = Reason("the softmax is not over the axis that is summed")
_NO_SCORES = Reason("the softmax is not of sums of products")
_SCORES_USED = Reason("something besides the softmax reads the scores")
_FUSED_BEFORE = Reason("its scores are the result of an attention that is one kernel already")
_PARTS_OF_AXES = Reason("its axes are parts of those of the softmax")
_NO_COLUMNS = Reason("queries, keys and values do not have one axis of columns")
_NOT_FLOAT = Reason("one of its products is not summed in float")
_CONSTANT = Reason("its keys or values are weights: a product packs them once")


def fuse_attention(groups: list[Group], reasons: Reasons | None = None) -> list[Group]:
    """The groups with every attention as one; their order stays.

    `reasons` takes why each contraction became one, or not.
    """
    writers: dict[object, Group] = {root.buffer: g for g in groups for root in g.roots}
    fused: dict[Group, Attention] = {}
    gone: set[Group] = set()
    for group in groups:
        if not isinstance(group, Contraction):
            continue
        whole = _with_whole_axes(group, group.left.at) if group.left.op == "load" else group
        parts = _parts(whole, writers)
        # What weights the values of one attention may be the scores of another: it is fused once.
        found: Attention | Reason
        if isinstance(parts, Reason):
            found = parts
        else:
            found = _FUSED_BEFORE if parts[0] in fused else _combine(*parts, whole)
        if isinstance(found, Attention) and not isinstance(parts, Reason):
            fused[group] = found
            gone.update(parts)
        if reasons is not None:
            why = found if isinstance(found, Reason) else _FUSED
            reasons.note(ATTENTION, group, why, changed=why is _FUSED)
    return [fused.get(g, g) for g in groups if g not in gone]


def _parts(
    second: Contraction, writers: dict[object, Group]
) -> tuple[Contraction, LoopNest] | Reason:
    """The product and the softmax that feed the left factor of `second`, and nothing else."""
    if second.left.op != "load":
        return _COMPUTED
    rows = writers.get(second.left.tensor)
    if not isinstance(rows, LoopNest) or not _is_softmax(rows):
        return _NO_SOFTMAX
    final = rows.stages[-1].root
    if final.is_output or final.readers != [second.contraction]:
        return _WEIGHTS_USED
    if any(x.tensor is final.buffer for x in loads_of(second.right)):
        return _WEIGHTS_TWICE
    if not _is_over_what_is_summed(rows, second):
        return _OTHER_AXIS
    source = _source(rows.stages[0].body)
    first = writers.get(source.tensor) if source is not None else None
    if not isinstance(first, Contraction):
        return _NO_SCORES
    members = set(rows.roots)
    if first.root.is_output or any(r not in members for r in first.root.readers):
        return _SCORES_USED
    return first, rows


def _is_softmax(rows: LoopNest) -> bool:
    """max of x; e = exp(x - max); sum of e; e / sum; the latter two perhaps guarded."""
    guards = [s for s in rows.stages if _is_guard(s)]
    whole = [s for s in rows.stages if not _is_guard(s)]
    if [s.kind for s in whole] != ["max", "map", "sum", "map"] or len(guards) not in (0, 2):
        return False
    if len([i for i in rows.inner if i != 0]) != 1:
        return False
    top, power, total, quotient = whole
    x = top.body
    source = _source(x)
    if any(s.stored for s in rows.stages[:-1]) or source is None:
        return False
    largest, divisor = _value(top), _value(total)
    if guards:
        if [g.body for g in guards] != [_finite(largest), _positive(divisor)]:
            return False
        largest, divisor = map(_value, guards)
    same = power.body is scalar.unary("exp", x - largest)
    same = same and total.body is _value(power)
    weight = scalar.binary("div", _value(power), divisor)
    given = quotient.body
    rounded = given.op == "cast" and given.dtype in _HALVES and given.arguments[0] is weight
    return same and (given is weight or rounded) and quotient.indices == source.at


def _is_guard(stage: Stage) -> bool:
    """Whether a stage makes another number of one that there is for each row."""
    return stage.kind == "map" and not stage.full


def _finite(largest: Scalar) -> Scalar:
    """The largest score, or 0 where that is minus infinity."""
    return scalar.select(largest > float("-inf"), largest, 0.0)


def _positive(total: Scalar) -> Scalar:
    """What powers are divided by, 1 where there is nothing to divide."""
    return scalar.select(scalar.compare("eq", total, 0.0), 1.0, total)


def _source(x: Scalar) -> Scalar | None:
    """The load of a score in what goes into a softmax: itself, or hidden by constants."""
    x = _widened(x)
    while x.op == "select" and x.arguments[2].op == "constant":
        x = _widened(x.arguments[1])
    return x if x.op == "load" else None


def _widened(x: Scalar) -> Scalar:
    """What a half float was before it became a float."""
    widens = x.op == "cast" and x.dtype is dtypes.FLOAT and x.arguments[0].dtype in _HALVES
    return x.arguments[0] if widens else x


def _is_over_what_is_summed(rows: LoopNest, second: Contraction) -> bool:
    """Whether the weights of one sum, rather than others, add up to 1."""
    (inner,) = (i for i in rows.inner if i != 0)
    axis = rows.stages[-1].indices.index(inner)
    return second.reduced == (second.left.at[axis],)


def _value(stage: Stage) -> Scalar:
    return scalar.load(stage.root.buffer, stage.indices)


def _combine(first: Contraction, rows: LoopNest, second: Contraction) -> Attention | Reason:
    """Both products in the variables of the second; the reason where the roles do not fit."""
    loops, reduced, weights = second.loops, second.reduced, second.left
    values, epilogue, result = second.right, second.epilogue, second.result
    if len(reduced) != 1 or any(
        i != 0 and (sizes.as_atom(i) is None or sizes.variable(i).kind != "index")
        for i in weights.at
    ):
        return _PARTS_OF_AXES
    key, first = reduced[0], _with_whole_axes(first, first.at)
    depth = tuple(
        sizes.numbered_index(sizes.variable(d).arguments[0], k, "d")
        for k, d in enumerate(first.reduced)
        if d != 0
    )
    atoms: dict[Atom, Dim] = dict(zip(sizes.variables(first.reduced), depth, strict=True))
    for own, at in zip(first.at, weights.at, strict=True):
        atom = sizes.as_atom(own)
        if (atom is None) != (at == 0):
            return _PARTS_OF_AXES
        if atom is not None:
            atoms[atom] = at
    query, keys, scores, score = (
        rewrite(x, atoms=atoms) for x in (first.left, first.right, first.epilogue, first.result)
    )
    hidden = _hidden(rows, weights, scores)
    if hidden is None:
        return _PARTS_OF_AXES
    if _uses(query, key):
        query, keys = keys, query
    at_rows = [v for v in loops if _uses(query, v) and not _uses(keys, v)]
    columns = [v for v in loops if _uses(values, v) and not _uses(query, v) and not _uses(keys, v)]
    if len(columns) != 1 or _uses(query, key) or not _uses(keys, key):
        return _NO_COLUMNS
    if {first.accumulator.name, second.accumulator.name} != {"float"}:
        return _NOT_FLOAT
    if _is_constant(keys) or _is_constant(values):
        return _CONSTANT
    # Heads that share all keys are independent products like others: queries are beside keys.
    row: Dim = max(at_rows, key=weights.at.index, default=0)
    if row != 0 and _uses(values, row):
        return _NO_COLUMNS
    batch = tuple(v for v in loops if v is not row and v is not columns[0])
    score_token = scalar.make_load(buffer("score", (), score.dtype), ())
    result_token = scalar.make_load(buffer("weighted", (), result.dtype), ())
    return Attention(
        root=second.root,
        inner=(first.root, *rows.roots, second.contraction),
        batch=batch,
        row=row,
        key=key,
        column=columns[0],
        depth=depth,
        query=query,
        keys=keys,
        score=score_token,
        scores=_without_zeros(_swap(hidden, score, score_token)),
        values=values,
        result=result_token,
        epilogue=_swap(epilogue, result, result_token),
        at=second.at,
        guarded=any(map(_is_guard, rows.stages)),
    )


def _hidden(rows: LoopNest, weights: Scalar, scores: Scalar) -> Scalar | None:
    """What goes into the softmax in the variables of its weights; None where they do not fit.

    Args:
        rows: The softmax.
        weights: The load of what it gives.
        scores: The sums that it reads, in those variables.
    """
    body, own = rows.stages[0].body, rows.stages[-1].indices
    if _widened(body).op == "load":
        return scores
    if any(i != 0 and sizes.as_atom(i) is None for i in own):
        return None
    body = rewrite(body, atoms=sizes.in_place_of(own, weights.at))
    source = _source(body)
    return rewrite(body, lambda x: scores if x is source else None)


def _without_zeros(x: Scalar) -> Scalar:
    """What goes into a softmax, less zeros that are added last: it takes -0.0 as it takes 0.0."""
    if x.op == "cast":
        inner = x.arguments[0]
        less = _without_zeros(inner)
        return x if less is inner else scalar.cast(less, x.dtype)
    if x.op == "add":
        for zero, other in (x.arguments, x.arguments[::-1]):
            if zero.op == "constant" and zero.payload == 0:
                return _without_zeros(other)
    return x


def _with_whole_axes(product: Contraction, indices: tuple[Dim, ...]) -> Contraction:
    """The product in variables that `indices` are, where these count through several.

    Whoever takes tokens from an image (y, x), or writes them as one, splits their axis: of
    `width * y + x` one variable is made, and y is what it is divided by the width.
    """
    atoms: dict[Atom, Dim] = {}
    loops, reduced = product.loops, product.reduced
    for number, index in enumerate(indices):
        parts = _digits(index)
        variables = [part for part, _ in parts]
        if len(parts) < 2:
            continue
        whole = sizes.numbered_index(
            sizes.product(sizes.variable(v).arguments[0] for v in variables), number, "t"
        )
        if set(variables) <= set(loops):
            loops = (*(v for v in loops if v not in variables), whole)
        elif set(variables) <= set(reduced):
            reduced = (*(v for v in reduced if v not in variables), whole)
        else:
            continue
        for part, weight in parts:
            higher = integer.floordiv(whole, weight)
            atoms[sizes.variable(part)] = integer.modulo(higher, sizes.variable(part).arguments[0])
    if not atoms:
        return product
    left, right, result, epilogue = (
        rewrite(x, atoms=atoms)
        for x in (product.left, product.right, product.result, product.epilogue)
    )
    at = tuple(substitute(i, atoms) for i in product.at)
    return replace(
        product, loops=loops, reduced=reduced, at=at, left=left, right=right, result=result,
        epilogue=epilogue,
    )  # fmt: skip


def _digits(index: Dim) -> list[tuple[Dim, Dim]]:
    """Variables and their weights, the lowest first, if an index counts through all of them."""
    found: list[tuple[Dim, Dim]] = []
    weight: Dim = 1
    left = index
    while left != 0:
        for atom in sizes.atoms_of(left, "index"):
            split = sizes.coefficient_of(left, atom)
            if split is not None and split[0] == weight:
                break
        else:
            return []
        found.append((sizes.of_atom(atom), weight))
        weight, left = weight * atom.arguments[0], split[1]
    return found


def _is_constant(factor: Scalar) -> bool:
    """Whether a factor is weights: a product packs them once, an attention in every run."""
    tensors = [x.tensor for x in loads_of(factor)]
    return all(isinstance(t, Buffer) and t.constant is not None for t in tensors)


def _swap(body: Scalar, load: Scalar, token: Scalar) -> Scalar:
    return rewrite(body, lambda x: token if x is load else None)


def _uses(body: Scalar, variable: Dim) -> bool:
    atom = sizes.variable(variable)
    return any(atom in sizes.atoms_of(i, "index") for x in loads_of(body) for i in x.at)
