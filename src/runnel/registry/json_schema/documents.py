"""The documents of a schema, its own and those it refers to, and the targets of `$ref` in them.

Nothing is ever fetched: a reference leads to a part of these documents, or the schema is invalid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urldefrag, urljoin

from runnel.registry.format import InvalidSchema
from runnel.registry.json_schema.json_text import Json
from runnel.registry.json_schema.paths import clipped, pointer
from runnel.registry.json_schema.schema import Draft

_DRAFTS = {
    "json-schema.org/schema": Draft.DRAFT_04,
    "json-schema.org/draft-04/schema": Draft.DRAFT_04,
    "json-schema.org/draft-06/schema": Draft.DRAFT_06,
    "json-schema.org/draft-07/schema": Draft.DRAFT_07,
    "json-schema.org/draft/2019-09/schema": Draft.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Draft.DRAFT_2020_12,
}


def invalid(location: Sequence[str], problem: str) -> InvalidSchema:
    """An error at a position; the first segment of a location is its document's name."""
    document = f'"{clipped(location[0])}" ' if location[0] else ""
    return InvalidSchema(f"{document}{pointer(location[1:])}: {problem}")


def draft_of(raw: Json, default: Draft) -> Draft:
    """The draft that `$schema` names; unknown ones mean the default."""
    uri = raw.get("$schema") if isinstance(raw, Mapping) else None
    if not isinstance(uri, str):
        return default
    return _DRAFTS.get(uri.removeprefix("http://").removeprefix("https://").removesuffix("#"), default)


@dataclass(slots=True)
class Resource:
    """A document, or the part of one that has an id: the base of relative references in it."""

    uri: str
    root: Json
    location: tuple[str, ...]
    draft: Draft
    anchors: dict[str, tuple[Json, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(slots=True)
class Target:
    """What a reference leads to."""

    raw: Json
    location: tuple[str, ...]
    resource: Resource


class Documents:
    """All resources by their URIs."""

    def __init__(self) -> None:
        self._resources: dict[str, Resource] = {}

    def add(self, resource: Resource, *uris: str) -> None:
        """Make a resource known by its URIs, unless another one has them."""
        for uri in (resource.uri, *uris):
            self._resources.setdefault(urldefrag(uri).url, resource)

    def find(self, reference: str, base: Resource, location: Sequence[str]) -> Target:
        """The target of a reference at `location`. Raises InvalidSchema."""
        uri, fragment = urldefrag(reference)
        resource = self._resource(uri, base) if uri else base
        if resource is None:
            raise invalid(
                location,
                f'"{clipped(reference)}" is not in the schema or its references, and is not fetched.',
            )
        target = _within(resource, unquote(fragment))
        if target is None:
            raise invalid(location, f'"{clipped(reference)}" does not exist.')
        return target

    def _resource(self, uri: str, base: Resource) -> Resource | None:
        candidates = (urljoin(base.uri, uri), uri, uri.removeprefix("./"))
        return next((self._resources[name] for name in candidates if name in self._resources), None)


def _within(resource: Resource, fragment: str) -> Target | None:
    if fragment in resource.anchors:
        return Target(*resource.anchors[fragment], resource)
    if fragment and not fragment.startswith("/"):
        return None
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in fragment.split("/")[1:]]
    target = _walk(resource, tokens)
    if target is None and tokens[:1] == ["$defs"]:
        # Confluent's registry finds definitions by either name, too.
        target = _walk(resource, ["definitions", *tokens[1:]])
    return target


def _walk(resource: Resource, tokens: Sequence[str]) -> Target | None:
    value = resource.root
    for token in tokens:
        if isinstance(value, Mapping) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isascii() and token.isdigit() and int(token[:9]) < len(value):
            value = value[int(token[:9])]
        else:
            return None
    return Target(value, (*resource.location, *tokens), resource)
