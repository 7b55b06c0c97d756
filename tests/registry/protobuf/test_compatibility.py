"""Verdicts on changes of schemas: a table, and data that must survive what is called compatible."""

import random
from typing import Any

import pytest
from google.protobuf import message_factory
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

from runnel.registry.format import InvalidSchema, ReferencedSchema
from runnel.registry.protobuf import FORMAT, ProtobufSchema
from runnel.registry.protobuf.linking import SCHEMA_FILE
from tests.registry.protobuf.evolution import Evolution, assert_kept, fill
from tests.registry.protobuf.sources import CHANGES
from tests.registry.protobuf.strategies import files, serialized


def parsed(text: str) -> ProtobufSchema:
    text, _line, other = text.partition("\n---\n")
    if not text.startswith(("syntax", "edition")):
        text = f'syntax = "proto3"; {text}'
    return FORMAT.parse(text, [ReferencedSchema("other.proto", other)] if other else [])


@pytest.mark.parametrize("name", CHANGES)
def test_verdict(name):
    change = CHANGES[name]
    found = parsed(change.new).incompatibilities(parsed(change.old))
    assert sorted(f"{each.kind} {each.path}" for each in found) == sorted(change.expected)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "package p; message M { int32 a = 1; }",
            "package p; message M { string a = 1; }",
            "Field p.M.a (number 1) was int32, and is string, "
            "which is encoded as a length and bytes instead of a varint.",
        ),
        ("message M {} message N {}", "message M {}", "Message N is removed."),
        (
            "message M { int32 a = 1; int32 b = 2; }",
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "Oneof M.o contains fields that could be set together before: a, b.",
        ),
        (
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "message M { oneof o { int32 a = 1; } }",
            "Field M.b (number 2) is removed, but its oneof o is not removed as a whole.",
        ),
        ("package a;", "package b.c;", "The package was a, and is b.c."),
        (
            "message M { map<string, int32> a = 1; }",
            "message M { map<string, float> a = 1; }",
            "Field M.a (number 1) is a map whose value was int32, and is float.",
        ),
        (
            "message M { repeated int32 a = 1; }",
            "message M { int32 a = 1; }",
            "Field M.a (number 1) is a number that was repeated, and is optional.",
        ),
    ],
)
def test_incompatibility_is_a_sentence(old, new, message):
    (found,) = parsed(new).incompatibilities(parsed(old))
    assert found.message == message


@settings(max_examples=60)
@given(file=files(), seed=st.integers(0, 2**32))
def test_records_survive_compatible_changes(file, seed):
    """If a reader has no incompatibility, it reads records of the writer, and all fields that it has."""
    rng = random.Random(seed)
    old = FORMAT.parse(serialized(file))
    changed = type(file).FromString(file.SerializeToString())
    evolution = Evolution(changed, rng)
    for _ in range(rng.randrange(1, 4)):
        evolution.step()
    try:
        new = FORMAT.parse(serialized(changed))
    except InvalidSchema:
        reject()
    if new.incompatibilities(old):
        event("incompatible")
        return
    event("the same" if new.identity == old.identity else "compatible")
    for name, message_class in classes(old).items():
        record = message_class()
        fill(record, rng)
        read = classes(new)[name].FromString(record.SerializeToString(deterministic=True))
        assert read.IsInitialized()
        assert_kept(record, read)


def classes(schema: ProtobufSchema) -> dict[str, Any]:
    pool = schema.link()
    messages = pool.FindFileByName(SCHEMA_FILE).message_types_by_name
    return {name: message_factory.GetMessageClass(message) for name, message in messages.items()}
