"""If a change is compatible, the reader accepts data of the writer: the jsonschema package decides."""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from runnel.registry.format import InvalidSchema
from runnel.registry.json_schema import FORMAT, JsonSchema, differences
from tests.registry.json_schema.generating import DOMAIN, VALIDATORS, Schemas, Values, filled

# A seed makes more varied schemas than the choices of hypothesis, which prefers small ones.
SEEDS = st.integers(0, 2**32)
DRAFTS = st.sampled_from(sorted(VALIDATORS))


def parsed(schema: Any) -> JsonSchema:
    try:
        return FORMAT.parse(json.dumps(schema))
    except InvalidSchema as error:
        # Random references may build loops, nothing else.
        assert "itself" in str(error)
        assume(False)
        raise


def check(draft: int, writer: Any, reader: Any, values: Iterable[Any]) -> None:
    compatible = not differences(reader=parsed(reader), writer=parsed(writer)).incompatible
    event("compatible" if compatible else "incompatible")
    if not compatible:
        return
    is_written, is_read = VALIDATORS[draft](writer).is_valid, VALIDATORS[draft](reader).is_valid
    for value in values:
        if is_written(value) and not is_read(value):
            assert any(map(is_read, filled(value, reader, reader))), (writer, reader, value)


@settings(max_examples=450, deadline=None)
@given(SEEDS, DRAFTS)
def test_data_of_a_schema_is_valid_after_compatible_changes(seed, draft):
    random = Random(seed)
    schemas = Schemas(random, draft)
    writer = schemas.document()
    values = Values(random, writer)
    check(draft, writer, schemas.changed(writer), (values.value(writer) for _ in range(12)))


@settings(max_examples=300, deadline=None)
@given(SEEDS, DRAFTS)
def test_data_of_a_small_schema_is_valid_for_a_compatible_one(seed, draft):
    check(draft, *Schemas(Random(seed), draft).related(), DOMAIN)


@settings(max_examples=80, deadline=None)
@given(SEEDS, DRAFTS)
def test_a_schema_is_compatible_with_itself(seed, draft):
    """With another title, so that the schemas are compared at all."""
    writer = Schemas(Random(seed), draft).document()
    assert not differences(reader=parsed({**writer, "title": "new"}), writer=parsed(writer)).incompatible
