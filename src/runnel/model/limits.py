"""Limits on the resources that clients can make the broker use, each with its reason.

Every queue has a limit. A limit that concerns one package only (a cache size, the length of a step) is
defined next to what it limits.
"""

REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's socket.request.max.bytes: a larger frame closes the connection."""

RECORDLESS_REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""Requests of all APIs but Produce: they are copied, decoded and often echoed in the response, a few
milliseconds per megabyte each time. 60,000 names of the longest kind fit."""

ENVELOPE_BYTES_MAX = RECORDLESS_REQUEST_BYTES_MAX + 4 * 1024
"""An Envelope: the largest request that a broker accepts, its principal, and the address of its client."""

UNAUTHENTICATED_REQUEST_BYTES_MAX = 64 * 1024
"""Requests before the client of a SASL listener is authenticated: not more than a connection receives without
taking memory that is shared with the requests of others."""

FORWARDED_BYTES_MAX = 64 * 1024 * 1024
"""Requests of clients that wait for the active controller, which may be away for half a minute: each is held
once, and once more while it is sent. More are refused, and clients retry."""

REQUEST_ELEMENTS_MAX = 100_000
"""Array elements of one request that is served in slices, all arrays together. An element of three bytes
becomes an object of about 150, and takes one to three microseconds to decode."""

UNSLICED_ELEMENTS_MAX = 25_000
"""Array elements of a request that is decided as a whole, which nothing interrupts, and of a produce request:
the records of 12,000 partitions take a megabyte at least."""

NODE_ELEMENTS_MAX = 2_500
"""Array elements of a request in which a node registers, reports or asks for votes: these are about one
partition, or the listeners and directories of one node."""

INLINE_REQUEST_BYTES_MAX = 64 * 1024
"""Larger requests, but not those with records, are decoded in a thread."""

INLINE_ELEMENTS_MAX = 2_500
"""Array elements of a request that is decoded on the event loop; one with more, records or not, is decoded in
a thread: 5 ms or so are spent in vain, and no more on any request."""

SLICE_RECORDS_BYTES = 8 * 1024 * 1024
"""Records of one slice of a produce request: their checksums and writes take a few milliseconds."""

PRODUCED_PER_SLICE = 150
"""Elements of a slice of a produce request: each partition has a file, which is opened and written at the end
of the step, in a tenth of a millisecond or so."""

SLICE_ELEMENTS = 500
"""A request with more elements is served in slices of this size: handlers take up to 50 microseconds for an
element, and a log that it touches about as long to be written."""

ACL_CHANGES_PER_REQUEST_MAX = 10_000
"""ACLs that one request creates or deletes, as in Kafka."""

ACL_SCANS_PER_REQUEST_MAX = 100
"""Filters of one DeleteAcls request that are compared with all ACLs: a tenth of a second for 100,000 of them,
in steps. Filters that name one ACL are not counted."""

FETCH_PARTITIONS_MAX = 5_000
"""Partitions of one fetch that are read at once, and that a fetch session may have; more are read in slices,
without a session. Reading a partition takes about 12 microseconds."""

FETCH_WAIT_MS_MAX = 5 * 60 * 1000
"""How long a fetch waits for records: permissions are checked when a request arrives, so a client that loses
them reads for this long at most. Kafka's default is half a second."""

MEMBER_METADATA_BYTES_MAX = 8 * 1024 * 1024
"""Subscriptions of one member, all protocols together: each is copied and kept, and sent to the leader."""

TEXT_BYTES_MAX = 2**15 - 1
"""Kafka's limit for a string in any message, also where its length has room for more."""

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

PEER_REQUESTS_IN_FLIGHT_MAX = 10_000
"""Requests of one channel to another node that wait for a response; more fail at once. Requests that are
forwarded for clients are the only ones whose number is not fixed."""

PEER_RESPONSE_BYTES_MAX = 512 * 1024 * 1024
"""The maximum size of a response of another node; a larger one indicates another protocol. Memory is
allocated as the bytes arrive."""

CLIENT_WARNINGS_PER_SECOND_MAX = 5
"""Warnings that one listener logs about its clients; more are suppressed, as they could fill the disk."""

SENDFILE_BYTES_MIN = 64 * 1024
"""Below this a pread and a copy is cheaper than a sendfile call of its own."""

