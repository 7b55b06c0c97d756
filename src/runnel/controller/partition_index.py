"""Index of the partitions by broker and state, so that changes need not examine all of them.

    in_sync[broker]    partitions with the broker in their ISR, its leaderships included
    eligible[broker]   partitions with the broker in their ELR
    leaderless · unbalanced (not led by the preferred leader) · moving (being reassigned) · with_eligible
    led[broker]        the number of partitions that it leads

Each set of partitions is a dict of bit sets: topic id → the partitions as bits of an integer. A topic with
more than BLOCK partitions has further entries, whose keys end in the number of the block.
"""

from collections.abc import Iterable, Iterator, Sequence

from runnel.controller.values import PartitionState, Topic
from runnel.model.ids import NO_LEADER

BLOCK = 4096
"""Partitions per integer: changing a bit copies the integer."""
ID_BYTES = 16

PartitionSet = dict[bytes, int]


class PartitionIndex:
    """The index of one image; `changed` keeps it up to date."""

    __slots__ = ("eligible", "in_sync", "leaderless", "led", "moving", "unbalanced", "with_eligible")

    def __init__(self) -> None:
        self.in_sync: dict[int, PartitionSet] = {}
        self.eligible: dict[int, PartitionSet] = {}
        self.leaderless: PartitionSet = {}
        self.unbalanced: PartitionSet = {}
        self.moving: PartitionSet = {}
        self.with_eligible: PartitionSet = {}
        """Partitions with an ELR or a last known one."""
        self.led: dict[int, int] = {}

    def copy(self) -> "PartitionIndex":
        """An independent copy: one entry for each topic of a broker."""
        other = PartitionIndex()
        other.in_sync = {broker: partitions.copy() for broker, partitions in self.in_sync.items()}
        other.eligible = {broker: partitions.copy() for broker, partitions in self.eligible.items()}
        other.leaderless = self.leaderless.copy()
        other.unbalanced = self.unbalanced.copy()
        other.moving = self.moving.copy()
        other.with_eligible = self.with_eligible.copy()
        other.led = self.led.copy()
        return other

    def created(self, topic: Topic) -> None:
        """A topic was created, with all its partitions."""
        for index, state in enumerate(topic.partitions):
            self.changed(topic.id, index, None, state)

    def removed(self, topic: Topic) -> None:
        """A topic was deleted, with all its partitions."""
        for index, state in enumerate(topic.partitions):
            self.changed(topic.id, index, state, None)

    def changed(
        self, topic_id: bytes, index: int, old: PartitionState | None, new: PartitionState | None
    ) -> None:
        """A partition changed; None is one that does not exist before or afterwards."""
        key, bit = _position(topic_id, index)
        was_in, is_in = old.isr if old else (), new.isr if new else ()
        if was_in != is_in:
            _move(self.in_sync, key, bit, was_in, is_in)
        if old is not None and new is not None and _is_led_alike(old, new):
            # Most changes: only the ISR is another one.
            return
        was_eligible, is_eligible = old.eligible if old else (), new.eligible if new else ()
        if was_eligible != is_eligible:
            _move(self.eligible, key, bit, was_eligible, is_eligible)
        self._led(old, -1)
        self._led(new, 1)
        for partitions, was, is_ in zip(
            (self.leaderless, self.unbalanced, self.moving, self.with_eligible),
            _traits(old),
            _traits(new),
            strict=True,
        ):
            if was != is_:
                (_add if is_ else _remove)(partitions, key, bit)

    def _led(self, state: PartitionState | None, change: int) -> None:
        if state is not None and state.leader != NO_LEADER:
            self.led[state.leader] = self.led.get(state.leader, 0) + change


def topic_of(key: bytes) -> bytes:
    """The topic id of a key."""
    return key if len(key) == ID_BYTES else key[:ID_BYTES]


def partitions_at(key: bytes, bits: int) -> Iterator[int]:
    """The partitions of one entry, in order."""
    first = 0 if len(key) == ID_BYTES else BLOCK * int.from_bytes(key[ID_BYTES:])
    while bits:
        lowest = bits & -bits
        yield first + lowest.bit_length() - 1
        bits ^= lowest


def _position(topic_id: bytes, index: int) -> tuple[bytes, int]:
    if index < BLOCK:
        return topic_id, 1 << index
    block, position = divmod(index, BLOCK)
    return topic_id + block.to_bytes(4), 1 << position


def _is_led_alike(old: PartitionState, new: PartitionState) -> bool:
    """Do two states differ in nothing that the index knows, except their ISRs?"""
    return (
        old.leader == new.leader
        and old.replicas == new.replicas
        and old.eligible == new.eligible
        and old.last_known_eligible == new.last_known_eligible
        and old.adding == new.adding
        and old.removing == new.removing
    )


def _traits(state: PartitionState | None) -> tuple[bool, bool, bool, bool]:
    if state is None:
        return False, False, False, False
    return (
        state.leader == NO_LEADER,
        state.leader not in (NO_LEADER, state.replicas[0]) if state.replicas else False,
        bool(state.adding or state.removing),
        bool(state.eligible or state.last_known_eligible),
    )


def _move(
    index: dict[int, PartitionSet], key: bytes, bit: int, was: Sequence[int], is_: Iterable[int]
) -> None:
    for broker in was:
        if broker not in is_:
            _remove(index[broker], key, bit)
    for broker in is_:
        if broker not in was:
            _add(index.setdefault(broker, {}), key, bit)


def _add(partitions: PartitionSet, key: bytes, bit: int) -> None:
    partitions[key] = partitions.get(key, 0) | bit


def _remove(partitions: PartitionSet, key: bytes, bit: int) -> None:
    left = partitions[key] & ~bit
    if left:
        partitions[key] = left
    else:
        del partitions[key]
