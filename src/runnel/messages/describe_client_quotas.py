"""DescribeClientQuotas: the quotas that match a filter.

v1 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, float64, int8, int16, int32, string


class ComponentData(Struct):
    entity_type: string = ""
    match_type: int8 = 0  # 0 this name, 1 the default, 2 any name
    match: string | None = field()


class DescribeClientQuotasRequest(Request, api=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = field()
    strict: boolean = False  # no entities with further components


class EntityData(Struct):
    entity_type: string = ""
    entity_name: string | None = field()  # null is the default of its type


class ValueData(Struct):
    key: string = ""
    value: float64 = 0.0


class EntryData(Struct):
    entity: list[EntityData] = field()
    values: list[ValueData] = field()


class DescribeClientQuotasResponse(Response, api=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
    entries: list[EntryData] | None = field()