GROUP_MEMBERS_MAX = 2**31 - 1
"""Kafka's group.max.size default, which is unlimited; untrusted clients call for a smaller one."""

TOPIC_NAME_CHARACTERS_MAX = 249
"""Kafka's limit: the name and the partition number must fit a file name."""

RESPONSE_ELEMENTS_MAX = 50_000
"""Offsets, members and partitions in a response that describes groups or transactions: a short name can stand
for very many. The next ones have COORDINATOR_LOAD_IN_PROGRESS, and clients ask again for those alone."""

DESCRIBED_PRODUCERS_MAX = 50_000
"""Producers of one DescribeProducers response, which names them for each partition as often as that is asked
for; the partitions beyond have an error. Encoding this many takes about 50 ms."""

SCRAM_CHANGES_PER_REQUEST_MAX = 1_000
"""Credentials of one request: each takes three hashes, and all are decided together."""

DELEGATION_TOKENS_MAX = 10_000
"""Delegation tokens of the cluster: each node derives the HMAC of each, which takes a few microseconds."""

DELEGATION_TOKENS_PER_PRINCIPAL_MAX = 100
"""Delegation tokens that one principal owns, and that one has requested: every authenticated client may
create some, and none uses up those of the cluster."""

DELEGATION_TOKEN_RENEWERS_MAX = 100
"""Renewers of a delegation token, which are in the metadata of every node, and in each response with it."""

TOKEN_PRINCIPAL_CHARACTERS_MAX = 256
"""The name of an owner, a requester or a renewer of a delegation token: with as many as there may be, a token
takes about 100 kB at most."""

ERROR_MESSAGE_CHARACTERS_MAX = 1_000
"""Error messages quote what the client sent: no response grows by much more than the request had."""

REGISTERED_LISTENERS_MAX = 64
"""Listeners of a node, which are in every snapshot of the metadata and looked through by name."""

REGISTERED_DIRECTORIES_MAX = 1_000
"""Log directories of a broker, and features of a node."""

PARTITIONS_PER_REQUEST_MAX = 10_000
"""Kafka's limit too. A larger request is usually a typo, and would block the metadata log."""

INSPECTED_RECORDS_MAX = 25_000
"""Records of a batch for a topic that requires looking at each of them (compaction, idempotency keys, a limit
on old timestamps): two microseconds each, which nothing interrupts. Larger batches are refused, and those of
one request that have more together are served one by one."""

INSPECTED_BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Such a batch, and one that the broker recompresses, once it is decompressed: that takes 20 to 100 ms."""

VALIDATED_INLINE_BYTES_MAX = 64 * 1024
"""Bytes of a batch, compressed and not, whose records are validated on the event loop."""

VALIDATED_INLINE_RECORDS_MAX = 2_000
"""Records of such a batch: a microsecond each. Those of others are validated in a thread."""

VALIDATED_RECORDS_MAX = 250_000
"""Records of a batch for a topic that validates schemas, a quarter of a second in a thread."""

VALIDATED_IDS_MAX = 1_000
"""Schemas of the keys or values of such a batch, which are remembered while it waits."""

VALIDATED_BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Such a batch once it is decompressed; one is at a time."""

VALIDATED_HELD_BYTES_MAX = 64 * 1024 * 1024
"""Batches that wait until they are validated; more are refused, and clients retry. One may be larger."""

IDEMPOTENCY_KEY_BYTES_MAX = 255
"""An idempotency key: enough for any id. Only a digest of it is kept."""

DEDUP_KEYS_MAX = 250_000
"""The largest dedup.keys.max: a hundred megabytes, freed within a tenth of a second with the leadership."""

LOOKUP_RECORDS_MAX = 250_000
"""Records that a lookup by timestamp looks at, in a thread, half a second for all. The headers of batches may
state timestamps that none of their records has; beyond this, the result is the beginning of a batch."""

LOOKUP_BATCH_BYTES_MAX = 64 * 1024 * 1024
"""A batch that decompresses to more is not looked into by such a lookup."""

NAMED_RECORDS_MAX = 100
"""Records that are looked at to name those with an invalid timestamp, in a batch that is refused anyway."""

NAMED_RECORDS_BYTES_MAX = 64 * 1024
"""A compressed batch that is larger than this is refused without naming its records."""

DECOMPRESSED_BATCH_BYTES_MAX = 256 * 1024 * 1024
"""A batch that decompresses to more is rejected as a decompression bomb."""
