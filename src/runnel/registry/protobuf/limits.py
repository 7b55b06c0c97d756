"""Limits on a Protobuf schema, each with its reason."""

TEXT_BYTES_MAX = 512 * 1024
"""One text, `.proto` source or base64: it takes a second to parse. The largest files that are published have half
of that."""

REFERENCED_BYTES_MAX = 2 * 1024 * 1024
"""The texts of all references of a schema: each is parsed whenever a schema that refers to it is."""

FILES_MAX = 200
"""References of one schema, transitive ones included. The files that each may use are kept as a set per file."""

NESTING_MAX = 32
"""Messages within messages, as in protoc; also parts of the name of an option, and messages within its value."""

NAME_CHARACTERS_MAX = 512
"""A name with its package and all enclosing messages: it is stored with every element below it, and with every
field of that type."""

MESSAGES_MAX = 10_000
"""Messages and enums of one file, nested ones included: each takes kilobytes as a linked descriptor."""

AGGREGATE_BYTES_MAX = 128 * 1024
"""Values in braces of the custom options of one file: they are parsed with `text_format`, which takes ten
times as long as everything else here."""

INCOMPATIBILITIES_MAX = 100
"""Differences that a comparison reports. More would not help a reader, and make a response of megabytes."""

COMPARED_FIELDS_MAX = 1_000_000
"""Fields that a comparison looks at. Every pair of messages is compared once, so that only schemas made for it,
with equally named messages in hundreds of packages, have more."""

MESSAGE_INDEXES_MAX = NESTING_MAX
"""Numbers in a message index: one per level of nesting."""
