import json

import pytest

from runnel.registry import lookup
from runnel.registry.configuration import config, delete_config, delete_mode, mode, set_config, set_mode
from runnel.registry.deletion import delete_context, delete_subject, delete_version
from runnel.registry.errors import RegistryError
from runnel.registry.limits import NESTING_MAX, SCHEMA_BYTES_MAX
from runnel.registry.registration import register
from runnel.registry.settings import LEVELS
from tests.registry.world import World, nested, record_of

A = record_of("a")
AB = record_of("a", "b")
AB_DEFAULT = {**A, "fields": [*A["fields"], {"name": "b", "type": "int", "default": 0}]}
TEXT_A = json.dumps(A, separators=(",", ":"))


@pytest.fixture
def world() -> World:
    return World()


def refused(code: int, call, *arguments, **options) -> RegistryError:
    with pytest.raises(RegistryError) as error:
        call(*arguments, **options)
    assert error.value.code == code, error.value.message
    return error.value


# Registering.


def test_the_first_schema_has_id_and_version_1(world):
    found = world.register("s", A)

    assert found == {"subject": "s", "version": 1, "id": 1, "guid": found["guid"], "schema": TEXT_A}
    assert len(found["guid"]) == 36


def test_records_are_byte_for_byte_those_of_confluent(world):
    world.register("s", "string")
    world.do(set_config, None, {"compatibility": "FULL"})
    world.do(set_config, "s", {"compatibility": "NONE"})
    world.do(set_mode, "s", {"mode": "READONLY"})
    world.do(set_mode, "s", {"mode": "READWRITE"})
    world.do(delete_version, "s", "1")
    world.do(delete_version, "s", "1", permanent=True)

    assert [(one.key.decode(), one.value and one.value.decode()) for one in world.log] == [
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            '{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
        ),
        ('{"keytype":"CONFIG","magic":0}', '{"compatibilityLevel":"FULL"}'),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', '{"subject":"s","compatibilityLevel":"NONE"}'),
        ('{"keytype":"MODE","subject":"s","magic":0}', '{"subject":"s","mode":"READONLY"}'),
        ('{"keytype":"MODE","subject":"s","magic":0}', '{"subject":"s","mode":"READWRITE"}'),
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            '{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":true}',
        ),
        ('{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
        ('{"keytype":"CONFIG","subject":"s","magic":0}', None),
        ('{"keytype":"MODE","subject":"s","magic":0}', None),
        ('{"keytype":"NOOP","magic":0}', '{"highestIds":{".":1}}'),
    ]


def test_the_same_schema_is_registered_once(world):
    first = world.register("s", A)

    assert world.register("s", {"schema": json.dumps(A, indent=4)}) == first
    assert len(world.log) == 1


def test_subjects_of_a_context_share_ids(world):
    assert world.register("s", A)["id"] == 1
    assert world.register("t", A)["id"] == 1
    assert world.register("t", AB_DEFAULT)["id"] == 2
    assert [one.place for one in lookup.uses_of_id(world.state, 1)] == [("s", 1), ("t", 1)]


def test_contexts_have_ids_of_their_own(world):
    world.register("s", A)
    world.register("s", AB_DEFAULT)

    assert world.register(":.other:s", AB_DEFAULT)["id"] == 1
    assert lookup.by_id(world.state, 1, ":.other:").subject == ":.other:s"
    assert lookup.by_id(world.state, 1).subject == "s"
    assert lookup.contexts(world.state) == [".", ".other"]
    assert lookup.subjects(world.state) == [":.other:s", "s"]
    assert lookup.subjects(world.state, prefix=":.other:") == [":.other:s"]
    assert lookup.subjects(world.state, prefix="") == ["s"]
    assert lookup.subjects(world.state, prefix=":*:s") == [":.other:s", "s"]
    assert world.register(":.:s", A)["subject"] == "s"


def test_metadata_and_rules_are_part_of_a_schema(world):
    given = {
        "schema": TEXT_A,
        "metadata": {"properties": {"owner": "x"}},
        "ruleSet": {"domainRules": [{"name": "r"}]},
    }
    first = world.register("s", A)
    second = world.register("s", given)

    assert (second["id"], second["version"]) == (2, 2)
    assert second["metadata"] == given["metadata"]
    assert second["ruleSet"] == given["ruleSet"]
    assert first["guid"] != second["guid"]
    # What is not given is inherited.
    assert world.register("s", A) == second
    assert world.look_up("s", A)["version"] == 1
    assert lookup.latest_with_metadata(world.state, "s", [("owner", "x")]).version == 2


