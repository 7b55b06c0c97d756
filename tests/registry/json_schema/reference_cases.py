"""Changes of definitions, references and recursive schemas."""

from typing import Any

from tests.registry.json_schema.case import INTEGER, NULL, NUMBER, STRING, Case, Schema, modern, properties


def tree(value: Schema, **more: Any) -> dict[str, Any]:
    """A recursive schema."""
    node = properties(True, value=value, children={"type": "array", "items": {"$ref": "#/definitions/node"}})
    return {"$ref": "#/definitions/node", "definitions": {"node": {**node, **more}}}


P = {"$ref": "#/definitions/p"}
X = {"$ref": "#/definitions/x"}


def mutual(value: Schema) -> dict[str, Any]:
    """Two definitions that refer to each other."""
    return {"p": properties(True, child=X, v=value), "x": properties(True, back=P)}


REFERENCES = [
    Case("a definition inlined", {"$ref": "#/definitions/a", "definitions": {"a": STRING}}, STRING),
    Case(
        "a definition renamed",
        {"$ref": "#/definitions/a", "definitions": {"a": STRING}},
        {"$ref": "#/$defs/b", "$defs": {"b": STRING}},
    ),
    Case(
        "a definition changed",
        {"items": {"$ref": "#/definitions/a"}, "definitions": {"a": STRING}},
        {"items": {"$ref": "#/definitions/a"}, "definitions": {"a": NUMBER}},
        ("TYPE_CHANGED /items",),
    ),
    Case(
        "siblings of a reference mean nothing in Draft-07",
        {"$ref": "#/definitions/a", "definitions": {"a": STRING}},
        {"$ref": "#/definitions/a", "maxLength": 1, "definitions": {"a": STRING}},
    ),
    Case(
        "siblings of a reference since 2019-09",
        modern({"$ref": "#/$defs/a", "$defs": {"a": STRING}}),
        modern({"$ref": "#/$defs/a", "maxLength": 1, "$defs": {"a": STRING}}),
        ("MAX_LENGTH_ADDED /maxLength",),
    ),
    Case(
        "an anchor",
        modern({"$ref": "#here", "$defs": {"a": {"$anchor": "here", **STRING}}}),
        modern({"$ref": "#there", "$defs": {"a": {"$anchor": "there", **NULL}}}),
        ("TYPE_CHANGED /",),
    ),
    Case(
        "an embedded resource",
        {
            "properties": {"a": {"$ref": "http://example.com/a.json"}},
            "definitions": {"a": {"$id": "http://example.com/a.json", **INTEGER}},
        },
        {
            "properties": {"a": {"$ref": "a.json"}},
            "$id": "http://example.com/root",
            "definitions": {"a": {"$id": "a.json", **NUMBER}},
        },
        (),
        ("ID_CHANGED /", "ID_CHANGED /properties/a", "TYPE_EXTENDED /properties/a"),
    ),
    Case("recursion, unchanged", tree(STRING), tree(STRING, title="t"), (), ("TITLE_CHANGED /",)),
    Case("recursion, extended", tree(INTEGER), tree(NUMBER), (), ("TYPE_EXTENDED /properties/value",)),
    Case("recursion, changed", tree(STRING), tree(NUMBER), ("TYPE_CHANGED /properties/value",)),
    Case(
        "recursion, unrolled",
        tree(STRING),
        properties(
            True,
            value=STRING,
            children={
                "type": "array",
                "items": {**tree(STRING), "$ref": "#/properties/children/items/definitions/node"},
            },
        )
        | {"definitions": tree(STRING)["definitions"]},
    ),
    Case(
        "recursion through a oneOf that is refuted below",
        {
            "$ref": "#/definitions/n",
            "definitions": {
                "n": {"oneOf": [NULL, properties(True, next={"$ref": "#/definitions/n"}, v=STRING)]}
            },
        },
        {
            "$ref": "#/definitions/n",
            "definitions": {
                "n": {"oneOf": [NULL, properties(True, next={"$ref": "#/definitions/n"}, v=NUMBER)]}
            },
        },
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED /",),
    ),
    Case(
        "a dynamic reference",
        modern({"$dynamicAnchor": "n", **properties(True, next={"$dynamicRef": "#n"}, v=INTEGER)}),
        modern({"$dynamicAnchor": "n", **properties(True, next={"$dynamicRef": "#n"}, v=NUMBER)}),
        (),
        ("TYPE_EXTENDED /properties/v",),
    ),
    Case(
        "a recursive branch that is refuted, and used elsewhere",
        {**properties(True, p=P, x=X), "definitions": mutual(STRING)},
        {**properties(True, p={"anyOf": [P, {}]}, x=X), "definitions": mutual(NUMBER)},
        ("TYPE_CHANGED /properties/x/properties/back/properties/v",),
        ("SUM_TYPE_EXTENDED /properties/p",),
    ),
]
