"""All operations of the API."""

from runnel.gateway.http import cloud_events, polling, publishing, topics
from runnel.gateway.http.cloud_events import EventAttributes
from runnel.gateway.http.confluent import v2
from runnel.gateway.http.confluent.table import CONFLUENT
from runnel.gateway.http.models import (
    Acknowledged,
    AckRequest,
    Message,
    Messages,
    NewTopic,
    Published,
    PublishOutcome,
    PublishOutcomes,
    PublishQuery,
    PublishRecord,
    SubscribeQuery,
    Topic,
    UploadSummary,
)
from runnel.gateway.http.operations import EVENT_STREAM, JSON, NDJSON, Answer, Operation, Role

PREFIXES = ("/topics", "/v3", "/brokers")
"""Below these, unknown paths are problems."""

PUBLISH = Operation(
    "POST",
    "/topics/{topic}/publish",
    "publish",
    "Write one or more records",
    publishing.publish,
    {
        200: Answer(
            "All records were written, to all in-sync replicas.",
            {JSON: (Published, PublishOutcomes, UploadSummary), NDJSON: PublishOutcome},
        ),
        207: Answer("Some records were not written.", {JSON: (PublishOutcomes, UploadSummary)}),
    },
    description=(
        "The body is an object (one record) or an array (several). Lines of NDJSON are written as they "
        "arrive, in any number: the response is a summary, or with `Accept: application/x-ndjson` a line for "
        "each record. CloudEvents are accepted in binary, structured and batch mode. The header "
        "`traceparent` becomes a header of the records. In topics with `dedup.window.ms`, a record with an "
        "idempotency key is stored once, however often it is sent: the key is in the header "
        "`Idempotency-Key` for one record, or in `idempotencyKey` of each of several. If the outcome is "
        "unknown (504), send the record again with the same key."
    ),
    role=Role.INGRESS,
    query=PublishQuery,
    headers={
        "Idempotency-Key": "The idempotency key of one record, with or without quotes. Rejected with 400 if "
        "the topic has no `dedup.window.ms`, with 422 if the key is that of another record."
    },
    body={
        JSON: PublishRecord | list[PublishRecord],
        NDJSON: PublishRecord,
        cloud_events.EVENT: EventAttributes,
        cloud_events.BATCH: list[EventAttributes],
    },
    errors=(409, 504),
    changes=True,
)

SUBSCRIBE = Operation(
    "GET",
    "/topics/{topic}/subscribe",
    "subscribe",
    "Read messages",
    polling.subscribe,
    {
        200: Answer(
            "One message with `group` alone; a list with `max`, `offset` or `cursor`.",
            {
                JSON: (Message, Messages),
                NDJSON: Message,
                EVENT_STREAM: Message,
                cloud_events.EVENT: EventAttributes,
                cloud_events.BATCH: list[EventAttributes],
                # An event in binary mode has the type of its data.
                "text/plain": str,
                cloud_events.OCTETS: str,
            },
        ),
        204: Answer("There is no message."),
    },
    description=(
        "With `group`, messages are read from the committed offsets of the group, which an ack advances: "
        "delivery is at least once. Without `group`, or with `offset` or `cursor`, no offsets are committed. "
        "`wait` polls for up to a minute. `Accept: text/event-stream` returns server-sent events, from whose "
        "ids a client can resume (Last-Event-ID); an upgrade to WebSocket returns messages as the client "
        "grants credit."
    ),
    query=SubscribeQuery,
    errors=(409, 422),
)

ACK = Operation(
    "POST",
    "/topics/{topic}/ack",
    "ack",
    "Acknowledge messages",
    polling.ack,
    {200: Answer("The offsets after these messages are committed.", {JSON: Acknowledged})},
    description=(
        "Commits the offset after the message, which acknowledges it and all messages before it in its "
        "partition. An ack of a message before the committed offset changes nothing."
    ),
    body={JSON: AckRequest},
    errors=(409,),
    changes=True,
)

OPERATIONS = (
    PUBLISH,
    SUBSCRIBE,
    ACK,
    Operation(
        "POST",
        "/topics",
        "createTopic",
        "Create a topic",
        topics.create,
        {201: Answer("The topic, with its settings in force.", {JSON: Topic})},
        description=(
            "`retentionPolicy` is a duration (`7d`), `{time, size}`, `compact` or `forever`. Omitted fields "
            "have the brokers' defaults."
        ),
        tag="topics",
        body={JSON: NewTopic},
        errors=(409,),
        changes=True,
    ),
    Operation(
        "DELETE",
        "/topics/{topic}",
        "deleteTopic",
        "Delete a topic",
        topics.delete,
        {204: Answer("The topic and its records are deleted.")},
        tag="topics",
        changes=True,
    ),
    Operation(
        "GET",
        "/topics",
        "listTopics",
        "The names of all topics",
        topics.names,
        {200: Answer("The names, sorted.", {JSON: list[str]})},
        tag="topics",
    ),
    Operation(
        "GET",
        "/topics/{topic}",
        "describeTopic",
        "A topic and its settings",
        topics.describe,
        {200: Answer("The topic.", {JSON: Topic, v2.MEDIA_TYPE: v2.TopicV2})},
        tag="topics",
    ),
    *CONFLUENT,
)
