"""How far results may be from what is expected: one table, and the assertion that uses it.

A row is a type and a kind of computation. Its numbers are epsilons of the type: of each expected
value, and besides of 1, or of the largest expected value. A test names a row and no number;
`tests/test_tolerances.py` holds that for calls that compare arrays. What must be equal is compared
with equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: Type -> the distance from 1 to the next larger number.
EPSILONS = {"double": 2.0**-52, "float": 2.0**-23, "half": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class Tolerance:
    """Largest differences, in epsilons.

    Attributes:
        type: Whose epsilon is the unit: the one that sums have, or results if theirs is wider.
        relative: Of each expected value.
        absolute: Of 1.
        why: What such a computation rounds, and how that adds up.
        of_largest: The absolute part is of the largest expected value.
        of_terms: It is of the root of the number of terms in a sum.
    """

    type: str
    relative: float
    absolute: float
    why: str
    of_largest: bool = False
    of_terms: bool = False

    @property
    def rtol(self) -> float:
        """The part of each expected value."""
        return self.relative * EPSILONS[self.type]

    def atol(self, expected: Any = None, terms: int = 1) -> float:
        """The absolute part."""
        bound = self.absolute * EPSILONS[self.type]
        if self.of_largest:
            bound *= float(np.abs(np.asarray(expected, np.float64)).max(initial=0))
        return bound * terms**0.5 if self.of_terms else bound


#: Name -> row. A name begins with the type.
TABLE: dict[str, Tolerance] = {
    "exact": Tolerance("double", 0, 0, "whole numbers, in a helper that else rounds"),
    # Doubles.
    "double: functions": Tolerance(
        "double", 4.5, 4.5, "a function of a double rounds a few times, never as a float"),
    "double: moments": Tolerance(
        "double", 45, 0, "a mean and a variance of tens of numbers, and a root"),
    "double: transforms": Tolerance(
        "double", 45, 45, "each output of a transform is a sum over thousands of terms about 1"),
    "double: windows": Tolerance("double", 45, 180, "sums of nine products, which cancel"),
    "double: sums": Tolerance(
        "double", 4_500, 4_500, "sums of hundreds of products in two orders, then functions"),
    "double: layers": Tolerance(
        "double", 9_000, 9_000, "the evaluator's order of sums is not the one of kernels"),
    "double: sums of images": Tolerance(
        "double", 4_500, 22_500, "sums of tens of products, which cancel"),
    "double: deep sums": Tolerance(
        "double", 0, 4_500, "roundings of a sum of products about 1 wander", of_terms=True),
    "double: derivatives": Tolerance(
        "double", 450_000, 0, "a derivative divides differences of what was summed twice"),
    "double: erf": Tolerance(
        "double", 4.5e9, 4.5e9, "the reference's erf is a series of float's precision"),
    # Floats, of each expected value alone: nothing cancels.
    "float: one operation": Tolerance(
        "float", 8, 0, "a few roundings of one value, none of them made larger"),
    "float: normalised": Tolerance(
        "float", 16, 0, "a sum of positive numbers, by which each is divided"),
    "float: functions": Tolerance(
        "float", 83, 0, "functions of functions, whose arguments' roundings they make larger"),
    "float: sums without cancellation": Tolerance(
        "float", 167, 0, "sums of hundreds of positive products"),
    "float: layers without cancellation": Tolerance(
        "float", 838, 0, "layers in a row whose values are far from zero"),
    # Floats, with what is near zero since terms cancel.
    "float: tables": Tolerance(
        "float", 0.8, 0.8, "numbers that the reference reads from the same table"),
    "float: one operation near zero": Tolerance(
        "float", 8, 8, "a difference of two values about 1, each of which was rounded a few times"),
    "float: short sums": Tolerance(
        "float", 16, 16, "sums of ten products about 1, which may cancel"),
    "float: values of a grid": Tolerance(
        "float", 0, 16, "results between 0 and 1, of ten products"),
    "float: masked attention": Tolerance(
        "float", 83, 16, "weights of tens of keys, and their sum, about 0.1"),
    "float: functions near zero": Tolerance(
        "float", 83, 8, "functions of sums of tens of products, some of which cancel"),
    "float: sums": Tolerance(
        "float", 83, 83, "sums of tens of products about 1, which may cancel"),
    "float: scores": Tolerance(
        "float", 0.8, 83, "sums of tens of products about 1; a score says which class it is"),
    "float: derivatives": Tolerance(
        "float", 167, 16, "sums of hundreds of products, of factors that were computed"),
    "float: kept results": Tolerance(
        "float", 167, 83, "the same sums by code that was kept, in another order"),
    "float: products": Tolerance(
        "float", 167, 167, "sums of hundreds of products about 1, which may cancel"),
    "float: wide sums": Tolerance(
        "float", 167, 1_677, "thousands of products about 1 beyond the reach of padding"),
    "float: large sums": Tolerance(
        "float", 83, 838, "sums whose terms are about 10, and cancel"),
    "float: codes times scales": Tolerance(
        "float", 83, 8_388, "whole numbers to 1,000 times scales"),
    "float: programs": Tolerance(
        "float", 0.8, 167, "outputs of a small network, about 1"),
    "float: probabilities of programs": Tolerance(
        "float", 0.8, 419, "a softmax over the outputs of a network"),
    "float: layers near zero": Tolerance(
        "float", 838, 83, "layers in a row: each makes the roundings before it larger"),
    "float: outputs of layers": Tolerance(
        "float", 0.8, 838, "layers in a row, results about 1"),
    "float: layers": Tolerance(
        "float", 838, 838, "layers in a row, each with sums of hundreds of products"),
    "float: sums that cancel": Tolerance(
        "float", 838, 838, "sums of tens of terms, far greater than what is left of them"),
    "float: interpolation": Tolerance(
        "float", 1_677, 1_677, "weights of coordinates that were computed, and rounded, as floats"),
    "float: rounded weights": Tolerance(
        "float", 8_388, 8_388, "weights or feeds are halves or codes: each product is rounded"),
    "float: approximations": Tolerance(
        "float", 8_388, 8_388, "a Gelu by tanh is 5e-4 off, and what follows makes that no larger"),
    "float: coupled probabilities": Tolerance(
        "float", 41_900, 41_900, "an iteration over pairs of classes ends when little changes"),
    "float: windows": Tolerance("float", 16, 67, "sums of nine products, which cancel"),
    "float: codes of a state": Tolerance(
        "float", 0.8, 16_777, "a rounding on the edge moves a code of the state by one"),
    "float: sines": Tolerance(
        "float", 0, 838, "sines of numbers up to 100 by another library"),
    "float: transforms": Tolerance(
        "float", 33, 33, "sums of hundreds of terms about 1, in steps"),
    "float: halves within": Tolerance(
        "float", 0, 838, "codes whose scales are halves: their products are exact, sums are not"),
    "float: attention": Tolerance(
        "float", 1_677, 167, "a softmax of sums, and sums of what it weighs"),
    "float: many steps": Tolerance(
        "float", 1_677, 1_677, "steps that begin with what those before gave"),
    "float: which result it is": Tolerance(
        "float", 8_388, 8_388, "results of other feeds or sessions are far off"),
    "float: tuned": Tolerance(
        "float", 8_388, 83, "settings that were found may round otherwise"),
    "float: deep sums": Tolerance(
        "float", 0, 16, "roundings of a sum of products about 1 wander", of_terms=True),
    # Floats, of the largest expected value.
    "float: long transforms": Tolerance(
        "float", 0, 8, "a transform of thousands of numbers, of the largest result", True),
    "float: direct sums": Tolerance(
        "float", 0, 16, "sums of hundreds of products, of the largest", True),
    "float: Winograd's sums": Tolerance(
        "float", 0, 83, "tiles of 6 by 6 add and subtract up to 36 sums", True),
    "float: shifted sums": Tolerance(
        "float", 83, 83, "sums beside a border, of the largest", True),
    "float: spectra": Tolerance(
        "float", 0.8, 251, "windows times waves, of the largest", True),
    "float: models": Tolerance(
        "float", 838, 8_388, "whole models, of the largest output", True),
    # Factors of which eleven bits are multiplied.
    "tf32: products": Tolerance("half", 2, 4, "factors are rounded to eleven bits, and cancel"),
    # Halves: results are rounded once, what is kept between is, too.
    "half: one rounding": Tolerance("half", 1, 1, "sums are floats, the result is rounded once"),
    "half: two roundings": Tolerance("half", 2, 2, "one step between is a half, too"),
    "half: sums of images": Tolerance("half", 2, 10, "one step between is a half; sums cancel"),
    "half: windows": Tolerance("half", 2, 8, "sums of nine products, which cancel"),
    "half: three roundings": Tolerance("half", 3, 3, "two steps between are halves"),
    "half: some roundings": Tolerance("half", 4, 4, "weights and sums of attention are halves"),
    "half: some roundings about 1": Tolerance("half", 0, 4, "weights of attention are halves"),
    "half: functions": Tolerance("half", 5, 5, "functions of halves that are rounded first"),
    "half: attention": Tolerance("half", 8, 8, "queries, keys, weights and sums are halves"),
    "half: layers": Tolerance("half", 10, 10, "layers in a row whose results are halves"),
    "half: gates": Tolerance("half", 20, 20, "products of gates, each a function of a half"),
    "half: layers near zero": Tolerance("half", 10, 20, "layers in a row whose values cancel"),
    "half: differences": Tolerance("half", 20, 2, "a derivative of what was rounded to halves"),
    "half: indexers": Tolerance("half", 40, 40, "sums of tens of products of rounded halves"),
    "half: experts": Tolerance("half", 51, 51, "experts in a row, with codes of 4 bits"),
    "bfloat16: one rounding": Tolerance("bfloat16", 1.2, 1.2, "the result is rounded once"),
    "bfloat16: products": Tolerance("bfloat16", 2.5, 2.5, "factors and results are rounded"),
    "bfloat16: attention": Tolerance("bfloat16", 3.8, 3.8, "weights and sums are bfloat16s"),
    "bfloat16: pages": Tolerance("bfloat16", 5, 5, "keys, queries, weights and sums are"),
    # Floats of one byte, of which an epsilon is an eighth or more.
    "byte: one rounding": Tolerance("bfloat16", 16, 16, "results are rounded to three bits"),
}  # fmt: skip
#: Bytes of a float -> the row of an operator alone, compared with its equation.
OF_AN_OPERATOR = {
    8: "double: layers", 4: "float: products", 2: "half: some roundings", 1: "byte: one rounding",
}  # fmt: skip


def assert_near(
    actual: Any, expected: Any, like: str, err_msg: str = "", *, terms: int = 1
) -> None:
    """Fail unless each value is as near to the expected one as the row `like` says.

    Args:
        actual: What was computed.
        expected: What is right.
        like: The kind of computation, a name of `TABLE`.
        err_msg: Said besides.
        terms: How many products a sum has, where the row counts them.
    """
    row = TABLE[like]
    np.testing.assert_allclose(
        actual, expected, rtol=row.rtol, atol=row.atol(expected, terms), err_msg=err_msg
    )


def is_near(actual: Any, expected: Any, like: str) -> bool:
    """Whether `assert_near` would not fail."""
    row = TABLE[like]
    return bool(np.allclose(actual, expected, rtol=row.rtol, atol=row.atol(expected)))
