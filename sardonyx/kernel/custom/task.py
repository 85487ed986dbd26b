"""What a special kernel is given: views of its operands and outputs, and the facts of its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sardonyx.base.dtypes import DType
from sardonyx.base.errors import EngineError, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.tensor.tensor import Buffer


@dataclass(frozen=True, slots=True)
class View:
    """An operand or output in place: element (i, ...) lies at `offset + i * strides[0] + ...`."""

    buffer: Buffer
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class CustomTask:
    """One invocation of a special kernel."""

    name: str
    operands: tuple[View, ...]
    outputs: tuple[View | None, ...]
    attributes: tuple[tuple[str, object], ...]
    lanes: int

    def attribute(self, name: str, default: object = None) -> object:
        """A compile-time fact given by the lowering."""
        return dict(self.attributes).get(name, default)

    def integer(self, name: str) -> int:
        """Such a fact that is a whole number."""
        found = self.attribute(name)
        assert isinstance(found, int)  # noqa: S101 - lowerings check attributes before
        return found


SpecialBuilder = Callable[[CustomTask, str], Kernel]

_BUILDERS: dict[str, SpecialBuilder] = {}


#: Kernels that work in all their outputs, whether anything reads them or not.
_NEED_ALL: set[str] = set()


def special(name: str, *, needs_all: bool = False) -> Callable[[SpecialBuilder], SpecialBuilder]:
    """Register the builder of the special kernel `name`: `build(task, symbol) -> Kernel`.

    Args:
        name: What `make_call` calls it.
        needs_all: Give outputs memory that nothing reads, too; else the task has None for them.
    """

    def add(build: SpecialBuilder) -> SpecialBuilder:
        _BUILDERS[name] = build
        if needs_all:
            _NEED_ALL.add(name)
        return build

    return add


def needs_all_outputs(name: str) -> bool:
    """Whether a kernel works in outputs that nothing reads."""
    return name in _NEED_ALL


def special_names() -> Iterable[str]:
    """All names that have a builder."""
    return _BUILDERS.keys()


def builder_of(name: str) -> SpecialBuilder:
    """The builder of a special kernel."""
    found = _BUILDERS.get(name)
    if found is None:
        raise EngineError(message("plan", f"There is no special kernel called {name!r}"))
    return found
