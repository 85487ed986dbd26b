"""The modules with generators and references."""

FAMILIES = (
    "elementwise",
    "layout",
    "reducing",
    "gathering",
    "products",
    "quantising",
    "normalising",
    "sampling",
    "recurrent",
    "objects",
    "control",
    "learning",
    "trees",
    "encoding",
    "training",
)
