"""Compatibility cases: what a writer's schema is, what a reader's, and all differences between them."""

from typing import Any, NamedTuple

Schema = dict[str, Any] | bool


class Case(NamedTuple):
    """A change. It is compatible if `breaking` is empty; differences are given as KIND path."""

    title: str
    writer: Schema
    reader: Schema
    breaking: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()


STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
NULL = {"type": "null"}


def properties(*closed: bool, required: tuple[str, ...] = (), **schemas: Any) -> dict[str, Any]:
    """An object with properties, open unless `closed` is given."""
    schema: dict[str, Any] = {"type": "object", "properties": schemas}
    if closed:
        schema["additionalProperties"] = False
    if required:
        schema["required"] = list(required)
    return schema


def modern(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def variant(kind: str, **schemas: Any) -> dict[str, Any]:
    """A branch that a constant tells from others."""
    return properties(required=("kind",), kind={"const": kind}, **schemas)


SCALARS = [
    Case("the same", {"type": "string", "maxLength": 3}, {"maxLength": 3, "type": "string"}),
    Case("title", {"title": "a", **STRING}, {"title": "b", **STRING}, (), ("TITLE_CHANGED /",)),
    Case("description", {"description": "a", **STRING}, STRING, (), ("DESCRIPTION_CHANGED /",)),
    Case("default", {"default": "a", **STRING}, {"default": "b", **STRING}, (), ("DEFAULT_CHANGED /",)),
    Case("id", {"$id": "urn:a", **STRING}, {"$id": "urn:b", **STRING}, (), ("ID_CHANGED /",)),
    Case("any to typed", {}, STRING, ("TYPE_NARROWED /",)),
    Case("typed to any", STRING, {}),
    Case("typed to true", STRING, True),
    Case("false to anything", False, STRING),
    Case("anything to false", STRING, False, ("TYPE_CHANGED /",)),
    Case("another type", STRING, INTEGER, ("TYPE_CHANGED /",)),
    Case("integer to number", INTEGER, NUMBER, (), ("TYPE_EXTENDED /",)),
    Case("number to integer", NUMBER, INTEGER, ("TYPE_NARROWED /",)),
    Case("a further type", STRING, {"type": ["string", "null"]}, (), ("SUM_TYPE_EXTENDED /",)),
    Case("a type less", {"type": ["string", "null"]}, STRING, ("SUM_TYPE_NARROWED /",)),
    Case(
        "maxLength decreased",
        {**STRING, "maxLength": 5},
        {**STRING, "maxLength": 4},
        ("MAX_LENGTH_DECREASED /maxLength",),
    ),
    Case(
        "maxLength increased",
        {**STRING, "maxLength": 4},
        {**STRING, "maxLength": 5},
        (),
        ("MAX_LENGTH_INCREASED /maxLength",),
    ),
    Case("maxLength added", STRING, {**STRING, "maxLength": 4}, ("MAX_LENGTH_ADDED /maxLength",)),
    Case("minLength removed", {**STRING, "minLength": 4}, STRING, (), ("MIN_LENGTH_REMOVED /minLength",)),
    Case("minLength zero", STRING, {**STRING, "minLength": 0}),
    Case("maxLength of numbers", NUMBER, {**NUMBER, "maxLength": 4}),
    Case("pattern added", STRING, {**STRING, "pattern": "^a"}, ("PATTERN_ADDED /pattern",)),
    Case(
        "pattern changed",
        {**STRING, "pattern": "^b"},
        {**STRING, "pattern": "^a"},
        ("PATTERN_CHANGED /pattern",),
    ),
    Case("pattern removed", {**STRING, "pattern": "^b"}, STRING, (), ("PATTERN_REMOVED /pattern",)),
    Case(
        "maximum decreased",
        {**NUMBER, "maximum": 11},
        {**NUMBER, "maximum": 10.5},
        ("MAXIMUM_DECREASED /maximum",),
    ),
    Case("maximum in another form", {**NUMBER, "maximum": 10}, {**NUMBER, "maximum": 1e1}),
    Case(
        "maximum beyond doubles",
        {**INTEGER, "maximum": 2**60 + 1},
        {**INTEGER, "maximum": 2**60},
        ("MAXIMUM_DECREASED /maximum",),
    ),
    Case(
        "exclusiveMinimum increased",
        {**NUMBER, "exclusiveMinimum": 1},
        {**NUMBER, "exclusiveMinimum": 2},
        ("EXCLUSIVE_MINIMUM_INCREASED /exclusiveMinimum",),
    ),
    Case(
        "Draft-04's exclusive maximum is a later draft's",
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            **NUMBER,
            "maximum": 3,
            "exclusiveMaximum": True,
        },
        {**NUMBER, "exclusiveMaximum": 3},
    ),
    Case(
        "multipleOf divided",
        {**NUMBER, "multipleOf": 10},
        {**NUMBER, "multipleOf": 2.5},
        (),
        ("MULTIPLE_OF_REDUCED /multipleOf",),
    ),
    Case(
        "multipleOf multiplied",
        {**NUMBER, "multipleOf": 0.1},
        {**NUMBER, "multipleOf": 0.3},
        ("MULTIPLE_OF_EXPANDED /multipleOf",),
    ),
    Case(
        "multipleOf changed",
        {**NUMBER, "multipleOf": 4},
        {**NUMBER, "multipleOf": 6},
        ("MULTIPLE_OF_CHANGED /multipleOf",),
    ),
    Case("enum extended", {"enum": ["a"]}, {"enum": ["b", "a"]}, (), ("ENUM_ARRAY_EXTENDED /enum",)),
    Case("enum narrowed", {"enum": ["a", "b"]}, {"enum": ["b"]}, ("ENUM_ARRAY_NARROWED /enum",)),
    Case("enum changed", {"enum": ["a", "b"]}, {"enum": ["b", "c"]}, ("ENUM_ARRAY_CHANGED /enum",)),
    Case("enum added", STRING, {**STRING, "enum": ["a"]}, ("ENUM_ARRAY_NARROWED /enum",)),
    Case("enum removed", {**STRING, "enum": ["a"]}, STRING, (), ("PRODUCT_TYPE_NARROWED /",)),
    Case("true is not 1", {"enum": [True]}, {"enum": [1]}, ("ENUM_ARRAY_CHANGED /enum",)),
    Case("1.0 is 1", {"enum": [1.0]}, {"enum": [1]}),
    Case("const changed", {"const": "a"}, {"const": "b"}, ("ENUM_ARRAY_CHANGED /const",)),
    Case("const to enum", {"const": "a"}, {"enum": ["a", "b"]}, (), ("ENUM_ARRAY_EXTENDED /enum",)),
    Case("null to an enum with it", NULL, {"enum": [None, "a"]}, (), ("ENUM_ARRAY_EXTENDED /enum",)),
]

