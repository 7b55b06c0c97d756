"""Changes of arrays."""

from tests.registry.json_schema.case import INTEGER, NULL, NUMBER, STRING, Case, modern

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
