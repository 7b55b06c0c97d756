"""Identity, printing, normalization, references and well-known imports."""

import base64
import random

import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array, _str_to_proto
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.registry.format import InvalidSchema, ReferencedSchema, SchemaFormat
from runnel.registry.protobuf import FORMAT, well_known
from runnel.registry.protobuf.linking import SCHEMA_FILE
from tests.registry.protobuf.oracle import compile_proto
from tests.registry.protobuf.sources import VALID
from tests.registry.protobuf.strategies import files, serialized

ORDERS = """
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

// An order.
message Order {
  string id = 1;  // unique
  map<string, Line> lines = 2;
  message Line { int32 count = 1; }
  optional google.protobuf.Timestamp at = 3;
}
"""


SCHEMA_FORMAT: SchemaFormat = FORMAT
"""A format of the registry, as far as types can tell."""


@pytest.mark.parametrize("name", sorted(VALID))
def test_source_and_descriptor_are_equal(name):
    schema = FORMAT.parse(VALID[name])
    assert schema.text == VALID[name]
    from_descriptor = FORMAT.parse(schema.formatted("serialized"))
    assert from_descriptor.identity == schema.identity
    # What is stored is text, which has to mean the same when it is read again.
    assert FORMAT.parse(from_descriptor.text).identity == schema.identity
    assert from_descriptor.formatted("serialized") == schema.formatted("serialized")
    assert not from_descriptor.incompatibilities(schema)


@pytest.mark.parametrize("name", sorted(VALID))
def test_normalized_text_is_stable(name):
    normalized = FORMAT.parse(VALID[name]).normalized()
    assert FORMAT.parse(normalized).normalized() == normalized


@settings(max_examples=30)
@given(file=files(), seed=st.integers(0, 2**32))
def test_normalized_text_does_not_depend_on_the_order_of_fields(file, seed):
    shuffled = type(file).FromString(file.SerializeToString())
    shuffle(shuffled.message_type, random.Random(seed))
    schema, other = FORMAT.parse(serialized(file)), FORMAT.parse(serialized(shuffled))
    assert other.normalized() == schema.normalized()
    assert not other.incompatibilities(schema)


def shuffle(messages, rng: random.Random) -> None:
    """Put fields that are not in a oneof into another order, in these messages and nested ones."""
    for message in messages:
        if not message.options.map_entry:
            fields = list(message.field)
            free = [index for index, field in enumerate(fields) if not field.HasField("oneof_index")]
            shuffled = rng.sample(free, len(free))
            copies = [type(field).FromString(field.SerializeToString()) for field in fields]
            for position, index in zip(free, shuffled, strict=True):
                copies[position] = type(fields[0]).FromString(fields[index].SerializeToString())
            del message.field[:]
            message.field.extend(copies)
            shuffle(message.nested_type, rng)


@settings(max_examples=30)
@given(file=files())
def test_random_descriptor_survives_printing(file):
    schema = FORMAT.parse(serialized(file))
    assert FORMAT.parse(schema.text).identity == schema.identity
    linked = schema.link().FindFileByName(SCHEMA_FILE)
    expected = DescriptorPool().AddSerializedFile(b"\n\x01x" + file.SerializeToString())
    assert indexes_of(linked) == indexes_of(expected)


def indexes_of(file) -> dict[str, list[int]]:
    """The indexes by which records of confluent-kafka name their message."""
    pending, found = list(file.message_types_by_name.values()), {}
    while pending:
        message = pending.pop()
        if not message.GetOptions().map_entry:
            found[message.full_name] = _create_index_array(message)
        pending += message.nested_types
    return found


def test_descriptor_of_protoc_is_that_of_source():
    """With all that protoc adds: names in JSON, and where each element is in the source."""
    compiled = compile_proto(ORDERS)
    assert compiled is not None
    compiled.source_code_info.location.add(path=[4, 0], span=[1, 2, 3], leading_comments="An order.")
    assert compiled.message_type[0].field[0].json_name == "id"
    assert FORMAT.parse(serialized(compiled)).identity == FORMAT.parse(ORDERS).identity


def test_printed_text():
    printed = FORMAT.parse(FORMAT.parse(ORDERS).formatted("serialized")).text
    assert (
        printed
        == """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";

message Order {
  string id = 1;
  message LinesEntry {
    option map_entry = true;
    string key = 1;
    .shop.Order.Line value = 2;
  }
  repeated .shop.Order.LinesEntry lines = 2;
  optional .google.protobuf.Timestamp at = 3;
  message Line {
    int32 count = 1;
  }
}
"""
    )


