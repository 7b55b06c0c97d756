"""What clients may make the broker hold or do at most, each bound with its reason.

A queue without a bound does not pass review. A bound that is one room's own matter (how large its cache is,
how long its steps are) stands beside what it bounds.
"""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's socket.request.max.bytes: a larger frame is an attack or a bug, and closes the connection."""

REQUEST_ELEMENTS_MAX = 1_000_000
"""Array elements of one request, all arrays together: an element of three bytes becomes an object of about
150, so a full frame of them would take gigabytes. Sensible requests name some hundred thousand."""

REQUEST_TAGS_MAX = 100_000
"""Tagged fields of one request, all structs together: a tagged field takes two bytes, so a full frame could
hold fifty million, each a step of the event loop. No Kafka client sends more than a few per struct."""

RECEIVE_MEMORY_BYTES_MAX = 512 * 1024 * 1024
"""All half-received requests together; beyond it, connections wait their turn."""

REQUESTS_IN_FLIGHT_MAX = 512
"""Unanswered requests of one connection; reading pauses above. Java sends 5 and librdkafka up to 1 000 000 by
default, but a pipeline this deep already hides every latency."""

ANSWER_BYTES_PENDING_MAX = 8 * 1024 * 1024
"""Answer bytes held in memory for one slow reader before its requests stop being read."""

COMPLAINTS_PER_SECOND_MAX = 5
"""Warnings of one listener about its clients: enough to see what goes on, too few to fill a disk."""

SENDFILE_BYTES_MIN = 64 * 1024
"""Below this a pread and a copy is cheaper than a sendfile call of its own."""

GROUP_MEMBERS_MAX = 2**31 - 1
"""Kafka's group.max.size default, which is none: whoever lets strangers in sets a smaller one."""

TOPIC_NAME_CHARACTERS_MAX = 249
"""Kafka's limit: the name and the partition number must fit a file name."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Kafka's limit too. More at once is a typing mistake that stalls the metadata log and takes much memory."""

DECOMPRESSED_BATCH_BYTES_MAX = 256 * 1024 * 1024
"""A batch that inflates beyond this is a bomb: it is refused, and costs its sender only."""
