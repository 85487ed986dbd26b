"""Steps of planning that a session may do without; results are the same but for rounding."""

#: Attention becomes one kernel: `plan.attention`.
ATTENTION = "attention"
#: Contractions of dequantised codes are of the codes: `plan.integers`.
INTEGERS = "integers"
#: The orders of axes in memory are chosen: `plan.layout`.
LAYOUTS = "layouts"
