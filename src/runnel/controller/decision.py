"""What a request comes to: the records that make it so, and the answer once they are safe."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from runnel.schemas.metadata import MetadataRecord

Reply = TypeVar("Reply")


@dataclass(slots=True)
class Decision(Generic[Reply]):
    """Nothing has changed yet: replaying the records is what changes the image."""

    records: list[MetadataRecord]
    reply: Reply
