"""Requests at the edge of what the protocol and our limits permit: every array, text and number, alone and
in pairs.

A case is a `Shape`: how many elements each array has, how long each text is, what each number is. Paths name
fields from the request inwards: `topics.partitions` is the array in each element of `topics`.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.broker.apis.handlers import APIS, FORWARDED, PRODUCE_KEY, elements_max
from runnel.messages.envelope import EnvelopeRequest
from runnel.messages.principal import PRINCIPAL_VERSION, DefaultPrincipalData
from runnel.messages.registry import api
from runnel.model.limits import (
    PARTITIONS_PER_REQUEST_MAX,
    RECORDLESS_REQUEST_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_ELEMENTS_MAX,
    TEXT_BYTES_MAX,
)
from runnel.wire import Request, Struct, encoded, fields_of
from runnel.wire.frame import request_frame
from runnel.wire.primitives import RECORDS, ArrayOf, Blob, Fixed, StructOf, Text, WireType
from tools.fuzz.cost.values import Fill, Values

PAIRED_ELEMENTS = 1000
ENVELOPE_KEY = 58
PRINCIPAL = PRINCIPAL_VERSION.to_bytes(2, "big") + encoded(
    DefaultPrincipalData("User", "ANONYMOUS"), PRINCIPAL_VERSION
)
CLIENT_ADDRESS = bytes((127, 0, 0, 1))
_MAX = {"int8": 2**7 - 1, "int16": 2**15 - 1, "uint16": 2**16 - 1, "int32": 2**31 - 1, "uint32": 2**32 - 1}
LARGEST_ALLOWED = {
    (19, "topics.num_partitions"): PARTITIONS_PER_REQUEST_MAX,
    (37, "topics.count"): PARTITIONS_PER_REQUEST_MAX,
}
"""Numbers whose largest value that is not refused is smaller than the field has room for."""

NUMBER_MAX = {**_MAX, "int64": 2**63 - 1}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest request that is tried."""

    elements: int = REQUEST_ELEMENTS_MAX
    size_bytes: int = REQUEST_BYTES_MAX

    def of_api(self, api_key: int) -> "Bounds":
        """Within the limits of an API."""
        return Bounds(
            min(self.elements, elements_max(api_key)),
            min(
                self.size_bytes, REQUEST_BYTES_MAX if api_key == PRODUCE_KEY else RECORDLESS_REQUEST_BYTES_MAX
            ),
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """How one case differs from the smallest request."""

    counts: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    nulls: frozenset[str] = frozenset()
    fill: Fill = Fill.EXISTING

    def __str__(self) -> str:
        parts = [f"{count} {path}" for path, count in self.counts.items()]
        parts += [f"{length} B {path}" for path, length in self.lengths.items()]
        parts += [f"{path}={number}" for path, number in self.numbers.items()]
        parts += [f"{path}=null" for path in sorted(self.nulls)]
        described = ", ".join(parts) or "smallest"
        return f"{described} ({self.fill})" if self.counts else described


@dataclass(frozen=True, slots=True)
class Leaf:
    """A field of a request in one version, with the arrays around it."""

    path: str
    type: WireType
    is_nullable: bool

    @property
    def is_array(self) -> bool:
        return isinstance(self.type, ArrayOf)

    def is_within(self, array: "Leaf") -> bool:
        return self.path.startswith(array.path + ".")


def leaves(struct: type[Struct], version: int, prefix: str = "") -> Iterator[Leaf]:
    """Every array, text, blob and number of a request, outer ones first."""
    for declared in fields_of(struct):
        if not declared.versions.covers(version):
            continue
        path = prefix + declared.name
        if not isinstance(declared.type, StructOf):
            yield Leaf(path, declared.type, declared.nullable.covers(version))
        inner = declared.type.element if isinstance(declared.type, ArrayOf) else declared.type
        if isinstance(inner, StructOf):
            yield from leaves(inner.struct, version, path + ".")
        elif isinstance(declared.type, ArrayOf):
            yield Leaf(path + ".", inner, False)


def shapes(request: type[Request], version: int, bounds: Bounds) -> Iterator[Shape]:
    """All cases of one request in one version."""
    found = list(leaves(request, version))
    arrays = [leaf for leaf in found if leaf.is_array]
    texts = [leaf for leaf in found if isinstance(leaf.type, (Text, Blob))]
    numbers = [leaf for leaf in found if isinstance(leaf.type, Fixed) and leaf.type.name in NUMBER_MAX]
    yield Shape()
    for leaf in found:
        if leaf.is_nullable and (leaf.is_array or isinstance(leaf.type, Text)):
            yield Shape(nulls=frozenset({leaf.path}))
    for number in numbers:
        yield from _extremes(number)
        if (request.api_key, number.path) in LARGEST_ALLOWED:
            yield Shape(numbers={number.path: LARGEST_ALLOWED[request.api_key, number.path]})
    yield from _long_texts(texts, bounds)
    yield from _full_arrays(arrays, bounds)
    for array in arrays:
        yield from _array_with(array, texts, numbers, bounds)
        for leaf in arrays:
            if leaf.is_nullable and leaf.is_within(array):
                # A few bytes for each element, which stand for all that there is.
                yield Shape({array.path: bounds.elements - 100}, nulls=frozenset({leaf.path}))


def _extremes(leaf: Leaf) -> Iterator[Shape]:
    assert isinstance(leaf.type, Fixed)
    yield Shape(numbers={leaf.path: NUMBER_MAX[leaf.type.name]})
    yield Shape(numbers={leaf.path: -1 if leaf.type.name.startswith("int") else 0})


def _long_texts(texts: list[Leaf], bounds: Bounds) -> Iterator[Shape]:
    for leaf in texts:
        yield Shape(lengths={leaf.path: _longest(leaf, bounds.size_bytes)})


def _longest(leaf: Leaf, size_bytes: int) -> int:
    room = size_bytes - 4096
    return room if isinstance(leaf.type, Blob) else min(room, TEXT_BYTES_MAX)


def _full_arrays(arrays: list[Leaf], bounds: Bounds) -> Iterator[Shape]:
    for fill in Fill:
        for array in arrays:
            yield Shape({array.path: bounds.elements - 100}, fill=fill)
            inner = sum(leaf.is_within(array) for leaf in arrays)
            if inner:
                # The arrays in its elements count as well, with one element each.
                yield Shape({array.path: bounds.elements // (1 + inner) - 100}, fill=fill)
    side = int(bounds.elements**0.5) - 1
    for first in arrays:
        for second in arrays:
            if second.is_within(first):
                for fill in (Fill.EXISTING, Fill.MISSING):
                    yield Shape({first.path: side, second.path: side}, fill=fill)
            elif first.path < second.path and not first.is_within(second):
                half = bounds.elements // 2 - 100
                yield Shape({first.path: half, second.path: half}, fill=Fill.EXISTING)


def _array_with(array: Leaf, texts: list[Leaf], numbers: list[Leaf], bounds: Bounds) -> Iterator[Shape]:
    count = min(PAIRED_ELEMENTS, bounds.elements // 4)
    for leaf in texts:
        if leaf.is_within(array):
            length = _longest(leaf, max(bounds.size_bytes // count, 64) + 4000)
            yield Shape({array.path: count}, lengths={leaf.path: length})
    for leaf in numbers:
        assert isinstance(leaf.type, Fixed)
        if leaf.is_within(array) and not leaf.path.endswith("."):
            yield Shape({array.path: count}, numbers={leaf.path: NUMBER_MAX[leaf.type.name]})


@dataclass(frozen=True, slots=True)
class Case:
    """One request to be sent."""

    api_key: int
    version: int
    shape: Shape
    inside: "Case | None" = None
    """The request that an Envelope contains."""

    @property
    def name(self) -> str:
        return api(self.api_key).request.__name__.removesuffix("Request")

    @property
    def description(self) -> str:
        return str(self.inside or self.shape)

    def __str__(self) -> str:
        return f"{self.name} v{self.version}: {self.description}"


def cases(api_key: int, bounds: Bounds) -> Iterator[Case]:
    """The cases of an API in its oldest and its newest version."""
    row = APIS[api_key]
    request = api(api_key).request
    for version in dict.fromkeys((row.version_max, row.version_min)):
        for shape in shapes(request, version, bounds.of_api(api_key)):
            yield Case(api_key, version, shape)


def enveloped_cases(bounds: Bounds) -> Iterator[Case]:
    """Requests of clients with full arrays, as a broker forwards them to the active controller."""
    for api_key in sorted(FORWARDED):
        for case in cases(api_key, bounds):
            shape = case.shape
            is_full = sum(shape.counts.values()) >= bounds.of_api(api_key).elements // 3
            if case.version == APIS[api_key].version_max and is_full and not shape.numbers:
                yield Case(ENVELOPE_KEY, APIS[ENVELOPE_KEY].version_max, Shape(), case)


def frame_of(case: Case, values: Values, bounds: Bounds) -> tuple[Case, bytes]:
    """The frame of a case, with fewer elements where as many do not fit; and the case that it became."""
    if case.inside is not None:
        inside, frame = frame_of(case.inside, values, bounds)
        envelope = EnvelopeRequest(frame[4:], PRINCIPAL, CLIENT_ADDRESS)
        parts = request_frame(envelope, case.version, 7, "cost")
        return replace(case, inside=inside), b"".join(bytes(part) for part in parts)
    request = api(case.api_key).request
    bounds = bounds.of_api(case.api_key)
    while True:
        message = _Builder(case, replace(values, fill=case.shape.fill)).struct(request)
        assert isinstance(message, Request)
        frame = b"".join(bytes(part) for part in request_frame(message, case.version, 7, "cost"))
        if len(frame) - 4 <= bounds.size_bytes:
            return case, frame
        share = bounds.size_bytes / len(frame) * 0.98
        scaled = {
            path: max(1, int(count * share ** (1 / len(case.shape.counts))))
            for path, count in case.shape.counts.items()
        }
        lengths = {
            path: int(length * (share if not scaled else 1)) for path, length in case.shape.lengths.items()
        }
        case = replace(case, shape=replace(case.shape, counts=scaled, lengths=lengths))


class _Builder:
    def __init__(self, case: Case, values: Values) -> None:
        self._version = case.version
        self._shape = case.shape
        self._values = values

    def struct(self, struct: type[Struct], prefix: str = "", index: int = 0) -> Struct:
        made = {
            declared.name: self._value(
                declared.type, struct.__name__, declared.name, prefix + declared.name, index
            )
            for declared in fields_of(struct)
            if declared.versions.covers(self._version)
        }
        return struct(**made)

    def _value(self, wire_type: WireType, struct: str, name: str, path: str, index: int) -> Any:
        if path in self._shape.nulls:
            return None
        match wire_type:
            case StructOf(inner):
                return self.struct(inner, path + ".", index)
            case ArrayOf(StructOf(inner)):
                count = self._shape.counts.get(path, 1)
                different = self._values.different(inner.__name__, count)
                return _tiled([self.struct(inner, path + ".", number) for number in range(different)], count)
            case ArrayOf(element):
                count = self._shape.counts.get(path, 1)
                different = self._values.different(struct, count)
                return _tiled(
                    [self._value(element, struct, name, path + ".", number) for number in range(different)],
                    count,
                )
            case Text():
                return self._text(struct, name, path, index)
            case Blob():
                return self._blob(wire_type, path)
            case Fixed(kind):
                if path in self._shape.numbers:
                    return self._shape.numbers[path]
                return self._values.number(kind, name, index)

    def _text(self, struct: str, name: str, path: str, index: int) -> str:
        length = self._shape.lengths.get(path)
        if length is None:
            return self._values.text(struct, name, index)
        if "regex" in name or "pattern" in name:
            return "a|" * (length // 2)
        return f"{index}-".ljust(length, "x")[:length]

    def _blob(self, wire_type: Blob, path: str) -> bytes:
        length = self._shape.lengths.get(path)
        if wire_type is RECORDS:
            return tiny_batches(length) if length else one_batch()
        return bytes(length or 4)


def _tiled(elements: list[Any], count: int) -> list[Any]:
    """So many elements, those given over and over."""
    return (elements * (count // max(len(elements), 1) + 1))[:count]


@cache
def one_batch() -> bytes:
    """The smallest batch there is."""
    return bytes(build_batch([Record(0, time.time_ns() // 1_000_000, None, b"")]))


def tiny_batches(size_bytes: int) -> bytes:
    """As many of the smallest batches as fit."""
    batch = one_batch()
    return batch * (size_bytes // len(batch))
