"""Limits of JSON schemas, each with its reason."""

TEXT_CHARACTERS_MAX = 1024 * 1024
"""A schema is one record of `_schemas`, and Kafka's default limit of a record is one megabyte. A schema and
its references together may have four times as many."""

TEXTS_CHARACTERS_MAX = 4 * TEXT_CHARACTERS_MAX

NESTING_MAX = 100
"""Objects and arrays inside each other. Texts are printed and schemas are built by recursion, at most four
calls per level; the interpreter allows a thousand."""

NUMBER_CHARACTERS_MAX = 400
"""Digits of a number: reading one takes the square of them. A double has at most 309 before its point."""

NUMBER_EXPONENT_MAX = 1_000
"""The exponent of a number, which is the count of digits it has when it is compared exactly."""

URI_CHARACTERS_MAX = 2_000
"""Characters of ids and references: each is joined with the one it is relative to."""

SUBSCHEMAS_MAX = 20_000
"""Subschemas of a schema and all it refers to, about a kilobyte of memory each. The largest schemas in use,
such as those of FHIR, have some ten thousand."""

LITERALS_MAX = 20_000
"""Values in defaults that are compared, each of which takes as much memory as a subschema."""

STEPS_MAX = 200_000
"""Steps of one comparison, of a few microseconds each: a second or two. Two schemas of the largest size
that differ little take fewer; combined schemas with hundreds of branches that all differ take more, and are
refused."""

DIFFERENCES_MAX = 50
"""Differences that are reported, compatible and incompatible ones each. A definition that is used in many
properties is compared once, but each use reports it."""

PATH_CHARACTERS_MAX = 1_000
"""Characters of a path that are reported: names of properties may be as long as a schema."""

SHOWN_CHARACTERS_MAX = 60
"""Characters of a name or value that a message quotes."""

PROOF_DEPTH_MAX = 12
"""Levels that are searched for a proof that two branches of a oneOf exclude each other. Discriminators are
one or two levels below their branch; without a proof the change is incompatible."""
