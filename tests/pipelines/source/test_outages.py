"""The source survives a restart of the broker at any request of its driver."""

import pytest

from runnel.testing import Broker
from tests.pipelines.outage import Outage
from tests.pipelines.source.tables import read_all, stream


@pytest.mark.parametrize("is_answer_lost", [False, True])
def test_a_stream_survives_a_restart_of_the_broker_at_any_request(
    runnel: Broker, is_answer_lost: bool
) -> None:
    with runnel.client() as client:
        client.create_topic("orders", partitions=2)
        for number in range(6):
            client.send("orders", b"%d" % number, partition=number % 2)
    requests = read_stream(runnel, 0, is_answer_lost=is_answer_lost)
    assert requests > 5
    for request in range(1, requests + 1):
        read_stream(runnel, request, is_answer_lost=is_answer_lost)


def read_stream(broker: Broker, at_request: int, *, is_answer_lost: bool) -> int:
    """Plan and read a first batch during an outage; returns the number of requests of the plan."""
    outage = Outage(broker, at_request, is_answer_lost=is_answer_lost)
    reader = stream(broker, subscribe="orders", startingOffsets="earliest")
    with pytest.MonkeyPatch.context() as patch:
        outage.install(patch)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        partitions = reader.partitions(start, end)
    if at_request:
        outage.end()
    found = read_all(reader, partitions)
    assert [(row["partition"], row["offset"]) for row in found] == [
        (partition, offset) for partition in range(2) for offset in range(3)
    ], f"restarted at request {at_request}"
    reader.stop()
    return outage.requests
