"""Starts streaming queries one after the other, each after the previous one has initialised its sources.

Every Python source and sink of a query starts a process, which must connect to Spark within ten seconds.
On a busy machine, many processes that start at once would exceed that timeout.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS_MAX = 12
SETTLED_MAX_S = 120.0
ENDED_MAX_S = 60
_POLL_S = 0.1
_INITIALIZING = ("Initializing sources", "Getting offsets from")


def start_with_retries(start: "Callable[[], StreamingQuery]") -> "StreamingQuery":
    """Start a query and await the initialisation of its sources; retried if a process was slow to connect."""
    for _ in range(ATTEMPTS_MAX - 1):
        query = start()
        if not _has_timed_out(query):
            return query
        await_termination(query)
    return start()


def is_connect_timeout(error: BaseException) -> bool:
    """Did a Python process fail to connect to Spark in time?"""
    return "failed to connect back" in str(error)


def await_termination(query: "StreamingQuery") -> None:
    """Wait until a failed query has terminated and its name is free; its error is known already."""
    # The error of the query is raised again; this is the base class of all its kinds.
    with suppress(PySparkException):
        query.awaitTermination(ENDED_MAX_S)


def _has_timed_out(query: "StreamingQuery") -> bool:
    end_s = time.monotonic() + SETTLED_MAX_S
    while time.monotonic() < end_s and query.isActive:
        if not str(query.status["message"]).startswith(_INITIALIZING):
            return False
        time.sleep(_POLL_S)
    error = None if query.isActive else query.exception()
    # Other errors are reported by the caller that awaits the query.
    return error is not None and is_connect_timeout(error)
