"""What a request comes to: the records that make it so, and the answer once they are safe."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from runnel.schemas.metadata import MetadataRecord

Reply = TypeVar("Reply")
Item = TypeVar("Item", bound=Hashable)


@dataclass(slots=True)
class Decision(Generic[Reply]):
    """Nothing has changed yet: replaying the records is what changes the image."""

    records: list[MetadataRecord]
    reply: Reply


def repeated_in(items: Iterable[Item]) -> set[Item]:
    """What is asked for more than once in a request, where Kafka then does none of it."""
    return {item for item, count in Counter(items).items() if count > 1}
