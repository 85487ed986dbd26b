"""Roots to groups: epilogues, rows, and what stays alone."""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.plan.axes import Axes
from sardonyx.plan.groups import Group, Product, Rows, Special, Stage
from sardonyx.plan.inline import Root
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


class _Reach:
    """Which roots a root depends on, as bit sets over root numbers."""

    def __init__(self, roots: list[Root]) -> None:
        by_buffer: dict[Tensor, Root] = {r.buffer: r for r in roots}
        self.sources: dict[Root, list[Root]] = {}
        self.before: dict[Root, int] = {}
        for root in roots:
            sources = [by_buffer[s] for s in root.sources if s in by_buffer]
            self.sources[root] = sources
            bits = 0
            for source in sources:
                bits |= self.before[source] | 1 << source.order
            self.before[root] = bits

    def needs(self, root: Root, members: set[Root]) -> bool:
        """Whether `root` depends on a member through a root that is not one."""
        wanted = sum(1 << m.order for m in members)
        return any(
            source not in members and self.before[source] & wanted for source in self.sources[root]
        )

    def feeds(self, root: Root, members: set[Root]) -> bool:
        """Whether a member depends on `root` through a root that is not a member."""
        bit = 1 << root.order
        return any(
            source is not root and source not in members and self.before[source] & bit
            for member in members
            for source in self.sources[member]
        )


def make_groups(roots: list[Root], *, fuse: bool = True) -> list[Group]:
    """All roots in groups, in an order in which they can run.

    Args:
        roots: What has memory.
        fuse: Whether kernels may compute more than one root, outputs of one invocation apart.
    """
    reach = _Reach(roots)
    taken: dict[Root, Group] = {}
    for root in roots:
        if isinstance(root.tensor, Contract) and root not in taken:
            product = _with_epilogue(root, reach, taken) if fuse else _alone(root)
            taken[root] = taken[product.root] = product
    for root in roots:
        if isinstance(root.tensor, Reduce) and root not in taken:
            rows = _RowsBuilder(root, reach, taken).build(fuse)
            for member in rows.roots:
                taken[member] = rows
    calls: dict[object, Special] = {}
    for root in roots:
        if root in taken:
            continue
        if isinstance(root.tensor, Call):
            special = calls.setdefault(root.tensor.invocation, Special(root.tensor, root.operands))
            special.outputs.append(root)
            taken[root] = special
        else:
            taken[root] = pointwise(root)
    return _in_order(list(dict.fromkeys(taken.values())), reach)


def _in_order(groups: list[Group], reach: _Reach) -> list[Group]:
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


def _members(group: Group) -> list[Root]:
    return [group.root, group.contraction] if isinstance(group, Product) else group.roots


def _loops(shape: tuple[Dim, ...], name: str) -> tuple[Dim, ...]:
    return tuple(sizes.numbered_index(d, k, name) for k, d in enumerate(shape))


def pointwise(root: Root) -> Rows:
    """The group that computes one map alone."""
    outer = _loops(root.tensor.shape, "o")
    body = rewrite(root.bodies[0], atoms=bind(indices(root.tensor.shape), outer))
    return Rows(outer, (), [Stage(root, "map", body, outer, False)])


def sum_alone(root: Root) -> Rows:
    """The group that computes one reduction alone."""
    tensor = root.tensor
    assert isinstance(tensor, Reduce)  # noqa: S101 - narrows the type for the checker
    outer, inner = _loops(tensor.shape, "o"), _loops(tensor.extents, "n")
    atoms = bind(indices(tensor.shape), outer) | bind(reduced_indices(tensor.extents), inner)
    body = rewrite(root.bodies[0], atoms=atoms)
    return Rows(outer, inner, [Stage(root, tensor.kind, body, outer, True)])


# -- contractions -----------------------------------------------------------------------------


def _with_epilogue(root: Root, reach: _Reach, taken: dict[Root, Group]) -> Product:
    contract = root.tensor
    assert isinstance(contract, Contract)  # noqa: S101 - narrows the type for the checker
    reader = root.readers[0] if len(root.readers) == 1 and not root.is_output else None
    if reader is not None and reader.never_changes != root.never_changes:
        reader = None  # what is computed once stays apart from what is computed in every run
    if reader is not None and reader not in taken and isinstance(reader.tensor, Map):
        loads = [x for x in loads_of(reader.bodies[0]) if x.tensor is root.buffer]
        same_volume = integer.known_equal(
            sizes.product(reader.tensor.shape), sizes.product(contract.shape)
        )
        if len(loads) == 1 and same_volume and not _has_opaque(loads[0]):
            return _fused(root, reader, loads[0])
    return _alone(root)


