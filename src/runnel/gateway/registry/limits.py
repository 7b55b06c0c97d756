"""Limits of the registry's HTTP API."""

BODY_BYTES_MAX = 4 * 1024 * 1024
"""A schema of the largest size, escaped, with metadata and rules."""

MEMBERS_BYTES_MAX = 1024 * 1024
"""All of a body but the text of the schema: it becomes objects, in fifty milliseconds a megabyte."""

BODIES_BYTES_MAX = 64 * 1024 * 1024
"""All bodies that are received or in use; decoded, they take several times as much."""

PAGE_BYTES_MAX = 64 * 1024 * 1024
"""The texts of the schemas of one response: a thousand of the largest would have a gigabyte."""

REPLAY_RECORDS = 50
"""Records that are replayed before other requests have their turn; one takes a tenth of a millisecond, a
large one some milliseconds."""

BODY_S = 30.0
"""To receive a body."""

WRITE_S = 15.0
"""For a change, with all its attempts: other gateways may write at the same time, each fencing the others.
Clients wait longer."""

ATTEMPT_PAUSE_S = 0.02
ATTEMPT_PAUSE_MAX_S = 0.5

FRESH_S = 0.1
"""How old the state may be that a request reads; what it does not find is looked for in the topic."""

STATE_AGE_MAX_S = 3600.0
"""How long after a replay the next one may continue from its position; later, all records are read again.
Compaction removes tombstones after delete.retention.ms: a replay that continues later than that misses them,
and keeps what they delete. The default is a day. An hour leaves room for shorter settings, and reading all
records of a large registry takes seconds."""

PERMITTED_S = 2.0
"""For how long the right to read the topic is taken for granted: describing it needs less."""

CHECKS_S = 20.0
"""For all checks of compatibility of a request, each of which takes about a second at most."""

VISIBLE_PAUSE_S = 0.01
"""Between two looks for the own records, which are readable once the marker of their transaction is."""

TRANSACTION_TIMEOUT_MS = 10_000
"""After which the broker ends the transaction of a gateway that was killed."""

WORKERS = 2
"""Threads that decide requests."""

CHECK_WORKERS = 2
"""Threads that compare schemas, which may take a second each: other requests do not wait for them."""
