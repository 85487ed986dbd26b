"""The axes of a contraction by their roles, and what it stores over them.

Index variables have roles: columns appear in the right factor only, rows in the left only, those of
a batch in both. One column axis runs along the panels: the one along which results lie side by
side, or several short ones as one.
"""

from __future__ import annotations

import math

from sardonyx.base import integer, sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.strided import pays
from sardonyx.plan.axes import Axes, extent_of, offset_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.roles import roles
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor, buffer
from sardonyx.tensor.traverse import loads_of

#: Phases that are stored between each other, at most. Columns with phases that do not divide a
#: vector are in one panel, of so many vectors at most.
_MOST_PHASES, _ONE_PANEL = 8, 2
#: Vectors of a panel axis that is put together of all short ones.
_FLAT = 4


@dataclass(eq=False, frozen=True, slots=True)
class AxisRoles:
    """The axes that a kernel goes over besides those that are summed.

    Attributes:
        batch, rows, outer_columns: Axes by role.
        column: The axis that runs along the panels.
        phases: So many columns follow each other between neighbours of the last row axis: results
            of the pixels of a block, where an image becomes larger.
        run: The last row axis, where results lie side by side along it and not along columns, or
            along it and the phases between. None where the target does not turn results.
    """

    batch: list[Dim]
    rows: list[Dim]
    outer_columns: list[Dim]
    column: Dim
    phases: int
    run: Dim | None

    def lead(self) -> list[Dim]:
        """Axes that blocks go over besides panels and rows."""
        return [*self.batch, *self.outer_columns]


@dataclass(eq=False, frozen=True, slots=True)
class Epilogue:
    """What becomes of sums.

    Attributes:
        body: What is stored; `token` stands for the sum.
        token: A load of rank 0: the sum has no place in memory.
        store_at: Indices of the result.
    """

    body: Scalar
    token: Scalar
    store_at: tuple[Dim, ...]


