"""Starting streaming queries one after the other, each when the one before has found its sources.

Every Python source and sink of a query begins with a process of its own, and Spark gives each ten seconds to
answer. On a busy machine, all of them at once would not make it.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TRIES = 12
SETTLED_MAX_S = 120.0
_LOOK_S = 0.1
_FINDING_SOURCES = ("Initializing sources", "Getting offsets from")
_TOO_SLOW = "failed to connect back"


def begun(start: "Callable[[], StreamingQuery]") -> "StreamingQuery":
    """The query, once it has found its sources; tried again if Spark lost patience with a process."""
    for _ in range(TRIES - 1):
        query = start()
        if not _lost_patience(query):
            return query
    return start()


def _lost_patience(query: "StreamingQuery") -> bool:
    end_s = time.monotonic() + SETTLED_MAX_S
    while time.monotonic() < end_s and query.isActive:
        if not str(query.status["message"]).startswith(_FINDING_SOURCES):
            return False
        time.sleep(_LOOK_S)
    error = None if query.isActive else query.exception()
    # Any other failure is told by whoever waits for the query.
    return error is not None and _TOO_SLOW in str(error)
