"""What a log holds, read as the broker reads it for replay."""

from collections.abc import Sequence

from runnel.ports.disk import PartitionLog

EVERYTHING_BYTES = 2**31


def stored_batches(log: PartitionLog, offset: int, end_offset: int) -> Sequence[memoryview]:
    """Batches from the one that holds `offset` to the last one that begins below `end_offset`."""
    read = log.read_batches(offset, EVERYTHING_BYTES, end_offset)
    read.run()
    return read.finish()
