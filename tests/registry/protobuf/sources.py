"""`.proto` texts, each for a part of the language; protoc accepts the first table, and refuses the second."""

VALID: dict[str, str] = {
    "empty message": 'syntax = "proto3"; message A {}',
    "no syntax is proto2": "message A { optional int32 a = 1; }",
    "empty statements": 'syntax = "proto3";; ; message A { ; int32 a = 1;; } ; enum E { ; X = 0;; }',
    "byte order mark": '\ufeffsyntax = "proto3"; message A {}',
    "comments everywhere": """
        // first
        syntax /* a */ = /* b */ "proto3" /* c */; // d
        /* e // f */ message /**/ A /***/ { /* { */ int32 /* } */ a = /* 9 */ 1; // ;
        } //""",
    "all scalars": """
        syntax = "proto3"; package a.b_c.D;
        message A {
          double a = 1; float b = 2; int32 c = 3; int64 d = 4; uint32 e = 5; uint64 f = 6; sint32 g = 7;
          sint64 h = 8; fixed32 i = 9; fixed64 j = 10; sfixed32 k = 11; sfixed64 l = 12; bool m = 13;
          string n = 14; bytes o = 15;
        }""",
    "numbers of fields": """
        syntax = "proto3"; message A { int32 a = 0x1F; int32 b = 017; int32 c = 18999; int32 d = 20000;
          int32 e = 536870911; }""",
    "keywords as names": """
        syntax = "proto3"; package message.package;
        message message { int32 syntax = 1; int32 package = 2; int32 message = 3; int32 optional = 4; int32 max = 5;
          int32 map = 6; string group = 7; int32 to = 8; int32 rpc = 9; int32 inf = 10; int32 true = 11;
          int32 import = 12; int32 reserved = 13; int32 option = 14; int32 string = 15; }
        message stream { message returns {} returns weak = 1; map m = 2; message map {} }
        enum enum { rpc = 0; extend = 1; }
        service service { rpc rpc (stream message) returns (stream stream.returns); }""",
    "labels of proto2": """
        syntax = "proto2"; message A { required int32 a = 1; optional string b = 2; repeated A c = 3;
          repeated int32 d = 4 [packed = true]; repeated int32 e = 5 [packed = false]; }""",
    "optional in proto3": """
        syntax = "proto3"; message A {
          optional int32 b = 1; oneof _a { string c = 2; } optional A a = 3; repeated int32 d = 4;
          optional bytes _e = 5; oneof x { int32 f = 6; int32 g = 7; } optional string X_a = 8; }""",
    "oneofs": """
        syntax = "proto2"; message A {
          optional int32 a = 1;
          oneof x { option (o) = true; int32 b = 2; group G = 3 { optional int32 h = 1; } A d = 4; }
          oneof y { string e = 6 [deprecated = true]; }
          optional int32 f = 5; }
        import "google/protobuf/descriptor.proto";
        extend google.protobuf.OneofOptions { optional bool o = 50000; }""",
    "groups": """
        syntax = "proto2"; message A {
          optional group First = 1 { optional int32 a = 1; repeated group Inner = 2 { required bool b = 1; } }
          message Between {}
          repeated group Second_One = 2 [deprecated = true] { } required group X1 = 3 {} }""",
    "maps": """
        syntax = "proto3"; message A {
          map<string, int32> a = 1; message B {} map<int64, B> some_long_name = 2 [deprecated = true];
          map < bool , .A.B > x1_y2 = 3; map<fixed32, E> e = 4; enum E { Z = 0; } map<sint64, bytes> _u = 5; }""",
    "a map entry as a message, as Confluent prints it": """
        syntax = "proto3"; message A { repeated AbEntry ab = 1;
          message AbEntry { option map_entry = true; string key = 1; int32 value = 2; } }""",
    "enums": """
        syntax = "proto2"; enum A { X = 5; Y = -1; Z = 0x7FFFFFFF; W = -2147483648; }
        message M { enum A { option allow_alias = true; P = 1; Q = 1; R = 2 [deprecated = true]; }
          optional A a = 1 [default = Q]; optional .A b = 2 [default = Y]; }""",
    "reserved": """
        syntax = "proto2"; message A { reserved 1, 3 to 5, 0x10 to 021, 100 to max; reserved "a", 'b' "c";
          extensions 6, 8 to 9; optional int32 z = 2; }
        enum E { reserved -5 to -3, 7, 100 to max; reserved "Y"; X = 0; }""",
    "defaults": r"""
        syntax = "proto2"; message A {
          optional int32 a = 1 [default = -2147483648]; optional uint64 b = 2 [default = 0xFFFFFFFFFFFFFFFF];
          optional int64 c = 3 [default = -9223372036854775808]; optional uint32 d = 4 [default = 0777];
          optional float e = 5 [default = 1.5]; optional float f = 6 [default = 0.1]; optional float g = 7 [default = 1e10];
          optional double h = 8 [default = -inf]; optional double i = 9 [default = nan]; optional double j = 10 [default = 1];
          optional double k = 11 [default = 0.1]; optional double l = 12 [default = 1e-7]; optional bool m = 13 [default = true];
          optional string n = 14 [default = "a\n\t\"\'\\\x41\101\u00e4" 'b"c'];
          optional bytes o = 15 [default = "\0\001\xfe\377ä\"'\r"]; optional float p = 16 [default = 3.4028235e+38];
          optional double q = 17 [default = 123456789.123456789]; optional float r = 18 [default = 16777217];
          optional double s = 19 [default = 18446744073709551616]; optional double t = 20 [default = -.5];
          optional double u = 21 [default = 5.]; optional float v = 22 [default = 1e39]; optional string w = 23 [default = ""];
          optional sint32 x = 24 [default = -0]; optional float y = 25 [default = -0.0]; optional double z = 26 [default = 007]; }""",
    "names in JSON": """
        syntax = "proto3"; message A { int32 a_b = 1; int32 c = 2 [json_name = "see"]; int32 __d__e_ = 3;
          int32 f_1 = 4; int32 G_h = 5; int32 i = 6 [json_name = "i", deprecated = true]; }""",
    "standard options": """
        syntax = "proto3"; package o;
        option java_package = "com." "x"; option java_multiple_files = true; option optimize_for = CODE_SIZE;
        option go_package = 'a/b;c'; option deprecated = false; option cc_enable_arenas = true;
        message A { option deprecated = true; option no_standard_descriptor_accessor = true;
          int64 a = 1 [jstype = JS_STRING, deprecated = true]; string b = 2 [ctype = CORD, debug_redact = true];
          A c = 3 [lazy = true]; bytes d = 4 [retention = RETENTION_SOURCE, targets = TARGET_TYPE_FIELD,
            targets = TARGET_TYPE_FILE]; }
        enum E { option deprecated = true; X = 0 [deprecated = true]; }
        service S { option deprecated = true; rpc M (A) returns (A) { option idempotency_level = IDEMPOTENT; ; } }""",
    "custom options": r"""
        syntax = "proto2"; package c.d; import "google/protobuf/descriptor.proto";
        option (file) = "x"; option (.c.d.numbers) = 1; option (c.d.numbers) = -2; option (d.numbers) = 0x10;
        message Value { optional int32 i = 1; repeated string s = 2; optional Value v = 3; optional E e = 4;
          optional double d = 5; map<string, int32> m = 6; extensions 100 to 200; optional bytes b = 7;
          optional group G = 8 { optional bool x = 1; } }
        enum E { E0 = 0; E1 = 1; }
        extend Value { optional int32 more = 100; }
        extend google.protobuf.FileOptions { optional string file = 50000; repeated sint32 numbers = 50001; }
        extend google.protobuf.MessageOptions { optional Value value = 50000; repeated Value values = 50001; }
        extend google.protobuf.FieldOptions { optional double real = 50000; optional E e = 50001;
          optional float f = 50002; optional bytes raw = 50003; optional bool yes = 50004; optional uint64 u = 50005; }
        extend google.protobuf.EnumOptions { optional int32 en = 50000; }
        extend google.protobuf.EnumValueOptions { optional int32 ev = 50000; }
        extend google.protobuf.ServiceOptions { optional Value sv = 50000; }
        extend google.protobuf.MethodOptions { optional Value mv = 50000; }
        extend google.protobuf.ExtensionRangeOptions { optional int32 er = 50000; }
        message A {
          option (value) = { i: -5 s: "a" s: 'b' "c", v { i: 3; e: E1 } d: -inf [c.d.more]: 7 m { key: "k" value: 1 }
            m: < key: "l" value: 2 > b: "\001\xff" G { x: true } };
          option (values).i = 1; option (values) = { s: ["p", "q"], d: 1.5e3 }; option (c.d.values) = { v: {}, d: 5 };
          optional int32 a = 1 [(real) = -1.5, (e) = E1, (f) = 3, (raw) = "\0\377", (yes) = true, deprecated = true];
          optional int32 b = 2 [(real) = inf, (u) = 18446744073709551615, (.c.d.yes) = false];
          extensions 10 to 20, 30 [(er) = 7];
          message Inner { option (A.Inner.value).i = 4; extend google.protobuf.MessageOptions { optional Value value = 50002; }
            option (value).(c.d.more) = 5; option (Inner.value).v.v.s = "deep"; }
        }
        enum En { option (en) = 5; X = 0 [(ev) = -1]; }
        service S { option (sv).i = 1; rpc M (A) returns (stream A) { option (mv).s = "x"; option (mv).s = "y"; } }""".replace(
        "option (values).i = 1; ", ""
    ),
    "meta of Confluent": """
        syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
        option (confluent.file_meta).doc = "A file";
        message A { option (confluent.message_meta) = { doc: "A message", tags: ["x"] };
          confluent.type.Decimal price = 1 [(confluent.field_meta) = { params: [{ key: "precision", value: "8" },
            { key: "scale", value: "3" }], tags: "PII" }]; }
        enum E { option (confluent.enum_meta).doc = "e"; X = 0 [(confluent.enum_value_meta).doc = "x"]; }""",
    "extensions": """
        syntax = "proto2"; package e; message A { extensions 100 to 199; extensions 1000 to max; }
        extend A { optional int32 a = 100; repeated string b = 101; optional group G = 102 { optional A x = 1; } }
        message B { extend .e.A { optional B b = 103; repeated group H = 104 {} } optional int32 c = 1; message I {} }
        extend e.A { optional B.I i = 536870911; }
        message C {} """,
    "extension declarations": """
        syntax = "proto2"; message A { extensions 4 to 10 [verification = DECLARATION, declaration = { number: 4,
          full_name: ".x.y", type: "int32" }, declaration = { number: 5, reserved: true }]; }""",
    "a message set": """
        syntax = "proto2"; message A { option message_set_wire_format = true; extensions 4 to max; }
        message B { extend A { optional B b = 2147483646; } }""",
    "scopes": """
        syntax = "proto3"; package a.b;
        message X { message X { X x = 1; .a.b.X y = 2; b.X z = 3; a.b.X.X w = 4; } X x = 1; Y y = 2; a.b.Y b = 3;
          message Z { Y y = 1; b.X.X x = 2; } enum Y { P = 0; } }
        message Y { X.Y y = 1; X.Z Z = 2; a.b.X x = 3; b.X.X v = 4; Q Q = 5; int32 X = 6; }
        message Q { a.b.Q a = 1; }""",
    "services": """
        syntax = "proto3"; package s; message A {} message B {}
        service S { rpc M (A) returns (s.B); rpc C (stream .s.A) returns (stream B) {}; rpc D(A)returns(B){;} }
        service Empty {}""",
    "imports of protobuf": """
        syntax = "proto3"; import "google/protobuf/timestamp.proto"; import public "google/protobuf/any.proto";
        import weak "google/protobuf/struct.proto"; import "google/protobuf/" 'wrappers.proto';
        message A { google.protobuf.Timestamp t = 1; google.protobuf.Any a = 2; google.protobuf.Value v = 3;
          google.protobuf.StringValue s = 4; map<string, google.protobuf.NullValue> n = 5; }""",
    "an edition": """
        edition = "2023"; package p; option features.field_presence = IMPLICIT; option features.enum_type = CLOSED;
        message A { int32 a = 1 [features.field_presence = EXPLICIT, default = 5]; A b = 2 [features.message_encoding = DELIMITED];
          repeated int32 c = 3 [features.repeated_field_encoding = EXPANDED]; string d = 4 [features.field_presence = LEGACY_REQUIRED];
          map<string, string> e = 5 [features.utf8_validation = NONE]; reserved foo, bar; reserved 10 to 20;
          oneof o { int32 f = 6; string g = 7; } extensions 100 to 200; map<int32, string> h = 8; }
        enum E { option features.enum_type = OPEN; reserved Q; X = 0; }
        enum C { ONE = 1; }
        message B { C c = 1 [features = { field_presence: EXPLICIT }]; extend A { repeated C more = 100; } }""",
    "strings": r"""
        syntax = "proto3"; option java_package = "\a\b\f\n\r\t\v\\\?\'\"\x0A\x7\7\12\123\u0041\U0001F600ä€😀"; message A {}""",
    "an unused import": 'syntax = "proto3"; import "google/protobuf/duration.proto"; message A {}',
    "aliases in JSON": """
        syntax = "proto3"; enum Foo { option allow_alias = true; FOO_BAR = 0; BAR = 0; FOO_BAZ = 1; }
        enum Foo_Two { FOO_TWO_A = 0; B = 1; FOOTWO = 2; }""",
    "a name in JSON twice in proto2": 'syntax = "proto2"; message A { optional int32 a_b = 1; optional int32 aB = 2; }',
}
"""Texts that protoc accepts, but for that of Confluent."""