OBJECTS = [
    Case(
        "an optional property added to an open object",
        properties(a=STRING),
        properties(a=STRING, b=STRING),
        ("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "an optional property added to a closed object",
        properties(True, a=STRING),
        properties(True, a=STRING, b=STRING),
        (),
        ("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a property of any value added to an open object",
        properties(),
        properties(b=True),
        (),
        ("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a required property of any value added to an open object",
        properties(),
        properties(required=("b",), b=True),
        ("REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a required property added to a closed object",
        properties(True),
        properties(True, required=("b",), b=STRING),
        ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a required property with a default added to a closed object",
        properties(True),
        properties(True, required=("b",), b={**STRING, "default": ""}),
        (),
        ("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a required property with a default of another type",
        properties(True),
        properties(True, required=("b",), b={**STRING, "default": 0}),
        ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a required property with a default added to an open object",
        properties(),
        properties(required=("b",), b={**STRING, "default": ""}),
        ("REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a property removed, the reader open",
        properties(a=STRING, b=STRING),
        properties(a=STRING),
        (),
        ("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a property removed, the reader closed",
        properties(True, a=STRING, b=STRING),
        properties(True, a=STRING),
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a property that was never there removed, the reader closed",
        properties(True, b=False),
        properties(True),
        (),
        ("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a property added where the writer's further ones are valid",
        {**properties(), "additionalProperties": INTEGER},
        {**properties(b=NUMBER), "additionalProperties": INTEGER},
        (),
        (
            "TYPE_EXTENDED /properties/b",
            "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/b",
            "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/b",
        ),
    ),
    Case(
        "a property added where the writer's further ones are not valid",
        {**properties(), "additionalProperties": STRING},
        {**properties(b=NUMBER), "additionalProperties": STRING},
        (
            "TYPE_CHANGED /properties/b",
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/b",
        ),
        ("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a property removed that the reader accepts as a further one",
        properties(True, b=STRING),
        {**properties(), "additionalProperties": STRING},
        (),
        (
            "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/b",
            "ADDITIONAL_PROPERTIES_ADDED /additionalProperties",
        ),
    ),
    Case(
        "a property removed that matches a pattern of another type",
        properties(True, n_b=STRING),
        {**properties(True), "patternProperties": {"^n_": NUMBER}},
        (
            "TYPE_CHANGED /properties/n_b",
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/n_b",
        ),
    ),
    Case(
        "a second pattern that a removed property matches",
        properties(True, n_b=STRING),
        {**properties(True), "patternProperties": {"^n_": STRING, "b$": NUMBER}},
        (
            "TYPE_CHANGED /properties/n_b",
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/n_b",
        ),
        ("PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/n_b",),
    ),
    Case(
        "a pattern added that a named property matches",
        properties(True, a=STRING),
        {**properties(True, a=STRING), "patternProperties": {"^a": NUMBER}},
        ("TYPE_CHANGED /properties/a",),
    ),
    Case(
        "a pattern added to an open object",
        properties(),
        {**properties(), "patternProperties": {"^a": NUMBER}},
        ("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL /patternProperties/^a",),
    ),
    Case(
        "a pattern added whose names the writer's pattern may share",
        {**properties(True), "patternProperties": {"b$": STRING}},
        {**properties(True), "patternProperties": {"b$": STRING, "^a": NUMBER}},
        (
            "TYPE_CHANGED /patternProperties/^a",
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /patternProperties/^a",
        ),
    ),
    Case(
        "a pattern removed, the reader closed",
        {**properties(True), "patternProperties": {"^a": STRING}},
        properties(True),
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /patternProperties/^a",),
    ),
    Case(
        "a pattern changed",
        {**properties(True), "patternProperties": {"^a": STRING}},
        {**properties(True), "patternProperties": {"^a": NUMBER}},
        ("TYPE_CHANGED /patternProperties/^a",),
    ),
    Case(
        "a pattern that RE2 lacks may match",
        properties(True, a=STRING),
        {**properties(True), "patternProperties": {"^(?!b)": STRING}},
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL /properties/a",),
        ("PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /properties/a",),
    ),
    Case("closed", properties(), properties(True), ("ADDITIONAL_PROPERTIES_REMOVED /additionalProperties",)),
    Case(
        "opened", properties(True), properties(), (), ("ADDITIONAL_PROPERTIES_ADDED /additionalProperties",)
    ),
    Case(
        "further properties restricted",
        properties(),
        {**properties(), "additionalProperties": STRING},
        ("ADDITIONAL_PROPERTIES_NARROWED /additionalProperties",),
    ),
    Case(
        "further properties not restricted any more",
        {**properties(), "additionalProperties": STRING},
        properties(),
        (),
        ("ADDITIONAL_PROPERTIES_EXTENDED /additionalProperties",),
    ),
    Case(
        "required added",
        properties(a=STRING),
        properties(required=("a",), a=STRING),
        ("REQUIRED_ATTRIBUTE_ADDED /required/a",),
    ),
    Case(
        "required added, with a default",
        properties(a=STRING),
        properties(required=("a",), a={**STRING, "default": ""}),
        (),
        ("DEFAULT_CHANGED /properties/a", "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED /required/a"),
    ),
    Case(
        "required removed",
        properties(required=("a",), a=STRING),
        properties(a=STRING),
        (),
        ("REQUIRED_ATTRIBUTE_REMOVED /required/a",),
    ),
    Case(
        "a required name that is no property",
        properties(a=STRING),
        properties(required=("z",), a=STRING),
        ("REQUIRED_ATTRIBUTE_ADDED /required/z",),
    ),
    Case(
        "a nested change",
        properties(a=properties(b={"type": "array", "items": STRING})),
        properties(a=properties(b={"type": "array", "items": NULL})),
        ("TYPE_CHANGED /properties/a/properties/b/items",),
    ),
    Case(
        "type of an untyped object", {"properties": {"a": STRING}}, properties(a=STRING), ("TYPE_NARROWED /",)
    ),
    Case(
        "maxProperties added",
        properties(),
        {**properties(), "maxProperties": 2},
        ("MAX_PROPERTIES_ADDED /maxProperties",),
    ),
    Case(
        "propertyNames added",
        properties(),
        {**properties(), "propertyNames": {"maxLength": 2}},
        ("SCHEMA_ADDED /propertyNames",),
    ),
    Case(
        "a dependency added",
        properties(),
        {**properties(), "dependencies": {"a": ["b"]}},
        ("DEPENDENCY_ARRAY_ADDED /dependencies/a",),
    ),
    Case(
        "a dependency extended",
        {**properties(), "dependencies": {"a": ["b"]}},
        {**properties(), "dependencies": {"a": ["b", "c"]}},
        ("DEPENDENCY_ARRAY_EXTENDED /dependencies/a",),
    ),
    Case(
        "a dependency on what the writer requires",
        properties(required=("b",), b=STRING),
        {**properties(required=("b",), b=STRING), "dependencies": {"a": ["b"]}},
        (),
        ("DEPENDENCY_ARRAY_NARROWED /dependencies/a",),
    ),
    Case(
        "a dependent schema added",
        modern(properties()),
        modern({**properties(), "dependentSchemas": {"a": properties(b=STRING)}}),
        ("DEPENDENCY_SCHEMA_ADDED /dependentSchemas/a",),
    ),
    Case(
        "unevaluated properties closed",
        modern(properties(a=STRING)),
        modern({**properties(a=STRING), "unevaluatedProperties": False}),
        ("UNEVALUATED_PROPERTIES_REMOVED /unevaluatedProperties",),
    ),
    Case(
        "a property added beside closed unevaluated ones",
        modern({"allOf": [properties(a=STRING)], **properties(), "unevaluatedProperties": False}),
        modern({"allOf": [properties(a=STRING)], **properties(b=STRING), "unevaluatedProperties": False}),
        (),
        ("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL /properties/b",),
    ),
    Case(
        "a property removed beside closed unevaluated ones",
        modern({"allOf": [properties(a=STRING)], **properties(b=STRING), "unevaluatedProperties": False}),
        modern({"allOf": [properties(a=STRING)], **properties(), "unevaluatedProperties": False}),
        ("UNEVALUATED_PROPERTIES_REMOVED /properties/b",),
        ("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL /properties/b",),
    ),
]

ARRAYS = [
    Case("items added", {"type": "array"}, {"type": "array", "items": STRING}, ("SCHEMA_ADDED /items",)),
    Case(
        "items removed", {"type": "array", "items": STRING}, {"type": "array"}, (), ("SCHEMA_REMOVED /items",)
    ),
    Case(
        "items extended",
        {"type": "array", "items": INTEGER},
        {"type": "array", "items": NUMBER},
        (),
        ("TYPE_EXTENDED /items",),
    ),
    Case(
        "maxItems decreased",
        {"type": "array", "maxItems": 2},
        {"type": "array", "maxItems": 1},
        ("MAX_ITEMS_DECREASED /maxItems",),
    ),
    Case(
        "uniqueItems added",
        {"type": "array"},
        {"type": "array", "uniqueItems": True},
        ("UNIQUE_ITEMS_ADDED /uniqueItems",),
    ),
    Case(
        "contains added",
        {"type": "array"},
        {"type": "array", "contains": STRING},
        ("SCHEMA_ADDED /contains",),
    ),
    Case(
        "contains extended",
        {"type": "array", "contains": INTEGER},
        {"type": "array", "contains": NUMBER},
    ),
    Case(
        "minContains increased",
        modern({"type": "array", "contains": INTEGER, "minContains": 1}),
        modern({"type": "array", "contains": INTEGER, "minContains": 2}),
        ("MIN_CONTAINS_INCREASED /minContains",),
    ),
    Case(
        "an item of its own added to an open array",
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [STRING, NULL]},
        ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL /items/1",),
    ),
    Case(
        "an item of its own added to a closed array",
        {"type": "array", "items": [STRING], "additionalItems": False},
        {"type": "array", "items": [STRING, NULL], "additionalItems": False},
        (),
        ("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL /items/1",),
    ),
    Case(
        "an item of its own added to an array that is never as long",
        {"type": "array", "items": [STRING], "maxItems": 1},
        {"type": "array", "items": [STRING, NULL], "maxItems": 2},
        (),
        (
            "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL /items/1",
            "ADDITIONAL_ITEMS_ADDED /additionalItems",
            "MAX_ITEMS_INCREASED /maxItems",
        ),
    ),
    Case(
        "an item of its own removed from a closed array",
        {"type": "array", "items": [STRING, NULL], "additionalItems": False},
        {"type": "array", "items": [STRING], "additionalItems": False},
        ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL /items/1",),
    ),
    Case(
        "an item of its own removed that the further ones do not cover",
        modern({"type": "array", "prefixItems": [STRING, NULL], "items": STRING}),
        modern({"type": "array", "prefixItems": [STRING], "items": STRING}),
        (
            "TYPE_CHANGED /prefixItems/1",
            "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /prefixItems/1",
        ),
    ),
    Case(
        "one schema for all items becomes one each",
        {"type": "array", "items": STRING},
        {"type": "array", "items": [STRING, STRING], "additionalItems": STRING},
        (),
        (
            "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /items/0",
            "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL /items/1",
        ),
    ),
    Case(
        "further items closed",
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [STRING], "additionalItems": False},
        ("ADDITIONAL_ITEMS_REMOVED /additionalItems",),
    ),
    Case(
        "additionalItems without items of their own means nothing",
        {"type": "array"},
        {"type": "array", "additionalItems": False},
    ),
    Case(
        "tuples in Draft-07 and 2020-12",
        {"type": "array", "items": [STRING], "additionalItems": False},
        modern({"type": "array", "prefixItems": [STRING], "items": False}),
    ),
]

COMBINED = [
    Case("a branch added", {"oneOf": [STRING]}, {"oneOf": [STRING, NULL]}, (), ("SUM_TYPE_EXTENDED /",)),
    Case("a branch removed", {"oneOf": [STRING, NULL]}, {"oneOf": [STRING]}, ("SUM_TYPE_NARROWED /",)),
    Case("branches in another order", {"oneOf": [STRING, NULL]}, {"oneOf": [NULL, STRING]}),
    Case(
        "a branch changed",
        {"anyOf": [STRING, NULL]},
        {"anyOf": [STRING, INTEGER]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED /",),
    ),
    Case(
        "branches that only one order of pairs can match",
        {"anyOf": [{**INTEGER, "maximum": 5}, INTEGER]},
        {"anyOf": [INTEGER, {**INTEGER, "maximum": 9}]},
        (),
        ("MAXIMUM_INCREASED /anyOf/1/maximum",),
    ),
    Case(
        "a branch added that values of another may match, too",
        {"oneOf": [INTEGER, STRING]},
        {"oneOf": [INTEGER, STRING, NUMBER]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED /",),
        ("SUM_TYPE_EXTENDED /",),
    ),
    Case(
        "a branch extended so that values of another match, too",
        {"oneOf": [{**INTEGER, "maximum": 5}, {**INTEGER, "minimum": 5}]},
        {"oneOf": [{**INTEGER, "maximum": 6}, {**INTEGER, "minimum": 5}]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED /",),
        ("MAXIMUM_INCREASED /oneOf/0/maximum",),
    ),
    Case(
        "ranges of a oneOf that stay apart",
        {"oneOf": [{**INTEGER, "maximum": 3}, {**INTEGER, "minimum": 5}]},
        {"oneOf": [{**INTEGER, "maximum": 4}, {**INTEGER, "minimum": 5}]},
        (),
        ("MAXIMUM_INCREASED /oneOf/0/maximum",),
    ),
    Case(
        "an unchanged oneOf whose branches overlap, beside another change",
        properties(a={"oneOf": [INTEGER, NUMBER]}, b=INTEGER),
        properties(a={"oneOf": [INTEGER, NUMBER]}, b=NUMBER),
        (),
        ("TYPE_EXTENDED /properties/b",),
    ),
    Case(
        "a repeated branch makes a oneOf false",
        {"oneOf": [STRING]},
        {"oneOf": [STRING, STRING]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED /",),
        ("SUM_TYPE_EXTENDED /",),
    ),
    Case(
        "variants with a constant each, one added",
        {"oneOf": [variant("a", x=STRING)]},
        {"oneOf": [variant("a", x=STRING), variant("b", x=NUMBER)]},
        (),
        ("SUM_TYPE_EXTENDED /",),
    ),
    Case(
        "variants without constants, one added",
        {"oneOf": [properties(a=STRING)]},
        {"oneOf": [properties(a=STRING), properties(b=STRING)]},
        ("COMBINED_TYPE_SUBSCHEMAS_CHANGED /",),
        ("SUM_TYPE_EXTENDED /",),
    ),
    Case(
        "closed variants that require different properties",
        {"oneOf": [properties(True, required=("a",), a=STRING)]},
        {"oneOf": [properties(True, required=("a",), a=STRING), properties(True, required=("b",), b=STRING)]},
        (),
        ("SUM_TYPE_EXTENDED /",),
    ),
    Case("a single schema to anyOf", STRING, {"anyOf": [NUMBER, STRING]}, (), ("SUM_TYPE_EXTENDED /",)),
    Case("a single schema to oneOf", STRING, {"oneOf": [NUMBER, STRING]}, (), ("SUM_TYPE_EXTENDED /",)),
    Case(
        "a single schema to a oneOf that it matches twice",
        INTEGER,
        {"oneOf": [NUMBER, INTEGER]},
        ("TYPE_CHANGED /",),
    ),
    Case("a single schema to anyOf without it", STRING, {"anyOf": [NUMBER, NULL]}, ("TYPE_CHANGED /",)),
    Case("a single schema to an allOf of it", STRING, {"allOf": [STRING]}),
    Case(
        "a single schema to an allOf that demands more",
        STRING,
        {"allOf": [STRING, {"maxLength": 3}]},
        ("MAX_LENGTH_ADDED /allOf/1/maxLength",),
    ),
    Case(
        "types to oneOf",
        {"type": ["null", "string"]},
        {"oneOf": [NULL, STRING]},
        (),
        ("COMBINED_TYPE_EXTENDED /",),
    ),
    Case(
        "oneOf to types",
        {"oneOf": [NULL, STRING]},
        {"type": ["null", "string"]},
        (),
        ("SUM_TYPE_EXTENDED /", "SUM_TYPE_EXTENDED /", "COMBINED_TYPE_EXTENDED /"),
    ),
    Case("oneOf to one of its types", {"oneOf": [NULL, STRING]}, STRING, ("TYPE_CHANGED /",)),
    Case(
        "oneOf to anyOf",
        {"oneOf": [NULL, STRING]},
        {"anyOf": [NULL, STRING]},
        (),
        ("COMBINED_TYPE_EXTENDED /",),
    ),
    Case(
        "anyOf to oneOf that exclude each other",
        {"anyOf": [NULL, STRING]},
        {"oneOf": [NULL, STRING]},
        (),
        ("COMBINED_TYPE_EXTENDED /",),
    ),
    Case(
        "anyOf to oneOf that overlap",
        {"anyOf": [INTEGER, NUMBER]},
        {"oneOf": [INTEGER, NUMBER]},
        ("COMBINED_TYPE_CHANGED /",),
        ("COMBINED_TYPE_EXTENDED /",),
    ),
    Case(
        "anyOf to allOf", {"anyOf": [NULL, STRING]}, {"allOf": [NULL, STRING]}, ("COMBINED_TYPE_CHANGED /",)
    ),
    Case(
        "allOf to anyOf",
        {"allOf": [INTEGER, NUMBER]},
        {"anyOf": [INTEGER, NUMBER]},
        (),
        ("COMBINED_TYPE_EXTENDED /",),
    ),
    Case(
        "a product shrinks",
        {"allOf": [STRING, {"maxLength": 3}]},
        {"allOf": [STRING]},
        (),
        ("PRODUCT_TYPE_NARROWED /",),
    ),
    Case(
        "a product grows",
        {"allOf": [STRING]},
        {"allOf": [STRING, {"maxLength": 3}]},
        ("PRODUCT_TYPE_EXTENDED /",),
    ),
    Case(
        "a product to one of its schemas",
        {"allOf": [STRING, {"maxLength": 3}]},
        STRING,
        (),
        ("PRODUCT_TYPE_NARROWED /",),
    ),
    Case("repeated branches of a product", {"allOf": [STRING, STRING]}, {"allOf": [STRING]}),
    Case(
        "a schema beside a oneOf",
        {**properties(a=STRING), "oneOf": [properties(required=("a",)), properties(required=("b",))]},
        {**properties(a=NULL), "oneOf": [properties(required=("a",)), properties(required=("b",))]},
        ("TYPE_CHANGED /properties/a",),
    ),
    Case("not, less excluded", {"not": NUMBER}, {"not": INTEGER}, (), ("NOT_TYPE_NARROWED /not",)),
    Case("not, more excluded", {"not": INTEGER}, {"not": NUMBER}, ("NOT_TYPE_EXTENDED /not",)),
    Case("not added, of another type", STRING, {"not": NULL}, (), ("NOT_TYPE_NARROWED /not",)),
    Case("not added", {}, {"not": NULL}, ("NOT_TYPE_EXTENDED /not",)),
    Case(
        "not, where a default would not help",
        {"not": properties(True, required=("a",), a={"default": 1})},
        {"not": properties(True, a={"default": 1})},
        ("NOT_TYPE_EXTENDED /not",),
    ),
    Case(
        "if, the consequence extended",
        {"if": properties(required=("a",)), "then": properties(a=INTEGER)},
        {"if": properties(required=("a",)), "then": properties(a=NUMBER)},
    ),
    Case(
        "if, the consequence changed",
        {"if": properties(required=("a",)), "then": properties(a=INTEGER)},
        {"if": properties(required=("a",)), "then": properties(a=STRING)},
        ("SCHEMA_ADDED /if",),
    ),
    Case(
        "if added",
        properties(),
        {**properties(), "if": properties(), "then": properties(required=("a",))},
        ("SCHEMA_ADDED /if",),
    ),
    Case(
        "if added, both ways satisfied",
        STRING,
        {"if": {"minLength": 2}, "then": STRING, "else": {"not": NULL}},
    ),
]


def tree(value: Schema, **more: Any) -> dict[str, Any]:
    """A recursive schema."""
    node = properties(True, value=value, children={"type": "array", "items": {"$ref": "#/definitions/node"}})
    return {"$ref": "#/definitions/node", "definitions": {"node": {**node, **more}}}


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
]

CASES = [*SCALARS, *OBJECTS, *ARRAYS, *COMBINED, *REFERENCES]
