"""Randomness, so that a simulation can replay it."""

from typing import Protocol


class Entropy(Protocol):
    """Fresh ids and random numbers."""

    def id_bytes(self) -> bytes:
        """Sixteen bytes that no one has used: a topic id, a directory id, half of a member id."""
        ...

    def below(self, bound: int) -> int:
        """A number from 0 up to, not including, `bound`."""
        ...
