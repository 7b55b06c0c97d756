"""Random schemas, changes of them, and values that are likely to be valid."""

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import jsonschema

NAMES = ["a", "b", "ab", "c"]
PATTERNS = ["^a", "b$", "^c"]
TEXTS = ["", "a", "b", "ab", "abc", "c"]
TYPES = ["null", "boolean", "object", "array", "string", "integer", "number"]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    2,
    2.5,
    -1,
    4,
    "",
    "a",
    "ab",
    "abc",
    [],
    [1],
    ["a", 1],
    {},
    {"a": 1},
]
_FEW: list[Any] = [None, 1, 2.5, "a", "abc", {}]
DOMAIN: list[Any] = [
    *VALUES,
    *([one] for one in _FEW),
    *([one, other] for one in _FEW for other in _FEW),
    *({name: one} for name in NAMES for one in _FEW),
    *({"a": one, name: other} for name in NAMES[1:] for one in _FEW for other in _FEW),
    *({"b": one, "c": other} for one in _FEW for other in _FEW),
    {"a": {"a": 1}},
    {"b": {"a": "a"}},
    [{"a": 1}],
    {"a": 1, "b": 1, "c": 1},
]
"""Values that small schemas tell apart."""

DIALECTS = {
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
VALIDATORS = {
    7: jsonschema.Draft7Validator,
    2019: jsonschema.Draft201909Validator,
    2020: jsonschema.Draft202012Validator,
}

Schema = Any
Value = Any


class Schemas:
    """Makes schemas of one draft that use most keywords, with few names and values, so that they overlap."""

    def __init__(self, random: Random, draft: int) -> None:
        self.random = random
        self.draft = draft

    def document(self) -> Schema:
        """A schema with two definitions, which may refer to each other from below a property or item."""
        content = self.schema(3) if self.chance(0.4) else {"type": "object", **self.object(2, True)}
        document = {"$schema": DIALECTS[self.draft], **(content if isinstance(content, dict) else {})}
        document["definitions"] = {"x": self.nested(2), "y": self.nested(2)}
        return document

    def nested(self, depth: int) -> Schema:
        """A definition: its references are below a property or item, so that no value recurs without end."""
        leaf = self.schema(0)
        if self.chance(0.5):
            return {"type": "object", "properties": {self.name(): self.reference(), self.name(): leaf}}
        if self.chance(0.5):
            return {"type": "array", "items": self.reference(), **self.bounds("Items")}
        return self.schema(depth, references=False)

    def reference(self) -> Schema:
        return {"$ref": f"#/definitions/{self.random.choice('xy')}"}

    def schema(self, depth: int, references: bool = True) -> Schema:
        if self.chance(0.04):
            return self.chance(0.7)
        if references and depth < 3 and self.chance(0.1):
            return self.reference()
        schema: dict[str, Any] = {}
        if self.chance(0.75):
            schema["type"] = self.types()
        kinds = schema.get("type", self.random.choice(TYPES))
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            schema |= self.assertions(kind, depth, references)
        if self.chance(0.1):
            schema["enum"] = self.random.sample(VALUES, self.random.randint(1, 5))
        if self.chance(0.05):
            schema["const"] = self.random.choice(VALUES)
        if depth > 0 and self.chance(0.3):
            schema |= self.applicator(depth - 1, references)
        return schema

    def types(self) -> str | list[str]:
        if self.chance(0.75):
            return self.random.choice(TYPES)
        return self.random.sample(TYPES, self.random.randint(1, 3))

    def assertions(self, kind: str, depth: int, references: bool) -> Schema:
        if kind in ("integer", "number"):
            return self.number()
        if kind == "string":
            return {
                **self.bounds("Length"),
                **({"pattern": self.random.choice(PATTERNS)} if self.chance(0.2) else {}),
            }
        if kind == "array" and depth > 0:
            return self.array(depth - 1, references)
        if kind == "object" and depth > 0:
            return self.object(depth - 1, references)
        return {}

    def number(self) -> Schema:
        keys = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
        found: dict[str, Any] = {key: self.random.randint(-1, 4) for key in keys if self.chance(0.15)}
        if "multipleOf" in found:
            found["multipleOf"] = self.random.choice([1, 2, 4, 0.5])
        return found

    def bounds(self, what: str) -> Schema:
        found = {}
        if self.chance(0.2):
            found[f"min{what}"] = self.random.randint(0, 2)
        if self.chance(0.2):
            found[f"max{what}"] = self.random.randint(0, 3)
        return found

    def array(self, depth: int, references: bool) -> Schema:
        found = self.bounds("Items")
        tuple_key, rest_key = ("prefixItems", "items") if self.draft == 2020 else ("items", "additionalItems")
        if self.chance(0.3):
            found[tuple_key] = [self.schema(depth, references) for _ in range(self.random.randint(1, 2))]
            if self.chance(0.6):
                found[rest_key] = self.schema(depth, references) if self.chance(0.5) else False
        elif self.chance(0.7):
            found["items"] = self.schema(depth, references)
        if self.chance(0.1):
            found["uniqueItems"] = True
        if self.chance(0.15):
            found["contains"] = self.schema(depth, references)
            if self.draft > 7:
                found |= self.bounds("Contains")
        if self.draft == 2020 and self.chance(0.1):
            found["unevaluatedItems"] = self.schema(0, references)
        return found

    def object(self, depth: int, references: bool) -> Schema:
        names = self.random.sample(NAMES, self.random.randint(0, 3))
        found: dict[str, Any] = {"properties": {name: self.property(depth, references) for name in names}}
        if self.chance(0.4):
            found["required"] = self.random.sample(NAMES, self.random.randint(1, 2))
        if self.chance(0.55):
            found["additionalProperties"] = self.schema(depth, references) if self.chance(0.35) else False
        if self.chance(0.15):
            found["patternProperties"] = {self.random.choice(PATTERNS): self.schema(depth, references)}
        if self.chance(0.1):
            found["propertyNames"] = {"maxLength": self.random.randint(1, 2)}
        if self.chance(0.1):
            found["dependencies" if self.draft == 7 else "dependentRequired"] = {self.name(): [self.name()]}
        if self.chance(0.1):
            found["dependencies" if self.draft == 7 else "dependentSchemas"] = {
                self.name(): self.schema(depth, False)
            }
        if self.draft == 2020 and self.chance(0.2):
            found["unevaluatedProperties"] = self.schema(0, references) if self.chance(0.4) else False
        return found | self.bounds("Properties")

    def property(self, depth: int, references: bool) -> Schema:
        schema = self.schema(depth, references)
        if isinstance(schema, dict) and "$ref" not in schema and self.chance(0.15):
            schema["default"] = self.random.choice(VALUES)
        return schema

    def applicator(self, depth: int, references: bool) -> Schema:
        key = self.random.choice(["allOf", "anyOf", "oneOf", "not", "if"])
        if key == "not":
            return {"not": self.schema(depth, references)}
        if key == "if":
            return {
                word: self.schema(depth, references) for word in ("if", "then", "else") if self.chance(0.8)
            }
        return {key: [self.schema(depth, references) for _ in range(self.random.randint(1, 3))]}

    def name(self) -> str:
        return self.random.choice(NAMES)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def changed(self, document: Schema) -> Schema:
        """A copy in which one to three subschemas differ, most often in a way that may be compatible."""
        box = {"root": deepcopy(document)}
        for _ in range(self.random.randint(1, 3)):
            positions = [position for position in _positions(box) if self.chance(0.8) or position[0] is box]
            holder, key = self.random.choice(positions)
            in_place = [self._loosen, self._extend, self._tweak, self._tweak, self._add_keyword, self._unwrap]
            changes = in_place if holder is box else [*in_place, self._wrap, self._replace]
            self.random.choice(changes)(holder, key)
        return box["root"]

    def combination(self) -> str:
        return self.random.choice(["allOf", "anyOf", "oneOf"])

    def related(self) -> tuple[Schema, Schema]:
        """Two small schemas of the same type, or with combinations of the same branches."""
        if self.chance(0.5):
            kind = self.random.choice(TYPES[2:])
            both = [{"type": kind, **self.assertions(kind, 2, references=False)} for _ in range(2)]
        else:
            branches = [self.schema(1, references=False) for _ in range(3)]
            both = [
                {self.combination(): self.random.sample(branches, self.random.randint(1, 3))} for _ in "wr"
            ]
        writer, reader = ({"$schema": DIALECTS[self.draft], "definitions": {}, **schema} for schema in both)
        return writer, reader

    def _tweak(self, holder: Any, key: Any) -> None:
        """Change the value of a keyword a little."""
        schema = holder[key]
        words = [word for word in schema if word in _TWEAKED] if isinstance(schema, dict) else []
        if not words:
            return self._toggle(holder, key)
        word = self.random.choice(words)
        if word == "required":
            schema[word] = self.random.sample(NAMES, self.random.randint(0, 3))
        elif word == "multipleOf":
            schema[word] = self.random.choice([0.5, 1, 2, 4, 3])
        elif word == "pattern":
            schema[word] = self.random.choice(PATTERNS)
        else:
            schema[word] = max(schema[word] + self.random.choice([-1, 1]), 0)

    def closing_keyword(self) -> str:
        """The jsonschema package errs in unevaluated keywords of 2019-09."""
        return "unevaluatedProperties" if self.draft == 2020 else "additionalProperties"

    def _toggle(self, holder: Any, key: Any) -> None:
        """Open or close an object or array, or give a property a default."""
        schema = holder[key]
        if not isinstance(schema, dict):
            holder[key] = not schema
        elif "properties" in schema:
            word = self.random.choice(["additionalProperties", self.closing_keyword(), "required", "default"])
            if word == "required":
                schema[word] = self.random.sample(
                    sorted(schema["properties"]), min(1, len(schema["properties"]))
                )
            elif word == "default":
                for child in schema["properties"].values():
                    if isinstance(child, dict) and "$ref" not in child:
                        child["default"] = self.random.choice(VALUES)
            else:
                schema[word] = self.random.choice([True, False, self.schema(0)])
        elif "prefixItems" in schema or isinstance(schema.get("items"), list):
            schema["additionalItems" if self.draft < 2020 else "items"] = self.random.choice(
                [True, False, self.schema(0)]
            )

    def _loosen(self, holder: Any, key: Any) -> None:
        schema = holder[key]
        if isinstance(schema, dict) and schema and "$ref" not in schema:
            dropped = self.random.choice(
                [word for word in schema if word not in ("$schema", "definitions")] or [""]
            )
            schema.pop(dropped, None)

    def _extend(self, holder: Any, key: Any) -> None:
        """Add a property, an item, a branch, a type or a value."""
        schema = holder[key]
        if not isinstance(schema, dict):
            return
        grown = [
            word
            for word in schema
            if word in ("properties", "oneOf", "anyOf", "allOf", "enum", "type", "prefixItems")
        ]
        word = self.random.choice(grown or [""])
        if word == "properties":
            schema[word].setdefault(self.name(), self.property(1, True))
        elif word == "enum":
            schema[word].append(self.random.choice(VALUES))
        elif word == "type":
            types = [schema[word]] if isinstance(schema[word], str) else schema[word]
            schema[word] = sorted({*types, self.random.choice(TYPES)})
        elif word:
            schema[word].insert(self.random.randint(0, len(schema[word])), self.schema(1))

    def _wrap(self, holder: Any, key: Any) -> None:
        if holder is None:
            return
        branches = [holder[key], self.schema(1)][: self.random.randint(1, 2)]
        self.random.shuffle(branches)
        holder[key] = {self.combination(): branches}

    def _unwrap(self, holder: Any, key: Any) -> None:
        schema = holder[key]
        for word in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema, dict) and word in schema:
                if self.chance(0.5):
                    branches = schema.pop(word)
                    schema[self.combination()] = branches
                elif len(schema[word]) > 1:
                    schema[word].pop(self.random.randrange(len(schema[word])))
                return

    def _replace(self, holder: Any, key: Any) -> None:
        holder[key] = self.schema(1)

    def _add_keyword(self, holder: Any, key: Any) -> None:
        schema = holder[key]
        if isinstance(schema, dict):
            for word, value in self.assertions(self.random.choice(TYPES), 1, True).items():
                schema[word] = value


