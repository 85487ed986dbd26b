"""Names of the operations of kernel programs, by how many operands they take."""

from __future__ import annotations

#: Elementwise operations of one operand that keep its type. Float only unless said.
UNARY = frozenset(
    "neg abs sign not sqrt rsqrt reciprocal floor ceil round trunc exp exp2 expm1 log log2 log1p"
    " sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid popcount"
    " ctlz".split()
)
#: Of two operands of one type. `div` and `rem` of integers truncate toward zero; `min` and `max`
#: of floats return NaN if either is NaN; shifts by at least the width give 0 (or the sign).
BINARY = frozenset(
    "add sub mul div rem min max and or xor shl shr pow atan2 copysign add_sat sub_sat".split()
)
COMPARE = frozenset("eq ne lt le gt ge".split())
#: A vector to a scalar. Float sums add lanes pairwise.
REDUCE = frozenset("reduce_add reduce_mul reduce_min reduce_max reduce_and reduce_or".split())
