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
    "Write a record, or many",
    publishing.publish,
    {
        200: Answer(
            "All records were written, to all in-sync replicas.",
            {JSON: (Published, PublishOutcomes, UploadSummary), NDJSON: PublishOutcome},
        ),
        207: Answer("Some records were not written.", {JSON: (PublishOutcomes, UploadSummary)}),
    },
    description=(
        "An object is one record, an array many. Lines of NDJSON are written as they arrive, without a "
        "limit: the response is a summary, or with `Accept: application/x-ndjson` a line for each record. "
        "CloudEvents are accepted in binary, structured and batch mode. The header `traceparent` becomes a "
        "header of the records. In topics with `dedup.window.ms`, a record with an idempotency key is stored "
        "once, however often it is sent: in the header `Idempotency-Key` for one record, or as "
        "`idempotencyKey` of each. If its outcome is unknown (504), send it again with the same key."
    ),
    role=Role.INGRESS,
    query=PublishQuery,
    headers={
        "Idempotency-Key": "The idempotency key of one record, with or without quotes. Refused with 400 if "
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
            "With `group` one message, with `max`, `offset` or `cursor` as many as there are.",
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
        "With `group`, messages are read from the position of the group, which an ack moves: at least once. "
        "Without, or with `offset` or `cursor`, nothing is moved. `wait` polls for up to a minute. "
        "`Accept: text/event-stream` is answered with events, whose ids resume (Last-Event-ID); an upgrade "
        "to WebSocket with messages as the client grants them."
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
    {200: Answer("The position of the group is after these messages.", {JSON: Acknowledged})},
    description=(
        "Commits the offset after the message: it and all before it in its partition are done. An ack of a "
        "message before the position changes nothing."
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
            "`retentionPolicy` is a duration (`7d`), `{time, size}`, `compact` or `forever`; what is not "
            "given is the brokers' default."
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
