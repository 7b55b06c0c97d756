"""Every change that the console offers is made in the cluster, and only if it was confirmed."""

import json
from collections.abc import Iterator

import pytest

from runnel.client.admin import Admin
from runnel.client.groups import Groups
from runnel.client.transactional import TransactionalProducer
from runnel.client.transactions import Transactions
from runnel.gateway.options import GatewayOptions
from runnel.model.configs import ResourceType
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.gateway.gateways import Reply, Visitor, serving


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def hand(own: Broker) -> Iterator[Visitor]:
    with serving(GatewayOptions(own.bootstrap_servers)) as found:
        yield found


def done(reply: Reply) -> str:
    """What a change answered."""
    assert reply.status == 200, reply.text
    return str(json.loads(reply.headers["hx-trigger"])["done"]["message"])


def test_create_and_delete_a_topic(own: Broker, hand: Visitor) -> None:
    assert "Create topic" in hand.content("/console/new-topic").text
    made = hand.post(
        "/console/new-topic", name="made", partitions="3", replicas="", more="retention.ms=1000\n"
    )
    assert done(made) == "created topic made"
    again = hand.post("/console/new-topic", name="made", partitions="3")
    assert again.status == 422 and "already exists" in again.text and 'value="made"' in again.text
    with own.client() as client:
        settings = client.run(lambda cluster: Admin(cluster).settings(ResourceType.TOPIC, "made"))
        assert {each.name: each.value for each in settings}["retention.ms"] == "1000"
        client.send("made", b"a cup of tea")
        lost = hand.content("/console/topics/made/delete").text
        assert "1 record<" in lost
        assert hand.post("/console/topics/made/delete", confirm="other").status == 422
        assert "made" in client.topics()
        assert done(hand.post("/console/topics/made/delete", confirm="made")) == "deleted topic made"
        assert "made" not in client.topics()


def test_partitions_records_and_settings_of_a_topic(own: Broker, hand: Visitor) -> None:
    with own.client() as client:
        client.create_topic("grown", partitions=1)
        client.send("grown", b"1")
        assert done(hand.post("/console/topics/grown/partitions", total="4")) == "grown has 4 partitions"
        changed = hand.post("/console/topics/grown/setting", key="retention.ms", value="777")
        assert done(changed) == "set retention.ms of topic grown"
        assert "777" in hand.content("/console/topics/grown/settings").text
        bad = hand.post("/console/topics/grown/setting", key="retention.ms", value="soon")
        assert bad.status == 422 and 'role="alert"' in bad.text
        done(hand.post("/console/topics/grown/setting", key="retention.ms", reset="1"))
        assert hand.post("/console/topics/grown/purge", confirm="").status == 422
        assert len(client.read("grown")) == 1
        done(hand.post("/console/topics/grown/purge", confirm="grown"))
        assert client.read("grown") == []


def test_produce_and_send_again(own: Broker, hand: Visitor) -> None:
    with own.client() as client:
        client.create_topic("written", partitions=2)
        sent = hand.post(
            "/console/topics/written/produce",
            key="anna",
            value='{"tea": 1}\r\nmore',
            headers="trace=17\nalone",
            partition="1",
        )
        assert done(sent) == "produced to written-1 at offset 0"
        [message] = client.read("written")
        assert (message.key, message.value) == (b"anna", b'{"tea": 1}\nmore')
        assert list(message.headers) == [("trace", b"17"), ("alone", None)]
        form = hand.content("/console/topics/written/produce?partition=1&offset=0").text
        assert "anna" in form and "trace=17" in form and "stays as it is" in form
        done(hand.post("/console/topics/written/produce", key="anna", tombstone="1"))
        done(hand.post("/console/topics/written/produce", value="/wA=", value_base64="1"))
        values = {message.value for message in client.read("written")}
        assert None in values and b"\xff\x00" in values
        assert hand.post("/console/topics/written/produce", value="%", value_base64="1").status == 422
        assert hand.post("/console/topics/written/produce", value="x", partition="2").status == 422
    assert hand.post("/console/topics/__consumer_offsets/produce", value="x").status in (404, 422)


