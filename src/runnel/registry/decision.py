"""The outcome of a request: records to write, and the response once they are written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from runnel.registry.records import Record

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """Records, in one transaction, and the response."""

    response: T
    records: Sequence[Record] = ()
