"""Hostile input: too large, too deep, too much; always InvalidSchema, and soon."""

import base64
import random
import re

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.registry.format import InvalidSchema, ReferencedSchema
from runnel.registry.protobuf import FORMAT, Decoder, InvalidRecord, limits, linking
from tests.registry.protobuf.sources import VALID
from tests.registry.protobuf.strategies import random_file

PROTO3 = 'syntax = "proto3"; '
META = PROTO3 + 'import "confluent/meta.proto"; '
RECURSIVE_OPTION = """
    syntax = "proto3"; import "google/protobuf/descriptor.proto"; message V { V v = 1; int32 i = 2; }
    extend google.protobuf.FileOptions { V v = 50000; }"""
DIGITS = "9" * 400_000
TAGS = 'tags: "x" ' * (limits.AGGREGATE_BYTES_MAX // 9)
RANGES = ",".join(str(i * 2) for i in range(10_000, 50_000))
FIELDS = "".join(f"int32 a{i}={i};" for i in range(1, 18_000))


def encoded(descriptor: bytes) -> str:
    return base64.b64encode(descriptor).decode()


def nested(depth: int) -> str:
    return PROTO3 + "message A {" * depth + "}" * depth


def descriptor_nested(depth: int) -> str:
    message = descriptor_pb2.DescriptorProto(name="A")
    for _ in range(depth - 1):
        message = descriptor_pb2.DescriptorProto(name="A", nested_type=[message])
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3", message_type=[message])
    return encoded(file.SerializeToString())


def uninterpreted(**value: str) -> str:
    """A descriptor with an option that no parser of source leaves like this."""
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3", dependency=["missing.proto"])
    file.message_type.add(name="A")
    file.options.uninterpreted_option.add(**value).name.add(name_part="o", is_extension=True)
    return encoded(file.SerializeToString())


HOSTILE = {
    "a large text": PROTO3 + " " * limits.TEXT_BYTES_MAX,
    "a large text that is not ASCII": PROTO3 + "/*" + "€" * (limits.TEXT_BYTES_MAX // 2) + "*/",
    "nesting": nested(limits.NESTING_MAX + 1),
    "deep nesting": nested(40_000),
    "nesting of a descriptor": descriptor_nested(limits.NESTING_MAX + 1),
    "deep nesting of a descriptor": encoded(b"\x22\x02\x1a\x00" + b"\x1a\x80\x80\x80\x80\x01" * 1000),
    "nested groups": 'syntax = "proto2"; message A {' + "optional group G = 1 {" * 15_000,
    "a long name": PROTO3 + f"message {'a' * 1000} {{}}",
    "many fields below a long name": PROTO3 + f"message {'a' * 200_000} {{ {FIELDS} }}",
    "a long package": PROTO3 + "package " + "a." * 100_000 + "a;",
    "a long package of a descriptor": encoded(b"\x12\x90\x4e" + b"a." * 5000 + b"\x22\x03\x0a\x01A"),
    "a long type": PROTO3 + "message A { " + "a." * 100_000 + "a b = 1; }",
    "long names of nested messages": PROTO3 + f"message {'a' * 100} {{" * 9 + "}" * 9,
    "many messages": PROTO3 + "".join(f"message A{i}{{}}" for i in range(limits.MESSAGES_MAX + 1)),
    "many imports": PROTO3 + "".join(f'import "{i}";' for i in range(limits.FILES_MAX + 1)),
    "a number with many digits": PROTO3 + f"message A {{ int32 a = {DIGITS}; }}",
    "a default with many digits": f"message A {{ optional double a = 1 [default = {DIGITS}]; }}",
    "an option with many parts": PROTO3 + "option features" + ".a" * 100_000 + " = 1;",
    "an option with many parts that exist": RECURSIVE_OPTION + "option (v)" + ".v" * 100_000 + ".i = 1;",
    "an option with a deep value": META + "option (confluent.file_meta) = " + "{ a " * 100_000,
    "an option with a deep value in brackets": META + "option (confluent.file_meta) = { " + "a < " * 100_000,
    "options with large values": META + "message A { option (confluent.message_meta) = {" + TAGS + "}; }",
    "many extension ranges with options": f"message A {{ extensions {RANGES} [verification = UNVERIFIED]; }}",
    "many fields of a message": PROTO3 + f"message A {{ {FIELDS} }}",
    "an open comment": PROTO3 + "/" + "*" * 400_000,
    "an open string": PROTO3 + 'option java_package = "' + "a" * 400_000,
    "a lone surrogate": PROTO3 + "option java_package = '\ud800'; message A {}",
    "an uninterpreted option with a deep value": uninterpreted(aggregate_value="a {" * 50_000 + "}" * 50_000),
    "an uninterpreted option that ends its value": uninterpreted(aggregate_value="} ; message Evil { "),
    "an uninterpreted option with a statement": uninterpreted(
        identifier_value="x; message Evil {} option y = 1"
    ),
    "an uninterpreted option without a value": uninterpreted(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused(name):
    with pytest.raises(InvalidSchema) as refused:
        FORMAT.parse(HOSTILE[name])
    assert len(str(refused.value)) < 1000


def test_just_within_the_limits():
    FORMAT.parse(nested(limits.NESTING_MAX))
    assert (
        FORMAT.parse(descriptor_nested(limits.NESTING_MAX)).identity
        == FORMAT.parse(nested(limits.NESTING_MAX)).identity
    )
    FORMAT.parse(PROTO3 + "".join(f"message A{i}{{}}" for i in range(limits.MESSAGES_MAX // 10)))


def test_limits_of_references():
    many = [ReferencedSchema(f"{i}.proto", PROTO3) for i in range(limits.FILES_MAX + 1)]
    with pytest.raises(InvalidSchema, match="more than 200 references"):
        FORMAT.parse(PROTO3, many)
    comment = "//" + "x" * (limits.TEXT_BYTES_MAX - 100)
    large = [ReferencedSchema(f"{i}.proto", f"{PROTO3}{comment}") for i in range(5)]
    with pytest.raises(InvalidSchema, match="the references have more than"):
        FORMAT.parse(PROTO3, large)


def test_chain_of_public_imports():
    chain = [
        ReferencedSchema(
            f"{i}.proto", f'{PROTO3} package p{i}; import public "{i + 1}.proto"; message M {{}}'
        )
        for i in range(limits.FILES_MAX - 1)
    ]
    chain.append(ReferencedSchema(f"{limits.FILES_MAX - 1}.proto", PROTO3 + "package last; message M {}"))
    schema = FORMAT.parse(PROTO3 + 'import "0.proto"; message A { last.M a = 1; p100.M b = 2; }', chain)
    assert schema.link().FindMessageTypeByName("last.M")


def test_incompatibilities_are_limited():
    old = FORMAT.parse(PROTO3 + "message A {" + "".join(f"int32 a{i}={i};" for i in range(1, 500)) + "}")
    new = FORMAT.parse(PROTO3 + "message A {" + "".join(f"string a{i}={i};" for i in range(1, 500)) + "}")
    assert len(new.incompatibilities(old)) == limits.INCOMPATIBILITIES_MAX


def test_comparison_of_many_pairs_ends(monkeypatch):
    """Equally named messages of many packages make as many pairs as there are fields."""
    monkeypatch.setattr(limits, "COMPARED_FIELDS_MAX", 1000)
    fields = " ".join(f"int32 a{i} = {i};" for i in range(1, 100))
    packages = [
        ReferencedSchema(f"{i}.proto", f"{PROTO3} package p{i}; message M {{ {fields} }}") for i in range(20)
    ]
    imports = " ".join(f'import "{i}.proto";' for i in range(20))
    old = FORMAT.parse(
        f"{PROTO3} {imports} message A {{ {' '.join(f'p0.M a{i} = {i + 1};' for i in range(20))} }}", packages
    )
    new = FORMAT.parse(
        f"{PROTO3} {imports} message A {{ {' '.join(f'p{i}.M a{i} = {i + 1};' for i in range(20))} }}",
        packages,
    )
    (found,) = new.incompatibilities(old)
    assert found.message == "There are too many messages to compare."


TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|\S|\s+')
PIECES = [piece for text in VALID.values() for piece in TOKEN.findall(text)]


def mutated_source(rng: random.Random) -> str:
    tokens = TOKEN.findall(rng.choice(list(VALID.values())))
    for _ in range(rng.randrange(1, 5)):
        index = rng.randrange(len(tokens))
        tokens[index : index + rng.randrange(2)] = [rng.choice(PIECES)] * rng.randrange(3)
    return "".join(tokens)


def mutated_descriptor(rng: random.Random) -> str:
    texts = list(VALID.values())
    file = random_file(rng) if rng.random() < 0.5 else linking.link(rng.choice(texts), ()).file
    data = bytearray(file.SerializeToString())
    for _ in range(rng.randrange(1, 4)):
        index = rng.randrange(len(data))
        data[index : index + rng.randrange(2)] = bytes([rng.randrange(256)]) * rng.randrange(1, 3)
    return encoded(bytes(data))


@settings(max_examples=100)
@given(seed=st.integers(0, 2**64), is_source=st.booleans())
def test_mutated_text_is_refused_or_a_schema(seed, is_source):
    """Nothing but InvalidSchema is raised, and what is accepted can be printed and read again."""
    text = (mutated_source if is_source else mutated_descriptor)(random.Random(seed))
    try:
        schema = FORMAT.parse(text)
    except InvalidSchema:
        return
    assert FORMAT.parse(schema.text).identity == schema.identity
    normalized = schema.normalized()
    assert FORMAT.parse(normalized).normalized() == normalized
    FORMAT.parse(schema.formatted("serialized"))


@pytest.mark.parametrize(
    "option",
    [
        "(v).Clear = 1",
        "(v) = { Clear: 1 }",
        "(v).SetInParent = 1",
        "(w).v.Clear = 1",
        "(w) = { v { DESCRIPTOR: 1 } }",
    ],
)
def test_fields_named_like_attributes_of_messages(option):
    """Options are set in Python, where such fields hide methods; elsewhere they do no harm."""
    message = (
        "message V { int32 Clear = 1; int32 DESCRIPTOR = 2; int32 SetInParent = 3; int32 ListFields = 4; }"
    )
    text = f"""
        syntax = "proto3"; import "google/protobuf/descriptor.proto"; {message} message W {{ V v = 1; }}
        extend google.protobuf.FileOptions {{ V v = 50000; W w = 50001; }}"""
    schema = FORMAT.parse(text)
    assert FORMAT.parse(schema.formatted("serialized")).identity == schema.identity
    with pytest.raises(InvalidSchema):
        FORMAT.parse(f"{text} option {option};")
    with pytest.raises(InvalidRecord):
        Decoder(schema).decode(b"\x08\x01")


@given(text=st.text(max_size=60))
def test_any_text_is_refused_or_a_schema(text):
    try:
        FORMAT.parse(text)
    except InvalidSchema as refused:
        assert str(refused)
