"""If a change is compatible, data of the writer's schema is valid for the reader's, says the jsonschema
package."""

import json
from random import Random

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from runnel.registry.format import InvalidSchema
from runnel.registry.json_schema import FORMAT, differences
from tests.registry.json_schema.generating import VALIDATORS, Schemas, Values, filled

DRAFTS = st.sampled_from(sorted(VALIDATORS))
RANDOMS = st.randoms(use_true_random=False)


def check(random: Random, draft: int, writer: dict, reader: dict) -> None:
    try:
        new, old = FORMAT.parse(json.dumps(reader)), FORMAT.parse(json.dumps(writer))
    except InvalidSchema as error:
        # Changes may build loops, nothing else.
        assert "itself" in str(error)
        assume(False)
    compatible = not differences(reader=new, writer=old).incompatible
    event("compatible" if compatible else "incompatible")
    if not compatible:
        return
    is_written, is_read = VALIDATORS[draft](writer).is_valid, VALIDATORS[draft](reader).is_valid
    values = Values(random, writer)
    for value in (values.value(writer) for _ in range(10)):
        if is_written(value) and not is_read(value):
            assert any(map(is_read, filled(value, reader, reader))), value


@settings(max_examples=120, deadline=None)
@given(RANDOMS, DRAFTS)
def test_data_of_the_old_schema_is_valid_for_a_compatible_change(random, draft):
    schemas = Schemas(random, draft)
    writer = schemas.document()
    check(random, draft, writer, schemas.changed(writer))


@settings(max_examples=60, deadline=None)
@given(RANDOMS, DRAFTS)
def test_data_of_a_schema_is_valid_for_a_combination_with_it(random, draft):
    schemas = Schemas(random, draft)
    common = [schemas.schema(1, references=False) for _ in range(3)]
    writer, reader = (
        {
            "$schema": schemas.document()["$schema"],
            random.choice(["anyOf", "oneOf", "allOf"]): random.sample(common, random.randint(1, 3)),
            "definitions": {},
        }
        for _ in range(2)
    )
    check(random, draft, writer, reader)


@settings(max_examples=60, deadline=None)
@given(RANDOMS, DRAFTS)
def test_a_schema_is_compatible_with_itself(random, draft):
    """With another title, so that the schemas are compared at all."""
    writer = Schemas(random, draft).document()
    try:
        old, new = FORMAT.parse(json.dumps(writer)), FORMAT.parse(json.dumps({**writer, "title": "new"}))
    except InvalidSchema:
        assume(False)
    assert not differences(reader=new, writer=old).incompatible
