"""ListTransactions: the transactions that this broker coordinates.

v1 by duration · v2 by a pattern for the transactional id
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string


class ListTransactionsRequest(Request, api=66, versions="0-2", flexible="0+"):
    state_filters: list[string] = field()
    producer_id_filters: list[int64] = field()
    duration_filter: int64 = field("1+", default=-1)  # at least this many milliseconds; -1 for any
    transactional_id_pattern: string | None = field("2+", default=None)


class TransactionState(Struct):
    transactional_id: string = ""
    producer_id: int64 = 0
    transaction_state: string = ""


class ListTransactionsResponse(Response, api=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[string] = field()
    transaction_states: list[TransactionState] = field()