def test_settings_add_metadata_and_rules(world):
    world.do(
        set_config,
        "s",
        {
            "defaultMetadata": {"properties": {"a": "1", "b": "1"}},
            "overrideMetadata": {"properties": {"c": "3"}},
            "overrideRuleSet": {"domainRules": [{"name": "r", "kind": "CONDITION"}]},
        },
    )
    found = world.register("s", {"schema": TEXT_A, "metadata": {"properties": {"b": "2", "c": "2"}}})

    assert found["metadata"] == {"properties": {"a": "1", "b": "2", "c": "3"}}
    assert found["ruleSet"] == {"domainRules": [{"name": "r", "kind": "CONDITION"}]}


def test_normalize_sorts_and_dedups_references(world):
    for name in ("X", "Y"):
        world.register(name, record_of(name=name))
    one, other = ({"name": name, "subject": name, "version": 1} for name in ("X", "Y"))
    fields = '[{"name":"x","type":"X"},{"name":"y","type":"Y"}]'
    text = f'{{"type":"record","namespace":"n","name":"R","fields":{fields}}}'
    found = world.register("s", {"schema": text, "references": [other, one, other]}, normalize=True)

    assert found["references"] == [one, other]
    assert json.loads(found["schema"])["name"] == "n.R"


def test_a_configured_normalization(world):
    world.do(set_config, "s", {"normalize": True})

    assert (
        world.register("s", {"schema": '{"type":"enum","namespace":"n","name":"E","symbols":["A"]}'})[
            "schema"
        ]
        == '{"name":"n.E","type":"enum","symbols":["A"]}'
    )


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (None, 422),
        ([], 422),
        ({}, 42201),
        ({"schema": ""}, 42201),
        ({"schema": 1}, 42201),
        ({"schema": "{"}, 42201),
        ({"schema": TEXT_A, "schemaType": "XML"}, 42201),
        ({"schema": TEXT_A, "schemaType": 1}, 422),
        ({"schema": TEXT_A, "references": {}}, 422),
        ({"schema": TEXT_A, "references": [{}]}, 422),
        ({"schema": TEXT_A, "references": [{"name": "x", "subject": "x", "version": 1}]}, 42201),
        ({"schema": TEXT_A, "references": [{"name": "x", "subject": "x", "version": -1}]}, 42201),
        ({"schema": TEXT_A, "metadata": 1}, 422),
        ({"schema": TEXT_A, "metadata": nested(NESTING_MAX + 1)}, 422),
        ({"schema": TEXT_A, "metadata": nested(100_000)}, 422),
        ({"schema": TEXT_A, "ruleSet": nested(NESTING_MAX + 1)}, 42210),
        ({"schema": TEXT_A, "ruleSet": 1}, 42210),
        ({"schema": TEXT_A, "ruleSet": {"domainRules": [{}]}}, 42210),
        ({"schema": TEXT_A, "ruleSet": {"domainRules": [{"name": "a"}, {"name": "a"}]}}, 42210),
        ({"schema": TEXT_A, "ruleSet": {"otherRules": [1]}}, 42210),
        ({"schema": TEXT_A, "ruleSet": {"otherRules": [{"name": []}]}}, 42210),
        ({"schema": TEXT_A, "ruleSet": {"domainRules": 0}}, 42210),
        ({"schema": TEXT_A, "id": 5}, 42205),
        ({"schema": TEXT_A, "version": 5}, 42201),
        ({"schema": TEXT_A, "id": "x"}, 422),
        ({"schema": '"' + "x" * SCHEMA_BYTES_MAX + '"'}, 42209),
    ],
)
def test_refused_registrations(world, given, code):
    refused(code, world.do, register, "s", given)
    assert world.log == []


