"""What consumers with read_committed receive of fetched batches."""

from collections.abc import Iterable, Iterator, Sequence

from runnel.batch.control import read_end_marker
from runnel.batch.header import BatchHeader, read_header


def read_committed(
    batches: Iterable[memoryview], aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[memoryview, BatchHeader, bool]]:
    """Each complete batch with its header, and whether its records are received.

    `aborted` are the (producer id, first offset) of aborted transactions; markers are not received either.
    """
    pending = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    is_aborting: set[int] = set()
    for batch in batches:
        header = read_header(batch)
        while pending and pending[-1][1] <= header.last_offset:
            is_aborting.add(pending.pop()[0])
        if header.is_control:
            if header.producer_id in is_aborting and read_end_marker(batch) is not None:
                is_aborting.discard(header.producer_id)
            yield batch, header, False
        else:
            yield batch, header, not (header.is_transactional and header.producer_id in is_aborting)
