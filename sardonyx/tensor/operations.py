"""Names of the elementwise operations that scalars and kernels are made of."""

#: Elementwise operations by arity; names and meanings are those of the kernel language.
UNARY = frozenset(
    "neg abs sign not sqrt rsqrt reciprocal floor ceil round trunc exp exp2 expm1 log log2 log1p"
    " sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid popcount".split()
)
BINARY = frozenset(
    "add sub mul div rem min max and or xor shl shr pow atan2 copysign add_sat sub_sat".split()
)
#: Those that only integers, or only floats, have.
OF_INTEGERS = frozenset("not popcount and or xor shl shr".split())
OF_FLOATS = (UNARY | {"atan2", "copysign"}) - OF_INTEGERS - {"neg", "abs", "sign"}
COMPARE = frozenset("eq ne lt le gt ge".split())
#: What a run refuses data by; the value of each is its first operand where that is right.
CHECKS = frozenset(("check_index", "check_range"))
