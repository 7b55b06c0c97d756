"""Limits on a Protobuf schema, each with its reason."""

TEXT_BYTES_MAX = 512 * 1024
"""One text, `.proto` source or base64, which takes up to two seconds to parse. Published files are smaller
than half of it."""

REFERENCED_BYTES_MAX = 2 * 1024 * 1024
"""The texts of all references of a schema: each is parsed whenever a schema that refers to it is."""

FILES_MAX = 200
"""Imports of a file, and references of a schema with transitive ones: each keeps a set of the others."""

NESTING_MAX = 32
"""Messages within messages, as in protoc; parts of the name of an option; messages within its value."""

NAME_CHARACTERS_MAX = 512
"""A full name, with package and enclosing messages: it is stored with every element below it, and with every
field of that type."""

MESSAGES_MAX = 10_000
"""Messages and enums of one file, nested ones included: each takes kilobytes as a linked descriptor."""

AGGREGATE_BYTES_MAX = 128 * 1024
"""Values in braces of all options of one file: `text_format` parses them, slower than the parser."""

INCOMPATIBILITIES_MAX = 100
"""Differences that a comparison reports. More would not help a reader, and make a response of megabytes."""

COMPARED_FIELDS_MAX = 1_000_000
"""Fields that a comparison visits. Each pair of messages is compared once; only schemas with equally named
messages in hundreds of packages have more."""

MESSAGE_INDEXES_MAX = NESTING_MAX
"""Numbers in a message index: one per level of nesting."""

RECORD_DEPTH_MAX = 100
"""Messages within messages of a record that is encoded: as many as protobuf decodes."""
