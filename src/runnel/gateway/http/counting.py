"""Counts the records of a body before they are decoded, up to the limit: what is beyond costs nothing.

The first pass skips the content of each record. Of the second one, which decodes them, msgspec would check
the length of an array only after the last element.
"""

import threading
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from runnel.gateway.http.limits import BATCH_RECORDS_MAX
from runnel.gateway.http.problems import Problem

RECORD_BYTES_MIN = 3
"""Brackets and a comma: smaller bodies cannot have too many."""


class _Count(threading.local):
    """Gateways of tests are threads of one process."""

    left = 0


_count = _Count()


class Element(Struct):
    """A record, with whatever it contains."""

    def __post_init__(self) -> None:
        _count.left -= 1
        if _count.left < 0:
            raise Problem(413, f"more than {BATCH_RECORDS_MAX} records in a request; send fewer, or NDJSON")


class InRecords(Struct):
    """Records in an object, as in version 2 of Confluent's API."""

    records: list[Element] = []


class InEntries(Struct):
    """Records in an object, as in version 3 of Confluent's API."""

    entries: list[Element] = []


def check_count(body: bytes, kind: Any, decode: Callable[[bytes, Any], object]) -> None:
    """413 if a body has more records than a request may have; `decode` raises what is wrong with others."""
    if len(body) <= BATCH_RECORDS_MAX * RECORD_BYTES_MIN:
        return
    _count.left = BATCH_RECORDS_MAX
    decode(body, kind)