@pytest.mark.parametrize("default", [[], [{"name": "a"}], {}, "text", 1, None])
@pytest.mark.parametrize("given", [[], [{"name": "a", "kind": "x"}, {"name": "b"}], {}, "text", 1, None])
def test_unknown_fields_of_rules_and_metadata_are_merged(world, default, given):
    world.do(set_config, "s", {"defaultRuleSet": {"x": default}, "defaultMetadata": {"x": default}})
    found = world.register("s", {"schema": TEXT_A, "ruleSet": {"x": given}, "metadata": {"x": given}})

    expected = default if given is None else given
    if isinstance(given, list) and given and isinstance(default, list):
        assert found["ruleSet"] == {"x": given}
        assert found["metadata"] == {"x": [*default, *given]}
    elif given == [] and isinstance(default, list):
        assert found["ruleSet"] == found["metadata"] == {"x": default}
    else:
        assert found["ruleSet"] == found["metadata"] == ({} if expected is None else {"x": expected})


def test_metadata_and_rules_of_all_levels_are_replayed(world):
    given = {"schema": TEXT_A, "metadata": nested(NESTING_MAX), "ruleSet": nested(NESTING_MAX)}
    found = world.register("s", given)

    assert lookup.version(world.restarted().state, "s", "1").content.guid == found["guid"]


@pytest.mark.parametrize(
    "subject", ["", "a\nb", "a\x7f", "__GLOBAL", "__EMPTY", ":.c:", "x" * 1001, "\ud800"]
)
def test_refused_subjects(world, subject):
    refused(42208, world.register, subject, A)


# Compatibility.

LEVEL_CASES = [
    # level, a field with default added, one without default added, one removed
    ("NONE", True, True, True),
    ("BACKWARD", True, False, True),
    ("FORWARD", True, True, False),
    ("FULL", True, False, False),
]


@pytest.mark.parametrize("suffix", ["", "_TRANSITIVE"])
@pytest.mark.parametrize(("level", "with_default", "without", "removed"), LEVEL_CASES)
def test_levels(world, level, suffix, with_default, without, removed):
    level = level if level == "NONE" else level + suffix
    assert level in LEVELS
    world.do(set_config, None, {"compatibility": level})
    world.register("s", A)

    for schema, expected in ((AB_DEFAULT, with_default), (AB, without), (record_of(), removed)):
        verdict = world.check("s", schema, version="latest", verbose=True)
        assert verdict["is_compatible"] is expected
        assert bool(verdict["messages"]) is not expected
        assert world.check("s", schema) == {"is_compatible": expected}
        if not expected:
            refused(409, world.register, "s", schema)


def test_transitive_levels_compare_with_all_versions(world):
    world.do(set_config, "s", {"compatibility": "NONE"})
    world.register("s", A)
    world.register("s", "string")
    world.register("s", AB_DEFAULT)
    world.do(set_config, "s", {"compatibility": "BACKWARD"})

    assert world.check("s", AB)["is_compatible"]
    world.do(set_config, "s", {"compatibility": "BACKWARD_TRANSITIVE"})
    verdict = world.check("s", AB, verbose=True)
    assert not verdict["is_compatible"]
    assert "{oldSchemaVersion: 2}" in verdict["messages"]
    assert world.check("s", AB, version="3")["is_compatible"]
    assert not world.check("s", AB, version="1")["is_compatible"]


def test_messages_name_field_reason_version_and_level(world):
    world.register("s", A)

    error = refused(409, world.register, "s", AB)

    assert "field b of R is not written, and the reader has no default for it" in error.message
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in error.message
    assert "{oldSchemaVersion: 1}" in error.message
    assert "{compatibility: 'BACKWARD'}" in error.message


def test_deleted_versions_are_not_compared_with(world):
    world.register("s", A)
    world.do(delete_version, "s", "1")

    assert world.register("s", "string")["version"] == 2


def test_force_skips_compatibility(world):
    world.register("s", A)

    assert world.register("s", "string", force=True)["version"] == 2


def test_a_compatibility_group_separates_versions(world):
    world.do(set_config, "s", {"compatibilityGroup": "major"})

    def versioned(schema, major):
        return {"schema": json.dumps(schema), "metadata": {"properties": {"major": major}}}

    world.register("s", versioned(A, "1"))
    assert world.register("s", versioned("string", "2"))["version"] == 2
    refused(409, world.register, "s", versioned("string", "1"))


def test_checks_of_what_does_not_exist(world):
    assert world.check("s", A, version="latest") == {"is_compatible": True}
    assert world.check("s", A) == {"is_compatible": True}
    refused(40401, world.check, "s", A, version="1")
    world.register("s", A)
    refused(40402, world.check, "s", A, version="2")
    refused(42202, world.check, "s", A, version="x")