_TWEAKED = frozenset(
    [
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        "minContains",
        "maxContains",
        "minProperties",
        "maxProperties",
        "required",
    ]
)


def _positions(box: dict[str, Schema]) -> Iterator[tuple[Any, Any]]:
    """Where subschemas are: a container and the key in it; the document itself is in a box."""
    pending: list[tuple[Any, Any]] = [(box, "root")]
    while pending:
        holder, key = pending.pop()
        yield holder, key
        schema = holder[key]
        if not isinstance(schema, dict):
            continue
        for word, value in schema.items():
            if word in ("properties", "patternProperties", "definitions"):
                pending += [(value, name) for name in value]
            elif word in ("allOf", "anyOf", "oneOf", "prefixItems") or (
                word == "items" and isinstance(value, list)
            ):
                pending += [(value, index) for index in range(len(value))]
            elif word in (
                "items",
                "additionalItems",
                "additionalProperties",
                "not",
                "if",
                "then",
                "else",
                "contains",
            ):
                pending.append((schema, word))


class Values:
    """Makes values that a schema is likely to accept."""

    def __init__(self, random: Random, document: Schema) -> None:
        self.random = random
        self.document = document

    def value(self, schema: Schema, depth: int = 4) -> Value:
        if isinstance(schema, bool) or self.random.random() < 0.05:
            return deepcopy(self.random.choice(VALUES))
        if "$ref" in schema:
            return self.value(self.document["definitions"][schema["$ref"][-1]], depth - 1)
        choices = [branch for word in ("anyOf", "oneOf", "allOf") for branch in schema.get(word, [])]
        choices += [schema[word] for word in ("then", "else") if word in schema]
        if choices and depth > 0 and self.random.random() < 0.5:
            return self._merged(schema, self.value(self.random.choice(choices), depth - 1), depth)
        if "const" in schema and self.random.random() < 0.9:
            return deepcopy(schema["const"])
        if "enum" in schema and self.random.random() < 0.9:
            return deepcopy(self.random.choice(schema["enum"]))
        return self._typed(schema, depth)

    def _merged(self, schema: Schema, value: Value, depth: int) -> Value:
        if isinstance(value, dict) and self.random.random() < 0.7:
            own = self._object(schema, depth)
            return {**value, **own}
        return value

    def _typed(self, schema: Schema, depth: int) -> Value:
        types = schema.get("type", self._likely(schema))
        kind = types if isinstance(types, str) else self.random.choice(types)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        plain: dict[str, list[Any]] = {
            "null": [None],
            "boolean": [True, False],
            "string": TEXTS,
            "integer": [-1, 0, 1, 2, 3, 4, 5, 8, 2.0],
            "number": [-1, 0, 1, 2, 3, 4, 8, 0.5, 2.5, 3.0],
        }
        return self.random.choice(plain[kind])

    def _likely(self, schema: Schema) -> list[str]:
        hints = {"properties": "object", "required": "object", "items": "array", "prefixItems": "array"}
        return [kind for word, kind in hints.items() if word in schema] or TYPES

    def _object(self, schema: Schema, depth: int) -> Value:
        if depth <= 0:
            return {}
        found = {}
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        for name in NAMES:
            if (
                name in required
                or (name in properties and self.random.random() < 0.6)
                or self.random.random() < 0.1
            ):
                found[name] = self.value(self._schema_of(schema, name), depth - 1)
        return found

    def _schema_of(self, schema: Schema, name: str) -> Schema:
        if name in schema.get("properties", {}):
            return schema["properties"][name]
        patterns = schema.get("patternProperties", {})
        return self.random.choice([*patterns.values(), schema.get("additionalProperties", True)])

    def _array(self, schema: Schema, depth: int) -> Value:
        if depth <= 0:
            return []
        items = schema.get("items", True)
        prefix = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        count = self.random.randint(schema.get("minItems", 0), 3)
        found = [self.value(prefix[i] if i < len(prefix) else rest, depth - 1) for i in range(count)]
        if "contains" in schema and self.random.random() < 0.8:
            found.append(self.value(schema["contains"], depth - 1))
        return found