INVALID: dict[str, str] = {
    "nonsense": "this is no schema",
    "not closed": 'syntax = "proto3"; message A { int32 a = 1;',
    "closed twice": 'syntax = "proto3"; message A { } }',
    "unknown syntax": 'syntax = "proto4"; message A {}',
    "unknown edition": 'edition = "1999"; message A {}',
    "late syntax": 'message A {} syntax = "proto3";',
    "no semicolon": 'syntax = "proto3"; message A { int32 a = 1 }',
    "open comment": 'syntax = "proto3"; /* message A {}',
    "open string": 'syntax = "proto3; message A {}',
    "string over two lines": 'syntax = "pro\nto3"; message A {}',
    "two packages": 'syntax = "proto3"; package a; package b;',
    "no label in proto2": 'syntax = "proto2"; message A { int32 a = 1; }',
    "required in proto3": 'syntax = "proto3"; message A { required int32 a = 1; }',
    "group in proto3": 'syntax = "proto3"; message A { optional group G = 1 {} }',
    "group in lower case": 'syntax = "proto2"; message A { optional group g = 1 {} }',
    "label in a oneof": 'syntax = "proto3"; message A { oneof o { optional int32 a = 1; } }',
    "map in a oneof": 'syntax = "proto3"; message A { oneof o { map<string, string> a = 1; } }',
    "repeated map": 'syntax = "proto3"; message A { repeated map<string, string> a = 1; }',
    "map as extension": """
        syntax = "proto2"; message A { extensions 1 to 9; } extend A { map<string, string> a = 1; }""",
    "map with float keys": 'syntax = "proto3"; message A { map<float, string> a = 1; }',
    "map with bytes keys": 'syntax = "proto3"; message A { map<bytes, string> a = 1; }',
    "map with enum keys": 'syntax = "proto3"; enum E { X = 0; } message A { map<E, string> a = 1; }',
    "map with message keys": 'syntax = "proto3"; message A { map<A, string> a = 1; }',
    "map entry declared": 'syntax = "proto3"; message A { map<string, string> a = 1; message AEntry {} }',
    "map of maps": 'syntax = "proto3"; message A { map<string, map<string, string>> a = 1; }',
    "empty oneof": 'syntax = "proto3"; message A { oneof o {} }',
    "empty enum": 'syntax = "proto2"; enum E {}',
    "empty extend": 'syntax = "proto2"; message A { extensions 1 to 9; } extend A {}',
    "enum without zero": 'syntax = "proto3"; enum E { X = 1; }',
    "enum with equal numbers": 'syntax = "proto2"; enum E { X = 1; Y = 1; }',
    "allow_alias without aliases": 'syntax = "proto2"; enum E { option allow_alias = true; X = 1; Y = 2; }',
    "constant twice": 'syntax = "proto2"; enum E { X = 1; X = 2; }',
    "constant of a sibling": 'syntax = "proto2"; enum E { X = 1; } enum F { X = 2; }',
    "constant too large": 'syntax = "proto2"; enum E { X = 2147483648; }',
    "constants alike in JSON": 'syntax = "proto3"; enum Foo { FOO_BAR = 0; BAR = 1; }',
    "message twice": 'syntax = "proto3"; message A {} message A {}',
    "message and package": 'syntax = "proto3"; package A; message A {} message B { A.A a = 1; message B2 { A.B.C c = 1; } }',
    "field twice": 'syntax = "proto3"; message A { int32 a = 1; int32 a = 2; }',
    "number twice": 'syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }',
    "field and nested message": 'syntax = "proto3"; message A { int32 B = 1; message B {} }',
    "field number zero": 'syntax = "proto3"; message A { int32 a = 0; }',
    "negative field number": 'syntax = "proto3"; message A { int32 a = -1; }',
    "field number too large": 'syntax = "proto3"; message A { int32 a = 536870912; }',
    "huge field number": 'syntax = "proto3"; message A { int32 a = 99999999999999999999999; }',
    "number for the implementation": 'syntax = "proto3"; message A { int32 a = 19000; }',
    "invalid octal": 'syntax = "proto3"; message A { int32 a = 08; }',
    "number next to name": 'syntax = "proto3"; message A { int32 a = 1x; }',
    "fraction as field number": 'syntax = "proto3"; message A { int32 a = 1.0; }',
    "reserved number": 'syntax = "proto3"; message A { reserved 1 to 5; int32 a = 3; }',
    "reserved name": 'syntax = "proto3"; message A { reserved "a"; int32 a = 3; }',
    "reserved twice": 'syntax = "proto3"; message A { reserved 1 to 5, 5 to 6; }',
    "reserved backwards": 'syntax = "proto3"; message A { reserved 5 to 1; }',
    "reserved zero": 'syntax = "proto3"; message A { reserved 0; }',
    "reserved name twice": 'syntax = "proto3"; message A { reserved "a", "a"; }',
    "reserved name without quotes": 'syntax = "proto3"; message A { reserved a; }',
    "reserved with quotes in an edition": 'edition = "2023"; message A { reserved "a"; }',
    "reserved numbers and names": 'syntax = "proto3"; message A { reserved 1, "a"; }',
    "reserved constant": 'syntax = "proto2"; enum E { reserved 1; X = 1; }',
    "reserved name of a constant": 'syntax = "proto2"; enum E { reserved "X"; X = 1; }',
    "extension range in proto3": 'syntax = "proto3"; message A { extensions 1 to 5; }',
    "extension range with a field": 'syntax = "proto2"; message A { extensions 1 to 5; optional int32 a = 1; }',
    "extension range and reserved": 'syntax = "proto2"; message A { extensions 1 to 5; reserved 5; }',
    "extension out of range": """
        syntax = "proto2"; message A { extensions 1 to 5; } extend A { optional int32 a = 6; }""",
    "extension number twice": """
        syntax = "proto2"; message A { extensions 1 to 5; } extend A { optional int32 a = 1; optional int32 b = 1; }""",
    "required extension": """
        syntax = "proto2"; message A { extensions 1 to 5; } extend A { required int32 a = 1; }""",
    "extension of an enum": 'syntax = "proto2"; enum E { X = 1; } extend E { optional int32 a = 1; }',
    "extension with json_name": """
        syntax = "proto2"; message A { extensions 1 to 5; } extend A { optional int32 a = 1 [json_name = "b"]; }""",
    "extension in proto3": """
        syntax = "proto3"; import "google/protobuf/any.proto"; extend google.protobuf.Any { int32 a = 100; }""",
    "unknown type": 'syntax = "proto3"; message A { B b = 1; }',
    "type that is a field": 'syntax = "proto3"; message A { int32 x = 1; A.x b = 2; }',
    "type that is a package": 'syntax = "proto3"; package p.q; message A { p.q b = 2; }',
    "innermost scope decides": """
        syntax = "proto3"; package a; message B { message C {} }
        message D { message B {} B.C c = 1; }""",
    "type of an import that is missing": 'syntax = "proto3"; message A { google.protobuf.Any a = 1; }',
    "request that is an enum": 'syntax = "proto3"; enum E { X = 0; } service S { rpc M (E) returns (E); }',
    "import twice": """
        syntax = "proto3"; import "google/protobuf/any.proto"; import "google/protobuf/any.proto"; message A {}""",
    "import without quotes": 'syntax = "proto3"; import a; message A {}',
    "default in proto3": 'syntax = "proto3"; message A { int32 a = 1 [default = 1]; }',
    "default of a message": 'syntax = "proto2"; message A { optional A a = 1 [default = X]; }',
    "default of a repeated field": 'syntax = "proto2"; message A { repeated int32 a = 1 [default = 1]; }',
    "default out of range": 'syntax = "proto2"; message A { optional int32 a = 1 [default = 2147483648]; }',
    "negative default": 'syntax = "proto2"; message A { optional uint32 a = 1 [default = -1]; }',
    "string as default of a number": 'syntax = "proto2"; message A { optional int32 a = 1 [default = "1"]; }',
    "number as default of a bool": 'syntax = "proto2"; message A { optional bool a = 1 [default = 1]; }',
    "unknown constant as default": """
        syntax = "proto2"; enum E { X = 1; } message A { optional E a = 1 [default = Y]; }""",
    "number as default of an enum": """
        syntax = "proto2"; enum E { X = 1; } message A { optional E a = 1 [default = 1]; }""",
    "default twice": 'syntax = "proto2"; message A { optional int32 a = 1 [default = 1, default = 2]; }',
    "json_name twice": 'syntax = "proto3"; message A { int32 a = 1 [json_name = "x", json_name = "y"]; }',
    "json_name in brackets": 'syntax = "proto3"; message A { int32 a = 1 [json_name = "[x]"]; }',
    "names alike in JSON": 'syntax = "proto3"; message A { int32 a_b = 1; int32 aB = 2; }',
    "unknown option": 'syntax = "proto3"; option nothing = 1; message A {}',
    "unknown custom option": 'syntax = "proto3"; option (nothing) = 1; message A {}',
    "option twice": 'syntax = "proto3"; option java_package = "a"; option java_package = "b"; message A {}',
    "option of another type": 'syntax = "proto3"; option java_package = 1; message A {}',
    "option with a constant that is none": 'syntax = "proto3"; option optimize_for = SLOW; message A {}',
    "option that is no bool": 'syntax = "proto3"; option java_multiple_files = 1; message A {}',
    "option of another element": """
        syntax = "proto3"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { int32 o = 50000; } option (o) = 1; message A {}""",
    "option below a scalar": 'syntax = "proto3"; option java_package.x = "a"; message A {}',
    "option with braces for a scalar": 'syntax = "proto3"; option java_package = { x: 1 }; message A {}',
    "option that is not interpreted": 'syntax = "proto3"; option uninterpreted_option = { }; message A {}',
    "option whose braces do not match": """
        syntax = "proto3"; import "google/protobuf/descriptor.proto"; message V { int32 i = 1; }
        extend google.protobuf.FileOptions { V v = 50000; } option (v) = { i: 1 ; message A {}""",
    "option with an unknown field": """
        syntax = "proto3"; import "google/protobuf/descriptor.proto"; message V { int32 i = 1; }
        extend google.protobuf.FileOptions { V v = 50000; } option (v) = { j: 1 }; message A {}""",
    "option out of range": """
        syntax = "proto3"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FileOptions { int32 v = 50000; } option (v) = 2147483648; message A {}""",
    "packed strings": 'syntax = "proto2"; message A { repeated string a = 1 [packed = true]; }',
    "packed single number": 'syntax = "proto2"; message A { optional int32 a = 1 [packed = true]; }',
    "jstype of an int32": 'syntax = "proto3"; message A { int32 a = 1 [jstype = JS_STRING]; }',
    "lazy number": 'syntax = "proto3"; message A { int32 a = 1 [lazy = true]; }',
    "optional in an edition": 'edition = "2023"; message A { optional int32 a = 1; }',
    "group in an edition": 'edition = "2023"; message A { group G = 1 {} }',
    "default without presence": """
        edition = "2023"; message A { int32 a = 1 [features.field_presence = IMPLICIT, default = 1]; }""",
    "packed in an edition": 'edition = "2023"; message A { repeated int32 a = 1 [packed = true]; }',
    "unknown escape": r'syntax = "proto3"; option java_package = "\q"; message A {}',
    "field without type": 'syntax = "proto3"; message A { a = 1; }',
    "field without name": 'syntax = "proto3"; message A { int32 = 1; }',
    "field without number": 'syntax = "proto3"; message A { int32 a; }',
    "method without response": 'syntax = "proto3"; message A {} service S { rpc M (A); }',
    "scalar as request": 'syntax = "proto3"; message A {} service S { rpc M (int32) returns (A); }',
    "closed enum without presence": """
        edition = "2023"; enum E { option features.enum_type = CLOSED; X = 0; }
        message A { E e = 1 [features.field_presence = IMPLICIT]; }""",
    "character of no token": 'syntax = "proto3"; message A { int32 a = 1; } %',
    "not ASCII": 'syntax = "proto3"; message Ä {}',
    "dots in a name": 'syntax = "proto3"; message A.B {}',
    "message set with a field": """
        syntax = "proto2"; message A { option message_set_wire_format = true; extensions 4 to max; optional int32 a = 1; }""",
}
"""Texts that protoc refuses."""
