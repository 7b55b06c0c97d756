"""The ids that a broker keeps of `_schemas`, against the whole state of a registry."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.registry import subject_ids
from runnel.registry.content import Content
from runnel.registry.record_names import record_names
from runnel.registry.records import CLEAR_SUBJECT, CONFIG, DELETE_SUBJECT, SCHEMA, Key
from runnel.registry.state import RegistryState
from runnel.registry.subject_ids import (
    RECORD_NAME,
    TOPIC_NAME,
    TOPIC_RECORD_NAME,
    SubjectIds,
    TooManyVersions,
    change_of,
)
from tests.registry.test_replay import CONFLUENT, KARAPACE, UNREADABLE

NAMES = ["a.R", "R", "S"]
TOPICS = ["t", "t-x"]
SUBJECTS = [
    *(f"{topic}-{part}" for topic in TOPICS for part in ("key", "value")),
    *NAMES,
    *(f"{topic}-{name}" for topic in TOPICS for name in NAMES),
    ":.c:t-value",
    ":.:t-value",
]


def schema_named(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": []})


def encoded(key: Key, value: object) -> tuple[bytes, bytes | None]:
    return key.encode(), None if value is None else json.dumps(value).encode()


subjects = st.sampled_from(SUBJECTS)
versions = st.integers(1, 4)
registered = st.builds(
    lambda subject, version, schema_id, name, deleted: encoded(
        Key(SCHEMA, subject, version),
        {"subject": subject, "version": version, "id": schema_id, "deleted": deleted}
        | {"schema": schema_named(name)},
    ),
    subjects,
    versions,
    st.integers(-1, 5),
    st.sampled_from(NAMES),
    st.booleans(),
)
removed = st.builds(lambda subject, version: encoded(Key(SCHEMA, subject, version), None), subjects, versions)
others = st.builds(
    lambda kind, subject, version: encoded(Key(kind, subject), {"subject": subject, "version": version}),
    st.sampled_from([DELETE_SUBJECT, CLEAR_SUBJECT, CONFIG]),
    subjects,
    versions,
)
foreign = st.sampled_from(
    [
        (key.encode(), None if value is None else value.encode())
        for key, value in (*CONFLUENT, *KARAPACE, *UNREADABLE)
    ]
)


def known_ids(state: RegistryState, strategy: str, topic: str, part: str) -> set[int]:
    """What an obvious search through the whole state finds."""
    found = set()
    for subject, by_version in state.subjects.items():
        for one in by_version.values():
            name = json.loads(one.content.text).get("name", "") if "{" in one.content.text else None
            expected = {
                TOPIC_NAME: f"{topic}-{part}",
                RECORD_NAME: name,
                TOPIC_RECORD_NAME: f"{topic}-{name}",
            }
            if subject == expected[strategy]:
                found.add(one.id)
    return found


@given(st.lists(registered | removed | others | foreign, max_size=60))
def test_ids_are_those_of_the_whole_registry(records):
    ids, state = SubjectIds(), RegistryState()
    for key, value in records:
        state.replay(key, value)
        change = change_of(key, value)
        if change is not None:
            ids.apply(change)
        ids.under(TOPIC_NAME, "t", "value")

    for strategy in (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME):
        for topic in (*TOPICS, "orders", "absent"):
            for part in ("key", "value"):
                under = ids.under(strategy, topic, part)
                found = {schema_id for schema_id in range(-1, 12) if schema_id in under}
                assert found == known_ids(state, strategy, topic, part), (strategy, topic, part)
    plain = [one for name, by in state.subjects.items() if not name.startswith(":") for one in by]
    assert ids.count == len(plain)


def test_versions_are_limited(monkeypatch):
    monkeypatch.setattr(subject_ids, "VERSIONS_MAX", 2)
    ids = SubjectIds()
    for version in (1, 2, 2):
        change = change_of(*encoded(Key(SCHEMA, "s", version), {"id": version, "schema": '"int"'}))
        assert change is not None
        ids.apply(change)
    change = change_of(*encoded(Key(SCHEMA, "s", 3), {"id": 3, "schema": '"int"'}))
    assert change is not None
    with pytest.raises(TooManyVersions):
        ids.apply(change)
    assert ids.count == 2


PROTO = """
syntax = "proto3"; // message Comment {
package shop.v1;
/* message Other { } */
import "message.proto";
option (note) = "message Text { \\" }";
message Order {
  string message = 1;
  oneof message { int32 a = 2; }
  message Line { enum Kind { NONE = 0; } }
  Line line = 3;
}
enum Color { RED = 0; }
message Customer { }
service Shop { rpc Get(Order) returns (Customer) { } }
"""


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        ("AVRO", '{"type":"record","name":"Order","namespace":"shop","fields":[]}', ["shop.Order"]),
        ("AVRO", '{"type":"record","name":"a.Order","namespace":"shop","fields":[]}', ["a.Order"]),
        ("AVRO", '{"type":"record","name":"Order","fields":[]}', ["Order"]),
        ("AVRO", '"string"', ["string"]),
        ("AVRO", '{"type":"string"}', ["string"]),
        ("AVRO", '["null","string"]', []),
        ("AVRO", "{", []),
        ("AVRO", "[" * 200_000, []),
        ("JSON", '{"title":"Order","type":"object"}', ["Order"]),
        ("JSON", '{"type":"object"}', []),
        ("JSON", "true", []),
        ("PROTOBUF", PROTO, ["shop.v1.Order", "shop.v1.Order.Line", "shop.v1.Customer"]),
        ("PROTOBUF", "message Order { }", ["Order"]),
        ("PROTOBUF", "}}} message", []),
        ("OTHER", "x", []),
    ],
)
def test_names_of_records(kind, text, names):
    assert list(record_names(Content(kind, text))) == names


def test_the_names_of_a_long_text_are_found_in_linear_time():
    """A hundred thousand comments and strings that do not end would take hours in squared time."""
    text = "message Order { } " + "/*" * 200_000 + "\n" + '"' * 200_000
    assert list(record_names(Content("PROTOBUF", text))) == ["Order"]
