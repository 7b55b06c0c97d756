"""librdkafka members of one consumer group of the newer protocol come, go and die: nothing is owned twice.

`make mixed` tells the long story, with Java and franz-go besides.
"""

from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.mixed.members import librdkafka
from tools.mixed.story import SETTINGS, Story


def test_members_come_and_go_and_every_record_is_read_by_its_owner(tmp_path: Path) -> None:
    # A broker of its own: this one notices a death in a second or two.
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": "2000"}
    makes = {"librdkafka": librdkafka(tmp_path)}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        told = Story(broker.port, makes, tmp_path, {"librdkafka": 3}, seed=7, say=lambda line: None).tell(8)
    assert told.faults == []
    assert told.figures["killed"] and told.figures["left"], told.figures
