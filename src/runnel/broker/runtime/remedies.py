"""What an operator can do about a damaged log: that depends on which other replicas have its records."""

from runnel.log.names import LAST_BOOT, RECOVERY_POINTS
from runnel.model.ids import TopicPartition

REPLACE_VOTER = (
    "Replace the disk of this controller as in docs/CLUSTER.md: the others have all that is committed. Never "
    "restore an older copy, with which it could vote or acknowledge again"
)


def only_copy_remedy(name: TopicPartition) -> str:
    """The remedy for the log of a partition that has no other replica."""
    return (
        "Restore the folder from a copy; or, to continue without the records behind the damage, remove the "
        f"line of {name} from {RECOVERY_POINTS}, and the file {LAST_BOOT}"
    )