def test_offsets_of_a_group_are_reset_after_a_preview(own: Broker, hand: Visitor) -> None:
    positions = {TopicPartition("read", 0): 5}
    with own.client() as client:
        client.create_topic("read", partitions=1)
        client.send_all("read", [(None, b"x")] * 9)
        client.run(lambda cluster: Groups(cluster).commit("readers", positions))

        def committed() -> int:
            found = client.run(lambda cluster: Groups(cluster).committed("readers"))
            return found[TopicPartition("read", 0)].offset

        preview = hand.post("/console/group/reset", id="readers", to="earliest")
        assert 'name="to:read-0" value="0"' in preview.text
        assert committed() == 5
        assert hand.post("/console/group/reset", id="readers", to="shift", shift="x").status == 422
        form = {"id": "readers", "to": "shift", "shift": "-2", "apply": "1", "to:read-0": "3"}
        assert done(hand.post("/console/group/reset", **form)) == "reset 1 offsets of group readers"
        assert committed() == 3
        assert hand.post("/console/group/delete", id="readers", confirm="x").status == 422
        assert done(hand.post("/console/group/delete", id="readers", confirm="readers"))
        assert client.run(lambda cluster: Groups(cluster).list()) == []


def test_replicas_are_moved_and_leaders_elected(own: Broker, hand: Visitor) -> None:
    with own.client() as client:
        client.create_topic("moved", partitions=1)
    path = "/console/topics/moved/partitions/0/replicas"
    assert "Brokers: 1" in hand.content(path).text
    assert done(hand.post(path, replicas="1")) == "reassigning moved-0 to 1"
    assert hand.post(path, replicas="x").status == 422
    assert hand.post(path, replicas="99").status == 422
    assert done(hand.post("/console/brokers/elect")).startswith("elected the preferred leaders")


def test_a_setting_of_all_brokers(own: Broker, hand: Visitor) -> None:
    done(hand.post("/console/settings/default/setting", key="log.retention.ms", value="7200000"))
    assert "log.retention.ms" in hand.content("/console/settings").text
    done(hand.post("/console/settings/default/setting", key="log.retention.ms", reset="1"))
    assert hand.post("/console/settings/1/setting", key="node.id", value="7").status == 422


def test_an_open_transaction_is_aborted(own: Broker, hand: Visitor) -> None:
    with own.client() as client:
        client.create_topic("ledger", partitions=1)

        async def begin(cluster) -> None:
            producer = TransactionalProducer(cluster, "teller")
            await producer.begin()
            await producer.send("ledger", b"1")
            await producer.flush()

        client.run(begin)
        assert "teller" in hand.content("/console/transactions?state=open").text
        assert hand.post("/console/transactions/abort", id="teller", confirm="").status == 422
        assert done(hand.post("/console/transactions/abort", id="teller", confirm="teller"))
        view = client.run(lambda cluster: Transactions(cluster).describe("teller"))
        assert view.state == "Empty" and not view.partitions
        assert hand.post("/console/transactions/abort", id="teller", confirm="teller").status == 422


def test_dead_letters_are_sent_back_once(own: Broker, hand: Visitor) -> None:
    letters, reason = "tea.dead-letters", "not JSON: column #"
    with own.client() as client:
        client.create_topic("tea", partitions=2)
        client.create_topic(letters, partitions=1)
        for number in range(6):
            headers = [
                ("runnel.dead-letter.reason", b"not JSON: column %d" % number),
                ("runnel.dead-letter.topic", b"tea"),
                ("runnel.dead-letter.partition", b"1"),
                ("origin", b"kept"),
            ]
            client.send(letters, b"{%d" % number, key=b"k", headers=headers)
        page = hand.content(f"/console/dead-letters/{letters}").text
        assert reason in page and "6" in page
        path = f"/console/dead-letters/{letters}/redrive"
        assert "6 letters" in hand.content(f"{path}?kind=not+JSON%3A+column+%23&source=tea").text
        assert done(hand.post(path, kind=reason, source="tea")) == f"redriven: 6 letters of {letters} to tea"
        assert done(hand.post(path, kind=reason, source="tea")) == f"redriven: 0 letters of {letters} to tea"
        back = client.read("tea", committed_only=True)
        assert [message.value for message in back] == [b"{%d" % number for number in range(6)]
        assert {message.partition for message in back} == {1}
        assert dict(back[0].headers) == {"origin": b"kept", "runnel.redrive.attempt": b"1"}
