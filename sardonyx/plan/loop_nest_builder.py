"""Groups of reductions and maps over one domain, grown around one reduction."""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.plan.groups import Group, LoopNest, Stage
from sardonyx.plan.inline import Materialized
from sardonyx.plan.reach import Reach, loops_over
from sardonyx.plan.reasons import Reason
from sardonyx.tensor.composition import bind
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Map, Reduce, Tensor, indices, reduced_indices
from sardonyx.tensor.traverse import loads_of

_WAITS = Reason("the reduction beside it waits for it another way, too")
_OUT_OF_STEP = Reason("it does not read the results of the reduction beside it in step")
_OTHER_AXES = Reason("it goes over other axes than the reduction beside it")
_OTHER_LENGTHS = Reason("its axes have other lengths than those of the reduction beside it")
_SEVERAL_PLACES = Reason("the reduction beside it does not read each of its elements once, in step")
_PART_OF_ROWS = Reason("it goes over a part of the rows of the reduction beside it")


class LoopNestBuilder:
    """Grows a group around one reduction.

    Attributes:
        refused: Why roots beside the group are not in it, where somebody asks.
    """

    refused: dict[Materialized, Reason] | None = None

    def __init__(self, seed: Materialized, reach: Reach, taken: dict[Materialized, Group]) -> None:
        self.reach, self.taken = reach, taken
        tensor = seed.tensor
        assert isinstance(tensor, Reduce)  # noqa: S101 - narrows the type for the checker
        #: What is computed once must not wait for what is computed in every run.
        self.never_changes = seed.never_changes
        self.outer = loops_over(tensor.shape, "o")
        self.inner = loops_over(tensor.extents, "n")
        self.members: dict[Materialized, Stage] = {}
        atoms = bind(indices(tensor.shape), self.outer)
        atoms |= bind(reduced_indices(tensor.extents), self.inner)
        body = rewrite(seed.bodies[0], atoms=atoms)
        self.members[seed] = Stage(seed, tensor.kind, body, self.outer, True)

    def build(self, fuse: bool) -> LoopNest:
        """The group, with whatever else it computes on the way if `fuse`."""
        grown = fuse and any(i != 0 for i in self.inner)
        while grown:
            grown = any(
                step() for step in (self._absorb_readers, self._absorb_sources, self._absorb_others)
            )
        stages = sorted(self.members.values(), key=lambda s: s.root.order)
        for stage in stages:
            outside = [r for r in stage.root.readers if r not in self.members]
            stage.stored = stage.root.is_output or bool(outside)
        return LoopNest(self.outer, self.inner, stages)

    def _fits(self, root: Materialized) -> bool:
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
                if not self._fits(reader):
                    continue
                waits = self.reach.needs(reader, set(self.members))
                grown |= self._absorb(reader, _WAITS if waits else self._as_reader(reader))
        return grown

    def _absorb(self, root: Materialized, stage: Stage | Reason) -> bool:
        """Take in a root, if it is a stage; whether it is."""
        if isinstance(stage, Reason):
            if self.refused is not None:
                self.refused[root] = stage
            return False
        self.members[root] = stage
        return True

    def _absorb_sources(self) -> bool:
        """Take in maps over the whole domain that members read element by element."""
        grown = False
        for member in list(self.members):
            for source in self.reach.sources[member]:
                if not self._fits(source) or not isinstance(source.tensor, Map):
                    continue
                members = set(self.members)
                if self.reach.feeds(source, members) or self.reach.needs(source, members):
                    self._absorb(source, _WAITS)
                    continue
                grown |= self._absorb(source, self._as_source(source, self.members[member]))
        return grown

    def _absorb_others(self) -> bool:
        """Take in other reductions over the same domain that read in step what members read."""
        grown = False
        for member, stage in list(self.members.items()):
            if stage.kind == "map":
                continue
            read = set(loads_of(stage.body))
            for root in [r for t in member.sources for r in self.reach.reductions[t]]:
                members = set(self.members)
                if not self._fits(root) or self.reach.needs(root, members):
                    continue
                if self.reach.feeds(root, members) or any(s in members for s in root.readers):
                    continue
                other = self._as_equal(root)
                if not isinstance(other, Reason) and not read <= set(loads_of(other.body)):
                    other = _SEVERAL_PLACES
                grown |= self._absorb(root, other)
        return grown

    def _as_equal(self, root: Materialized) -> Stage | Reason:
        """A reduction in the group's index variables, if its axes are those of the group."""
        tensor = root.tensor
        assert isinstance(tensor, Reduce)  # noqa: S101 - `Reach` has no others
        pairs = ((tensor.shape, self.outer), (tensor.extents, self.inner))
        for shape, variables in pairs:
            if len(shape) != len(variables) or any(
                not integer.known_equal(d, 1 if v == 0 else sizes.variable(v).arguments[0])
                for d, v in zip(shape, variables, strict=True)
            ):
                return _OTHER_LENGTHS
        own = (*indices(tensor.shape), *reduced_indices(tensor.extents))
        return self._stage(root, bind(own, (*self.outer, *self.inner)))

    def _as_reader(self, root: Materialized) -> Stage | Reason:
        """`root` in the group's index variables, if it reads every member in step with them."""
        tensor = root.tensor
        variables = indices(tensor.shape)
        if isinstance(tensor, Reduce):
            variables += reduced_indices(tensor.extents)
        binding: dict[Atom, Dim] = {}
        for x in loads_of(root.bodies[0]):
            stage = next((s for m, s in self.members.items() if m.buffer is x.tensor), None)
            if stage is not None and not _unify(x.at, stage.indices, binding):
                return _OUT_OF_STEP
        free_inner = [i for i in self.inner if i != 0 and i not in binding.values()]
        free_outer = [o for o in self.outer if o != 0 and o not in binding.values()]
        unbound = [a for a in map(sizes.as_atom, variables) if a is not None and a not in binding]
        if free_outer or (unbound and len(unbound) != len(free_inner)):
            return _OTHER_AXES
        for atom, target in zip(unbound, free_inner, strict=False):
            if not integer.known_equal(atom.arguments[0], sizes.variable(target).arguments[0]):
                return _OTHER_LENGTHS
            binding[atom] = target
        return self._stage(root, binding)

    def _as_source(self, root: Materialized, reader: Stage) -> Stage | Reason:
        binding: dict[Atom, Dim] = {}
        for x in loads_of(reader.body):
            if x.tensor is root.buffer:
                targets = dict.fromkeys(map(sizes.as_atom, x.at))
                wanted = {a for a in map(sizes.as_atom, self.outer + self.inner) if a is not None}
                if set(targets) - {None} != wanted:
                    return _SEVERAL_PLACES
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
                        return _SEVERAL_PLACES
        if len(set(binding.values())) != len(binding):
            return _SEVERAL_PLACES
        stage = self._stage(root, binding)
        if isinstance(stage, Reason):
            return stage
        if any(not _reads_at(m.body, stage) for m in self.members.values()):
            return _SEVERAL_PLACES
        return stage

    def _stage(self, root: Materialized, binding: dict[Atom, Dim]) -> Stage | Reason:
        tensor = root.tensor
        kind = tensor.kind if isinstance(tensor, Reduce) else "map"
        moved = {a: b for a, b in binding.items() if b != sizes.of_atom(a)}
        body = rewrite(root.bodies[0], atoms=moved)
        at = tuple(substitute(i, moved) for i in indices(tensor.shape))
        inner = {sizes.as_atom(i) for i in self.inner} - {None}
        used = {sizes.as_atom(b) for b in binding.values()}
        full = bool(inner & used)
        if full and not inner <= used:
            return _PART_OF_ROWS
        if kind != "map":
            summed = {sizes.as_atom(binding[a]) for a in _reduced_atoms(tensor)}
            if summed != inner:
                return _OTHER_AXES
        if not full and kind == "map" and not self._outer_only(at):
            return _OTHER_AXES
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
            sizes.variable(wanted).arguments[0],
        )
        if not same_extent or binding.setdefault(atom, wanted) != wanted:
            return False
    return len(set(binding.values())) == len(binding)