class AxisChoice:
    """Splits and merges the axes of a contraction, and chooses the roles of columns.

    Attributes:
        left, right: The factors over the axes, of the accumulator's type.
        epilogue: What becomes of sums.
        reduced: The axes that are summed.

    Args:
        group: The contraction.
        strides: Elements per step along each axis, for every buffer; gets those of the sum.
        lanes: Lanes of a vector of sums.
        transposes: Whether the target turns results.
    """

    def __init__(
        self,
        group: Contraction,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        transposes: bool,
    ) -> None:
        found = roles(group)
        if found is None:
            raise EngineError(message("product", "The contraction has no columns"))
        self._group, self._strides, self._lanes, self._transposes = (
            group, strides, lanes, transposes,
        )  # fmt: skip
        accumulator = group.accumulator
        left, right = (scalar.cast(x, accumulator) for x in (group.left, group.right))
        token = scalar.make_load(buffer("sum", (), group.result.dtype), ())
        strides[token.tensor] = ()
        body = rewrite(group.epilogue, lambda x: token if x is group.result else None)
        batch, rows, columns = found
        axes = Axes(
            (batch, rows, columns, group.reduced),
            [left, right, body],
            [(group.root.buffer, group.at)],
        )
        axes.split(whole=self._walked_axes(left))
        axes.merge(strides)
        self._batch, self._rows, columns, self.reduced = axes.spaces
        self.left, self.right, body = axes.bodies
        self.epilogue = Epilogue(body, token, axes.stores[0][1])
        self._choose_column(columns)

    def roles(self) -> AxisRoles:
        """The axes that are not summed."""
        return AxisRoles(
            self._batch, self._rows, self._outer_columns, self._column, self._phases, self._run()
        )

    def _run(self) -> Dim | None:
        if not self._transposes or not self._rows:
            return None
        if self._phases == 1 and self._step_of(self._column) == 1:
            return None
        return self._rows[-1] if self._step_of(self._rows[-1]) == self._phases else None

    def _walked_axes(self, left: Scalar) -> set[Atom]:
        """Reduced axes that rows walk in place as they are.

        They are not split where the right factor alone divides them: its panels are packed.
        """
        offsets = [offset_of(self._strides[x.tensor], x.at) for x in loads_of(left)]

        def is_walked(atom: Atom) -> bool:
            own = [sizes.step_along(o, atom) for o in offsets if atom in sizes.atoms_of(o)]
            return bool(own) and all(step == 1 for step in own)

        axes = (sizes.as_atom(v) for v in self._group.reduced)
        return {atom for atom in axes if atom is not None and is_walked(atom)}

    def _choose_column(self, columns: list[Dim]) -> None:
        """The panel axis is the one that is contiguous in the output; others become batches.

        Unless it is shorter than a register and another one is not.
        """
        phase = self._phase_among(columns)
        self._phases = 1 if phase is None else int(extent_of(phase))
        others = [c for c in columns if c is not phase] or columns
        long = [c for c in others if not self._is_short(c)] or others
        chosen = long[-1]
        for variable in long:
            if self._step_of(variable) == 1:
                chosen = variable
        self._column = chosen
        self._outer_columns = [c for c in others if c is not chosen]
        if phase is not None and phase is not chosen:
            self._flatten_phases(phase)
        else:
            self._flatten_columns()

    def _step_of(self, variable: Dim) -> Dim | None:
        """Elements between results along an axis, if it is the same everywhere."""
        offset = offset_of(self._strides[self._group.root.buffer], self.epilogue.store_at)
        return sizes.step_along(offset, sizes.variable(variable))

    def _phase_among(self, columns: list[Dim]) -> Dim | None:
        """The axis whose results fill what lies between neighbours along the last row axis."""
        if not self._transposes or not self._rows:
            return None
        step = self._step_of(self._rows[-1])
        if not isinstance(step, int) or not 2 <= step <= _MOST_PHASES or not pays(self._lanes):
            return None
        if not all(isinstance(extent_of(c), int) for c in columns):
            return None
        if self._lanes % step:
            # Rows of a matrix with so few columns are stored as they are.
            count = math.prod(int(extent_of(c)) for c in columns)
            if len(columns) == 1 or count > _ONE_PANEL * self._lanes:
                return None
        return next((c for c in columns if extent_of(c) == step and self._step_of(c) == 1), None)

    def _flatten_phases(self, phase: Dim) -> None:
        """Let phases be the last part of the panel axis; of short axes it has all."""
        every = [*self._outer_columns, self._column, phase]
        extents = [int(extent_of(a)) for a in every]
        few = math.prod(extents) <= _FLAT * self._lanes
        self._flatten(every if few else every[-2:])
        self._outer_columns = [] if few else self._outer_columns

    def _is_short(self, variable: Dim) -> bool:
        extent = extent_of(variable)
        return isinstance(extent, int) and extent < self._lanes

    def _flatten_columns(self) -> None:
        """Make one panel axis of several short ones (the phases of a pixel shuffle).

        Indices then divide it, which costs less than panels that are mostly padding.
        """
        axes = [*self._outer_columns, self._column]
        extents = [extent_of(a) for a in axes]
        whole = sizes.product(extents)
        short = extents[-1]
        if len(axes) < 2 or not isinstance(whole, int) or not isinstance(short, int):
            return
        if short >= self._lanes or whole > _FLAT * self._lanes:
            return
        self._flatten(axes)
        self._outer_columns = []

    def _flatten(self, axes: list[Dim]) -> None:
        """Let the panel axis run over several, of which the last is the innermost."""
        extents = [extent_of(a) for a in axes]
        flat = rest = sizes.numbered_index(sizes.product(extents), 0, "c")
        atoms: dict[Atom, Dim] = {}
        for axis, extent in reversed(list(zip(axes, extents, strict=True))):
            atoms[sizes.variable(axis)] = integer.modulo(rest, extent)
            rest = integer.floordiv(rest, extent)
        was = self.epilogue
        self.right, body = (rewrite(x, atoms=atoms) for x in (self.right, was.body))
        store_at = tuple(substitute(i, atoms) for i in was.store_at)
        self.epilogue = Epilogue(body, was.token, store_at)
        self._column = flat
