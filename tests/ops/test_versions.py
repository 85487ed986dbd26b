"""Every operator of ONNX, in every version, has a record that takes what its schema says."""

import pathlib
import subprocess
import sys

import onnx.defs
import pytest

from sardonyx.ops.core import registry
from sardonyx.ops.core.families import FAMILIES
from sardonyx.ops.core.signatures import signature_of
from tests.ops.make_signatures import parameters, types_of

DOCS = pathlib.Path(__file__).parents[2] / "docs"

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


_OF_DOMAINS = """
import sys
from sardonyx.ops.core import registry
before = {}
registry.load("")
for domain in sys.argv[1:]:
    registry.load(domain)
    before[domain] = {key for key in registry._RECORDS if key[0] == domain}
registry.load_all()
for domain, found in before.items():
    late = {key for key in registry._RECORDS if key[0] == domain} - found
    if late or not found:
        sys.exit(f"{late} are in families of another domain")
"""


@pytest.mark.parametrize("turned", [False, True])
def test_a_domain_s_operators_are_in_its_families(turned):
    """What the family of another one brings is missed in one of two orders."""
    domains = list(FAMILIES)[:: -1 if turned else 1]
    command = [sys.executable, "-c", _OF_DOMAINS, *domains]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_IN_ONE_FAMILY = """
import importlib, sys
from sardonyx.ops.core import registry
from sardonyx.ops.core.families import RARE
def versions():
    return {key: len(found) for key, found in registry._RECORDS.items() if not key[0]}
registry.load_frequent()
for family in (*RARE, None):
    before = versions()
    importlib.import_module(f"sardonyx.ops.{family}") if family else registry.load_all()
    later = [key for key, count in versions().items() if before.get(key, count) != count]
    if later or (family is None and versions() != before):
        sys.exit(f"{later}: {family} has further versions, or families are missing")
"""


def test_all_versions_of_an_operator_are_imported_together():
    command = [sys.executable, "-c", _IN_ONE_FAMILY]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.domain}.{s.name}-{s.since_version}")
def test_signatures_allow_what_schemas_allow(schema):
    if schema.name in MISSING:
        return
    signature = signature_of(schema.domain, schema.name, schema.since_version)
    allowed = {c.type_param_str: types_of(c.allowed_type_strs) for c in schema.type_constraints}
    assert [p.mark for p in signature.inputs] == [mark for *_, mark in parameters(schema, "inputs")]
    pairs = zip(signature.inputs, parameters(schema, "inputs"), strict=True)
    for parameter, (_, kind, _) in pairs:
        mine = signature.types.get(parameter.type, {parameter.type})
        assert mine >= allowed.get(kind, types_of([kind]))


def test_the_page_of_operators_is_what_the_command_prints():
    # In a process of its own: other tests add operators.
    command = [sys.executable, "-m", "sardonyx", "operators", "--markdown"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (DOCS / "operators.md").read_text().rstrip() == printed.rstrip(), " ".join(command[1:])