def _alone(root: Root) -> Product:
    contract = root.tensor
    loops = _loops(contract.shape, "o")
    return _product(root, root, loops, indices(contract.shape), loops, None)


def _has_opaque(x: Scalar) -> bool:
    return any(sizes.atoms_of(i, "opaque") for i in x.at)


def _fused(root: Root, reader: Root, result: Scalar) -> Product:
    loops = _loops(reader.tensor.shape, "o")
    moved = rewrite(reader.bodies[0], atoms=bind(indices(reader.tensor.shape), loops))
    at = rewrite(result, atoms=bind(indices(reader.tensor.shape), loops)).payload[1]
    return _product(reader, root, loops, indices(root.tensor.shape), at, moved)


def _product(
    root: Root,
    contraction: Root,
    loops: tuple[Dim, ...],
    own: tuple[Dim, ...],
    at: tuple[Dim, ...],
    epilogue: Scalar | None,
) -> Product:
    contract = contraction.tensor
    assert isinstance(contract, Contract)  # noqa: S101 - narrows the type for the checker
    reduced = _loops(contract.extents, "n")
    atoms = bind(own, at) | bind(reduced_indices(contract.extents), reduced)
    left, right = (rewrite(b, atoms=atoms) for b in contraction.bodies)
    result = load(contraction.buffer, at)
    bodies = [left, right, result, result if epilogue is None else epilogue]
    axes = Axes((loops, reduced), bodies, [(root.buffer, loops)])
    axes.split()
    left, right, result, final = axes.bodies
    return Product(
        root, contraction, tuple(axes.spaces[0]), axes.stores[0][1], tuple(axes.spaces[1]),
        left, right, contract.accumulator, result, final,
    )  # fmt: skip


# -- rows -------------------------------------------------------------------------------------


