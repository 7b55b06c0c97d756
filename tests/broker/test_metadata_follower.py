"""How metadata is applied to very many partitions, and when that fails."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import metadata_follower
from runnel.broker.runtime.metadata_follower import PARTITIONS_PER_STEP, MetadataFollower
from runnel.model.errors import ApiError, ErrorCode
from tests.broker.replicas import until
from tests.broker.world import BrokerWorld

COUNT = 3 * PARTITIONS_PER_STEP + 1


def test_logs_that_cannot_be_opened_are_reported_once_and_retried_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata_follower, "RETRY_DELAY_MS", 10)
    monkeypatch.setattr(metadata_follower, "WARNING_INTERVAL_MS", 60_000)
    steps: list[int] = []
    retry_in_steps = MetadataFollower._retry_in_steps

    def counted(self: MetadataFollower, names: Any, retry: Any) -> None:
        retried: list[Any] = []

        def noted(name: Any) -> None:
            retried.append(name)
            retry(name)

        retry_in_steps(self, names, noted)
        steps.append(len(retried))

    monkeypatch.setattr(MetadataFollower, "_retry_in_steps", counted)

    async def run() -> None:
        async with BrokerWorld(tmp_path) as world:
            open_log = world.disk.open_log

            def fail(name: Any, *arguments: Any) -> Any:
                if name.topic == "t":
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")
                return open_log(name, *arguments)

            monkeypatch.setattr(world.disk, "open_log", fail)
            await world.create("t", COUNT)
            await until(lambda: len(steps) > 8)
            monkeypatch.setattr(world.disk, "open_log", open_log)
            await until(lambda: sum(name.topic == "t" for name in world.broker.partitions) == COUNT)

    asyncio.run(run())
    assert max(steps) == PARTITIONS_PER_STEP
    warnings = [record for record in caplog.records if "cannot be opened" in record.getMessage()]
    assert len([record for record in warnings if record.levelname == "WARNING"]) == 1


def test_settings_are_applied_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_follower, "CONFIGURED_PER_STEP", 10)
    monkeypatch.setattr(metadata_follower, "TOPIC_WEIGHT", 1)

    async def run() -> None:
        async with BrokerWorld(tmp_path) as world:
            await world.create("t", 45)
            image, settings = world.broker.metadata.image, world.settings
            follower = MetadataFollower(world.broker, image, settings)
            assert len(list(follower._configure(["t", "none"]))) == 4

    asyncio.run(run())
