"""What the replicated log of the metadata quorum needs of its driver."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from runnel.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from runnel.broker.runtime.quorum_log import QuorumLog

logger = logging.getLogger("runnel.broker")


class Unstored:
    """Waits for a failure to make an appended batch durable."""

    __slots__ = ("_on_failure", "end_offset")

    def __init__(self, end_offset: int, on_failure: Callable[[], None]) -> None:
        self.end_offset = end_offset
        self._on_failure = on_failure

    def committed(self) -> None:
        """Reported by `advanced`."""

    def failed(self, error: ApiError) -> None:
        if error.error is ErrorCode.KAFKA_STORAGE_ERROR:
            logger.error("the metadata log cannot be made durable: %s", error)
            self._on_failure()


class LogReplica:
    """The core of the quorum as the Replica of a replicated log."""

    def __init__(self, quorum: "QuorumLog") -> None:
        self._quorum = quorum

    @property
    def node(self) -> int:
        return self._quorum.core.node.id

    @property
    def epoch(self) -> int:
        return self._quorum.core.epoch

    @property
    def high_watermark(self) -> int:
        return self._quorum.core.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        assert offset == self._quorum.core.high_watermark, "only the core moves the high watermark"

    def stored(self, end_offset: int) -> bool:
        return self._quorum.stored(end_offset)

    def truncated(self, end_offset: int) -> None:
        self._quorum.truncated(end_offset)
