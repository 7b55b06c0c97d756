import io
import json
from typing import Any

import avro.compatibility
import avro.schema
import fastavro
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runnel.registry.avro import FORMAT
from runnel.registry.avro.limits import FINDINGS_MAX
from runnel.registry.format import InvalidSchema
from tests.registry.avro.cases import CASES, OF_PRIMITIVES, Case
from tests.registry.avro.schemas import evolved_schemas, values_of

# What avro's checker decides otherwise, and why that is not right.
DIFFERS = {
    "an alias with the wrong namespace": "it compares aliases as they are written, without their namespace",
    "an empty union of the writer": "it cannot parse it",
    "an empty union of the reader": "it cannot parse it",
}


def parsed(schema: Any):
    return FORMAT.parse(json.dumps(schema))


def test_the_table_has_at_least_60_cases_beside_the_primitive_types():
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES + OF_PRIMITIVES, ids=lambda case: case.name)
def test_findings(case: Case):
    found = parsed(case.reader).incompatibilities(parsed(case.writer))

    assert [(one.kind, one.path) for one in found] == list(case.findings)


@pytest.mark.parametrize(
    "case", [case for case in CASES + OF_PRIMITIVES if case.name not in DIFFERS], ids=lambda case: case.name
)
def test_avro_agrees(case: Case):
    reader, writer = (avro.schema.parse(json.dumps(one)) for one in (case.reader, case.writer))

    verdict = avro.compatibility.ReaderWriterCompatibilityChecker().get_compatibility(reader, writer)

    is_compatible = verdict.compatibility is avro.compatibility.SchemaCompatibilityType.compatible
    assert is_compatible is not bool(case.findings)


@settings(max_examples=60)
@given(evolved_schemas(), st.data())
def test_data_of_the_writer_is_readable_if_the_verdict_says_so(pair, data):
    reader, writer = pair
    assume(not parsed(reader).incompatibilities(parsed(writer)))
    value = data.draw(values_of(writer))
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(writer), value)
    written.seek(0)

    fastavro.schemaless_reader(written, fastavro.parse_schema(writer), fastavro.parse_schema(reader))

    assert not written.read()


@settings(max_examples=50)
@given(evolved_schemas())
def test_every_finding_has_a_kind_a_path_of_the_reader_and_a_message(pair):
    reader, writer = (parsed(one) for one in pair)
    for finding in reader.incompatibilities(writer):
        assert finding.kind.isupper()
        assert finding.message
        at: Any = json.loads(reader.text)
        for part in finding.path.split("/")[1:] if finding.path != "/" else ():
            at = at[int(part)] if isinstance(at, list) else at[part]


def test_messages_name_the_field_and_the_reason():
    writer = parsed({"type": "record", "name": "Order", "fields": [{"name": "price", "type": "string"}]})
    fields = [{"name": "price", "type": "int"}, {"name": "currency", "type": "string"}]
    reader = parsed({"type": "record", "name": "Order", "fields": fields})

    assert [finding.message for finding in reader.incompatibilities(writer)] == [
        "field currency of Order is not written, and the reader has no default for it",
        "field price: the reader's type int cannot read the writer's type string",
    ]


def test_types_that_are_too_many_to_compare_are_refused():
    def union(prefix: str) -> list[Any]:
        # Names compare unqualified, so each branch may read each.
        return [
            {"type": "record", "name": f"{prefix}{number}.R", "fields": [{"name": "a", "type": "int"}]}
            for number in range(200)
        ]

    with pytest.raises(InvalidSchema, match="too complex"):
        parsed(union("a")).incompatibilities(parsed(union("b")))


def test_large_unions_are_compared():
    def union(kind: str) -> list[Any]:
        return [
            {"type": "record", "name": f"R{number}", "fields": [{"name": "a", "type": kind}]}
            for number in range(1000)
        ]

    assert parsed(union("long")).incompatibilities(parsed(union("int"))) == []
    assert len(parsed(union("int")).incompatibilities(parsed(union("long")))) == FINDINGS_MAX


def test_a_long_chain_of_types_is_compared_without_recursion():
    def chain(last: str) -> list[Any]:
        links: list[Any] = [{"type": "record", "name": "L0", "fields": [{"name": "a", "type": last}]}]
        links += [
            {"type": "record", "name": f"L{number}", "fields": [{"name": "a", "type": f"L{number - 1}"}]}
            for number in range(1, 3000)
        ]
        return [
            {
                "type": "record",
                "name": "Top",
                "fields": [{"name": f"f{n}", "type": link} for n, link in enumerate(links)],
            }
        ]

    [reader], [writer] = chain("int"), chain("string")
    found = parsed(reader).incompatibilities(parsed(writer))
    assert found[0].path == "/fields/0/type/fields/0/type"
    assert len(found) <= FINDINGS_MAX
