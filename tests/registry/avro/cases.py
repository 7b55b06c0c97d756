"""Cases of schema resolution: what a reader's schema makes of data of a writer's."""

from typing import Any, NamedTuple

DEFAULT = "READER_FIELD_MISSING_DEFAULT_VALUE"
TYPE = "TYPE_MISMATCH"
NAME = "NAME_MISMATCH"
SIZE = "FIXED_SIZE_MISMATCH"
SYMBOLS = "MISSING_ENUM_SYMBOLS"
BRANCH = "MISSING_UNION_BRANCH"


class Case(NamedTuple):
    """A reader, a writer, and the expected findings as (kind, path)."""

    name: str
    reader: Any
    writer: Any
    findings: tuple[tuple[str, str], ...] = ()


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


TREE = record(field("value"), field("children", array("R")))
LIST = record(field("value"), field("next", ["null", "R"]))

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {
    ("long", "int"),
    ("float", "int"),
    ("float", "long"),
    ("double", "int"),
    ("double", "long"),
    ("double", "float"),
    ("bytes", "string"),
    ("string", "bytes"),
}
OF_PRIMITIVES = [
    Case(
        f"{reader} reads {writer}",
        reader,
        writer,
        () if reader == writer or (reader, writer) in PROMOTED else ((TYPE, "/"),),
    )
    for reader in PRIMITIVES
    for writer in PRIMITIVES
]

