"""Messages to test with: chosen by hypothesis, or one of a few telling shapes."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from runnel.messages import registry
from runnel.wire import Message, fields_of
from runnel.wire.primitives import ArrayOf, Blob, Fixed, Text, WireType
from runnel.wire.struct import Field, Struct

Chooser = Callable[[type[Struct], Field], st.SearchStrategy[Any] | None]

BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}


def all_messages() -> list[type[Message]]:
    """Every request and every response."""
    apis = [registry.api(key) for key in registry.API_NAMES]
    return [message for api in apis for message in (api.request, api.response)]


def fixed_values(kind: Fixed) -> st.SearchStrategy[Any]:
    if kind.code == "?":
        return st.booleans()
    if kind.code == "d":
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind.code == "16s":
        return st.binary(min_size=16, max_size=16)
    bits = BITS[kind.code]
    signed = kind.code.islower()
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high)


def values(kind: WireType, version: int, choose: Chooser) -> st.SearchStrategy[Any]:
    """Any value that a field of this type can have."""
    match kind:
        case Fixed():
            return fixed_values(kind)
        case Text():
            return st.text(max_size=12) | st.sampled_from(["é" * 70, "n" * 126, "n" * 127])
        case Blob():
            return st.binary(max_size=12) | st.sampled_from([bytes(127), bytes(3000)])
        case ArrayOf():
            return st.lists(values(kind.element, version, choose), max_size=3)
    return structs(kind.struct, version, choose)


def structs(
    kind: type[Struct], version: int, choose: Chooser = lambda _struct, _field: None
) -> st.SearchStrategy[Any]:
    """Objects with any value in the fields of this version, and defaults elsewhere."""
    fields = {}
    for field in fields_of(kind):
        if not field.versions.covers(version):
            continue
        strategy = choose(kind, field)
        if strategy is None:
            strategy = values(field.type, version, choose)
        if field.nullable.covers(version) or field.default is None:
            strategy = strategy | st.none()
        fields[field.name] = strategy
    return st.builds(kind, **fields)


def example(
    kind: type[Struct], version: int, shape: str, choose: Callable[[Field], Any] = lambda _: None
) -> Any:
    """One object: `full` has everything set, `null` null where it may be, `empty` nothing in any array."""
    given: dict[str, Any] = {}
    for field in fields_of(kind):
        if not field.versions.covers(version):
            continue
        if shape == "null" and (field.nullable.covers(version) or field.default is None):
            given[field.name] = None
        else:
            chosen = choose(field)
            given[field.name] = one(field.type, version, shape, choose) if chosen is None else chosen
    return kind(**given)


def one(kind: WireType, version: int, shape: str, choose: Callable[[Field], Any]) -> Any:
    match kind:
        case Fixed():
            return {"?": True, "d": -2.5, "16s": bytes(range(1, 17))}.get(kind.code, 5)
        case Text():
            return "" if shape == "empty" else "nämé"
        case Blob():
            return b"" if shape == "empty" else b"\x00bytes\xff"
        case ArrayOf():
            return [] if shape == "empty" else [one(kind.element, version, shape, choose)] * 2
    return example(kind.struct, version, shape, choose)
