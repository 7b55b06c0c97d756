"""Messages of a JSON schema: JSON text."""

import json
from typing import Any

from runnel.registry import json_data
from runnel.registry.codecs import Decoded
from runnel.registry.format import InvalidData
from runnel.registry.json_schema import FORMAT, JsonSchema
from runnel.registry.json_schema.validation import Validation

STORED_FORMAT = FORMAT


class JsonCodec:
    """What is encoded is validated if the package jsonschema is installed, and sent as it is."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._validation: Validation | None = None

    def encode(self, text: str, message: str | None = None) -> bytes:
        if self._validation is None:
            self._validation = Validation(self._schema)
        self._validation.check(json_data.parse(text))
        return text.encode()

    def decode(self, data: bytes) -> Decoded:
        value = self.shown(data)
        json_data.check_exact(data)
        return Decoded(value)

    def shown(self, data: bytes) -> Any:
        try:
            value = json.loads(data)
            # Python reads numbers and levels that JSON does not have, or that cannot be printed again.
            json.dumps(value, allow_nan=False)
            return value
        except (ValueError, RecursionError) as error:
            raise InvalidData(f"it is not JSON: {error}") from None


codec = JsonCodec
