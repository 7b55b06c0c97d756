"""Limits of the registry."""

SCHEMA_BYTES_MAX = 900_000
"""A schema is a record of `_schemas`, and records have at most 1 MiB by default."""

REFERENCES_MAX = 200
"""References of a schema, transitive ones included: all are parsed with it."""

SUBJECT_CHARACTERS_MAX = 1000
"""Subjects are parts of keys and addresses."""

PAGE_MAX = 1000
"""Schemas of one answer, as Confluent's registry limits them."""

SUBJECT_VERSIONS_MAX = 1000
"""Versions of a subject: deleting it is one transaction with a record for each, and a transitive level
compares with all."""

NESTING_MAX = 50
"""Levels of metadata, of rules and of settings. Encoding JSON takes stack for each, and what one request
could encode, every replay must be able to encode."""

ID_MAX = 2**31 - 1
"""Ids have four bytes in messages."""
