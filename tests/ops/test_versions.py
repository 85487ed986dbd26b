"""Every operator of ONNX, in every version, has a record that takes what its schema says."""

from collections import defaultdict

import onnx.defs
import pytest

from sardonyx.ops import registry

SCHEMAS = sorted(
    (s for s in onnx.defs.get_all_schemas_with_history() if not s.domain and not s.deprecated),
    key=lambda s: (s.name, s.since_version),
)

#: Operators without a record, with the reason.
MISSING = {
    "SequenceMap": "passes/expand.py writes it as a Loop",
}
#: Versions without a record, with the reason.
MISSING_VERSIONS = {("Scan", 8): "not there yet"}


def test_all_operators_have_records():
    without = defaultdict(list)
    for schema in SCHEMAS:
        if registry.find(schema.name, "", schema.since_version) is None:
            without[schema.name].append(schema.since_version)
    for name, version in MISSING_VERSIONS:
        assert without.pop(name, [version]) == [version]
    assert set(without) <= set(MISSING)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.name}-{s.since_version}")
def test_records_take_what_schemas_say(schema):
    record = registry.find(schema.name, "", schema.since_version)
    if record is None:
        return
    assert record.attributes == set(schema.attributes)
    required = {name for name, a in schema.attributes.items() if a.required}
    assert record.required <= required
    assert record.least_inputs <= schema.min_input
    assert record.most_inputs is None or record.most_inputs >= schema.max_input