# Lookup.


def test_lookup_by_content(world):
    refused(40401, world.look_up, "s", A)
    first = world.register("s", A)

    assert world.look_up("s", {"schema": json.dumps(A, indent=2)}) == first
    refused(40403, world.look_up, "s", AB)
    world.do(delete_subject, "s")
    refused(40401, world.look_up, "s", A)
    assert world.look_up("s", A, deleted=True)["deleted"] is True


def test_lookup_by_version(world):
    world.register("s", A)
    world.register("s", AB_DEFAULT)
    world.do(delete_version, "s", "2")

    assert lookup.version(world.state, "s", "latest").version == 1
    assert lookup.version(world.state, "s", "-1", deleted=True).version == 2
    refused(40402, lookup.version, world.state, "s", "2")
    refused(40402, lookup.version, world.state, "s", "3", deleted=True)
    refused(40401, lookup.version, world.state, "t", "1")
    for text in ("0", "x", "-2", "", "2147483648", "٣", "1" * 5000):
        refused(42202, lookup.version, world.state, "s", text)


def test_listings(world):
    for subject in ("a", "b", "c"):
        world.register(subject, A)
        world.register(subject, AB_DEFAULT)
    world.do(delete_version, "a", "1")
    world.do(delete_subject, "b")
    state = world.state

    assert lookup.subjects(state) == ["a", "c"]
    assert lookup.subjects(state, deleted=True) == ["a", "b", "c"]
    assert lookup.subjects(state, deleted_only=True) == ["b"]
    assert lookup.subjects(state, deleted=True, offset=1, limit=1) == ["b"]
    assert lookup.versions(state, "a") == [2]
    assert lookup.versions(state, "a", deleted=True) == [1, 2]
    assert lookup.versions(state, "a", deleted_only=True) == [1]
    assert lookup.versions(state, "a", deleted_as_negative=True) == [-1, 2]
    refused(40401, lookup.versions, state, "b")
    assert [one.place for one in lookup.schemas(state)] == [("a", 2), ("c", 1), ("c", 2)]
    assert [one.place for one in lookup.schemas(state, latest_only=True)] == [("a", 2), ("c", 2)]
    assert [one.place for one in lookup.schemas(state, deleted=True, prefix="b", limit=1)] == [("b", 1)]


def test_guids(world):
    found = world.register("s", A)
    world.register(":.c:s", AB_DEFAULT)
    world.register(":.c:s", A, force=True)

    assert lookup.ids_of_guid(world.state, found["guid"]) == [
        {"context": ".", "id": 1},
        {"context": ".c", "id": 2},
    ]
    refused(40403, lookup.by_guid, world.state, "x")


def test_an_alias_is_another_name(world):
    world.register("s", A)
    world.do(set_config, "t", {"alias": "s"})

    assert lookup.version(world.state, "t", "1").subject == "s"
    assert world.look_up("t", A)["subject"] == "s"


# Deletion.


def test_soft_then_hard_deletion_of_a_subject(world):
    refused(40401, world.do, delete_subject, "s")
    world.register("s", A)
    world.register("s", AB_DEFAULT)
    refused(40405, world.do, delete_subject, "s", permanent=True)

    assert world.do(delete_subject, "s") == [1, 2]
    refused(40404, world.do, delete_subject, "s")
    assert lookup.by_id(world.state, 1).is_deleted
    assert world.do(delete_subject, "s", permanent=True) == [1, 2]
    refused(40401, world.do, delete_subject, "s", permanent=True)
    refused(40403, lookup.by_id, world.state, 1)


def test_soft_then_hard_deletion_of_a_version(world):
    refused(40401, world.do, delete_version, "s", "1")
    world.register("s", A)
    world.register("s", AB_DEFAULT)
    refused(40407, world.do, delete_version, "s", "1", permanent=True)
    refused(40402, world.do, delete_version, "s", "3")

    assert world.do(delete_version, "s", "latest") == 2
    refused(40406, world.do, delete_version, "s", "2")
    assert world.do(delete_version, "s", "2", permanent=True) == 2
    refused(40402, world.do, delete_version, "s", "2", permanent=True)
    assert lookup.versions(world.state, "s", deleted=True) == [1]


