"""The parser against protoc: equal descriptors, and the same texts refused."""

import random
import re
from pathlib import Path

import pytest
from google.protobuf import __file__ as protobuf
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.registry.format import InvalidSchema, ReferencedSchema
from runnel.registry.protobuf import FORMAT, linking, well_known
from runnel.registry.protobuf.linking import LinkedFile
from tests.registry.protobuf.oracle import WELL_KNOWN, comparable, compile_proto
from tests.registry.protobuf.sources import INVALID, VALID
from tests.registry.protobuf.strategies import files, serialized

CONFLUENT = {name: text for name, text in well_known.SOURCES.items() if name.startswith("confluent/")}
ONLY_CONFLUENT_ACCEPTS = "a map entry as a message, as Confluent prints it"
IMPORT = re.compile(r'^import (?:public )?"(.*?)"', re.MULTILINE)


def assert_equal_to_protoc(text: str, others: dict[str, str], linked: LinkedFile) -> None:
    compiled = compile_proto(text, others)
    assert compiled is not None
    assert comparable(linked.file, linked.pool) == comparable(compiled, linked.pool)


@pytest.mark.parametrize("name", sorted(VALID.keys() - {ONLY_CONFLUENT_ACCEPTS}))
def test_descriptor_is_that_of_protoc(name):
    assert_equal_to_protoc(VALID[name], CONFLUENT, linking.link(VALID[name], ()))


def test_declared_map_entry_is_a_map():
    as_map = 'syntax = "proto3"; message A { map<string, int32> ab = 1; }'
    assert FORMAT.parse(VALID[ONLY_CONFLUENT_ACCEPTS]).identity == FORMAT.parse(as_map).identity


@pytest.mark.parametrize("name", sorted(INVALID))
def test_refused_as_by_protoc(name, capfd):
    assert compile_proto(INVALID[name], CONFLUENT) is None
    with pytest.raises(InvalidSchema):
        FORMAT.parse(INVALID[name])


def published_files() -> dict[str, str]:
    """The files of protobuf and of googleapis-common-protos."""
    site_packages = Path(protobuf).parent.parent.parent
    found = {}
    for root in (site_packages, WELL_KNOWN):
        for path in sorted((root / "google").rglob("*.proto")):
            found[str(path.relative_to(root))] = path.read_text("utf-8")
    return found


PUBLISHED = published_files()


def imports_of(text: str, found: dict[str, str]) -> dict[str, str]:
    for name in IMPORT.findall(text):
        if name in PUBLISHED and name not in found:
            found[name] = PUBLISHED[name]
            imports_of(PUBLISHED[name], found)
    return found


# The descriptors of descriptors themselves are part of every schema, and cannot be one.
@pytest.mark.parametrize("name", sorted(PUBLISHED.keys() - {"google/protobuf/descriptor.proto"}))
def test_published_file_is_that_of_protoc(name):
    others = imports_of(PUBLISHED[name], {})
    references = [ReferencedSchema(*each) for each in others.items()]
    assert_equal_to_protoc(PUBLISHED[name], others, linking.link(PUBLISHED[name], references))


@settings(max_examples=30)
@given(file=files(), seed=st.integers(0, 2**32))
def test_random_file_is_that_of_protoc(file, seed):
    """However it is formatted."""
    text = reformatted(FORMAT.parse(serialized(file)).normalized(), random.Random(seed))
    assert_equal_to_protoc(text, {}, linking.link(text, ()))


def reformatted(text: str, rng: random.Random) -> str:
    """A text with other blanks, and comments, between its tokens."""
    blanks = [" ", "\n", "\t", " // ; } \n", "/* { */", ' /* " */ ']
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[\w.]+|\S', text)
    separated = [token + rng.choice(blanks) if rng.random() < 0.3 else f"{token} " for token in tokens]
    return "".join(separated)


NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def scopes(draw: st.DrawFn) -> str:
    """A file in which a few names mean packages and messages, and fields use parts of full names."""
    package = draw(st.lists(NAMES, max_size=2))
    paths = [tuple(package)]
    bodies: dict[tuple[str, ...], list[str]] = {paths[0]: []}
    for _ in range(draw(st.integers(1, 6))):
        path = (*draw(st.sampled_from(paths)), draw(NAMES))
        if path not in bodies:
            paths.append(path)
            bodies[path] = []
    used = [path for path in paths if path != tuple(package)]
    for number in range(1, draw(st.integers(2, 6))):
        target = draw(st.sampled_from(used))
        start = draw(st.integers(0, len(target) - 1))
        dot = "." if start == 0 and draw(st.booleans()) else ""
        field = f"{dot}{'.'.join(target[start:])} f{number} = {number};"
        bodies[draw(st.sampled_from(used))].append(field)
    if draw(st.integers(0, 3)) == 0:
        bodies[draw(st.sampled_from(used))].append(f"int32 {draw(NAMES)} = 9;")

    def declaration(path: tuple[str, ...]) -> str:
        inner = " ".join(declaration(each) for each in paths if each[:-1] == path)
        return f"message {path[-1]} {{ {' '.join(bodies[path])} {inner} }}"

    types = " ".join(declaration(each) for each in used if each[:-1] == tuple(package))
    return f'syntax = "proto3"; {"package " + ".".join(package) + ";" if package else ""} {types}'


@settings(max_examples=80)
@given(text=scopes())
def test_names_are_resolved_as_by_protoc(text):
    compiled = compile_proto(text)
    try:
        linked = linking.link(text, ())
    except InvalidSchema:
        assert compiled is None
    else:
        assert compiled is not None
        assert comparable(linked.file, linked.pool) == comparable(compiled, linked.pool)


def test_visibility_of_imports():
    """A file uses the names of what it imports, and of what that imports publicly; of nothing else."""
    others = {
        "base.proto": 'syntax = "proto3"; package base; message Base {}',
        "public.proto": 'syntax = "proto3"; import public "base.proto"; message Public { base.Base b = 1; }',
        "private.proto": 'syntax = "proto3"; import "base.proto"; message Private { base.Base b = 1; }',
    }
    references = [ReferencedSchema(*each) for each in others.items()]
    for name, is_accepted in (("public.proto", True), ("private.proto", False)):
        text = f'syntax = "proto3"; import "{name}"; message A {{ base.Base b = 1; }}'
        compiled = compile_proto(text, others)
        assert (compiled is not None) is is_accepted
        if is_accepted:
            assert_equal_to_protoc(text, others, linking.link(text, references))
        else:
            with pytest.raises(InvalidSchema, match=r'"base.proto" declares it, but is not imported'):
                FORMAT.parse(text, references)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('syntax = "proto3";\nmessage A {\n  int32 a = 1\n}', 'line 4: expected ";", found "}"'),
        ('syntax = "proto3";\nmessage A {\n', "line 3: expected a field, .* found the end of the text"),
        ('syntax = "proto3"; message A { B b = 1; }', 'A.b: "B" is not declared'),
        (
            'syntax = "proto3"; package p; message A { int32 a = 1; int32 b = 1; }',
            "p.A.b: its number, 1, is that of a",
        ),
        ('syntax = "proto3"; message A { reserved 4; int32 a = 4; }', "A.a: its number, 4, is reserved"),
        ('syntax = "proto3"; message A {} message A {}', "A is declared twice: it is already a message"),
        (
            'syntax = "proto3"; import "other.proto"; message A { other.B b = 1; }',
            'A.b: "other.B" is not declared; the schema has no references for its imports "other.proto"',
        ),
        ("Zm9v", "neither .proto source nor base64 of a FileDescriptorProto"),
        ('edition = "2024"; message A {}', "only proto2, proto3 and edition 2023"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(InvalidSchema, match=message):
        FORMAT.parse(text)
