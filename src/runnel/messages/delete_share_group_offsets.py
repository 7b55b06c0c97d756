"""DeleteShareGroupOffsets: delete the offsets of a share group for topics."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: string = ""


class DeleteShareGroupOffsetsRequest(Request, api=92, versions="0", flexible="0+"):
    group_id: string = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field()


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: string = ""
    topic_id: uuid = field()
    error_code: int16 = 0
    error_message: string | None = None


class DeleteShareGroupOffsetsResponse(Response, api=92, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field()