class _RowsBuilder:
    """Grows a group around one reduction."""

    def __init__(self, seed: Root, reach: _Reach, taken: dict[Root, Group]) -> None:
        self.reach, self.taken = reach, taken
        tensor = seed.tensor
        assert isinstance(tensor, Reduce)  # noqa: S101 - narrows the type for the checker
        #: What is computed once must not wait for what is computed in every run.
        self.never_changes = seed.never_changes
        self.outer = _loops(tensor.shape, "o")
        self.inner = _loops(tensor.extents, "n")
        self.members: dict[Root, Stage] = {}
        atoms = bind(indices(tensor.shape), self.outer)
        atoms |= bind(reduced_indices(tensor.extents), self.inner)
        body = rewrite(seed.bodies[0], atoms=atoms)
        self.members[seed] = Stage(seed, tensor.kind, body, self.outer, True)

    def build(self, fuse: bool) -> Rows:
        grown = fuse and any(i != 0 for i in self.inner)
        while grown:
            grown = any([self._absorb_readers(), self._absorb_sources()])
        stages = sorted(self.members.values(), key=lambda s: s.root.order)
        for stage in stages:
            outside = [r for r in stage.root.readers if r not in self.members]
            stage.stored = stage.root.is_output or bool(outside)
        return Rows(self.outer, self.inner, stages)

    def _fits(self, root: Root) -> bool:
        return (
            root not in self.members
            and root not in self.taken
            and root.never_changes == self.never_changes
            and isinstance(root.tensor, (Map, Reduce))
        )

    def _absorb_readers(self) -> bool:
        grown = False
        for member in list(self.members):
            for reader in member.readers:
                if not self._fits(reader) or self.reach.needs(reader, set(self.members)):
                    continue
                stage = self._as_reader(reader)
                if stage is not None:
                    self.members[reader] = stage
                    grown = True
        return grown

    def _absorb_sources(self) -> bool:
        """Take in maps over the whole domain that members read element by element."""
        grown = False
        for member in list(self.members):
            for source in self.reach.sources[member]:
                if not self._fits(source) or not isinstance(source.tensor, Map):
                    continue
                if self.reach.feeds(source, set(self.members)) or self.reach.needs(
                    source, set(self.members)
                ):
                    continue
                stage = self._as_source(source, self.members[member])
                if stage is not None:
                    self.members[source] = stage
                    grown = True
        return grown

    def _as_reader(self, root: Root) -> Stage | None:
        """`root` in the group's index variables, if it reads every member in step with them."""
        tensor = root.tensor
        variables = indices(tensor.shape)
        if isinstance(tensor, Reduce):
            variables += reduced_indices(tensor.extents)
        binding: dict[Atom, Dim] = {}
        for x in loads_of(root.bodies[0]):
            stage = next((s for m, s in self.members.items() if m.buffer is x.tensor), None)
            if stage is not None and not _unify(x.at, stage.indices, binding):
                return None
        free_inner = [i for i in self.inner if i != 0 and i not in binding.values()]
        free_outer = [o for o in self.outer if o != 0 and o not in binding.values()]
        unbound = [a for a in map(sizes.as_atom, variables) if a is not None and a not in binding]
        if free_outer or (unbound and len(unbound) != len(free_inner)):
            return None
        for atom, target in zip(unbound, free_inner, strict=False):
            if not integer.known_equal(atom.arguments[0], sizes.as_atom(target).arguments[0]):  # type: ignore[union-attr]  # an index variable is an atom
                return None
            binding[atom] = target
        return self._stage(root, binding)

    def _as_source(self, root: Root, reader: Stage) -> Stage | None:
        binding: dict[Atom, Dim] = {}
        for x in loads_of(reader.body):
            if x.tensor is root.buffer:
                targets = dict.fromkeys(map(sizes.as_atom, x.at))
                wanted = {a for a in map(sizes.as_atom, self.outer + self.inner) if a is not None}
                if set(targets) - {None} != wanted:
                    return None
                own = indices(root.tensor.shape)
                for variable, at in zip(own, x.at, strict=True):
                    atom = sizes.as_atom(variable)
                    if atom is None:
                        continue
                    target = sizes.as_atom(at)
                    same = target is not None and integer.known_equal(
                        atom.arguments[0], target.arguments[0]
                    )
                    if not same or binding.setdefault(atom, at) != at:
                        return None
        if len(set(binding.values())) != len(binding):
            return None
        stage = self._stage(root, binding)
        if stage is None or any(not _reads_at(m.body, stage) for m in self.members.values()):
            return None
        return stage

    def _stage(self, root: Root, binding: dict[Atom, Dim]) -> Stage | None:
        tensor = root.tensor
        kind = tensor.kind if isinstance(tensor, Reduce) else "map"
        moved = {a: b for a, b in binding.items() if b != sizes.of_atom(a)}
        body = rewrite(root.bodies[0], atoms=moved)
        at = tuple(substitute(i, moved) for i in indices(tensor.shape))
        inner = {sizes.as_atom(i) for i in self.inner} - {None}
        used = {sizes.as_atom(b) for b in binding.values()}
        full = bool(inner & used)
        if full and not inner <= used:
            return None
        if kind != "map":
            summed = {sizes.as_atom(binding[a]) for a in _reduced_atoms(tensor)}
            if summed != inner:
                return None
        if not full and kind == "map" and not self._outer_only(at):
            return None
        return Stage(root, kind, body, at, full)

    def _outer_only(self, at: tuple[Dim, ...]) -> bool:
        outer = {sizes.as_atom(o) for o in self.outer} - {None}
        return {sizes.as_atom(i) for i in at} - {None} == outer


def _reads_at(body: Scalar, stage: Stage) -> bool:
    """Whether every load of the stage's buffer in `body` reads the element in step."""
    return all(x.at == stage.indices for x in loads_of(body) if x.tensor is stage.root.buffer)


def _reduced_atoms(tensor: Tensor) -> list[Atom]:
    assert isinstance(tensor, Reduce)  # noqa: S101 - narrows the type for the checker
    return [a for a in map(sizes.as_atom, reduced_indices(tensor.extents)) if a is not None]


def _unify(at: tuple[Dim, ...], target: tuple[Dim, ...], binding: dict[Atom, Dim]) -> bool:
    """Bind the index variables in `at` so that it becomes `target`, axis by axis."""
    for index, wanted in zip(at, target, strict=True):
        if wanted == 0 and index == 0:
            continue
        atom = sizes.as_atom(index)
        if atom is None or atom.kind != "index" or wanted == 0:
            return False
        same_extent = integer.known_equal(
            atom.arguments[0],
            sizes.as_atom(wanted).arguments[0],  # type: ignore[union-attr]  # an index variable is an atom
        )
        if not same_extent or binding.setdefault(atom, wanted) != wanted:
            return False
    return len(set(binding.values())) == len(binding)
