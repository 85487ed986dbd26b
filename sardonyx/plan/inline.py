"""Which tensors get memory of their own, and which are computed where they are read.

Takes the tensors of a lowered graph, gives `Materialized`s: tensors with memory, whose expressions
load only buffers. A map disappears into its readers when that costs nothing, or when it has one
reader that would not compute it several times over.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import field

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.codes import CODES
from sardonyx.plan.cuts import (
    MOST_LEVELS,
    MOST_NODES,
    has_long_indices,
    is_long,
    levels_of,
    node_count,
)
from sardonyx.plan.dequantised import Dequantised, is_decoded
from sardonyx.plan.reasons import Reason, Reasons
from sardonyx.plan.residual_codes import ResidualCodes
from sardonyx.plan.weights import packs, weights_of
from sardonyx.tensor.host import is_host_call
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load, make_load
from sardonyx.tensor.tensor import (
    Buffer,
    Call,
    Contract,
    Map,
    Reduce,
    Tensor,
    indices,
    reduced_indices,
)
from sardonyx.tensor.traverse import bodies_of, loads_of, operands_of, topological

#: Rough cost of an operation in vector instructions; others cost 1.
_COSTS = {
    "constant": 0, "size": 0, "load": 0, "select": 1, "cast": 1,
    "div": 4, "rem": 6, "sqrt": 4, "rsqrt": 6, "exp": 12, "exp2": 10, "expm1": 16, "log": 14,
    "log2": 14, "log1p": 18, "sin": 20, "cos": 20, "tan": 26, "asin": 20, "acos": 20, "atan": 20,
    "sinh": 24, "cosh": 24, "tanh": 18, "asinh": 28, "acosh": 28, "atanh": 28, "erf": 20,
    "sigmoid": 16, "pow": 40, "atan2": 30,
}  # fmt: skip
#: Name of the pass.
INLINE = "inline"

_WANTED = Reason("an output, a branch or a loop needs it in memory")
_APART = Reason("nothing is fused: what a node gives has memory")
_COMPUTES = Reason("it is a sum, or has loops of its own")
_CALLED = Reason("a kernel with loops of its own reads it, which takes whole arrays")
_NUMBERS = Reason("a product packs it, once")
_FACTOR = Reason("a product reads it several times, and would compute it anew")
_JOINED_CONSTANTS = Reason("it is made of constants, once")
_LONG_INDICES = Reason("where its elements lie takes long to work out")
_LONG = Reason("its expression is too long to be part of others")
_GATHERED = Reason("windows that read it would gather each element once for each tap")
_CODES = Reason("rather codes in memory than what they stand for")
_SEVERAL = Reason("several readers compute something of it")
_RECOMPUTED = Reason("its reader would compute it several times")
#: Marks a buffer whose contents kernels compute from constants, once.
COMPUTED = object()


@dataclass(eq=False, slots=True)
class Materialized:
    """A tensor with memory of its own.

    Attributes:
        tensor: What it is, in the lowered graph.
        buffer: What others load it through.
        bodies: Its expressions with maps inlined, loading only buffers: the body of a map or
            reduction; left and right of a contraction.
        operands: Of a call: loads at `indices(operand.shape)`, through views where that is affine.
        readers: Roots that load it.
        is_output: Whether the caller gets it, or a size is measured in it.
        remark: Why it is not computed in a faster way, for people.
    """

    tensor: Tensor
    buffer: Buffer
    bodies: tuple[Scalar, ...] = ()
    operands: tuple[Scalar, ...] = ()
    readers: list[Materialized] = field(default_factory=list)
    is_output: bool = False
    order: int = 0
    remark: str = ""

    @property
    def never_changes(self) -> bool:
        """Whether its contents are the same in every run, and are computed once."""
        return self.buffer.constant is not None

    @property
    def sources(self) -> list[Tensor]:
        """Buffers that it loads, each once, in a fixed order."""
        found: dict[Tensor, None] = {}
        for body in self.bodies:
            for x in loads_of(body):
                found[x.tensor] = None
        for operand in self.operands:
            found[operand.tensor] = None
        return list(found)


def cost_of(body: Scalar) -> int:
    """Estimated vector instructions for one evaluation, shared parts counted once."""
    return _cost_of(body, set())


def _costs_more(body: Scalar, limit: int) -> bool:
    """Whether `cost_of` is more than that: a long expression is not walked to its end."""
    seen, stack, cost = {body}, [body], 0
    while stack and cost <= limit:
        x = stack.pop()
        cost += _own_cost(x)
        for part in x.arguments:
            if part not in seen:
                seen.add(part)
                stack.append(part)
    return cost > limit


def _cost_of(x: Scalar, seen: set[Scalar]) -> int:
    if x in seen:
        return 0
    seen.add(x)
    return _own_cost(x) + sum([_cost_of(a, seen) for a in x.arguments])


def _own_cost(x: Scalar) -> int:
    here = _COSTS.get(x.op, 1)
    if x.op == "load":
        here += sum(3 for i in x.at if sizes.opaque_in(i))
    return here


def is_view(body: Scalar) -> bool:
    """Whether the expression only picks an element of one or several tensors by position."""
    if body.op == "load":
        return not any(sizes.opaque_in(i) for i in body.at)
    if body.op == "select":
        condition, a, b = body.arguments
        return not loads_of(condition) and is_view(a) and is_view(b)
    return body.op in ("constant", "size")


def _only_widens(body: Scalar) -> bool:
    """Whether the expression is a half float that becomes a float: memory holds the half."""
    if body.op != "cast" or body.dtype is not dtypes.FLOAT:
        return False
    source = body.arguments[0]
    return source.op == "load" and source.dtype in (dtypes.FLOAT16, dtypes.BFLOAT16)


def is_affine_view(body: Scalar, shape: tuple[Dim, ...]) -> bool:
    """Whether the expression is one load whose indices are linear in each index variable."""
    if body.op != "load" or isinstance(body.tensor.scalar_value, (int, float)):
        return False
    for index in body.at:
        if sizes.opaque_in(index) or sizes.atoms_of(index, "floordiv"):
            return False
        for atom in sizes.variables(indices(shape)):
            if sizes.coefficient_of(index, atom) is None:
                return False
    return True


def load_in_place(tensor: Tensor) -> Scalar:
    """The load of `tensor` at its own index variables."""
    at = indices(tensor.shape)
    return make_load(tensor, at)


def is_plain_operand(body: Scalar) -> bool:
    """Whether a contraction can read it in place: one load, perhaps inside a window."""
    if body.op == "load":
        return not any(sizes.opaque_in(i) for i in body.at)
    if body.op == "select":
        condition, a, b = body.arguments
        return (
            not loads_of(condition)
            and is_plain_operand(a)
            and b.op == "constant"
            and b.payload == 0
        )
    return False


class _Inliner:
    def __init__(
        self,
        outputs: list[Tensor],
        kept: list[Tensor],
        separate: Container[Tensor] | None,
        integers: bool,
    ) -> None:
        self.order = topological([*outputs, *kept])
        self.separate = separate
        self.outputs = set(outputs)
        self.kept = set(kept) | self.outputs
        self.integers = integers and separate is None
        found = Dequantised(self.order, self.kept) if self.integers else None
        self.dequantised: Collection[Tensor] = () if found is None else found.contractions
        self.remarks: dict[Tensor, str] = {} if found is None else found.refused
        self.output_calls = {t.invocation for t in self.kept if isinstance(t, Call)}
        self.readers: dict[Tensor, list[Tensor]] = {t: [] for t in self.order}
        for tensor in self.order:
            for operand in operands_of(tensor):
                self.readers[operand].append(tensor)
        self.expanded: dict[Tensor, Scalar] = {}
        self.roots: dict[Tensor, Materialized] = {}
        self._residual_codes = ResidualCodes(self.reads, self.roots, self.kept)
        #: Why each tensor with memory has it, where somebody asks.
        self.why: dict[Tensor, Reason] | None = None

    def reads(self, tensor: Tensor) -> list[Tensor]:
        """Readers that compute something, seen through views that will disappear."""
        found: list[Tensor] = []
        stack = list(self.readers[tensor])
        while stack:
            reader = stack.pop()
            passes = (
                isinstance(reader, Map)
                and reader not in self.kept
                and (
                    is_view(reader.body)
                    or _only_widens(reader.body)
                    or (self.integers and is_decoded(reader.body))
                )
            )
            if passes:
                stack.extend(self.readers[reader])
            else:
                found.append(reader)
        return found

    def run(self) -> list[Materialized]:
        for tensor in self.order:
            if isinstance(tensor, Buffer):
                if tensor in self.outputs:
                    self.roots[tensor] = self._copy_root(tensor)
                continue
            bodies = tuple(self._expand(b) for b in bodies_of(tensor))
            reason = _COMPUTES
            if isinstance(tensor, Map):
                needed = self._why_memory(tensor, bodies[0])
                if needed is None:
                    self.expanded[tensor] = bodies[0]
                    continue
                reason = needed
            if self.why is not None:
                self.why[tensor] = reason
            self._add_root(tensor, bodies)
        roots = list(dict.fromkeys(self.roots.values()))
        by_buffer: dict[Tensor, Materialized] = {r.buffer: r for r in roots}
        for root in roots:
            for source in root.sources:
                if source in by_buffer:
                    by_buffer[source].readers.append(root)
        if self.separate is None:
            roots = self._join(roots, by_buffer)
        for number, root in enumerate(roots):
            root.order = number
        return roots

    def _join(
        self, roots: list[Materialized], by_buffer: dict[Tensor, Materialized]
    ) -> list[Materialized]:
        """Compute maps inside their one reader that reads each element in one place, if often.

        Such as `x * sigmoid(x)`: only once its parts were joined does `x` have one reader.
        """
        left: list[Materialized] = []
        for root in reversed(roots):
            reader = root.readers[0] if len(root.readers) == 1 else None
            if reader is None or not self._joins(root, reader):
                left.append(root)
                continue
            own, body = indices(root.tensor.shape), root.bodies[0]

            def replace(
                x: Scalar,
                buffer: Buffer = root.buffer,
                own: tuple[Dim, ...] = own,
                body: Scalar = body,
            ) -> Scalar | None:
                if x.tensor is not buffer:
                    return None
                return rewrite(body, atoms=sizes.in_place_of(own, x.at))

            reader.bodies = (rewrite(reader.bodies[0], replace),)
            for source in filter(None, map(by_buffer.get, root.sources)):
                source.readers = list(
                    dict.fromkeys(reader if r is root else r for r in source.readers)
                )
        return left[::-1]

    def _joins(self, root: Materialized, reader: Materialized) -> bool:
        if (
            root.is_output
            or not isinstance(root.tensor, Map)
            or self._residual_codes.met(root.tensor)
        ):
            return False
        if not isinstance(reader.tensor, (Map, Reduce)) or self._recomputes(
            root.tensor, reader.tensor
        ):
            return False
        loads = [x for x in loads_of(reader.bodies[0]) if x.tensor is root.buffer]
        nodes = sum(node_count(r.bodies[0], MOST_NODES) for r in (root, reader))
        same = root.never_changes == reader.never_changes
        if not (same and len(loads) == 1 and nodes < MOST_NODES):
            return False
        return levels_of(root.bodies[0]) + levels_of(reader.bodies[0]) < MOST_LEVELS

    def _copy_root(self, tensor: Buffer) -> Materialized:
        body = load(tensor, indices(tensor.shape))
        copy = Buffer(tensor.shape, tensor.dtype, ("copy", tensor.key))
        return Materialized(tensor, copy, (body,), is_output=True)

    def _add_root(self, tensor: Tensor, bodies: tuple[Scalar, ...]) -> None:
        operands: tuple[Scalar, ...] = ()
        if isinstance(tensor, Call):
            operands = tuple(map(self._operand, tensor.operands))
        is_output = tensor in self.kept
        buffer = Buffer(tensor.shape, tensor.dtype, tensor)
        if not is_output and self._never_changes(tensor, (*bodies, *operands)):
            buffer.constant = COMPUTED
        remark = self.remarks.get(tensor, "")
        self.roots[tensor] = Materialized(
            tensor, buffer, bodies, operands, is_output=is_output, remark=remark
        )

    def _never_changes(self, tensor: Tensor, bodies: tuple[Scalar, ...]) -> bool:
        """Whether the contents are the same in every run, so that readers may pack them."""
        if self.separate is not None or is_host_call(tensor):
            return False
        if isinstance(tensor, Call) and tensor.invocation in self.output_calls:
            return False  # an invocation that writes what the caller gets is part of every run
        sources = [x.tensor for body in bodies for x in loads_of(body)]
        if not all(isinstance(s, Buffer) and s.constant is not None for s in sources):
            return False
        extents = tensor.extents if isinstance(tensor, (Reduce, Contract)) else ()
        return all(isinstance(d, int) for d in (*tensor.shape, *extents))

    def _operand(self, tensor: Tensor) -> Scalar:
        if isinstance(tensor, Buffer):
            return load_in_place(tensor)
        found = self._expand(load_in_place(tensor))
        return found if found.op == "load" else load_in_place(self.roots[tensor].buffer)

    def _expand(self, body: Scalar) -> Scalar:
        def replace(x: Scalar) -> Scalar | None:
            tensor, at = x.tensor, x.at
            if tensor in self.roots and not isinstance(tensor, Buffer):
                return load(self.roots[tensor].buffer, at)
            inner = self.expanded.get(tensor)
            if inner is None:
                return None
            own = indices(tensor.shape)
            if at == own:  # element by element, as most chains are read: it is the same expression
                return inner
            return rewrite(inner, atoms=sizes.in_place_of(own, at))

        return rewrite(body, replace)

    def _why_memory(self, tensor: Map, body: Scalar) -> Reason | None:
        """Why a map needs memory; None where its readers compute it."""
        if tensor in self.kept:
            return _WANTED
        if self.separate is not None and tensor in self.separate:
            return _APART
        readers = self.readers[tensor]
        if any(isinstance(r, Call) for r in readers) and not is_affine_view(body, tensor.shape):
            return _CALLED
        if body.op in ("constant", "size"):
            # A product packs what never changes; without an array it would be no product.
            fixed = all(isinstance(d, int) for d in tensor.shape)
            packed = fixed and any(isinstance(r, Contract) for r in self.reads(tensor))
            return _NUMBERS if packed else None
        if self.integers and self._is_packed(tensor, body):
            return None
        plain = is_plain_operand(body)
        decoded = self.integers and is_decoded(body)
        for reader in self.reads(tensor):
            if isinstance(reader, Contract) and not (
                plain or decoded and reader in self.dequantised
            ):
                return _FACTOR
        if decoded:
            return None
        if body.op == "select" and loads_of(body) and self._never_changes(tensor, (body,)):
            return _JOINED_CONSTANTS  # once, instead of a choice in every run
        if has_long_indices(body):
            return _LONG_INDICES
        if is_view(body) or _only_widens(body):
            if is_long(body):
                return _LONG
            return _GATHERED if self._is_gathered(tensor, body) else None
        if not loads_of(body) and not _costs_more(body, 4):
            return None
        if self.integers and tensor.dtype in CODES and self._residual_codes.has(tensor):
            return _CODES
        if len(self.reads(tensor)) > 1:
            return _SEVERAL
        if is_long(body):
            return _LONG
        if self.integers and tensor.dtype in CODES:
            readers = self.reads(tensor)  # rather codes in memory than what they stand for
        again = _costs_more(body, 1) and any(self._recomputes(tensor, r) for r in readers)
        return _RECOMPUTED if again else None

    def _is_gathered(self, tensor: Map, body: Scalar) -> bool:
        """Whether windows would gather every element once for each of their taps."""
        if body.op != "load" or is_affine_view(body, tensor.shape):
            return False
        return any(
            self._recomputes(tensor, r)
            for r in self.reads(tensor)
            if isinstance(r, Reduce) or (isinstance(r, Contract) and _has_weights(r))
        )

    def _is_packed(self, tensor: Map, body: Scalar) -> bool:
        """Whether it is codes that never change with scales, which products alone read."""
        if weights_of(body) is None or not self._never_changes(tensor, (body,)):
            return False
        return all(
            isinstance(r, Contract) and r not in self.dequantised and packs(r, tensor, is_view)
            for r in self.reads(tensor)
        )

    def _recomputes(self, tensor: Tensor, reader: Tensor) -> bool:
        """Whether the reader reads elements of the tensor more than once each."""
        axes = list(indices(reader.shape))
        if isinstance(reader, (Reduce, Contract)):
            axes += reduced_indices(reader.extents)
        volume = sizes.product(a.arguments[0] for a in map(sizes.as_atom, axes) if a is not None)
        larger = volume - sizes.product(tensor.shape)
        return larger != 0 and not integer.is_nonnegative(-larger)


def _has_weights(tensor: Contract) -> bool:
    """Whether one factor is of constants alone."""
    sources = [[x.tensor for x in loads_of(body)] for body in bodies_of(tensor)]
    return any(
        all(isinstance(t, Buffer) and t.constant is not None for t in tensors)
        for tensors in sources
    )


def find_roots(
    outputs: list[Tensor],
    kept: list[Tensor] | None = None,
    separate: Container[Tensor] | None = None,
    *,
    integers: bool = False,
    reasons: Reasons | None = None,
) -> list[Materialized]:
    """The tensors that get memory, producers before readers.

    Args:
        outputs: What the caller gets, in memory of its own.
        kept: What must lie in memory, a feed or constant where it is.
        separate: For a plan that fuses nothing: what is never computed where it is read. Then
            nothing is computed ahead of a run, either.
        integers: Whether contractions of dequantised codes are going to be sums of integers
            (`integers.as_integers`), which read the codes.
        reasons: Takes why each tensor with memory has it.
    """
    inliner = _Inliner(outputs, kept or [], separate, integers)
    inliner.why = None if reasons is None else {}
    roots = inliner.run()
    if reasons is not None:
        for root in roots:
            why = (inliner.why or {}).get(root.tensor, _WANTED)
            reasons.add(INLINE, root.tensor, why, changed=False)
    return roots
