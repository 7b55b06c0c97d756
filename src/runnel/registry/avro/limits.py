"""Limits of Avro schemas, so that none costs more than its sender's patience."""

TEXT_CHARACTERS_MAX = 1_000_000
"""Records of a topic have at most 1 MiB by default."""

TEXTS_CHARACTERS_MAX = 4 * TEXT_CHARACTERS_MAX
"""All that a schema refers to, which is parsed with it."""

NAME_CHARACTERS_MAX = 1_000
"""A full name: it is stored with every type, alias and reference of its namespace, which is written once."""

DEPTH_MAX = 150
"""Levels of JSON; a nested record takes three. Parsing and printing recurse, with up to four frames each."""

NODES_MAX = 20_000
"""Types, fields and aliases of a schema with all that it refers to."""

COMPARISONS_MAX = 30_000
"""Pairs of types: types of one name in many namespaces have as many as the product of their numbers."""

DEFAULT_CHECKS_MAX = 100_000
"""Pairs of a type and a part of a default, for all fields: each branch of a union is tried."""

FINDINGS_MAX = 100
"""Reported incompatibilities; further ones would not help, and each repeats names of the schema."""

SHOWN_VALUES_MAX = 50_000
"""Values of a message that is shown: an array of nulls has any number of them in a few bytes."""

DATA_VALUES_MAX = 2**20
"""Values of a message that is encoded or decoded: as many as a record has bytes by default. Each branch of a
union that is tried counts."""

DATA_DEPTH_MAX = 100
"""Levels of a message."""

DATA_BYTES_MAX = 100 * 1024 * 1024
"""An encoded message: the largest request that brokers accept. Defaults of fields can make it any size."""
