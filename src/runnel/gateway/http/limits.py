"""Limits of the HTTP API, each with its reason. Requests beyond a limit are rejected and affect no others."""

BODY_BYTES_MAX = 16 * 1024 * 1024
"""A body that is decoded as a whole, in a few milliseconds per megabyte. Larger ones are sent as NDJSON."""

SMALL_BODY_BYTES_MAX = 2 * 1024 * 1024
"""A body without records: all acknowledgements of the largest response. Decoding it takes thirty milliseconds
a megabyte, as each of its elements becomes an object."""

HEADERS_BYTES_MAX = 1024 * 1024
"""The headers of a record as JSON: they are decoded at once, as elements of such a body."""

DRAIN_BYTES_MAX = 64 * 1024 * 1024
"""How much of a body that is too large is read and dropped, so that its sender reads why it was refused."""

LINE_BYTES_MAX = 4 * 1024 * 1024
"""A line of NDJSON, and a message of a WebSocket: a record of the largest default size, in base64, fits."""

BODIES_BYTES_MAX = 128 * 1024 * 1024
"""All bodies that are received or in use: eight of the largest. Decoded, they take several times as much."""

BODIES_PRINCIPAL_SHARE = 0.5
"""The share of it that one principal may take, if there are others."""

BODY_ROOM_S = 30.0
"""How long an upload that has begun waits for memory; it ends with a summary of what was written."""

BODY_READ_S = 30.0
"""How long a body may pause. A client that sends a byte a minute would hold a request for ever."""

BODY_S = 60.0
"""How long a whole body, or a line of NDJSON, may take: what has arrived of it is in memory. The largest body
needs 280 KB/s."""

HEAD_BYTES_MAX = 64 * 1024
"""The request line and all headers, or all trailers; the server's parser itself has no limit."""

HEAD_READ_S = 30.0
"""How long a client may take to send a request line and its headers."""

BATCH_RECORDS_MAX = 10_000
"""Records of a JSON array: each becomes a few objects, and all results are in one response."""

BULK_IN_FLIGHT_MAX = 2_000
"""Records of an NDJSON upload that are sent and not acknowledged: enough to fill batches, little memory."""

BULK_ERRORS_MAX = 100
"""Failed lines that the summary of an upload lists; all are counted."""

RECORD_HEADERS_MAX = 1_000
"""Headers of one record: each is encoded and decoded separately, here and in every consumer."""

UNSENT_BYTES_MAX = 256 * 1024 * 1024
"""Responses that their clients have not read yet: a whole one is handed to its connection at once. Above, the
connection with most of it is dropped."""

CONNECTIONS_MAX = 10_000
"""Open connections, idle ones included: more than all streams, and some twenty kilobytes each."""

PIPELINED_MAX = 100
"""Requests of a connection that wait for the response to the one before them: each takes some kilobytes, and
has forty bytes on the wire."""

DELIVERY_S = 10.0
"""How long a record is retried. Other proxies let clients wait two minutes for a 200 with an error in it."""

OUTCOME_S = DELIVERY_S + 2.0
"""When a publish is answered with 504 although the broker may still answer."""

BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Records of one principal that are not acknowledged."""

BUFFER_REFUSED_SHARE = 0.8
"""How full the buffer is when publishes are refused with 429; uploads wait, and use the rest."""

KEYED_BUFFER_BYTES_MAX = 16 * 1024 * 1024
"""Records with idempotency keys of one principal that are not acknowledged; each of them is also a task."""

DEDUP_S = 1.0
DEDUP_TOPICS_MAX = 1_000
"""For how long, and for how many topics, a principal remembers whether they have dedup.window.ms."""

RETRY_AFTER_S = (1, 3)
"""Seconds that refused clients are asked to wait, spread, so that they do not all return at once."""

POLL_MESSAGES_MAX = 10_000
"""Messages of one response."""

POLL_BYTES_MAX = 4 * 1024 * 1024
"""Bytes that are fetched for one response: broker and gateway hold them. A message may be larger."""

POLL_PARTITION_BYTES = 1024 * 1024
"""Bytes of one partition in a fetch, unless a partition's next batch is larger."""

POLL_PARTITIONS_MAX = 1_000
"""Partitions of one response, as in the console: the position in each is looked up, read from and returned.
Above, requests name a partition."""

