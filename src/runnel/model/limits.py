"""Limits on the resources that clients can make the broker use, each with its reason.

Every queue has a limit. A limit that concerns one package only (a cache size, the length of a step) is
defined next to what it limits.
"""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's socket.request.max.bytes: a larger frame closes the connection."""

REQUEST_ELEMENTS_MAX = 1_000_000
"""Array elements of one request, all arrays together: an element of three bytes decodes to an object of about
150, so a full frame of them would take gigabytes. Legitimate requests stay below a few hundred thousand."""

REQUEST_TAGS_MAX = 100_000
"""Tagged fields of one request, all structs together: a tagged field takes two bytes, so a full frame could
hold fifty million, each a step of the event loop. No Kafka client sends more than a few per struct."""

RECEIVE_MEMORY_BYTES_MAX = 512 * 1024 * 1024
"""Memory for all partially received requests; above it, connections wait until some is freed."""

REQUESTS_IN_FLIGHT_MAX = 512
"""In-flight requests of one connection; above it, reading pauses. The default of the Java client is 5, of
librdkafka 1,000,000, but a pipeline this deep already hides the round trip."""

ANSWER_BYTES_PENDING_MAX = 8 * 1024 * 1024
"""Unsent response bytes of one connection; above it, its requests are no longer read."""

COMPLAINTS_PER_SECOND_MAX = 5
"""Warnings that one listener logs about its clients; more are suppressed, as they could fill the disk."""

SENDFILE_BYTES_MIN = 64 * 1024
"""Below this a pread and a copy is cheaper than a sendfile call of its own."""

GROUP_MEMBERS_MAX = 2**31 - 1
"""Kafka's group.max.size default, which is unlimited; untrusted clients call for a smaller one."""

TOPIC_NAME_CHARACTERS_MAX = 249
"""Kafka's limit: the name and the partition number must fit a file name."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Kafka's limit too. A larger request is usually a typo, and would block the metadata log."""

DECOMPRESSED_BATCH_BYTES_MAX = 256 * 1024 * 1024
"""A batch that decompresses to more is rejected as a decompression bomb."""
