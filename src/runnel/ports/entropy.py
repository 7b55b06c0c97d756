"""Randomness, replaceable by a simulation."""

from typing import Protocol


class Entropy(Protocol):
    """Unique ids and random numbers."""

    def id_bytes(self) -> bytes:
        """Sixteen random bytes: a topic id, a directory id, half of a member id."""
        ...

    def below(self, bound: int) -> int:
        """A number from 0 up to, not including, `bound`."""
        ...
