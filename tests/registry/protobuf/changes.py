"""Changes of schemas, with the incompatibilities that a reader with the new schema has.

A case is a name, the old text, the new one, and the expected differences as `KIND path`. Without a `syntax`, texts
are of proto3; `other.proto` in references is what follows a line `---`.
"""

from typing import NamedTuple


class Case(NamedTuple):
    name: str
    old: str
    new: str
    expected: tuple[str, ...] = ()


def message(body: str) -> str:
    return f"message M {{ {body} }}"


def field_change(name: str, old: str, new: str, *expected: str) -> Case:
    """Field 1 of a message M changes."""
    return Case(name, message(f"{old} a = 1;"), message(f"{new} a = 1;"), expected)


KIND, SCALAR, NUMERIC = (
    f"{kind} #/M/1"
    for kind in ("FIELD_KIND_CHANGED", "FIELD_SCALAR_KIND_CHANGED", "FIELD_NUMERIC_LABEL_CHANGED")
)

COMPATIBLE_TYPES = [
    field_change(f"{old} becomes {new}", old, new)
    for old, new in [
        ("int32", "int64"), ("int64", "int32"), ("uint32", "int32"), ("int64", "uint64"), ("bool", "uint64"),
        ("int32", "bool"), ("sint32", "sint64"), ("sint64", "sint32"), ("string", "bytes"), ("bytes", "string"),
        ("fixed32", "sfixed32"), ("sfixed32", "fixed32"), ("fixed64", "sfixed64"), ("sfixed64", "fixed64"),
    ]
]  # fmt: skip

INCOMPATIBLE_TYPES = [
    field_change(f"{old} becomes {new}", old, new, SCALAR)
    for old, new in [
        ("int32", "sint32"), ("sint64", "int64"), ("int32", "string"), ("string", "int32"), ("int32", "fixed32"),
        ("fixed32", "fixed64"), ("float", "double"), ("double", "float"), ("float", "fixed32"), ("double", "fixed64"),
        ("bool", "string"), ("bytes", "bool"), ("sint32", "sfixed32"), ("uint64", "double"),
    ]
]  # fmt: skip

ENUM = "enum E { X = 0; Y = 1; }"
ONEOF = "oneof o { int32 a = 1; string b = 2; }"

