"""Steps of planning that sessions and providers may do without; results differ by rounding."""

#: Attention becomes one kernel: `plan.attention`.
ATTENTION = "attention"
#: Contractions of dequantised codes are of the codes: `plan.integers`.
INTEGERS = "integers"
#: The orders of axes in memory are chosen: `plan.layout`.
LAYOUTS = "layouts"
#: What loops carry is computed where the next trip reads it: `plan.rings`.
RINGS = "rings"