def test_a_deleted_schema_that_is_registered_again_has_its_id_and_a_new_version(world):
    world.register("s", A)
    world.do(delete_version, "s", "1")

    found = world.register("s", A)

    assert (found["id"], found["version"]) == (1, 2)
    assert lookup.versions(world.state, "s", deleted=True) == [2]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_ids_of_removed_schemas_are_not_assigned_again(world, is_restarted):
    world.register("s", A)
    world.register("t", AB)
    world.do(delete_subject, "t")
    world.do(delete_subject, "t", permanent=True)
    after = world.restarted() if is_restarted else world

    assert after.register("u", record_of("c"))["id"] == 3
    assert after.register("t", AB)["version"] == 1


def test_referenced_versions_cannot_be_deleted(world):
    world.register("base", record_of("x", name="Base"))
    reference = {"name": "Base", "subject": "base", "version": -1}
    text = '{"type":"record","name":"R","fields":[{"name":"b","type":"Base"}]}'
    found = world.register("s", {"schema": text, "references": [reference]})

    assert found["references"] == [{**reference, "version": 1}]
    assert lookup.referenced_by(world.state, "base", "1") == [found["id"]]
    refused(42206, world.do, delete_version, "base", "1")
    refused(42206, world.do, delete_subject, "base")
    world.do(delete_subject, "s")
    world.do(delete_subject, "base")
    # A deleted schema can still be read, and needs what it refers to.
    refused(42206, world.do, delete_subject, "base", permanent=True)
    world.do(delete_subject, "s", permanent=True)
    assert world.do(delete_subject, "base", permanent=True) == [1]


def test_references_are_transitive_and_take_part_in_compatibility(world):
    world.do(set_config, "a", {"compatibility": "NONE"})
    world.register("a", record_of("x", name="A"))
    world.register("a", {"schema": '{"type":"record","name":"A","fields":[{"name":"x","type":"string"}]}'})

    def using(name: str, inner: str, version: int) -> dict:
        text = json.dumps({"type": "record", "name": name, "fields": [{"name": "f", "type": inner}]})
        return {"schema": text, "references": [{"name": inner, "subject": inner.lower(), "version": version}]}

    world.register("b", using("B", "A", 1))
    world.register("c", using("C", "B", 1))
    refused(409, world.register, "b", using("B", "A", 2))
    world.register("b", using("B", "A", 2), force=True)
    error = refused(409, world.register, "c", using("C", "B", 2))
    assert "field x: the reader's type string cannot read the writer's type int" in error.message


# Settings and modes.


def test_settings_are_inherited(world):
    assert config(world.state) == {"compatibilityLevel": "BACKWARD"}
    refused(40408, config, world.state, "s")
    assert config(world.state, "s", default_to_global=True) == {"compatibilityLevel": "BACKWARD"}
    assert world.do(set_config, None, {"compatibility": "none"}) == {"compatibility": "NONE"}
    assert config(world.state, ":.c:s", default_to_global=True)["compatibilityLevel"] == "NONE"
    world.do(set_config, ":.__GLOBAL:", {"compatibility": "FORWARD"})
    assert config(world.state, ":.c:s", default_to_global=True)["compatibilityLevel"] == "FORWARD"
    world.do(set_config, ":.c:", {"compatibility": "FULL"})
    assert config(world.state, ":.c:s", default_to_global=True)["compatibilityLevel"] == "FULL"
    world.do(set_config, ":.c:s", {"normalize": True})
    assert config(world.state, ":.c:s", default_to_global=True) == {
        "compatibilityLevel": "FULL",
        "normalize": True,
    }
    assert world.do(delete_config, ":.c:") == {"compatibilityLevel": "FULL"}
    refused(40408, world.do, delete_config, ":.c:")
    assert world.do(delete_config, None) == {"compatibilityLevel": "NONE"}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, 42203),
        ({"compatibility": "x"}, 42203),
        ({"compatibility": 1}, 42203),
        ([], 422),
        ({"normalize": 1}, 422),
        ({"alias": {}}, 422),
        ({"overrideRuleSet": {"domainRules": [1]}}, 42210),
        ({"compatibilityPolicy": "x"}, 422),
        ({"compatibility": nested(100_000)}, 42203),
        ({"defaultMetadata": nested(NESTING_MAX + 1)}, 422),
        ({"overrideRuleSet": nested(NESTING_MAX + 1)}, 42210),
    ],
)
def test_refused_settings(world, given, code):
    refused(code, world.do, set_config, "s", given)


