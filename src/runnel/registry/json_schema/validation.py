"""Validation of a value by the package jsonschema, if it is installed."""

import json
import re
from importlib import import_module
from typing import Any
from urllib.parse import urljoin

from runnel.registry.format import InvalidData
from runnel.registry.json_data import at
from runnel.registry.json_schema import JsonSchema

_PROBLEM_CHARACTERS_MAX = 300


class Validation:
    """Validates values. Nothing is ever fetched: a schema refers to its references only."""

    def __init__(self, schema: JsonSchema) -> None:
        try:
            self._validator = _validator(schema)
        except ImportError:
            self._validator = None

    @property
    def is_available(self) -> bool:
        return self._validator is not None

    def check(self, value: Any) -> None:
        """Raises InvalidData if the value is not one of the schema."""
        if self._validator is None:
            return
        best_match = import_module("jsonschema.exceptions").best_match
        try:
            error = best_match(self._validator.iter_errors(value))
        except RecursionError:
            raise InvalidData("it is nested too deeply") from None
        except re.error as unsupported:
            raise InvalidData(f"the schema has a pattern that is not supported: {unsupported}") from None
        if error is not None:
            raise InvalidData(at(error.absolute_path, error.message[:_PROBLEM_CHARACTERS_MAX]))


def _validator(schema: JsonSchema) -> Any:
    validators = import_module("jsonschema.validators")
    referencing = import_module("referencing")
    root = json.loads(schema.text)
    base = root.get("$id", root.get("id", "")) if isinstance(root, dict) else ""
    validator = validators.validator_for(root, default=validators.Draft7Validator)
    specification = import_module("referencing.jsonschema").specification_with(
        validator.META_SCHEMA.get("$schema", validator.META_SCHEMA.get("id"))
    )
    registry = referencing.Registry()
    for reference in schema.references:
        resource = referencing.Resource.from_contents(json.loads(reference.text), specification)
        for uri in dict.fromkeys((reference.name, urljoin(str(base), reference.name), resource.id())):
            if uri is not None:
                registry = registry.with_resource(uri, resource)
    return validator(root, registry=registry)
