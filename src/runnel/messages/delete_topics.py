"""DeleteTopics: delete topics and their records.

v4 flexible · v5 error message · v6 by topic id
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: string | None = None  # null: by id
    topic_id: uuid = field()


class DeleteTopicsRequest(Request, api=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[string] = field("0-5")
    timeout_ms: int32 = 0


class DeletableTopicResult(Struct):
    name: string | None = field(nullable="6+")
    topic_id: uuid = field("6+")
    error_code: int16 = 0
    error_message: string | None = field("5+", default=None)


class DeleteTopicsResponse(Response, api=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult] = field()
