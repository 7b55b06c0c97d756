"""Dead letters on Spark: grouped, sampled, and redriven exactly once, also after crashes."""

import pytest

from runnel.client.errors import ClientError
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.dead_letters.job import DeadLetterOptions, run
from runnel.pipelines.dead_letters.letter import read_letter
from runnel.pipelines.dead_letters.letter_filter import LetterFilter
from runnel.pipelines.dead_letters.redrive import Redriver, ensure_marks
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.progress import Progress
from runnel.testing import Broker

pytestmark = pytest.mark.timeout(600)
DEAD = "orders.dead-letters"


def headers(number, reason, topic="orders"):
    reported = {
        "reason": reason,
        "topic": topic,
        "partition": "1",
        "offset": str(number),
        "timestamp": "1000",
    }
    ours = [(f"runnel.dead-letter.{name}", text.encode()) for name, text in reported.items()]
    return [("trace", b"%d" % number), *ours]


@pytest.fixture
def broker():
    with Broker() as broker:
        with broker.client() as client:
            client.create_topic("orders", partitions=2, settings={"retention.ms": "-1"})
            client.create_topic(DEAD, partitions=2)
            for number in range(6):
                reason = f"not JSON at position {number}" if number % 3 else "no such column"
                client.send(
                    DEAD, b"v%d" % number, key=b"k", headers=headers(number, reason), partition=number % 2
                )
            client.send(DEAD, b"lost", headers=headers(9, "not JSON at position 9", "gone"), partition=0)
            client.send(DEAD, b"bare", partition=0)
        yield broker


def sent_back(broker):
    with broker.client() as client:
        return client.read("orders", committed_only=True)


def letters(broker):
    with broker.client() as client:
        return [
            read_letter(
                DEAD, each.partition, each.offset, each.timestamp_ms, each.key, each.value, each.headers
            )
            for each in client.read(DEAD)
        ]


def test_letters_are_grouped_selected_and_redriven_once(spark, broker):
    choice = LetterFilter(reason="not json")
    options = DeadLetterOptions(bootstrap=broker.bootstrap_servers, redrive=True, dry_run=True)
    outcome = run(spark, options, Progress())
    assert [(group.source, group.kind, group.letters) for group in outcome.groups] == [
        ("orders", "not JSON at position #", 4),
        ("orders", "no such column", 2),
        (None, "no reason given", 1),
        ("gone", "not JSON at position #", 1),
    ]
    assert len(outcome.groups[0].samples) == 3
    # What cannot be sent is reported before it is tried.
    assert outcome.redriven[0].by_target == {"orders": 6}
    assert sum(outcome.redriven[0].skipped.values()) == 2
    assert sent_back(broker) == []

    options = DeadLetterOptions(bootstrap=broker.bootstrap_servers, choice=choice, redrive=True, limit=3)
    assert run(spark, options, Progress()).redriven[0].by_target == {"orders": 3}
    outcome = run(spark, options, Progress())
    assert outcome.redriven[0].by_target == {"orders": 1}
    assert outcome.groups[0].redriven == 4
    back = sent_back(broker)
    assert sorted(message.value for message in back) == [b"v1", b"v2", b"v4", b"v5"]
    assert {(message.partition, message.timestamp_ms) for message in back} == {(1, 1000)}
    (first,) = [message for message in back if message.value == b"v1"]
    assert list(first.headers) == [("trace", b"1"), ("runnel.redrive.attempt", b"1")]


def test_a_run_that_died_in_the_middle_leaves_nothing_half_done(broker):
    """Its transaction is open: records and marks are written, but not committed."""
    mine = [letter for letter in letters(broker) if letter.source_topic == "orders"]
    with BrokerView(broker.bootstrap_servers) as view:
        ensure_marks(view, DEAD)
        dying = Redriver(view, DEAD)

        async def half(_):
            await dying._producer.begin()
            for letter in mine:
                await dying._producer.send_and_wait("orders", letter.value, key=letter.key)

        view.run(half)
        with BrokerView(broker.bootstrap_servers) as other, Redriver(other, DEAD) as redriver:
            assert redriver.redrive(mine).letters == 6
        with pytest.raises((ClientError, PipelineError)):
            view.run(lambda _: dying._producer.commit())
    assert sorted(message.value for message in sent_back(broker)) == [b"v%d" % number for number in range(6)]


def test_letters_that_cannot_be_redriven_are_counted(broker):
    with BrokerView(broker.bootstrap_servers) as view:
        ensure_marks(view, DEAD)
        with Redriver(view, DEAD) as redriver:
            outcome = redriver.redrive(letters(broker))
    assert outcome.letters == 6
    assert outcome.skipped == {
        "topic gone does not exist": 1,
        "its source topic is unknown": 1,
    }


def test_letters_that_cannot_be_redriven_do_not_block_others(broker):
    stuck_first = sorted(letters(broker), key=lambda letter: letter.source_topic == "orders")
    with BrokerView(broker.bootstrap_servers) as view:
        ensure_marks(view, DEAD)
        with Redriver(view, DEAD) as redriver:
            outcome = redriver.redrive(stuck_first, limit=2)
    assert outcome.by_target == {"orders": 2}
    assert len(sent_back(broker)) == 2


def recreate_topic(broker):
    with broker.client() as client:
        client.delete_topic(DEAD)
        client.create_topic(DEAD, partitions=2, settings={"message.timestamp.after.max.ms": str(2**62)})


def test_letters_of_a_recreated_topic_are_redriven(spark, broker):
    """Their offsets are those of letters that were redriven before."""
    with BrokerView(broker.bootstrap_servers) as view:
        ensure_marks(view, DEAD)
        with Redriver(view, DEAD) as redriver:
            assert redriver.redrive(letters(broker)).letters == 6
    recreate_topic(broker)
    with broker.client() as client:
        # Microseconds taken for milliseconds: no calendar has that day.
        far_ms = 1_700_000_000_000_000
        client.send(DEAD, b"new", headers=headers(1, "late"), partition=0, timestamp_ms=far_ms)
        client.send(DEAD, b"known", headers=headers(2, "late"), partition=1)
        # Of a version that knew no ids.
        client.send(f"{DEAD}.redriven", b"{}", key=b"1:0")
    options = DeadLetterOptions(bootstrap=broker.bootstrap_servers, redrive=True)
    outcome = run(spark, options, Progress())
    assert outcome.redriven[0].by_target == {"orders": 1}
    assert [(group.letters, group.redriven, group.last_ms) for group in outcome.groups] == [(2, 2, far_ms)]
    assert [message.value for message in sent_back(broker)].count(b"new") == 1


def test_a_topic_that_is_recreated_meanwhile_ends_the_run(broker):
    with BrokerView(broker.bootstrap_servers) as view:
        ensure_marks(view, DEAD)
        with Redriver(view, DEAD) as redriver:
            read_before = letters(broker)
            recreate_topic(broker)
            with pytest.raises(PipelineError, match="recreated"):
                redriver.redrive(read_before)
    assert sent_back(broker) == []
