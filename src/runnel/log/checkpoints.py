"""Checkpoint files in Kafka's formats: offsets per partition, leader epochs, partition metadata."""

from collections.abc import Mapping

from runnel.model.ids import TopicPartition, id_from_text, id_text

VERSION = 0


class DamagedCheckpoint(Exception):
    """The checkpoint is incomplete or malformed."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode an offset per partition: recovery points, or log start offsets."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return _encode(lines)


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in _decode(data):
        try:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise DamagedCheckpoint(f"{line!r} is not a topic, a partition and an offset") from None
    return offsets


def encode_epochs(entries: tuple[tuple[int, int], ...]) -> bytes:
    """Encode the leader epochs of a log and their start offsets."""
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for line in _decode(data):
        try:
            epoch, start_offset = map(int, line.split(" "))
        except ValueError:
            raise DamagedCheckpoint(f"{line!r} is not an epoch and an offset") from None
        if entries and (epoch <= entries[-1][0] or start_offset < entries[-1][1]):
            raise DamagedCheckpoint("the epochs do not ascend")
        entries.append((epoch, start_offset))
    return entries


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Encode partition.metadata: the topic id, which differs for a recreated topic."""
    return f"version: 0\ntopic_id: {id_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    for line in _text(data).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            try:
                return id_from_text(value.strip())
            except ValueError as error:
                raise DamagedCheckpoint(str(error)) from None
    raise DamagedCheckpoint("there is no topic_id")


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode meta.properties of a data directory."""
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items())).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    properties: dict[str, str] = {}
    for line in _text(data).splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            properties[name.strip()] = value.strip()
    return properties


def _encode(lines: list[str]) -> bytes:
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def _decode(data: bytes) -> list[str]:
    lines = _text(data).splitlines()
    if len(lines) < 2 or lines[0] != str(VERSION):
        raise DamagedCheckpoint("it does not begin with its version and count")
    if lines[1] != str(len(lines) - 2):
        raise DamagedCheckpoint(f"it has {len(lines) - 2} lines, its header states {lines[1]}")
    return lines[2:]


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise DamagedCheckpoint("it is not text") from None
