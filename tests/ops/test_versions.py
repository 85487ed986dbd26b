"""Every operator of ONNX, in every version, has a record that takes what its schema says."""

import onnx.defs
import pytest

from sardonyx.ops import registry

SCHEMAS = sorted(
    (s for s in onnx.defs.get_all_schemas_with_history() if not s.deprecated),
    key=lambda s: (s.domain, s.name, s.since_version),
)

#: Operators without a record, with the reason.
MISSING = {
    "SequenceMap": "passes/expand.py writes it as a Loop",
}


def test_all_operators_have_records():
    without = {
        schema.name
        for schema in SCHEMAS
        if registry.find(schema.name, schema.domain, schema.since_version) is None
    }
    assert without == set(MISSING)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.domain}.{s.name}-{s.since_version}")
def test_records_take_what_schemas_say(schema):
    record = registry.find(schema.name, schema.domain, schema.since_version)
    if record is None:
        return
    assert record.attributes == set(schema.attributes)
    required = {name for name, a in schema.attributes.items() if a.required}
    assert record.required <= required
    assert record.least_inputs <= schema.min_input
    assert record.most_inputs is None or record.most_inputs >= schema.max_input