POLL_FEW_MESSAGES = 10
POLL_FEW_BYTES = 64 * 1024
"""Bytes of one partition for a request of a few messages: fetching a megabyte for one would be wasteful."""

POLL_MESSAGE_BYTES = 1024
"""Bytes of a partition that are fetched for each message of a request: most are smaller. If there are not
enough messages in them, as many are fetched again as of several partitions."""

WAIT_MS_MAX = 60_000
"""The longest poll: proxies close connections that are silent for longer."""

POLL_ROUNDS_MAX = 50
"""Fetches of one response: a topic with nothing but aborted transactions must not keep one busy."""

REQUESTS_MAX = 1_000
"""Requests in flight per principal, waiting polls included; more are refused with 429."""

STREAMS_MAX = 4_000
"""Open streams, SSE and WebSocket, of a gateway: each has a descriptor, and 256 KiB unsent at most."""

STREAMS_PRINCIPAL_SHARE = 0.5
"""How many of them one principal may have open, if there are others."""

STREAM_PARTITIONS_MAX = 128
"""Partitions of one stream: every event carries the position in each. Above, streams name a partition."""

STREAM_WRITE_BYTES = 128 * 1024
"""Bytes that are written to a stream at a time."""

STREAM_IDLE_S = 15.0
"""After this time without a message a comment is sent: proxies close silent connections, often after 60 s."""

STREAM_STUCK_S = 30.0
"""A client that reads nothing for this long is disconnected."""

FEEDS_MAX = 128
"""Topics that are followed at a time, per isolation, group and format: each has a reader and a ring."""

FEED_METADATA_S = 2.5
"""How often feeds are compared with the metadata of their topics, by one request for all of a principal."""

FEED_IDLE_S = 5.0
"""How long a topic is followed after its last stream has ended: reconnecting clients find it running."""

RING_BYTES_MAX = 2 * 1024 * 1024
RING_MESSAGES_MAX = 10_000
"""Messages of a feed that are kept, encoded once for all streams, with the cursors and in all encodings.
Slower streams fetch on their own."""

SOCKET_CREDIT = 100
SOCKET_CREDIT_MAX = 10_000
"""Messages that a WebSocket client is sent before it grants more: by default, and at most."""

MESSAGE_PART_BYTES = 64 * 1024
"""The part of a WebSocket message that may be received before it counts as a body, or of a line of an upload
that waits for memory: every connection has a buffer of about this size."""

SOCKET_QUEUED_MAX = 100
"""Messages of a WebSocket that wait to be served: what follows them is parsed later, in parts. As an object,
one of a few bytes takes half a kilobyte."""

SOCKET_PART_BYTES = 16 * 1024

SOCKET_PINGS_MAX = 100
"""Pings of a client that does not read: each is answered."""

SOCKET_IN_FLIGHT_MAX = 100
"""Publishes and acks of a WebSocket that are not answered; the next is read when one is."""

SOCKET_IN_FLIGHT_BYTES = LINE_BYTES_MAX
"""Bytes of those, unless one alone is larger: a hundred of the largest would be 400 MB."""

SOCKET_ID_CHARACTERS = 200
"""A client's id of a publish or an ack, which is kept and repeated in the answer."""

PRINCIPALS_MAX = 500
"""Principals with connections to brokers; the least recently used idle one makes room."""

PRINCIPAL_IDLE_S = 300.0
"""When the connections of a principal without requests are closed."""

LOGINS_AT_ONCE = 8
"""Authentications that run at the same time: SCRAM takes milliseconds of CPU, here and at the broker."""

LOGINS_WAITING_MAX = 200
"""Credentials that wait for their authentication; more are refused with 503. Each is a task with a secret."""

LOGIN_VALID_S = 600.0
"""How long credentials are used before a broker is asked again whether it accepts them: a connection that it
accepted once stays open when the user is removed."""

REFUSED_LOGIN_S = 5.0
REFUSED_LOGINS_MAX = 1_000
"""For how long, and for how many credentials, a refusal is remembered: retries with a wrong password do not
reach the broker, which delays answers to an address with many of them."""

TOPICS_S = 1.0
"""For how long the list of all topics is used again, by the same principal, unless it changes them here."""

MISSING_TOPIC_S = 0.3
"""How long an unknown topic is retried: brokers learn of a new topic at different times."""