SINGLE_FILE = [
    Case("nothing", message("int32 a = 1;"), message("int32 a = 1;")),
    Case("comments and blanks", message("int32 a = 1;"), "// new\n" + message("\n int32 a=1 ; ")),
    Case("field added", message("int32 a = 1;"), message("int32 a = 1; string b = 2;")),
    Case("field removed", message("int32 a = 1; string b = 2;"), message("int32 a = 1;")),
    Case("field renamed", message("int32 a = 1;"), message("int32 b = 1;")),
    Case("field with another number", message("int32 a = 1;"), message("int32 a = 2;")),
    Case("field reserved instead", message("int32 a = 1;"), message('reserved 1; reserved "a";')),
    Case("fields in another order", message("int32 a = 1; int32 b = 2;"), message("int32 b = 2; int32 a = 1;")),
    Case("json_name and options", message("int32 a = 1;"), message('int32 a = 1 [json_name = "b", deprecated = true];')),
    *COMPATIBLE_TYPES,
    *INCOMPATIBLE_TYPES,
    Case("number becomes an enum", message("int32 a = 1;"), ENUM + message("E a = 1;")),
    Case("enum becomes a number", ENUM + message("E a = 1;"), message("uint64 a = 1;")),
    Case("enum becomes another", ENUM + message("E a = 1;"), "enum F { Z = 0; }" + message("F a = 1;")),
    Case("enum becomes a string", ENUM + message("E a = 1;"), message("string a = 1;"), (SCALAR,)),
    Case("constant added", "enum E { X = 0; }", ENUM),
    Case("constant removed", ENUM + message("E a = 1;"), "enum E { X = 0; }" + message("E a = 1;")),
    Case("constant renamed", ENUM, "enum E { X = 0; Z = 1; }"),
    Case("enum removed", ENUM + message("int32 a = 1;"), message("int32 a = 1;")),
    Case("scalar becomes a message", message("int32 a = 1;"), message("M a = 1;"), (KIND,)),
    Case("string becomes a message", message("string a = 1;"), message("M a = 1;"), (KIND,)),
    Case("message becomes bytes", message("M a = 1;"), message("bytes a = 1;"), (KIND,)),
    Case("message becomes an enum", message("M a = 1;"), ENUM + message("E a = 1;"), (KIND,)),
    Case("scalar becomes a map", message("int32 a = 1;"), message("map<string, int32> a = 1;"), (KIND,)),
    Case(
        "map becomes a repeated message",
        message("map<string, int32> a = 1;"),
        message("message E { string key = 1; int32 value = 2; } repeated E a = 1;"),
        (KIND,),
    ),
    Case(
        "the entry of a map is declared", message("map<string, int32> a = 1;"),
        message("repeated AEntry a = 1; message AEntry { option map_entry = true; string key = 1; int32 value = 2; }"),
    ),
    Case("map key compatible", message("map<int32, int32> a = 1;"), message("map<int64, int32> a = 1;")),
    Case("map value compatible", message("map<int32, string> a = 1;"), message("map<int32, bytes> a = 1;")),
    Case("map key changed", message("map<int32, int32> a = 1;"), message("map<string, int32> a = 1;"), (SCALAR,)),
    Case("map value changed", message("map<int32, int32> a = 1;"), message("map<int32, float> a = 1;"), (SCALAR,)),
    Case("map value becomes a message", message("map<int32, int32> a = 1;"), message("map<int32, M> a = 1;"), (KIND,)),
    Case(
        "message as value of a map changed",
        message("map<int32, N> a = 1;") + "message N {}", message("map<int32, O> a = 1;") + "message N {} message O {}",
        ("FIELD_NAMED_TYPE_CHANGED #/M/1",),
    ),
    Case("map removed", message("map<int32, int32> a = 1;"), message("")),
    Case(
        "type of a field is another message",
        message("N a = 1;") + "message N {}", message("O a = 1;") + "message N {} message O {}",
        ("FIELD_NAMED_TYPE_CHANGED #/M/1",),
    ),
    Case(
        "message renamed", message("N a = 1;") + "message N {}", message("O a = 1;") + "message O {}",
        ("FIELD_NAMED_TYPE_CHANGED #/M/1", "MESSAGE_REMOVED #/N"),
    ),
    Case("type with its full name", "package p;" + message("M a = 1;"), "package p;" + message(".p.M a = 1;")),
    Case("string becomes repeated", message("string a = 1;"), message("repeated string a = 1;")),
    Case("string no longer repeated", message("repeated string a = 1;"), message("string a = 1;")),
    Case("message becomes repeated", message("M a = 1;"), message("repeated M a = 1;")),
    Case("message no longer repeated", message("repeated M a = 1;"), message("M a = 1;")),
    Case("number becomes repeated", message("int32 a = 1;"), message("repeated int32 a = 1;"), (NUMERIC,)),
    Case("number no longer repeated", message("repeated int32 a = 1;"), message("int32 a = 1;"), (NUMERIC,)),
    Case("enum becomes repeated", ENUM + message("E a = 1;"), ENUM + message("repeated E a = 1;"), (NUMERIC,)),
    Case("double no longer repeated", message("repeated double a = 1;"), message("double a = 1;"), (NUMERIC,)),
    Case("number gets presence", message("int32 a = 1;"), message("optional int32 a = 1;")),
    Case("number loses presence", message("optional int32 a = 1;"), message("int32 a = 1;")),
    Case("optional field added", message(""), message("optional int32 a = 1;")),
    Case("optional field removed", message("optional int32 a = 1;"), message("")),
    Case("two optional fields", message("int32 a = 1; int32 b = 2;"), message("optional int32 a = 1; optional int32 b = 2;")),
    Case("message added", message(""), message("") + "message N {}"),
    Case("message added before", message(""), "message N {}" + message("")),
    Case("messages in another order", "message N {}" + message(""), message("") + "message N {}"),
    Case("message removed", message("") + "message N {}", message(""), ("MESSAGE_REMOVED #/N",)),
    Case("nested message added", message(""), message("message N {}")),
    Case("nested message removed", message("message N {}"), message(""), ("MESSAGE_REMOVED #/M/N",)),
    Case("nested message moved out", message("message N {}"), message("") + "message N {}", ("MESSAGE_REMOVED #/M/N",)),
    Case(
        "field of a nested message", message("message N { message O { int32 a = 1; } }"),
        message("message N { message O { string a = 1; } }"), ("FIELD_SCALAR_KIND_CHANGED #/M/N/O/1",),
    ),
    Case("package changed", "package a;" + message(""), "package b;" + message(""), ("PACKAGE_CHANGED #/",)),
    Case("package added", message(""), "package b;" + message(""), ("PACKAGE_CHANGED #/",)),
    Case("package removed", "package a;" + message(""), message(""), ("PACKAGE_CHANGED #/",)),
    Case(
        "package and field", "package a;" + message("int32 a = 1;"), "package b;" + message("string a = 1;"),
        ("PACKAGE_CHANGED #/", SCALAR),
    ),
    Case("service changed", message("") + "service S { rpc A (M) returns (M); }", message("") + "service T {}"),
    Case(
        "messages that contain each other", "message M { N n = 1; int32 a = 2; } message N { M m = 1; }",
        "message M { N n = 1; string a = 2; } message N { M m = 1; }", ("FIELD_SCALAR_KIND_CHANGED #/M/2",),
    ),
    Case("oneof with new fields", message("int32 c = 3;"), message("int32 c = 3;" + ONEOF)),
    Case("field into a new oneof", message("int32 a = 1;"), message(ONEOF)),
    Case("optional field into a new oneof", message("optional int32 a = 1;"), message(ONEOF)),
    Case(
        "two fields into a new oneof", message("int32 a = 1; string b = 2;"), message(ONEOF),
        ("MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",),
    ),
    Case(
        "two optional fields into a new oneof", message("optional int32 a = 1; optional string b = 2;"), message(ONEOF),
        ("MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o",),
    ),
    Case(
        "field into an existing oneof", message("oneof o { int32 a = 1; } string b = 2;"), message(ONEOF),
        ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",),
    ),
    Case(
        "field into a renamed oneof", message("oneof p { int32 a = 1; } string b = 2;"), message(ONEOF),
        ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/o",),
    ),
    Case("field added to a oneof", message("oneof o { int32 a = 1; }"), message(ONEOF)),
    Case(
        "field removed from a oneof", message(ONEOF), message("oneof o { int32 a = 1; }"),
        ("ONEOF_FIELD_REMOVED #/M/o/2",),
    ),
    Case("field of a oneof replaced", message("oneof o { int32 a = 1; }"), message("oneof o { int32 b = 2; }"), ("ONEOF_FIELD_REMOVED #/M/o/1",)),
    Case("oneof renamed", message(ONEOF), message("oneof p { int32 a = 1; string b = 2; }")),
    Case("oneof removed with its fields", message(ONEOF), message("")),
    Case("oneof removed without its fields", message(ONEOF), message("int32 a = 1; string b = 2;")),
    Case(
        "oneof removed with one of its fields", message(ONEOF), message("int32 a = 1;"), ("ONEOF_FIELD_REMOVED #/M/o/2",)
    ),
    Case("field moved out of a oneof", message(ONEOF), message("oneof o { int32 a = 1; } string b = 2;")),
    Case(
        "oneof renamed with one field less", message(ONEOF), message("oneof p { int32 a = 1; }"),
        ("ONEOF_FIELD_REMOVED #/M/o/2",),
    ),
    Case("type changed within a oneof", message(ONEOF), message("oneof o { int64 a = 1; int32 b = 2; }"), ("FIELD_SCALAR_KIND_CHANGED #/M/o/2",)),
    Case("type changed within a renamed oneof", message(ONEOF), message("oneof p { int32 a = 1; int32 b = 2; }"), ("FIELD_SCALAR_KIND_CHANGED #/M/p/2",)),
    Case("type changed out of a oneof", message(ONEOF), message("int32 a = 1; int32 b = 2;"), ("FIELD_SCALAR_KIND_CHANGED #/M/2",)),
    Case("type changed into a oneof", message("float a = 1;"), message(ONEOF), ("FIELD_SCALAR_KIND_CHANGED #/M/o/1",)),
    Case(
        "field between two oneofs", message("oneof o { int32 a = 1; int32 b = 2; } oneof p { int32 c = 3; }"),
        message("oneof o { int32 a = 1; } oneof p { int32 b = 2; int32 c = 3; }"), ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/p",),
    ),
    Case(
        "two oneofs merged", message("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"),
        message("oneof q { int32 a = 1; int32 b = 2; }"), ("FIELD_MOVED_TO_EXISTING_ONEOF #/M/q",),
    ),
    Case("oneof split", message(ONEOF), message("oneof o { int32 a = 1; } oneof p { string b = 2; }")),
    Case("extensible options", 'import "google/protobuf/descriptor.proto"; extend google.protobuf.FileOptions { int32 o = 50000; }',
         'import "google/protobuf/descriptor.proto"; extend google.protobuf.FileOptions { string o = 50000; }'),
]  # fmt: skip


