"""What an operator can set about groups, under Kafka's names."""

from dataclasses import dataclass

from runnel.model.limits import GROUP_MEMBERS_MAX

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member that joins for the first time has no id to send heartbeats with; if its client gave up and came
back as somebody else, this is how long the ghost it left behind can take part in rebalances."""

WRITE_RETRY_MS = 1000
"""When the log would not take the end of a group's last generation, it is offered again after this pause."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker settings that group coordination obeys."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 30 * 60 * 1000
    members_max: int = GROUP_MEMBERS_MAX
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_check_interval_ms: int = 10 * 60 * 1000
    consumer_members_max: int = GROUP_MEMBERS_MAX
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """What members may ask for; the first is for those who do not."""
    can_upgrade: bool = True
    """May a classic group with members become a consumer group?"""
    can_downgrade: bool = True
    """May a consumer group whose last member of the newer protocol goes become a classic one?"""
