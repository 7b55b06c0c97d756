"""The interface of a replicated log to the core that decides what is committed."""

from typing import Protocol


class Replica(Protocol):
    """One replica of a log: a leader or follower of a partition, or a member of the metadata quorum."""

    @property
    def node(self) -> int: ...

    @property
    def epoch(self) -> int:
        """The leader epoch of this replica; it never decreases."""
        ...

    high_watermark: int
    """Everything below is committed, as far as this replica knows."""

    def stored(self, end_offset: int) -> bool:
        """The local log has all records below `end_offset`, as durable as it must be.

        True if the high watermark advanced.
        """
        ...

    def truncated(self, end_offset: int) -> None:
        """The local log ends at `end_offset` now."""
        ...
