"""The result of a controller operation: the records to write, and the response once they are committed."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from runnel.schemas.metadata import MetadataRecord

Response = TypeVar("Response")
Item = TypeVar("Item", bound=Hashable)


@dataclass(slots=True)
class ControllerResult(Generic[Response]):
    """Computing a result changes nothing; replaying its records changes the image."""

    records: list[MetadataRecord]
    response: Response


def duplicates_in(items: Iterable[Item]) -> set[Item]:
    """Items that appear more than once in a request; Kafka then rejects each of them."""
    return {item for item, count in Counter(items).items() if count > 1}