def proto2(body: str) -> str:
    return f'syntax = "proto2"; message M {{ {body} }}'


PROTO2 = [
    Case("required field added", proto2(""), proto2("required int32 a = 1;"), ("REQUIRED_FIELD_ADDED #/M/1",)),
    Case("required field removed", proto2("required string a = 1;"), proto2(""), ("REQUIRED_FIELD_REMOVED #/M/1",)),
    Case("number becomes required", proto2("optional int32 a = 1;"), proto2("required int32 a = 1;"), (NUMERIC,)),
    Case("number no longer required", proto2("required int32 a = 1;"), proto2("optional int32 a = 1;"), (NUMERIC,)),
    Case("string becomes required", proto2("optional string a = 1;"), proto2("required string a = 1;"), ("REQUIRED_FIELD_ADDED #/M/1",)),
    Case("string no longer required", proto2("required string a = 1;"), proto2("optional string a = 1;")),
    Case("message becomes required", proto2("optional M a = 1;"), proto2("required M a = 1;"), ("REQUIRED_FIELD_ADDED #/M/1",)),
    Case(
        "constant of a required field removed", proto2("required E a = 1;") + ENUM,
        proto2("required E a = 1;") + "enum E { X = 0; }", ("ENUM_CONST_REMOVED #/M/1",),
    ),
    Case("constant of a required field added", proto2("required E a = 1;") + "enum E { X = 0; }", proto2("required E a = 1;") + ENUM),
    Case("constant of an optional field removed", proto2("optional E a = 1;") + ENUM, proto2("optional E a = 1;") + "enum E { X = 0; }"),
    Case("required number becomes an enum", proto2("required int32 a = 1;"), proto2("required E a = 1;") + ENUM, ("ENUM_CONST_REMOVED #/M/1",)),
    Case("default changed", proto2("optional int32 a = 1 [default = 1];"), proto2("optional int32 a = 1 [default = 2];")),
    Case("packed", proto2("repeated int32 a = 1;"), proto2("repeated int32 a = 1 [packed = true];")),
    Case("group removed", proto2("optional group G = 1 {}"), proto2("")),
    Case("group becomes a message", proto2("optional group G = 1 {}"), proto2("message G {} optional G g = 1;"), (KIND,)),
    Case("field of a group", proto2("optional group G = 1 { optional int32 a = 1; }"), proto2("optional group G = 1 { optional string a = 1; }"), ("FIELD_SCALAR_KIND_CHANGED #/M/G/1",)),
    Case("group renamed", proto2("optional group G = 1 {}"), proto2("optional group H = 1 {}"), ("FIELD_NAMED_TYPE_CHANGED #/M/1",)),
    Case(
        "extension changed", proto2("extensions 100 to 200;") + "extend M { optional int32 x = 100; }",
        proto2("extensions 100 to 200;") + "extend M { optional string x = 100; }", ("FIELD_SCALAR_KIND_CHANGED #/x",),
    ),
    Case("extension removed", proto2("extensions 100 to 200;") + "extend M { optional int32 x = 100; }", proto2("extensions 100 to 200;")),
    Case("syntax changed", proto2("optional int32 a = 1; optional string b = 2;"), message("int32 a = 1; optional string b = 2;")),
    Case(
        "required in an edition", 'edition = "2023"; message M { string a = 1; }',
        'edition = "2023"; message M { string a = 1 [features.field_presence = LEGACY_REQUIRED]; }', ("REQUIRED_FIELD_ADDED #/M/1",),
    ),
    Case(
        "delimited in an edition", 'edition = "2023"; message M { M a = 1; }',
        'edition = "2023"; message M { M a = 1 [features.message_encoding = DELIMITED]; }', (KIND,),
    ),
    Case("to an edition", proto2("optional int32 a = 1;"), 'edition = "2023"; message M { int32 a = 1; }'),
]  # fmt: skip

