"""Verification of stored batches: their checksums, their order, and that their epochs are as recorded."""

from collections.abc import Sequence

from runnel.batch.errors import CorruptBatch
from runnel.disk.damage import is_damage
from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.disk.walk import walk_sound_batches
from runnel.log.epochs import NO_EPOCH, Epochs
from runnel.ports.disk import Verified


def verify(
    segments: Segments, offset: int, max_bytes: int, end_offset: int, epochs: Sequence[tuple[int, int]]
) -> Verified:
    """Verify the batches from the one that holds `offset`, up to `max_bytes`, at least one; in a thread."""
    walk = _Walk(segments, Epochs(list(epochs)), offset)
    try:
        while walk.next_offset < end_offset and walk.size_bytes < max_bytes:
            walk.verify_some(max_bytes)
    except (OSError, CorruptBatch) as error:
        if not is_damage(error):
            raise
        return Verified(walk.next_offset, walk.size_bytes, f"{segments.folder}: {error}")
    return Verified(walk.next_offset, walk.size_bytes)


class _Walk:
    """The batches of one verification."""

    __slots__ = ("_epochs", "_segments", "next_offset", "size_bytes")

    def __init__(self, segments: Segments, epochs: Epochs, offset: int) -> None:
        self._segments, self._epochs = segments, epochs
        self.next_offset = offset
        """Everything below is verified."""
        self.size_bytes = 0

    def verify_some(self, max_bytes: int) -> None:
        """The rest of one segment, or less. Raises CorruptBatch and OSError."""
        segments = self._segments
        segment, position = segments.locate(self.next_offset)
        first_offset = self.next_offset
        batches = walk_sound_batches(segments.open(segment), position, segment.size_bytes, segment.cipher)
        for at, header, batch in batches:
            # The first one may begin before the requested offset.
            if header.base_offset < (self.next_offset if at > position else segment.base_offset):
                raise CorruptBatch(f"offset {header.base_offset} follows {self.next_offset - 1}")
            if header.next_offset > segment.next_offset:
                raise CorruptBatch(f"offset {header.next_offset - 1} is not of the segment at position {at}")
            epoch = self._epochs.epoch_of(header.base_offset)
            if epoch != header.leader_epoch and NO_EPOCH not in (epoch, header.leader_epoch):
                raise CorruptBatch(
                    f"offset {header.base_offset} has leader epoch {header.leader_epoch}, not {epoch}"
                )
            self.next_offset = header.next_offset
            self.size_bytes += len(batch)
            if self.size_bytes >= max_bytes:
                return
        self._end(segment, first_offset)

    def _end(self, segment: Segment, first_offset: int) -> None:
        """After the last batch of a segment: compaction may have removed later ones."""
        self.next_offset = max(self.next_offset, segment.next_offset)
        if self.next_offset == first_offset:
            raise CorruptBatch(f"there is no batch at offset {first_offset}")
