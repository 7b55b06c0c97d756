"""Proposals of ISRs to the controller, and what its answers lead to."""

import dataclasses
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.broker.runtime import isr_changes
from runnel.broker.runtime.isr_changes import IsrChanges
from runnel.controller.values import BrokerRegistration
from runnel.messages.alter_partition import AlterPartitionResponse, PartitionResult, TopicResult
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.replica import leader
from runnel.replica.leader import IsrProposal
from tests.broker.replicas import Replicas, until
from tests.broker.test_replication import play


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID]
)
def test_an_isr_is_proposed_again_if_no_metadata_decides_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ErrorCode
) -> None:
    monkeypatch.setattr(isr_changes, "METADATA_DELAY_MS", 50)
    refused: list[Any] = []

    async def scenario(replicas: Replicas) -> None:
        ask = replicas.request

        async def refuse_once(request: Any) -> Any:
            if refused:
                return await ask(request)
            refused.append(request)
            (topic,) = request.topics
            results = [PartitionResult(wanted.partition_index, error.code) for wanted in topic.partitions]
            return AlterPartitionResponse(topics=[TopicResult(topic.topic_id, results)])

        replicas.request = refuse_once  # type: ignore[method-assign]
        await replicas.create("t", replicas=(1, 2), isr=(1,))
        await until(lambda: replicas.state().isr == (1, 2))
        assert refused

    play(tmp_path, scenario, count=2)


def test_a_replica_that_cannot_join_the_isr_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leader, "RETRY_AFTER_MS", 10)
    refused: list[Any] = []

    async def scenario(replicas: Replicas) -> None:
        ask = replicas.request

        async def refuse_some(request: Any) -> Any:
            if len(refused) > 3:
                return await ask(request)
            refused.append(request)
            (topic,) = request.topics
            error_code = ErrorCode.INELIGIBLE_REPLICA.code
            results = [PartitionResult(wanted.partition_index, error_code) for wanted in topic.partitions]
            return AlterPartitionResponse(topics=[TopicResult(topic.topic_id, results)])

        replicas.request = refuse_some  # type: ignore[method-assign]
        await replicas.create("t", replicas=(1, 2), isr=(1,))
        await until(lambda: replicas.state().isr == (1, 2))

    play(tmp_path, scenario, count=2)
    reports = [record for record in caplog.records if "join the ISR" in record.getMessage()]
    assert [record.levelname for record in reports if record.levelno > logging.DEBUG] == ["WARNING"]
    assert reports[0].getMessage() == (
        "t-0: the controller does not let broker 2 join the ISR: "
        "the metadata of this broker has no reason for it"
    )


@pytest.mark.parametrize(
    ("registration", "reason"),
    [
        (None, "it is not registered"),
        ({"is_fenced": True}, "it is fenced"),
        ({"is_stopping": True}, "it is shutting down"),
        ({"epoch": 8}, "it has restarted, its broker epoch is 8 and no longer 7"),
    ],
)
def test_why_a_replica_cannot_join_the_isr(registration: dict[str, Any] | None, reason: str) -> None:
    known = BrokerRegistration(2, 7, bytes(16), (), (), None, False, False, ())
    found = None if registration is None else dataclasses.replace(known, **registration)
    assert isr_changes._obstacle(found, 7) == reason


def test_an_isr_is_proposed_again_after_a_bug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Any] = []

    async def scenario(replicas: Replicas) -> None:
        ask = replicas.request

        async def fail_once(request: Any) -> Any:
            if failures:
                return await ask(request)
            failures.append(request)
            raise ZeroDivisionError

        replicas.request = fail_once  # type: ignore[method-assign]
        await replicas.create("t", replicas=(1, 2), isr=(1,))
        await until(lambda: replicas.state().isr == (1, 2))
        assert failures and "an ISR could not be proposed" in caplog.text

    play(tmp_path, scenario, count=2)


def test_a_refusal_counts_only_in_its_epoch_and_while_the_partition_exists(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    name = TopicPartition("t", 0)
    broker: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        metadata=SimpleNamespace(image=SimpleNamespace(brokers={})),
    )
    partition: Any = SimpleNamespace(name=name)
    role: Any = SimpleNamespace(isr={1})
    changes = IsrChanges(broker)

    def refuse(epoch: int) -> int:
        """How many refusals are reported by now."""
        changes._note_refusal(partition, role, IsrProposal(((1, 7), (2, 7)), epoch, 0))
        return caplog.text.count("join the ISR")

    assert [refuse(0), refuse(0), refuse(0)] == [0, 1, 2]
    assert [refuse(1), refuse(1)] == [2, 3]
    changes.forget(name)
    assert [refuse(1), refuse(1)] == [3, 4]
