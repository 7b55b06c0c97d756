"""Records of other registries, and what is written beside them."""

import gc
import json

from runnel.registry import lookup
from runnel.registry.content import Content
from runnel.registry.deletion import delete_subject, delete_version
from runnel.registry.format import ParsedSchema
from runnel.registry.records import Record
from runnel.registry.state import RegistryState, Version
from tests.registry.world import World, record_of

# As Confluent's registry writes them (versions 5 to 7), comments of other tools between them.
CONFLUENT = [
    ('{"keytype":"NOOP","magic":0}', None),
    ('{"keytype":"CONFIG","magic":0}', '{"compatibilityLevel":"FULL"}'),
    (
        '{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":0}',
        '{"subject":"orders-value","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"orders-value","version":2,"magic":1}',
        '{"subject":"orders-value","version":2,"id":2,"md5":"AAAA","schema":"\\"bytes\\"","deleted":false}',
    ),
    (
        '{"keytype":"SCHEMA","subject":"p","version":1,"magic":1}',
        '{"subject":"p","version":1,"id":3,"schemaType":"PROTOBUF","references":[],"metadata":null,'
        '"ruleSet":null,"schema":"syntax = \\"proto3\\";","schemaTags":null,"deleted":false}',
    ),
    ('{"keytype":"CONFIG","subject":"p","magic":0}', '{"subject":"p","compatibilityLevel":"NONE"}'),
    ('{"keytype":"MODE","subject":"p","magic":0}', '{"subject":"p","mode":"READONLY"}'),
    ('{"keytype":"DELETE_SUBJECT","subject":"p","magic":0}', '{"subject":"p","version":1}'),
    ('{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}', '{"context":".c"}'),
    (
        '{"keytype":"SCHEMA","subject":":.c:x","version":1,"magic":1}',
        '{"subject":":.c:x","version":1,"id":1,"schema":"\\"int\\"","deleted":false,"offset":7,"ts":1}',
    ),
]
# As Karapace wrote them for a while: keys sorted, and blanks.
KARAPACE = [
    (
        '{"keytype":"SCHEMA","magic":1,"subject":"k","version":1}',
        '{"deleted":false,"id":9,"schema":"\\"string\\"","subject":"k","version":1}',
    ),
    (
        '{"keytype": "CONFIG", "subject": "k", "magic": 0}',
        '{"subject": "k", "compatibilityLevel": "FORWARD"}',
    ),
]
UNREADABLE = [
    ("", "{}"),
    ("x", "{}"),
    ("[]", "{}"),
    ('{"keytype":"SCHEMA"}', "{}"),
    ('{"keytype":"SCHEMA","subject":"u","version":"1"}', "{}"),
    ('{"keytype":"SCHEMA","subject":"u","version":1}', "{"),
    ('{"keytype":"SCHEMA","subject":"u","version":1}', "{}"),
    ('{"keytype":"SCHEMA","subject":"u","version":1}', '{"id":0,"schema":"\\"int\\""}'),
    ('{"keytype":"SCHEMA","subject":"u","version":1}', '{"id":"1","schema":"\\"int\\""}'),
    ('{"keytype":"SCHEMA","subject":"u","version":1}', '{"id":5,"schema":1}'),
    ('{"keytype":"SCHEMA","subject":7,"version":1}', '{"id":5,"schema":"\\"int\\""}'),
    ('{"keytype":"MODE"}', '{"mode":"NONSENSE"}'),
    ('{"keytype":"CONFIG"}', '{"compatibilityLevel":"NONSENSE"}'),
    (
        '{"keytype":"CONFIG","subject":"u"}',
        '{"alias":{},"overrideRuleSet":{"domainRules":[1]},"defaultMetadata":1}',
    ),
    ('{"keytype":"DELETE_SUBJECT","subject":"u"}', '{"version":"x"}'),
    ('{"keytype":"NEW_KIND","subject":"u"}', "{}"),
    ('{"keytype":"NOOP","magic":0}', '{"highestIds":{".":-1,"x":"y"}}'),
]


def replayed(*rows: tuple[str, str | None]) -> World:
    world = World()
    for key, value in rows:
        record = Record(key.encode(), None if value is None else value.encode())
        world.log.append(record)
        world.state.replay(record.key, record.value)
    return world


def test_records_of_confluent_are_read():
    state = replayed(*CONFLUENT).state

    assert lookup.subjects(state) == [":.c:x", "orders-value"]
    assert lookup.subjects(state, deleted_only=True) == ["p"]
    assert lookup.version(state, "orders-value", "latest").id == 2
    assert lookup.by_id(state, 3).content.type == "PROTOBUF"
    assert lookup.by_id(state, 3).content.metadata is None
    assert lookup.by_id(state, 1, ":.c:").content.text == '"int"'
    assert state.configs == {None: {"compatibilityLevel": "FULL"}, "p": {"compatibilityLevel": "NONE"}}
    assert state.modes == {"p": "READONLY"}
    assert lookup.highest_id(state) == 3


def test_records_of_confluent_are_extended():
    world = replayed(*CONFLUENT)
    known = len(world.log)

    assert world.register("new", record_of("a"))["id"] == 4
    assert world.register("again", "string")["id"] == 1
    added = [json.loads(record.key) for record in world.log[known:]]
    assert [key["keytype"] for key in added] == ["SCHEMA", "SCHEMA"]
    assert world.log[known].key == b'{"keytype":"SCHEMA","subject":"new","version":1,"magic":1}'


