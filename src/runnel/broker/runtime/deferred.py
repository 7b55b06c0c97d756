"""A response that is not known yet when its handler returns: it comes at the end of the turn, or later."""

import asyncio
from collections.abc import Callable
from typing import Any


class Deferred:
    """What a handler returns instead of a response it does not have yet."""

    __slots__ = ("_deliver", "_outcome")

    holds_line = True
    """The connection's next request waits for this answer; produce lets it go on, to share one disk sync."""

    def __init__(self) -> None:
        self._deliver: Callable[[Any], None] | None = None
        self._outcome: Any = None

    def complete(self, outcome: Any) -> None:
        """The response is known, or the exception that came instead of it."""
        if self._deliver is None:
            self._outcome = outcome
        else:
            self._deliver(outcome)

    def then(self, deliver: Callable[[Any], None]) -> None:
        """Hand the outcome over when it is known, or now if it already is."""
        if self._outcome is None:
            self._deliver = deliver
        else:
            deliver(self._outcome)


def chain(outcome: Any, go_on: Callable[[Any], Any]) -> Any:
    """Go on with an outcome that may not be known yet; what comes of it may be a Deferred as well."""
    if not isinstance(outcome, Deferred):
        return go_on(outcome)
    whole = Deferred()

    def arrived(value: Any) -> None:
        result = value if isinstance(value, Exception) else go_on(value)
        if isinstance(result, Deferred):
            result.then(whole.complete)
        else:
            whole.complete(result)

    outcome.then(arrived)
    return whole


async def settled(answer: Any) -> Any:
    """An answer that may be deferred, once it is known."""
    if not isinstance(answer, Deferred):
        return answer
    known = asyncio.get_running_loop().create_future()
    answer.then(lambda outcome: None if known.done() else known.set_result(outcome))
    return await known
