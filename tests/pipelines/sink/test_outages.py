"""The sink survives a broker restart at any of its requests, and writes every row once."""

import pytest

from runnel.testing import Broker
from tests.client.hanging import set_transaction_version
from tests.pipelines.outage import Outage
from tests.pipelines.sink.stage import Query, expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_answer_lost", "transaction_version"),
    [
        (False, 1),
        (True, 2),
        pytest.param(False, 2, marks=pytest.mark.long),
        pytest.param(True, 1, marks=pytest.mark.long),
    ],
)
def test_the_sink_survives_a_broker_restart_at_any_request(
    runnel: Broker, is_answer_lost: bool, transaction_version: int
) -> None:
    if transaction_version == 1:
        set_transaction_version(runnel, 1)
    requests = run_batch(runnel, 0, is_answer_lost=is_answer_lost)
    assert requests > 15
    for request in range(1, requests + 1):
        run_batch(runnel, request, is_answer_lost=is_answer_lost)


def run_batch(broker: Broker, at_request: int, *, is_answer_lost: bool) -> int:
    """Write two batches, the second during an outage; returns the number of requests of the second."""
    topic = f"out-{at_request}"
    with broker.client() as client:
        client.create_topic(topic, partitions=2)
    query = Query(broker.bootstrap_servers, topic)
    query.run(0)
    outage = Outage(broker, at_request, is_answer_lost=is_answer_lost)
    with pytest.MonkeyPatch.context() as patch:
        outage.install(patch)
        query.run(1)
    if at_request:
        outage.end()
    query.run(2)
    assert query.visible() == expected(3), f"restarted at request {at_request}"
    return outage.requests
