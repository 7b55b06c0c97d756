"""Message declarations."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runnel.wire import (
    Data,
    MalformedMessage,
    Struct,
    bytes_,
    decode,
    encoded,
    field,
    fields_of,
    int8,
    int32,
    records_,
    string,
    uint32,
    uuid,
)
from runnel.wire.primitives import long_unsigned_varint, unsigned_varint, varint
from runnel.wire.struct import Span


class Inner(Struct):
    number: int32 = -1


class Sample(Data, versions="0-2", flexible="1+"):
    name: string = ""
    count: uint32 = field("1+", default=7)
    inners: list[Inner] = field()
    inner: Inner = field()
    maybe: Inner | None = field("2+", default=None)
    label: string | None = field("1+", tag=1, default=None)
    leader: Inner | None = field("1+", tag=0)
    owner: Inner | None = field("2+", tag=2, default=None, nullable="2+")
    identity: uuid = field("2+")
    key: bytes_ = field()
    batch: records_ | None = field()


def test_every_field_has_a_default_and_a_position() -> None:
    sample = Sample("x", 3)
    assert (sample.name, sample.count, sample.inners, sample.inner) == ("x", 3, [], Inner())
    assert (sample.leader, sample.identity, sample.key, sample.batch) == (None, bytes(16), b"", None)
    assert [each.name for each in fields_of(Sample)][:2] == ["name", "count"]


def test_mutable_defaults_are_not_shared() -> None:
    first, second = Sample(), Sample()
    first.inners.append(Inner())
    first.inner.number = 5
    assert second.inners == [] and second.inner.number == -1


def test_base_class_instantiated_before_its_subclasses() -> None:
    class Base(Data):
        pass

    class Derived(Base, versions="0"):
        number: int8 = 3

    assert Base() == Base()
    assert Derived(number=4).number == 4


def test_objects_reject_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Sample().nmae = "x"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Sample(nmae="x")  # type: ignore[call-arg]


def test_equality_and_print() -> None:
    assert Inner(3) == Inner(number=3) != Inner(4)
    assert Inner(3) != 3
    assert repr(Inner(3)) == "Inner(number=3)"


def test_field_without_a_default_is_rejected() -> None:
    with pytest.raises(TypeError, match="give number a default value"):

        class Bare(Struct):
            number: int32


def test_an_annotation_must_be_a_wire_type() -> None:
    class Odd(Struct):
        number: int = 0

    with pytest.raises(TypeError, match="not a wire type"):
        fields_of(Odd)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("3-5", [3, 5], [2, 6]), ("3+", [3, 999], [2]), ("none", [], [0])],
)
def test_version_spans(text: str, inside: list[int], outside: list[int]) -> None:
    span = Span.parse(text)
    assert all(span.covers(version) for version in inside)
    assert not any(span.covers(version) for version in outside)


def test_tagged_fields_are_sorted_by_tag() -> None:
    wire = encoded(Sample(label="l", leader=Inner(3)), 1)
    assert wire.endswith(bytes.fromhex("02 00 05 00000003 00 01 02 02") + b"l")
    assert decode(Sample, 1, wire).leader == Inner(3)


def test_tagged_struct_with_default_values_is_omitted() -> None:
    assert encoded(Sample(leader=Inner()), 1) == encoded(Sample(leader=None), 1)
    assert encoded(Sample(owner=Inner()), 2) != encoded(Sample(owner=None), 2)
    assert decode(Sample, 2, encoded(Sample(owner=Inner()), 2)).owner == Inner()


PREFIX = encoded(Sample(), 1)[:-1]


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ("01 0900", None),
        ("02 0900 8001 03 aabbcc", None),
        ("02 0900 0900", "repeated"),
        ("02 0900 0800", "out of order"),
        ("01 09 05 aa", "too long"),
        ("01 00 06 00000003 00 00", "does not match its size"),
        ("01 00 04 00000003 00", "does not match its size"),
        ("01 00 05 00000003 00 00", "ends at"),
        ("ff", "out of bounds"),
        ("ffffffffff 01", "32 bits"),
        ("ffffffff7f", "32 bits"),
        ("01 01 02 02 ff", "utf-8"),
    ],
)
def test_tagged_fields_from_other_implementations(tags: str, why: str | None) -> None:
    wire = PREFIX + bytes.fromhex(tags)
    if why is None:
        assert decode(Sample, 1, wire) == Sample()
    else:
        with pytest.raises(MalformedMessage, match=why):
            decode(Sample, 1, wire)


@pytest.mark.parametrize("count", ["ffffff7f", "7fffffff", "80000000", "fffffffe", "ffffffff"])
def test_array_counts_beyond_the_input_are_rejected(count: str) -> None:
    class Numbers(Data, versions="0"):
        numbers: list[int8] = field()

    Numbers.__annotations__["numbers"] = list[int8]
    with pytest.raises(MalformedMessage, match=r"more elements|negative"):
        decode(Numbers, 0, bytes.fromhex(count) + b"few")


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 4095, 4096, 16383, 16384, 2**31, 2**32 - 1])
def test_varints(value: int) -> None:
    wire = unsigned_varint(value)
    assert varint(value) == wire
    assert long_unsigned_varint(memoryview(wire), 0) == (value, len(wire))


def test_varints_out_of_range() -> None:
    for value in (-1, 2**32):
        with pytest.raises(ValueError, match="does not fit"):
            varint(value)


def test_show_prints_the_codecs() -> None:
    command = [sys.executable, "-m", "runnel.wire", "show"]
    shown = subprocess.run([*command, "fetch", "12"], check=True, capture_output=True, text=True).stdout
    assert shown.count("def decode(") == shown.count("def encode(") == 2
    for bad in (["Fetch", "3"], ["Fitch", "3"]):
        assert subprocess.run([*command, *bad], capture_output=True, text=True).returncode == 2


def test_messages_are_imported_on_demand() -> None:
    code = "import sys; from runnel.messages import registry; registry.api(3); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert [name for name in loaded if name.startswith("runnel.messages.")] == [
        "runnel.messages.registry",
        "runnel.messages.metadata",
    ]
