"""Roots to groups: epilogues, rows, and what stays alone."""

from __future__ import annotations

from collections.abc import Container, Mapping

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.axes import Axes
from sardonyx.plan.groups import Contraction, CustomKernel, Group, LoopNest, Stage
from sardonyx.plan.inline import Materialized
from sardonyx.plan.loop_nest_builder import LoopNestBuilder
from sardonyx.plan.reach import Reach, loops_over
from sardonyx.plan.reasons import Reason, Reasons
from sardonyx.tensor.composition import bind
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import (
    Call,
    Contract,
    Map,
    Reduce,
    Tensor,
    indices,
    reduced_indices,
)
from sardonyx.tensor.traverse import loads_of

#: Name of the pass.
GROUP = "group"

_SEPARATE = Reason("nothing is fused")
_EPILOGUE = Reason("the map that reads the sum is its epilogue")
_OUTPUT = Reason("no epilogue: the sum is wanted in memory")
_READERS = Reason("no epilogue: several, or none, read the sum")
_GRAPH = Reason("no epilogue: where its reader's rows go always changes")
_ONCE = Reason("no epilogue: one of sum and reader is computed once, the other in every run")
_NO_MAP = Reason("no epilogue: what reads the sum is no map, or is part of another kernel")
_OTHER_PLACES = Reason("no epilogue: its reader does not read each element of the sum once")
_NEIGHBOURS = Reason("maps and reductions over its domain are stages of one kernel")
_NO_NEIGHBOUR = Reason("no reader or source goes over its elements in step with it")
_ALONE = Reason("no sum, reduction or other map takes it in")
_CUSTOM = Reason("an operator with loops of its own is a kernel of its own")


def make_groups(
    roots: list[Materialized],
    *,
    fuse: bool = True,
    apart: Container[Tensor] = (),
    measured: Mapping[Dim, Tensor] | None = None,
    reasons: Reasons | None = None,
) -> list[Group]:
    """All roots in groups, in an order in which they can run.

    Args:
        roots: What has memory.
        fuse: Whether kernels may compute more than one root, outputs of one invocation apart.
        apart: What is not computed where a contraction is.
        measured: Where symbols come from that only a run brings.
        reasons: Takes why each group has what it has, and nothing more.
    """
    reach = Reach(roots, measured)
    taken: dict[Materialized, Group] = {}
    refused: dict[Materialized, Reason] = {}
    for root in roots:
        if isinstance(root.tensor, Contract) and root not in taken:
            found = _epilogue_of(root, taken, apart) if fuse else _SEPARATE
            product = _alone(root) if isinstance(found, Reason) else _fused(root, *found)
            taken[root] = taken[product.root] = product
            if reasons is not None:
                fused = not isinstance(found, Reason)
                why = found if isinstance(found, Reason) else _EPILOGUE
                reasons.note(GROUP, product, why, changed=fused)
    for root in roots:
        if isinstance(root.tensor, Reduce) and root not in taken:
            builder = LoopNestBuilder(root, reach, taken)
            builder.refused = None if reasons is None else refused
            rows = builder.build(fuse)
            for member in rows.roots:
                taken[member] = rows
            if reasons is not None:
                why = _NEIGHBOURS if len(rows.stages) > 1 else refused.get(root, _NO_NEIGHBOUR)
                reasons.note(GROUP, rows, why if fuse else _SEPARATE, changed=len(rows.stages) > 1)
    calls: dict[object, CustomKernel] = {}
    for root in roots:
        if root in taken:
            continue
        if isinstance(root.tensor, Call):
            special = calls.setdefault(
                root.tensor.invocation, CustomKernel(root.tensor, root.operands)
            )
            special.outputs.append(root)
            taken[root] = special
            if reasons is not None:
                reasons.note(GROUP, special, _CUSTOM, changed=False)
        else:
            taken[root] = alone = pointwise(root)
            if reasons is not None:
                why = refused.get(root, _ALONE) if fuse else _SEPARATE
                reasons.note(GROUP, alone, why, changed=False)
    return _in_order(list(dict.fromkeys(taken.values())), reach)


