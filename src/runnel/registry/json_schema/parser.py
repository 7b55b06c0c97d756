"""JSON text → linked schemas."""

from collections.abc import Mapping, Sequence
from urllib.parse import urldefrag, urljoin

from runnel.registry.format import InvalidSchema, ReferencedSchema
from runnel.registry.json_schema import json_text, limits
from runnel.registry.json_schema.documents import Documents, Resource, draft_of, invalid
from runnel.registry.json_schema.json_text import Json, canonical
from runnel.registry.json_schema.keywords import Keywords, check_uri, type_of
from runnel.registry.json_schema.linking import link
from runnel.registry.json_schema.schema import COMBINATIONS, TYPES, Conditional, Draft, Schema

_COUNTS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_LOWER_COUNTS = ("minLength", "minItems", "minProperties")


def parse(value: Json, references: Sequence[ReferencedSchema]) -> Schema:
    """A schema with all it refers to. Raises InvalidSchema."""
    return _Parser().parse(value, references)


class _Parser:
    def __init__(self) -> None:
        self._documents = Documents()
        self._schemas: list[Schema] = []
        self._built: dict[int, Schema] = {}
        self._unlinked: list[tuple[Schema, Resource]] = []
        self._dynamic: dict[str, Resource] = {}

    def parse(self, value: Json, references: Sequence[ReferencedSchema]) -> Schema:
        characters = sum(len(reference.text) for reference in references)
        if characters > limits.TEXTS_CHARACTERS_MAX:
            raise InvalidSchema(
                f"The references have {characters} characters, at most {limits.TEXTS_CHARACTERS_MAX}."
            )
        draft = draft_of(value, Draft.DRAFT_07)
        root = Resource(_own_uri(value, draft), value, ("",), draft)
        self._documents.add(root)
        resources = [self._referenced(reference, root) for reference in references]
        schema = self._build(value, ("",), root)
        for resource in resources:
            self._build(resource.root, resource.location, resource)
        while self._unlinked:
            referrer, resource = self._unlinked.pop()
            assert referrer.reference is not None
            target = self._documents.find(referrer.reference, resource, (*referrer.location, "$ref"))
            referrer.target = self._build(target.raw, target.location, target.resource)
        return link(schema, self._schemas)

    def _referenced(self, reference: ReferencedSchema, root: Resource) -> Resource:
        check_uri(reference.name, "The name of a reference")
        try:
            value = json_text.parse(reference.text)
            canonical(value)
        except InvalidSchema as error:
            raise InvalidSchema(f'Reference "{reference.name}": {error}') from None
        draft = draft_of(value, root.draft)
        uri = _own_uri(value, draft)
        resource = Resource(urljoin(reference.name, uri), value, (reference.name,), draft)
        self._documents.add(
            resource, reference.name, urljoin(root.uri, reference.name), uri or reference.name
        )
        return resource

    def _build(self, raw: Json, location: tuple[str, ...], resource: Resource) -> Schema:
        if isinstance(raw, Mapping) and id(raw) in self._built:
            return self._built[id(raw)]
        if len(self._schemas) >= limits.SUBSCHEMAS_MAX:
            raise InvalidSchema(f"The schema has more than {limits.SUBSCHEMAS_MAX} subschemas.")
        schema = Schema(draft=resource.draft, location=location, raw=raw)
        self._schemas.append(schema)
        if isinstance(raw, bool):
            schema.rejects_all = not raw
        elif isinstance(raw, Mapping):
            self._built[id(raw)] = schema
            self._fill(schema, Keywords(raw, location), resource)
        else:
            raise invalid(location, "A schema must be an object, true or false.")
        return schema

    def _fill(self, schema: Schema, keywords: Keywords, resource: Resource) -> None:
        siblings_count = resource.draft >= Draft.DRAFT_2019_09 or "$ref" not in keywords
        if siblings_count:
            resource = self._identified(schema, keywords, resource)
        for key in ("definitions", "$defs"):
            self._named(schema, keywords, key, resource)
        self._refer(schema, keywords, resource)
        if not siblings_count:
            return
        schema.annotations = keywords.annotations()
        _read_values(schema, keywords)
        _read_bounds(schema, keywords)
        self._read_array(schema, keywords, resource)
        self._read_object(schema, keywords, resource)
        self._read_dependencies(schema, keywords, resource)
        self._read_applicators(schema, keywords, resource)

    def _identified(self, schema: Schema, keywords: Keywords, resource: Resource) -> Resource:
        """The resource that a schema is part of; its own if it has an id."""
        uri, fragment = urldefrag(keywords.uri(_id_keyword(resource.draft)) or "")
        if uri and schema.raw is not resource.root:
            draft = draft_of(schema.raw, resource.draft)
            joined = urljoin(resource.uri, uri)
            # Each level may add to it, and thousands of subschemas below have it in theirs.
            check_uri(joined, "An id, joined with those that it is relative to,")
            resource = Resource(joined, schema.raw, schema.location, draft)
            schema.draft = draft
            self._documents.add(resource)
        anchors: list[str | None] = [fragment] if fragment and resource.draft <= Draft.DRAFT_07 else []
        if resource.draft >= Draft.DRAFT_2019_09:
            anchors += [keywords.uri("$anchor"), *self._dynamic_anchors(keywords, resource)]
        for anchor in filter(None, anchors):
            resource.anchors.setdefault(anchor, (schema.raw, schema.location))
        return resource

    def _dynamic_anchors(self, keywords: Keywords, resource: Resource) -> list[str | None]:
        dynamic = keywords.uri("$dynamicAnchor") if resource.draft >= Draft.DRAFT_2020_12 else None
        recursive = resource.draft == Draft.DRAFT_2019_09 and keywords.flag("$recursiveAnchor")
        for name in (dynamic, "$recursiveAnchor" if recursive else None):
            if name is not None and self._dynamic.setdefault(name, resource) is not resource:
                raise keywords.invalid(
                    f'The dynamic anchor "{name}" is in two schemas, which is not supported.'
                )
        return [dynamic]

    def _refer(self, schema: Schema, keywords: Keywords, resource: Resource) -> None:
        """Dynamic references are those of one schema, as dynamic anchors are unique."""
        found = [keywords.uri("$ref")]
        if resource.draft == Draft.DRAFT_2019_09:
            found.append(keywords.uri("$recursiveRef"))
        if resource.draft >= Draft.DRAFT_2020_12:
            found.append(keywords.uri("$dynamicRef"))
        references = [reference for reference in found if reference is not None]
        if len(references) > 1:
            raise keywords.invalid("A schema with two references is not supported: use allOf.")
        if references:
            schema.reference = references[0]
            self._unlinked.append((schema, resource))

    def _read_array(self, schema: Schema, keywords: Keywords, resource: Resource) -> None:
        if resource.draft >= Draft.DRAFT_2020_12:
            schema.prefix_items = self._listed(schema, keywords, "prefixItems", resource)
            schema.items = self._optional(schema, keywords, "items", resource)
        elif isinstance(keywords.raw.get("items"), list):
            raws = keywords.elements("items") if keywords.raw["items"] else []
            schema.prefix_items = [
                self._child(schema, raw, resource, "items", str(index)) for index, raw in enumerate(raws)
            ]
            schema.items = self._optional(schema, keywords, "additionalItems", resource)
            schema.items_keyword = "additionalItems"
        else:
            schema.items = self._optional(schema, keywords, "items", resource)
        schema.unique_items = keywords.flag("uniqueItems")
        if resource.draft >= Draft.DRAFT_06:
            schema.contains = self._optional(schema, keywords, "contains", resource)
        if resource.draft >= Draft.DRAFT_2019_09:
            least, most = keywords.count("minContains"), keywords.count("maxContains")
            schema.contains_min, schema.contains_max = (1 if least is None else least), most
            schema.unevaluated_items = self._optional(schema, keywords, "unevaluatedItems", resource)

    def _read_object(self, schema: Schema, keywords: Keywords, resource: Resource) -> None:
        schema.properties = self._named(schema, keywords, "properties", resource)
        schema.pattern_properties = self._named(schema, keywords, "patternProperties", resource)
        schema.additional_properties = self._optional(schema, keywords, "additionalProperties", resource)
        schema.required = keywords.names("required")
        if resource.draft >= Draft.DRAFT_06:
            schema.property_names = self._optional(schema, keywords, "propertyNames", resource)
        if resource.draft >= Draft.DRAFT_2019_09:
            schema.unevaluated_properties = self._optional(
                schema, keywords, "unevaluatedProperties", resource
            )

    def _read_dependencies(self, schema: Schema, keywords: Keywords, resource: Resource) -> None:
        if resource.draft >= Draft.DRAFT_2019_09:
            schema.dependent_schemas = self._named(schema, keywords, "dependentSchemas", resource)
            schema.dependent_required = {
                name: keywords.names_of(value, "dependentRequired", name)
                for name, value in keywords.members("dependentRequired").items()
            }
            return
        for name, value in keywords.members("dependencies").items():
            if isinstance(value, list):
                schema.dependent_required[name] = keywords.names_of(value, "dependencies", name)
            else:
                schema.dependent_schemas[name] = self._child(schema, value, resource, "dependencies", name)

    def _read_applicators(self, schema: Schema, keywords: Keywords, resource: Resource) -> None:
        for kind in COMBINATIONS:
            branches = self._listed(schema, keywords, kind, resource)
            if branches:
                schema.combinations[kind] = branches
        schema.negated = self._optional(schema, keywords, "not", resource)
        if resource.draft >= Draft.DRAFT_07 and "if" in keywords:
            condition = self._child(schema, keywords.raw["if"], resource, "if")
            then = self._optional(schema, keywords, "then", resource)
            otherwise = self._optional(schema, keywords, "else", resource)
            # A condition without consequences still evaluates properties, as unevaluatedProperties sees them.
            if then or otherwise or schema.unevaluated_properties or schema.unevaluated_items:
                schema.conditional = Conditional(condition=condition, then=then, otherwise=otherwise)

    def _child(self, schema: Schema, raw: Json, resource: Resource, *path: str) -> Schema:
        return self._build(raw, (*schema.location, *path), resource)

    def _optional(self, schema: Schema, keywords: Keywords, key: str, resource: Resource) -> Schema | None:
        return self._child(schema, keywords.raw[key], resource, key) if key in keywords else None

    def _listed(self, schema: Schema, keywords: Keywords, key: str, resource: Resource) -> list[Schema]:
        raws = keywords.elements(key)
        return [self._child(schema, raw, resource, key, str(index)) for index, raw in enumerate(raws)]

    def _named(self, schema: Schema, keywords: Keywords, key: str, resource: Resource) -> dict[str, Schema]:
        raws = keywords.members(key)
        return {name: self._child(schema, raw, resource, key, name) for name, raw in raws.items()}