FILLED_MAX = 24


def filled(value: Value, schema: Schema, document: Schema, depth: int = 6) -> list[Value]:
    """A value as readers may see it, which fill in the defaults of properties; the value itself comes
    first."""
    if isinstance(schema, bool) or depth == 0:
        return [value]
    found = [value]
    if "$ref" in schema:
        found = filled(value, document["definitions"][schema["$ref"][-1]], document, depth - 1)
        if "draft-07" in document["$schema"]:
            return found
    for word in ("anyOf", "oneOf", "allOf", "then", "else"):
        branches = schema.get(word, [])
        for branch in branches if isinstance(branches, list) else [branches]:
            more = [each for one in found for each in filled(one, branch, document, depth - 1)]
            found = _some(more if word == "allOf" else found + more)
    return _some([each for one in found for each in _filled_below(one, schema, document, depth - 1)])


def _filled_below(value: Value, schema: Schema, document: Schema, depth: int) -> list[Value]:
    if isinstance(value, list):
        items = schema.get("items", True)
        prefix = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        found: list[Any] = [[]]
        for index, item in enumerate(value):
            variants = filled(item, prefix[index] if index < len(prefix) else rest, document, depth)
            found = _some([[*head, variant] for head in found for variant in variants])
        return found
    if not isinstance(value, dict):
        return [value]
    properties = schema.get("properties", {})
    objects: list[Any] = [dict(value)]
    for name, child in properties.items():
        if name in value:
            variants = filled(value[name], child, document, depth)
        else:
            target = child
            while isinstance(target, dict) and "$ref" in target and "default" not in target:
                target = document["definitions"][target["$ref"][-1]]
            if not isinstance(target, dict) or "default" not in target:
                continue
            objects = _some([*objects, *({**one, name: target["default"]} for one in objects)])
            continue
        objects = _some([{**one, name: variant} for one in objects for variant in variants])
    rest = schema.get("additionalProperties", True)
    for name in value:
        if name not in properties:
            variants = filled(value[name], rest, document, depth)
            objects = _some([{**one, name: variant} for one in objects for variant in variants])
    return objects


def _some(values: list[Value]) -> list[Value]:
    return values[:FILLED_MAX]