def _in_order(groups: list[Group], reach: Reach) -> list[Group]:
    """Groups sorted so that producers come first; ties keep the order of the graph."""
    owner = {r: g for g in groups for r in _members(g)}
    done: dict[Group, None] = {}
    stack: list[tuple[Group, bool]] = []
    for group in sorted(groups, key=lambda g: max(r.order for r in g.roots)):
        stack.append((group, False))
        while stack:
            current, expanded = stack.pop()
            if current in done:
                continue
            if expanded:
                done[current] = None
                continue
            stack.append((current, True))
            for member in _members(current):
                stack.extend(
                    (owner[s], False)
                    for s in reach.sources[member]
                    if owner[s] is not current and owner[s] not in done
                )
    return list(done)


def _members(group: Group) -> list[Materialized]:
    return [group.root, group.contraction] if isinstance(group, Contraction) else group.roots


def pointwise(root: Materialized) -> LoopNest:
    """The group that computes one map alone."""
    outer = loops_over(root.tensor.shape, "o")
    body = rewrite(root.bodies[0], atoms=bind(indices(root.tensor.shape), outer))
    return LoopNest(outer, (), [Stage(root, "map", body, outer, False)])


def sum_alone(root: Materialized) -> LoopNest:
    """The group that computes one reduction alone."""
    tensor = root.tensor
    assert isinstance(tensor, Reduce)  # noqa: S101 - narrows the type for the checker
    outer, inner = loops_over(tensor.shape, "o"), loops_over(tensor.extents, "n")
    atoms = bind(indices(tensor.shape), outer) | bind(reduced_indices(tensor.extents), inner)
    body = rewrite(root.bodies[0], atoms=atoms)
    return LoopNest(outer, inner, [Stage(root, tensor.kind, body, outer, True)])


# -- contractions -----------------------------------------------------------------------------


def _epilogue_of(
    root: Materialized, taken: dict[Materialized, Group], apart: Container[Tensor]
) -> tuple[Materialized, Scalar] | Reason:
    """The map that reads a sum, and how; the reason where it is a kernel of its own."""
    contract = root.tensor
    assert isinstance(contract, Contract)  # noqa: S101 - narrows the type for the checker
    if root.is_output:
        return _OUTPUT
    if len(root.readers) != 1:
        return _READERS
    (reader,) = root.readers
    if reader.tensor in apart:
        return _GRAPH
    if reader.never_changes != root.never_changes:
        return _ONCE  # what is computed once stays apart from what is computed in every run
    if reader in taken or not isinstance(reader.tensor, Map):
        return _NO_MAP
    loads = [x for x in loads_of(reader.bodies[0]) if x.tensor is root.buffer]
    same_volume = integer.known_equal(
        sizes.product(reader.tensor.shape), sizes.product(contract.shape)
    )
    if len(loads) == 1 and same_volume and not _has_opaque(loads[0]):
        return reader, loads[0]
    return _OTHER_PLACES


def _alone(root: Materialized) -> Contraction:
    contract = root.tensor
    loops = loops_over(contract.shape, "o")
    return _product(root, root, loops, indices(contract.shape), loops, None)


def _has_opaque(x: Scalar) -> bool:
    return any(sizes.opaque_in(i) for i in x.at)


def _fused(root: Materialized, reader: Materialized, result: Scalar) -> Contraction:
    loops = loops_over(reader.tensor.shape, "o")
    moved = rewrite(reader.bodies[0], atoms=bind(indices(reader.tensor.shape), loops))
    at = rewrite(result, atoms=bind(indices(reader.tensor.shape), loops)).payload[1]
    return _product(reader, root, loops, indices(root.tensor.shape), at, moved)


def _product(
    root: Materialized,
    contraction: Materialized,
    loops: tuple[Dim, ...],
    own: tuple[Dim, ...],
    at: tuple[Dim, ...],
    epilogue: Scalar | None,
) -> Contraction:
    contract = contraction.tensor
    assert isinstance(contract, Contract)  # noqa: S101 - narrows the type for the checker
    reduced = loops_over(contract.extents, "n")
    atoms = bind(own, at) | bind(reduced_indices(contract.extents), reduced)
    left, right = (rewrite(b, atoms=atoms) for b in contraction.bodies)
    result = load(contraction.buffer, at)
    bodies = [left, right, result, result if epilogue is None else epilogue]
    axes = Axes((loops, reduced), bodies, [(root.buffer, loops)])
    axes.split()
    left, right, result, final = axes.bodies
    return Contraction(
        root, contraction, tuple(axes.spaces[0]), axes.stores[0][1], tuple(axes.spaces[1]),
        left, right, contract.accumulator, result, final,
    )  # fmt: skip