def test_modes(world):
    assert mode(world.state) == {"mode": "READWRITE"}
    refused(40409, mode, world.state, "s")
    refused(42204, world.do, set_mode, "s", {"mode": "x"})
    refused(42204, world.do, set_mode, "s", None)
    refused(42204, world.do, set_mode, "s", {"mode": nested(100_000)})
    world.do(set_mode, "s", {"mode": "READONLY"})
    refused(42205, world.register, "s", A)
    refused(42205, world.do, delete_subject, "s")
    assert mode(world.state, "s") == {"mode": "READONLY"}
    assert world.do(delete_mode, "s") == {"mode": "READONLY"}
    refused(40409, world.do, delete_mode, "s")
    world.register("s", A)
    world.do(set_mode, None, {"mode": "READONLY_OVERRIDE"})
    world.do(set_mode, "s", {"mode": "READWRITE"})
    refused(42205, world.register, "s", AB_DEFAULT)


def test_modes_of_a_context_are_removed_recursively(world):
    for subject in (":.c:", ":.c:s", "t"):
        world.do(set_mode, subject, {"mode": "READONLY"})

    assert world.do(delete_mode, ":.c:", recursive=True) == {"mode": "READONLY"}
    assert world.state.modes == {"t": "READONLY"}


def test_import_takes_ids_and_versions_as_they_are(world):
    world.register("t", AB)
    refused(42205, world.do, set_mode, None, {"mode": "IMPORT"})
    world.do(set_mode, "s", {"mode": "IMPORT"})
    refused(42205, world.register, "s", A)

    found = world.register("s", {"schema": TEXT_A, "id": 100, "version": 7})

    assert (found["id"], found["version"]) == (100, 7)
    assert world.register("s", {"schema": TEXT_A, "id": 100, "version": 7}) == found
    assert world.register("s", {"schema": '"string"', "id": 101})["version"] == 8
    refused(42207, world.register, "s", {"schema": '"int"', "id": 1})
    refused(42205, world.register, "s", {"schema": '"int"', "id": 102, "version": 7})
    world.do(set_mode, "s", {"mode": "READWRITE"})
    assert world.register("u", record_of("z"))["id"] == 102
    world.do(set_mode, None, {"mode": "IMPORT"}, force=True)
    assert mode(world.state)["mode"] == "IMPORT"


def test_an_id_is_not_assigned_again_after_an_import_over_its_version(world):
    for subject in ("s", ":.c:s"):
        world.do(set_mode, subject, {"mode": "IMPORT"})
        world.register(subject, {"schema": TEXT_A, "id": 100, "version": 1})
        world.do(delete_version, subject, "1")
        world.register(subject, {"schema": '"string"', "id": 3, "version": 1})

    for restarted in (world, world.restarted(), world.restarted().restarted()):
        assert restarted.register("t", "bytes")["id"] == 101
        assert restarted.register(":.c:t", "bytes")["id"] == 101


def test_an_id_is_not_assigned_again_after_its_schema_got_another_one(world):
    """An import may give a schema two ids; registering it replaces a deleted version by the other id."""
    world.do(set_mode, None, {"mode": "IMPORT"})
    world.register("s", {"schema": TEXT_A, "id": 1, "version": 1})
    world.register("t", {"schema": TEXT_A, "id": 100, "version": 1})
    world.do(set_mode, None, {"mode": "READWRITE"})
    world.do(delete_subject, "t")
    assert world.register("t", A)["id"] == 1

    assert world.restarted().register("u", "bytes")["id"] == 101


def test_a_context_is_deleted_when_it_is_empty(world):
    world.register(":.c:s", A)
    world.do(set_config, ":.c:", {"compatibility": "NONE"})
    refused(42211, world.do, delete_context, ".c")
    world.do(delete_subject, ":.c:s")
    world.do(delete_subject, ":.c:s", permanent=True)
    world.do(delete_context, ":.c:")

    assert lookup.contexts(world.state) == ["."]
    assert world.state.configs == {}
    refused(42205, world.do, delete_context, ".")