def _id_keyword(draft: Draft) -> str:
    return "id" if draft == Draft.DRAFT_04 else "$id"


def _own_uri(value: Json, draft: Draft) -> str:
    uri = value.get(_id_keyword(draft)) if isinstance(value, Mapping) else None
    if not isinstance(uri, str):
        return ""
    check_uri(uri, "An id")
    return urldefrag(uri).url


def _read_values(schema: Schema, keywords: Keywords) -> None:
    schema.type_names = keywords.types()
    if schema.type_names:
        schema.types = frozenset[str]().union(*(TYPES[name] for name in schema.type_names))
    allowed: list[Sequence[Json]] = []
    if "enum" in keywords:
        allowed.append(keywords.values())
    if "const" in keywords and schema.draft >= Draft.DRAFT_06:
        allowed.append([keywords.raw["const"]])
    for values in allowed:
        possible = [value for value in values if type_of(value) in schema.types]
        texts = frozenset(canonical(value) for value in possible)
        schema.values = texts if schema.values is None else schema.values & texts
        schema.values_types &= frozenset(type_of(value) for value in possible)


def _read_bounds(schema: Schema, keywords: Keywords) -> None:
    for key in _COUNTS:
        count = keywords.count(key)
        if count is not None and (count > 0 or key not in _LOWER_COUNTS):
            schema.bounds[key] = count
    for key, exclusive in (("maximum", "exclusiveMaximum"), ("minimum", "exclusiveMinimum")):
        bound = keywords.number(key)
        if schema.draft == Draft.DRAFT_04:
            if bound is not None:
                schema.bounds[exclusive if keywords.flag(exclusive) else key] = bound
            continue
        if isinstance(keywords.raw.get(exclusive), bool):
            raise keywords.invalid(
                exclusive, f"{exclusive} must be a number; true and false are of Draft-04."
            )
        for name, value in ((key, bound), (exclusive, keywords.number(exclusive))):
            if value is not None:
                schema.bounds[name] = value
    schema.multiple_of = keywords.number("multipleOf")
    if schema.multiple_of is not None and schema.multiple_of <= 0:
        raise keywords.invalid("multipleOf", "multipleOf must be greater than zero.")
    schema.pattern = keywords.text("pattern")
