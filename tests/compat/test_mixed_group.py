"""librdkafka members of a KIP-848 group join, leave and are killed: no partition has two owners.

`make mixed` runs longer, with Java and franz-go as well.
"""

from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.mixed.churn import SETTINGS, Churn
from tools.mixed.members import librdkafka


def test_every_record_is_read_by_the_owner_of_its_partition(tmp_path: Path) -> None:
    # Its own broker, which detects a failed member in a second or two.
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": "2000"}
    clients = {"librdkafka": librdkafka(tmp_path)}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        result = Churn(
            broker.port, clients, tmp_path, {"librdkafka": 3}, seed=7, progress=lambda line: None
        ).run(8)
    assert result.faults == []
    assert result.figures["killed"] and result.figures["left"], result.figures
