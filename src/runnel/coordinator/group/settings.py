"""Configs of the group coordinator."""

from dataclasses import dataclass

from runnel.model.limits import GROUP_MEMBERS_MAX

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""The session timeout of a new member until its first join completes, because it cannot send heartbeats
before. The same as in Kafka. It limits how long a member whose client gave up takes part in rebalances."""

WRITE_RETRY_MS = 1000
"""The delay before a failed append is retried."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker configs of the group coordinator."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 30 * 60 * 1000
    members_max: int = GROUP_MEMBERS_MAX
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_check_interval_ms: int = 10 * 60 * 1000
    consumer_members_max: int = GROUP_MEMBERS_MAX
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The supported assignors; the first is the default."""
    can_upgrade: bool = True
    """Whether a classic group with members may be upgraded to a consumer group."""
    can_downgrade: bool = True
    """Whether a consumer group is downgraded when its last member of the consumer protocol leaves."""
