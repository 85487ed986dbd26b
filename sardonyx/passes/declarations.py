"""What the file declares of values that are computed, compared with what is true.

Nothing relies on it. Where it is wrong the file is suspect, which the log says once.
"""

from __future__ import annotations

from sardonyx.base.log import get_logger
from sardonyx.base.object_types import ObjectType
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value

_logger = get_logger("passes")
#: So many wrong declarations are named.
_NAMED = 3


def check_declarations(graph: Graph) -> int:
    """Warn of declared types and shapes that inference contradicts; gives their number."""
    wrong = [text for node in graph.walk() for v in node.outputs if (text := _contradiction(v))]
    if wrong:
        rest = f", and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        named = "; ".join(wrong[:_NAMED])
        _logger.warning("The model declares wrong types or shapes, not used: %s%s", named, rest)
    return len(wrong)


def _contradiction(value: Value) -> str:
    """What is declared and what is true, or "" if they agree as far as both are known."""
    said = value.declared
    if said is None or value.dtype is None or value.shape is None:
        return ""
    if (said.kind == "tensor") == isinstance(value.dtype, ObjectType):
        return f"{value.name} is {value.dtype.type_text}, not {said}"
    if said.kind != "tensor":
        return ""
    wrong_type = said.dtype is not None and said.dtype is not value.dtype
    # No sizes at all is what some exporters write for sizes that they do not know.
    wrong_shape = bool(said.shape) and (
        len(said.shape or ()) != len(value.shape)
        or any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(said.shape or (), value.shape, strict=True)
        )
    )
    if not wrong_type and not wrong_shape:
        return ""
    return (
        f"{value.name} is {value.dtype}{list(value.shape)}, "
        f"not {said.dtype or 'anything'}{list(said.shape or ())}"
    )
