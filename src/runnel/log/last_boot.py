"""The file that names the boot of the machine in which a data directory was last used."""

import json
from collections.abc import Collection
from dataclasses import dataclass

from runnel.batch.checksum import crc32c
from runnel.model.ids import TopicPartition


class DamagedLastBoot(Exception):
    """The file is incomplete, or was written by another release."""


@dataclass(slots=True)
class LastBoot:
    """The id of a boot of the machine, and the state of logs in it."""

    boot_id: str
    unrecovered: Collection[TopicPartition] = ()
    """Those that were not opened since: an earlier power failure may show."""
    damaged: Collection[TopicPartition] = ()
    """Those whose damage is known: no power failure explains it."""


def encode_last_boot(last: LastBoot) -> bytes:
    body = json.dumps([last.boot_id, sorted(last.unrecovered), sorted(last.damaged)]).encode()
    return f"{crc32c(body):08x}\n".encode() + body


def decode_last_boot(data: bytes) -> LastBoot:
    """Decode the file. Raises DamagedLastBoot."""
    checksum, _, body = data.partition(b"\n")
    if checksum != f"{crc32c(body):08x}".encode():
        raise DamagedLastBoot("it does not match its checksum")
    try:
        boot_id, *lists = json.loads(body)
        unrecovered, damaged = ({TopicPartition(topic, index) for topic, index in each} for each in lists)
        return LastBoot(str(boot_id), unrecovered, damaged)
    except (ValueError, TypeError) as error:
        raise DamagedLastBoot(str(error)) from error