def test_normalized_text():
    text = """
        syntax = "proto3"; package p;
        import "google/protobuf/wrappers.proto"; import "google/protobuf/any.proto";
        option java_package = "x"; option deprecated = true;
        message B { A a = 3; oneof o { int32 y = 5; int32 x = 2; } map<string, A> m = 1; message C {}
          reserved 9, 7; map<int32, C> n = 0x0A; }
        message A { google.protobuf.Any any = 1; } enum E { Z = 0; Y = 2; X = 1; }"""
    assert (
        FORMAT.parse(text).normalized()
        == """syntax = "proto3";
package p;
import "google/protobuf/any.proto";
import "google/protobuf/wrappers.proto";
option java_package = "x";
option deprecated = true;

message B {
  reserved 7, 9;
  map<string, .p.A> m = 1;
  .p.A a = 3;
  message C {
  }
  map<int32, .p.B.C> n = 10;
  oneof o {
    int32 x = 2;
    int32 y = 5;
  }
}

message A {
  .google.protobuf.Any any = 1;
}

enum E {
  Z = 0;
  X = 1;
  Y = 2;
}
"""
    )


@pytest.mark.parametrize(
    ("text", "other", "are_equal"),
    [
        ("message A { B b = 1; } message B {}", "message A { .B b = 1; } message B {}", True),
        ("message A { int32 a = 1; }", "// x\nmessage A { int32 a = 0x1 [json_name = 'a']; }", True),
        (
            "option java_package = 'x'; option deprecated = true;",
            "option deprecated = true; option java_package = 'x';",
            True,
        ),
        ("message A { int32 a = 1; int32 b = 2; }", "message A { int32 b = 2; int32 a = 1; }", False),
        ("message A {} message B {}", "message B {} message A {}", False),
        ("message A { int32 a = 1; }", "message A { int32 a = 1 [deprecated = true]; }", False),
        ("message A { int32 a = 1; }", "message A { optional int32 a = 1; }", False),
        ("message A { reserved 1 to 2; }", "message A { reserved 1, 2; }", False),
    ],
)
def test_identity(text, other, are_equal):
    header = 'syntax = "proto3"; '
    assert (FORMAT.parse(header + text).identity == FORMAT.parse(header + other).identity) is are_equal


def test_other_formats():
    text = """
        syntax = "proto2"; import "google/protobuf/descriptor.proto"; import "confluent/meta.proto";
        extend google.protobuf.FieldOptions { optional int32 o = 50000; }
        message A { extensions 100 to 200; extend A { optional int32 e = 100; }
          optional int32 a = 1 [(o) = 1, deprecated = true, (confluent.field_meta).doc = "x"]; }"""
    schema = FORMAT.parse(text)
    assert schema.formatted("") == schema.formatted("unknown") == text
    assert (
        schema.formatted("ignore_extensions")
        == """syntax = "proto2";
import "google/protobuf/descriptor.proto";
import "confluent/meta.proto";

message A {
  optional int32 a = 1 [deprecated = true, (.confluent.field_meta) = { doc: "x" }];
}
"""
    )


REFERENCES = [
    ReferencedSchema("c.proto", 'syntax = "proto3"; package c; message C { int32 i = 1; }'),
    ReferencedSchema(
        "b.proto", 'syntax = "proto3"; package b; import public "c.proto"; message B { c.C c = 1; }'
    ),
]
USES_B = 'syntax = "proto3"; import "b.proto"; message A { b.B b = 1; c.C c = 2; }'


@pytest.mark.parametrize("references", [REFERENCES, REFERENCES[::-1]])
def test_references(references):
    as_descriptors = [
        ReferencedSchema("c.proto", FORMAT.parse(REFERENCES[0].text).formatted("serialized")),
        ReferencedSchema("b.proto", FORMAT.parse(REFERENCES[1].text, REFERENCES[:1]).formatted("serialized")),
    ]
    schema = FORMAT.parse(USES_B, references)
    assert schema.identity == FORMAT.parse(USES_B, as_descriptors).identity
    assert schema.link().FindMessageTypeByName("c.C").file.name == "c.proto"


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([], r'A.b: "b.B" is not declared; the schema has no references for its imports "b.proto"'),
        (REFERENCES[1:], r'reference "b.proto": b.B.c: "c.C" is not declared'),
        (
            [*REFERENCES, ReferencedSchema("c.proto", "message C {}")],
            r'two references "c.proto" with different schemas',
        ),
        (
            [ReferencedSchema("b.proto", "message {"), REFERENCES[0]],
            r'reference "b.proto": line 1: expected the name',
        ),
        (
            [
                ReferencedSchema("b.proto", 'import "c.proto";'),
                ReferencedSchema("c.proto", 'import "b.proto";'),
            ],
            r'"b.proto" imports itself',
        ),
        (
            [
                *REFERENCES[:1],
                ReferencedSchema("b.proto", 'syntax = "proto3"; import "c.proto"; package c; message C {}'),
            ],
            r'reference "b.proto": c.C is declared twice: it is already a message in "c.proto"',
        ),
    ],
)
def test_wrong_references(references, message):
    with pytest.raises(InvalidSchema, match=message):
        FORMAT.parse(USES_B, references)


