"""Idempotency keys of publishes, which the leader of a partition remembers (`runnel.log.dedup`).

A record with neither key nor partition goes to the partition that its idempotency key chooses, so that it
meets the same leader when it is sent again, to whichever gateway. The gateways themselves remember nothing.
"""

import re
from collections.abc import Mapping

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.partitioner import partition_for_key
from runnel.gateway.http.limits import DEDUP_S, DEDUP_TOPICS_MAX
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.records import OutgoingRecord
from runnel.gateway.shared import SharedByKey
from runnel.model.configs import ResourceType

HEADER = "idempotency-key"
SETTING = "dedup.window.ms"
_KEY = re.compile(r'("?)([!#-\[\]-~]{1,255})\1')


def key_of_request(headers: Mapping[str, str]) -> bytes | None:
    """The key in the header of a request, with or without quotes; 400 if it is not valid."""
    given = headers.get(HEADER)
    if given is None:
        return None
    found = _KEY.fullmatch(given)
    if found is None:
        why = "the Idempotency-Key has 1 to 255 letters, digits and other signs of ASCII without blanks"
        raise Problem(400, why)
    return found[2].encode()


def with_key(record: OutgoingRecord, key: bytes) -> OutgoingRecord:
    """The record of a request with this key."""
    if record.idempotency_key is not None:
        raise Problem(422, "the request has an Idempotency-Key, and its record an idempotencyKey")
    record.idempotency_key = key
    return record


def partition_of(record: OutgoingRecord, partition_count: int) -> int:
    """The partition of a record with an idempotency key."""
    if record.partition is not None:
        return record.partition
    assert record.idempotency_key is not None
    return partition_for_key(record.idempotency_key if record.key is None else record.key, partition_count)


class DedupTopics:
    """Which topics remember keys."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._windows = SharedByKey(self._window_ms, DEDUP_S, DEDUP_TOPICS_MAX)

    async def check(self, topic: str) -> None:
        """400 unless the topic remembers keys."""
        if not await self._windows.get(topic):
            raise Problem(400, f"{topic} does not remember idempotency keys: set its {SETTING}")

    async def _window_ms(self, topic: str) -> int:
        settings = await Admin(self._cluster).settings(ResourceType.TOPIC, topic, keys=[SETTING])
        return next((int(setting.value or 0) for setting in settings if setting.name == SETTING), 0)
