"""Who asks."""

from dataclasses import dataclass

NOT_PARKED = -1
"""The number of a caller that gets its answer at once."""


@dataclass(slots=True)
class RequestContext:
    """The client behind a request, and where its answer goes if it has to wait."""

    client_id: str
    client_host: str
    api_version: int
    waiter: int
    uuid: str
    """A piece of text that was never used before, for the id of a new member."""
