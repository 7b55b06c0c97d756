"""Avro: parsing, printing, schema resolution, and data.

parser.py: text → model.py → printer.py: text; compatibility.py compares two schemas. encoding.py and
decoding.py: values of JSON → data → values of JSON.
"""

from runnel.registry.avro.schema import AvroFormat

FORMAT = AvroFormat(is_strict=True)
"""For new schemas."""

STORED_FORMAT = AvroFormat(is_strict=False)
"""For stored ones: other registries have accepted names and defaults that are not valid."""
