"""AlterClientQuotas: set or remove client quotas.

v1 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, float64, int16, int32, string


class EntityData(Struct):
    entity_type: string = ""
    entity_name: string | None = field()  # null is the default of its type


class OpData(Struct):
    key: string = ""
    value: float64 = 0.0
    remove: boolean = False


class EntryData(Struct):
    entity: list[EntityData] = field()
    ops: list[OpData] = field()


class AlterClientQuotasRequest(Request, api=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = field()
    validate_only: boolean = False


class AnsweredEntryData(Struct):
    error_code: int16 = 0
    error_message: string | None = field()
    entity: list[EntityData] = field()


class AlterClientQuotasResponse(Response, api=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    entries: list[AnsweredEntryData] = field()