def test_keys_of_another_form_are_deleted_in_that_form():
    world = replayed(*KARAPACE)

    assert lookup.version(world.state, "k", "1").id == 9
    world.do(delete_subject, "k")
    world.do(delete_subject, "k", permanent=True)

    gone = {record.key for record in world.log if record.value is None}
    assert {key.encode() for key, _ in KARAPACE} <= gone
    assert world.restarted().state.subjects == {}
    assert world.restarted().state.configs == {}
    assert world.restarted().register("z", "int")["id"] == 10


def test_keys_with_the_name_of_the_default_context_are_deleted_in_that_form():
    named = '{"keytype":"SCHEMA","subject":":.:n","version":1,"magic":1}'
    world = replayed((named, '{"subject":":.:n","version":1,"id":1,"schema":"\\"int\\""}'))
    world.do(delete_subject, "n")
    world.do(delete_subject, "n", permanent=True)

    # Compaction has removed the tombstones.
    assert world.restarted().state.subjects == {}


def test_records_that_are_not_understood_are_not_replaced():
    rules = '{"domainRules":[{"name":"r"},{"name":"r"}]}'
    rows = [
        (
            f'{{"keytype":"SCHEMA","subject":"s","version":{number},"magic":1}}',
            f'{{"id":{number + 6},"schema":"\\"int\\"","ruleSet":{given}}}',
        )
        for number, given in ((1, "null"), (2, rules))
    ]
    world = replayed(*rows)
    known = {record.key for record in world.log}

    registered = world.register("s", "long")

    assert (registered["id"], registered["version"]) == (9, 3)
    assert world.log[-1].key not in known
    assert lookup.versions(world.restarted().state, "s") == [1, 3]


def test_the_old_magic_number_is_another_form_too():
    world = replayed(*CONFLUENT)
    world.do(delete_version, "orders-value", "1")
    world.do(delete_version, "orders-value", "1", permanent=True)

    assert lookup.versions(world.restarted().state, "orders-value", deleted=True) == [2]


def test_what_does_not_parse_is_skipped():
    state = replayed(*CONFLUENT, *UNREADABLE).state

    assert "u" not in state.subjects
    assert state.configs["u"] == {}
    # The id of a record whose schema is none is not assigned again; 0 and "1" are none.
    assert lookup.highest_id(state) == 5
    state.replay(None, b"{}")
    state.replay(b"\xff", b"\xff")
    state.replay(b"[" * 100_000, b"[" * 100_000)


def test_a_subject_is_cleared():
    state = replayed(
        *CONFLUENT, ('{"keytype":"CLEAR_SUBJECT","subject":"orders-value","magic":0}', "{}")
    ).state

    assert "orders-value" not in state.subjects


def test_a_stored_schema_that_does_not_parse_is_returned_and_equals_itself():
    broken = ('{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}', '{"id":1,"schema":"{{"}')
    world = replayed(broken)

    assert lookup.by_id(world.state, 1).content.text == "{{"
    assert world.register("c", "int")["id"] == 2
    verdict = world.check("b", "int", verbose=True)
    assert not verdict["is_compatible"]
    assert "NOT_COMPARABLE" in verdict["messages"][0]


def test_an_id_that_was_used_twice_does_not_spread():
    first = ('{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', '{"id":1,"schema":"\\"int\\""}')
    second = ('{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}', '{"id":1,"schema":"\\"long\\""}')
    world = replayed(first, second)

    assert world.register("c", "int")["id"] == 1
    assert world.register("d", "long")["id"] == 1
    assert lookup.version(world.state, "d", "1").content.text == '"long"'


def test_a_schema_whose_parser_fails_does_not_lose_the_ids_of_others(monkeypatch):
    """That is how a lack of memory or of stack appears, which one request may have and the next one not."""
    rows = [
        (
            f'{{"keytype":"SCHEMA","subject":"{text}","version":1,"magic":1}}',
            f'{{"id":{number},"schema":"\\"{text}\\""}}',
        )
        for number, text in enumerate(("int", "long", "string"), 1)
    ]
    world = replayed(*rows)
    parsed = RegistryState.parsed

    def failing(state: RegistryState, version: Version) -> ParsedSchema:
        if version.content.text == '"long"':
            raise MemoryError
        return parsed(state, version)

    with monkeypatch.context() as patch:
        patch.setattr(RegistryState, "parsed", failing)
        assert world.register("a", "string")["id"] == 3

    assert world.register("b", "int")["id"] == 1
    assert world.register("c", "long")["id"] == 2


def test_replay_of_the_log_gives_the_same_state():
    world = World()
    for subject in ("a", ":.c:b"):
        world.register(subject, record_of("x"))
        world.register(subject, record_of("x", "y", default=True))
    world.do(delete_version, "a", "1")

    def shown(state: RegistryState):
        return (
            state.subjects,
            state.configs,
            state.modes,
            {n: c.highest_id for n, c in state.contexts.items()},
        )

    assert shown(world.restarted().state) == shown(world.state)


def test_schemas_that_are_removed_are_not_kept_in_memory():
    world = World()
    marked = {"type": "record", "name": "ToBeRemoved", "fields": []}
    for subject in ("a", "b"):
        world.register(subject, {"schema": json.dumps(marked), "metadata": {"properties": {"x": "y"}}})
        world.look_up(subject, marked)
    for subject in ("a", "b"):
        world.do(delete_subject, subject)
        world.do(delete_subject, subject, permanent=True)

    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, Content) and "ToBeRemoved" in one.text]
    assert kept == []


def test_schemas_that_differ_in_metadata_only_have_other_hashes():
    hashes = {hash(Content("AVRO", '"int"', metadata={"x": number})) for number in range(100)}
    assert len(hashes) == 100
