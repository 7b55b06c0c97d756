"""The identity of a client."""

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """The identity of a client, as an ACL names it: `User:alice`."""

    type: str
    name: str
    is_by_token: bool = False
    """Was it authenticated by a delegation token? Such a client cannot create further tokens."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""A client that was not authenticated."""
