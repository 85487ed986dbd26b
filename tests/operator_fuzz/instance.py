"""One operator's instance, and the table of what makes instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.operator_fuzz.draw import Array, Draw, DType


@dataclass(frozen=True)
class Const:
    """An input that must be an initializer."""

    array: Array


@dataclass(frozen=True)
class Fed:
    """An input that must be fed."""

    array: Array


@dataclass(frozen=True)
class Still:
    """An input whose sizes are symbols only where they differ."""

    array: Array


@dataclass
class Instance:
    """A node's inputs in one run, and its attributes.

    Attributes:
        inputs: Arrays, lists of arrays for sequences, None where omitted; see `Const`, `Fed` and
            `Still`.
        attributes: By name; None is left out.
        outputs: Types of the outputs where the schema does not say; None for one left out. The
            schema's if there are none.
        outer: What graphs among the attributes read from outside, by name.
    """

    inputs: list[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[DType | str | None] = ()
    outer: Mapping[str, Array] = field(default_factory=dict)


Generator = Callable[[Draw], Instance]


@dataclass(frozen=True)
class Maker:
    """How instances of an operator are made and compared.

    Attributes:
        generate: Makes an instance.
        exact: Whether no rounding is involved, so that results must be the same.
        own: Whether the oracle computes in the types of the model rather than in double.
        steady: Inputs that random errors must not move, since results jump there.
        factor: How many times as far off as the oracle with random errors.
        absolute: Roundings of the largest result, or of 1, that each result may be off besides.
        coarse: Whether what is computed is rounded to the coarsest type among the inputs.
    """

    generate: Generator
    exact: bool = False
    own: bool = False
    steady: frozenset[int] = frozenset()
    factor: float = 12
    absolute: float = 0
    coarse: bool = False


MAKERS: dict[tuple[str, str], Maker] = {}


def makes(
    *names: str, domain: str = "", steady: Sequence[int] = (), **rules: Any
) -> Callable[[Generator], Generator]:
    """Register the decorated generator for operators."""

    def register(generate: Generator) -> Generator:
        for text in names:
            for name in text.split():
                if (domain, name) in MAKERS:
                    raise ValueError(f"{name} has two generators")
                MAKERS[domain, name] = Maker(generate, steady=frozenset(steady), **rules)
        return generate

    return register