IMPORT = 'import "other.proto";'
OTHER = '\n---\nsyntax = "proto3"; package other; '

REFERENCES = [
    Case("import changed", IMPORT + message("other.N a = 1;") + OTHER + "message N { int32 b = 1; }",
         IMPORT + message("other.N a = 1;") + OTHER + "message N { string b = 1; }", ("FIELD_SCALAR_KIND_CHANGED #/N/1",)),
    Case("import changed compatibly", IMPORT + message("other.N a = 1;") + OTHER + "message N { int32 b = 1; }",
         IMPORT + message("other.N a = 1;") + OTHER + "message N { int64 c = 1; string d = 2; }"),
    Case("unused part of an import changed", IMPORT + message("other.N a = 1;") + OTHER + "message N {} message O { int32 b = 1; }",
         IMPORT + message("other.N a = 1;") + OTHER + "message N {} message O { string b = 1; }"),
    Case("import of an import changed", IMPORT + message("other.N a = 1;") + OTHER + "message N { O o = 1; } message O { int32 b = 1; }",
         IMPORT + message("other.N a = 1;") + OTHER + "message N { O o = 1; } message O { string b = 1; }", ("FIELD_SCALAR_KIND_CHANGED #/O/1",)),
    Case("package of an import changed", IMPORT + message("other.N a = 1;") + OTHER + "message N { int32 b = 1; }",
         IMPORT + message("x.N a = 1;") + OTHER.replace("other", "x") + "message N { int32 b = 1; }"),
    Case("message moved to an import", message("N a = 1;") + "message N {}", IMPORT + message("other.N a = 1;") + OTHER + "message N {}", ("MESSAGE_REMOVED #/N",)),
    Case("message moved from an import", IMPORT + message("other.N a = 1;") + OTHER + "message N { int32 b = 1; }", message("N a = 1;") + "message N { int32 b = 1; }"),
    Case("message moved from an import and changed", IMPORT + message("other.N a = 1;") + OTHER + "message N { int32 b = 1; }",
         message("N a = 1;") + "message N { string b = 1; }", ("FIELD_SCALAR_KIND_CHANGED #/N/1",)),
    Case("value of a map imported", IMPORT + message("map<int32, other.N> a = 1;") + OTHER + "message N { int32 b = 1; }",
         IMPORT + message("map<int32, other.N> a = 1;") + OTHER + "message N { string b = 1; }", ("FIELD_SCALAR_KIND_CHANGED #/N/1",)),
    Case("enum of an import", IMPORT + message("other.E a = 1;") + OTHER + ENUM, IMPORT + message("other.E a = 1;") + OTHER + "enum E { Z = 0; }"),
    Case("well-known import", 'import "google/protobuf/timestamp.proto";' + message("google.protobuf.Timestamp a = 1;"),
         'import "google/protobuf/duration.proto";' + message("google.protobuf.Duration a = 1;"), ("FIELD_NAMED_TYPE_CHANGED #/M/1",)),
]  # fmt: skip

CASES = [*SINGLE_FILE, *PROTO2, *REFERENCES]
