"""The interface of the metadata quorum to its user."""

from typing import Protocol

from runnel.model.ids import SnapshotId


class QuorumListener(Protocol):
    """Is notified of commits and of leader changes."""

    def advanced(self, high_watermark: int) -> None:
        """Everything below this offset is committed."""
        ...

    def elected(self, epoch: int) -> None:
        """This node leads, and the first record of its epoch is committed."""
        ...

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """The leader or the epoch has changed; -1 for no leader, also if this node resigned."""
        ...

    def snapshot_installed(self, snapshot: SnapshotId) -> None:
        """The log was replaced by a snapshot of the leader."""
        ...


class NoListener:
    """The listener before there is one."""

    def advanced(self, high_watermark: int) -> None: ...

    def elected(self, epoch: int) -> None: ...

    def leader_changed(self, leader_id: int, epoch: int) -> None: ...

    def snapshot_installed(self, snapshot: SnapshotId) -> None: ...