def test_import_that_only_options_need_may_be_missing():
    """Clients register files with options of generators and validators; Confluent's registry accepts them."""
    text = """
        syntax = "proto3"; import "buf/validate/validate.proto"; option (some.thing) = "x";
        message A { string a = 1 [(buf.validate.field).string.min_len = 1,
          (buf.validate.field).cel = { id: "x" }]; }"""
    schema = FORMAT.parse(text)
    assert schema.identity != FORMAT.parse(text.replace("min_len = 1", "min_len = 2")).identity
    assert FORMAT.parse(schema.normalized()).identity == schema.identity
    # Clients link this, and do not have the file.
    file = _str_to_proto("x", schema.formatted("serialized"))
    assert not file.dependency
    assert DescriptorPool().AddSerializedFile(file.SerializeToString()).message_types_by_name["A"]
    with pytest.raises(InvalidSchema, match="no extension of this name is declared"):
        FORMAT.parse(text.replace('import "buf/validate/validate.proto";', ""))


def test_options_that_no_import_declares_are_dropped_from_descriptors():
    """They are numbers only, and cannot be printed."""
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
    field = file.message_type.add(name="A").field.add(name="a", number=1, label=1, type=5)
    field.options.MergeFromString(b"\xa8\xd2\x18\x05")
    plain = FORMAT.parse('syntax = "proto3"; message A { int32 a = 1; }')
    assert FORMAT.parse(serialized(file)).identity == plain.identity


def test_options_do_not_depend_on_what_else_the_process_loaded():
    """confluent-kafka registers its options, number 1088, with the default pool. Others may use it."""
    text = """
        syntax = "proto3"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { string mine = 1088; }
        message A { int32 a = 1 [(mine) = "not a message"]; }"""
    assert meta_pb2.field_meta.number == 1088
    schema = FORMAT.parse(text)
    assert FORMAT.parse(schema.formatted("serialized")).identity == schema.identity


@pytest.mark.parametrize("module", [meta_pb2, decimal_pb2, variant_pb2], ids=["meta", "decimal", "variant"])
def test_files_of_confluent(module):
    ours = FORMAT.parse(well_known.SOURCES[module.DESCRIPTOR.name])
    theirs = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    theirs.ClearField("options")
    assert FORMAT.parse(serialized(theirs)).identity == ours.identity


@pytest.mark.parametrize(
    "name", sorted(name for name in well_known.SOURCES if name.startswith("google/type/"))
)
def test_files_of_google_type(name):
    module = __import__(name.replace("/", ".").replace(".proto", "_pb2"), fromlist=["DESCRIPTOR"])
    theirs = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    theirs.ClearField("options")
    assert FORMAT.parse(serialized(theirs)).identity == FORMAT.parse(well_known.SOURCES[name]).identity


@pytest.mark.parametrize("name", sorted([*well_known.DESCRIPTORS, *well_known.SOURCES]))
def test_well_known_import_needs_no_reference(name):
    schema = FORMAT.parse(f'syntax = "proto3"; import "{name}"; message A {{}}')
    assert schema.link().FindFileByName(name).name == name


def test_reference_overrides_a_well_known_import_but_none_of_protobuf():
    own = ReferencedSchema(
        "google/type/date.proto", 'syntax = "proto3"; package google.type; message Date { string s = 1; }'
    )
    text = 'syntax = "proto3"; import "google/type/date.proto"; message A { google.type.Date d = 1; }'
    assert FORMAT.parse(text, [own]).link().FindMessageTypeByName("google.type.Date").fields_by_name["s"]
    empty = ReferencedSchema("google/protobuf/any.proto", 'syntax = "proto3";')
    text = 'syntax = "proto3"; import "google/protobuf/any.proto"; message A { google.protobuf.Any a = 1; }'
    assert FORMAT.parse(text, [empty]).identity == FORMAT.parse(text).identity


def test_serialized_has_no_source_positions_and_the_name_of_confluent():
    file = descriptor_pb2.FileDescriptorProto.FromString(
        base64.b64decode(FORMAT.parse(ORDERS).formatted("serialized"))
    )
    assert file.name == "default"
    assert not file.HasField("source_code_info")
