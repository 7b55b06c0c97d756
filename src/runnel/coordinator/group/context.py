"""The context of a group request."""

from collections.abc import Callable
from dataclasses import dataclass

NOT_PARKED = -1
"""The waiter id of a request that is never parked."""


@dataclass(slots=True)
class RequestContext:
    """The client of a request, and the id under which the request is parked if it has to wait."""

    client_id: str
    client_host: str
    api_version: int
    waiter: int
    uuid: str
    """A random UUID for the id of a new member."""
    shows_topic: Callable[[str], bool] | None = None
    """Whether the client may describe a topic; None if it may describe all."""
