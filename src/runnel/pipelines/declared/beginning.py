"""Starting streaming queries one after the other, each when the one before has found its sources.

Every Python source and sink of a query begins with a process of its own, and Spark gives each ten seconds to
answer. On a busy machine, all of them at once would not make it.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TRIES = 12
SETTLED_MAX_S = 120.0
ENDED_MAX_S = 60
_LOOK_S = 0.1
_FINDING_SOURCES = ("Initializing sources", "Getting offsets from")


def begun(start: "Callable[[], StreamingQuery]") -> "StreamingQuery":
    """The query, once it has found its sources; tried again if Spark lost patience with a process."""
    for _ in range(TRIES - 1):
        query = start()
        if not _failed_at_once(query):
            return query
        await_end(query)
    return start()


def lost_patience(error: BaseException) -> bool:
    """Has Spark given up on a process that was too slow to begin?"""
    return "failed to connect back" in str(error)


def await_end(query: "StreamingQuery") -> None:
    """Wait until a query that has failed has ended and its name is free; why it failed has been seen."""
    # Whatever it failed with is raised once more here; all kinds have this one in common.
    with suppress(PySparkException):
        query.awaitTermination(ENDED_MAX_S)


def _failed_at_once(query: "StreamingQuery") -> bool:
    end_s = time.monotonic() + SETTLED_MAX_S
    while time.monotonic() < end_s and query.isActive:
        if not str(query.status["message"]).startswith(_FINDING_SOURCES):
            return False
        time.sleep(_LOOK_S)
    error = None if query.isActive else query.exception()
    # Any other failure is reported by the waiter for the query.
    return error is not None and lost_patience(error)