CASES = [
    # Fields.
    Case("equal records", record(field("a")), record(field("a"))),
    Case("a field is added with a default", record(field("a"), field("b", default=0)), record(field("a"))),
    Case(
        "a field is added without default",
        record(field("a"), field("b")),
        record(field("a")),
        ((DEFAULT, "/fields/1"),),
    ),
    Case(
        "two fields are added without default",
        record(field("a"), field("b"), field("c")),
        record(field("a")),
        ((DEFAULT, "/fields/1"), (DEFAULT, "/fields/2")),
    ),
    Case(
        "an optional field is added without default",
        record(field("b", ["null", "int"])),
        record(),
        ((DEFAULT, "/fields/0"),),
    ),
    Case(
        "an optional field is added with default null",
        record(field("b", ["null", "int"], default=None)),
        record(),
    ),
    Case(
        "an enum is added whose own default does not count",
        record(field("b", enum("x", default="x"))),
        record(),
        ((DEFAULT, "/fields/0"),),
    ),
    Case("a field is removed", record(field("a")), record(field("a"), field("b"))),
    Case("a field is renamed", record(field("b")), record(field("a")), ((DEFAULT, "/fields/0"),)),
    Case("a field is renamed with an alias", record(field("b", aliases=["a"])), record(field("a"))),
    Case("a field is renamed with a default", record(field("b", default=1)), record(field("a"))),
    Case(
        "an alias of the writer does not count",
        record(field("b")),
        record(field("a", aliases=["b"])),
        ((DEFAULT, "/fields/0"),),
    ),
    Case(
        "the alias leads to another type",
        record(field("b", "string", aliases=["a"])),
        record(field("a")),
        ((TYPE, "/fields/0/type"),),
    ),
    Case("fields in another order", record(field("b"), field("a")), record(field("a"), field("b"))),
    Case("a field is promoted", record(field("a", "long")), record(field("a", "int"))),
    Case(
        "a field is narrowed",
        record(field("a", "int")),
        record(field("a", "long")),
        ((TYPE, "/fields/0/type"),),
    ),
    Case(
        "two fields change their type",
        record(field("a", "int"), field("b", "int")),
        record(field("a", "string"), field("b", "string")),
        ((TYPE, "/fields/0/type"), (TYPE, "/fields/1/type")),
    ),
    Case("a default changes", record(field("a", default=1)), record(field("a", default=2))),
    Case("a default is removed", record(field("a")), record(field("a", default=2))),
    Case("documentation changes", record(field("a", doc="x"), doc="y"), record(field("a"))),
    Case("an empty record reads all", record(), record(field("a"), field("b"))),
    Case("the sort order changes", record(field("a", order="descending")), record(field("a"))),
    # Names.
    Case("another name", record(field("a"), name="S"), record(field("a")), ((NAME, "/name"),)),
    Case("another name with an alias", record(field("a"), name="S", aliases=["R"]), record(field("a"))),
    Case("another namespace", record(field("a"), namespace="n"), record(field("a"), namespace="m")),
    Case("a namespace is added", record(field("a"), namespace="n"), record(field("a"))),
    Case(
        "an alias with the wrong namespace",
        record(field("a"), name="S", namespace="n", aliases=["R"]),
        record(field("a"), namespace="m"),
        ((NAME, "/name"),),
    ),
    Case(
        "an alias with the full name",
        record(field("a"), name="S", namespace="n", aliases=["m.R"]),
        record(field("a"), namespace="m"),
    ),
    Case(
        "another name and a missing default",
        record(field("b"), name="S"),
        record(field("a")),
        ((NAME, "/name"), (DEFAULT, "/fields/0")),
    ),
    # Enums.
    Case("a symbol is added", enum("a", "b"), enum("a")),
    Case("a symbol is removed", enum("a"), enum("a", "b"), ((SYMBOLS, "/symbols"),)),
    Case("a symbol is removed with a default", enum("a", default="a"), enum("a", "b")),
    Case(
        "a default of the writer does not count",
        enum("a"),
        enum("a", "b", default="a"),
        ((SYMBOLS, "/symbols"),),
    ),
    Case("symbols in another order", enum("b", "a"), enum("a", "b")),
    Case("an enum of another name", enum("a", name="G"), enum("a"), ((NAME, "/name"),)),
    Case("an enum of another name with an alias", enum("a", name="G", aliases=["E"]), enum("a")),
    Case(
        "an enum of another name without the symbol",
        enum("b", name="G"),
        enum("a"),
        ((NAME, "/name"), (SYMBOLS, "/symbols")),
    ),
    Case("an enum becomes a string", "string", enum("a"), ((TYPE, "/"),)),
    Case("a string becomes an enum", enum("a"), "string", ((TYPE, "/"),)),
    # Fixed.
    Case("the same size", fixed(4), fixed(4)),
    Case("another size", fixed(4), fixed(8), ((SIZE, "/size"),)),
    Case("a fixed of another name", fixed(4, name="G"), fixed(4), ((NAME, "/name"),)),
    Case("a fixed of another name with an alias", fixed(4, name="G", aliases=["F"]), fixed(4)),
    Case("a fixed becomes bytes", "bytes", fixed(4), ((TYPE, "/"),)),
    Case("bytes become a fixed", fixed(4), "bytes", ((TYPE, "/"),)),
    Case("a record becomes a fixed", fixed(4, name="R"), record(), ((TYPE, "/"),)),
    # Collections.
    Case("items are promoted", array("long"), array("int")),
    Case("items are narrowed", array("int"), array("long"), ((TYPE, "/items"),)),
    Case("values are promoted", map_of("double"), map_of("float")),
    Case("values change their type", map_of("int"), map_of("string"), ((TYPE, "/values"),)),
    Case("an array becomes a map", map_of("int"), array("int"), ((TYPE, "/"),)),
    Case("an item becomes a list of it", array("int"), "int", ((TYPE, "/"),)),
    Case(
        "a list of records with a new field",
        array(record(field("b"))),
        array(record()),
        ((DEFAULT, "/items/fields/0"),),
    ),
    Case("arrays within arrays", array(array("int")), array(array("string")), ((TYPE, "/items/items"),)),
    # Unions.
    Case("a branch is added", ["null", "int", "string"], ["null", "int"]),
    Case("a branch is removed", ["null"], ["null", "int"], ((BRANCH, "/"),)),
    Case("branches in another order", ["int", "null"], ["null", "int"]),
    Case("a type becomes optional", ["null", "int"], "int"),
    Case("an optional type becomes mandatory", "int", ["null", "int"], ((TYPE, "/"),)),
    Case("a union of one becomes its type", "int", ["int"]),
    Case("a union whose branches all promote", "double", ["int", "long", "float"]),
    Case("a branch promotes", ["null", "long"], ["null", "int"]),
    Case("a union lacks the type", ["null", "string"], "int", ((BRANCH, "/"),)),
    Case("an empty union of the writer", "int", []),
    Case("an empty union of the reader", [], "int", ((BRANCH, "/"),)),
    Case(
        "a branch that does not fit says why",
        ["null", record(field("b"))],
        record(),
        ((BRANCH, "/"), (DEFAULT, "/1/fields/0")),
    ),
    Case("a branch with another name", ["null", record(name="S")], record(), ((BRANCH, "/"),)),
    Case("a branch with an alias", ["null", record(name="S", aliases=["R"])], record()),
    Case("two branches are missing", ["null"], ["int", "string"], ((BRANCH, "/"), (BRANCH, "/"))),
    Case("a field becomes optional", record(field("a", ["null", "int"])), record(field("a"))),
    Case(
        "an optional field becomes mandatory",
        record(field("a")),
        record(field("a", ["null", "int"])),
        ((TYPE, "/fields/0/type"),),
    ),
    Case(
        "an enum in a union loses a symbol",
        ["null", enum("a")],
        ["null", enum("a", "b")],
        ((BRANCH, "/"), (SYMBOLS, "/1/symbols")),
    ),
    # Recursion.
    Case("a tree reads itself", TREE, TREE),
    Case("a list reads itself", LIST, LIST),
    Case("a tree with a new field", record(*TREE["fields"], field("b", default=1)), TREE),
    Case(
        "a tree with a new field without default",
        record(*TREE["fields"], field("b")),
        TREE,
        ((DEFAULT, "/fields/2"),),
    ),
    Case(
        "a list whose values are promoted", record(field("value", "long"), field("next", ["null", "R"])), LIST
    ),
    Case(
        "a list whose values change",
        record(field("value", "string"), field("next", ["null", "R"])),
        LIST,
        ((TYPE, "/fields/0/type"), (BRANCH, "/fields/1/type")),
    ),
    Case("a list becomes a tree", TREE, LIST, ((DEFAULT, "/fields/1"),)),
    # Logical types and properties.
    Case("a logical type is added", {"type": "long", "logicalType": "timestamp-millis"}, "long"),
    Case("a logical type is removed", "int", {"type": "int", "logicalType": "date"}),
    Case(
        "a logical type changes",
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "long", "logicalType": "timestamp-millis"},
    ),
    Case("a property is added", {"type": "string", "avro.java.string": "String"}, "string"),
    Case(
        "nested three levels",
        record(field("a", record(field("b", array(record(field("c", "int"), name="T"))), name="S"))),
        record(field("a", record(field("b", array(record(field("c", "string"), name="T"))), name="S"))),
        ((TYPE, "/fields/0/type/fields/0/type/items/fields/0/type"),),
    ),
]
