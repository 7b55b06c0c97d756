"""Whatever a client sends is decided or refused; nothing else happens."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.registry.configuration import set_config, set_mode
from runnel.registry.errors import RegistryError
from runnel.registry.registration import register
from tests.registry.world import VERDICTS, World

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.sampled_from(['"int"', '{"type":"string","doc":"\\ud800"}', "{", "[]"]) | VALUES.map(json.dumps)
NAMED = st.lists(st.fixed_dictionaries({"name": st.sampled_from(["a", "b", ""]) | VALUES}), max_size=2)
RULES = st.fixed_dictionaries({}, optional={"domainRules": NAMED | VALUES, "x": NAMED | VALUES})
FIELDS = {
    "schema": TEXTS | VALUES,
    "schemaType": st.sampled_from(["AVRO", "avro", "XML"]) | VALUES,
    "references": st.lists(st.fixed_dictionaries({"name": VALUES, "subject": VALUES, "version": VALUES}))
    | VALUES,
    "metadata": st.fixed_dictionaries({"properties": VALUES, "tags": VALUES}) | VALUES,
    "ruleSet": RULES | VALUES,
    "id": VALUES,
    "version": VALUES,
    "compatibility": VALUES,
    "compatibilityLevel": VALUES,
    "mode": VALUES,
    "alias": VALUES,
    "normalize": VALUES,
    "defaultMetadata": VALUES,
    "defaultRuleSet": RULES | VALUES,
    "overrideRuleSet": RULES | VALUES,
    "compatibilityGroup": VALUES,
}
BODIES = st.fixed_dictionaries({}, optional=FIELDS) | VALUES


@settings(max_examples=200)
@given(st.text(max_size=4), BODIES, BODIES, BODIES)
def test_any_request_is_decided_or_refused(subject, settings_body, first, second):
    world = World()
    for call, body in (
        (set_config, settings_body),
        (set_mode, settings_body),
        (register, first),
        (register, second),
    ):
        options = {"verdicts": VERDICTS} if call is register else {}
        try:
            answer = world.do(call, subject, body, **options)
        except RegistryError as error:
            assert 400 <= error.status < 500
        else:
            json.dumps(answer)
    world.restarted()
