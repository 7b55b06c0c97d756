"""A topic created by a restore accepts all records of the original."""

import random
from collections.abc import Mapping

import pyarrow as pa
import pytest

from runnel.client.admin import BROKER_DEFAULT
from runnel.client.errors import BrokerError
from runnel.model.errors import ErrorCode
from runnel.pipelines.broker import BrokerView, pipeline_error
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.restore.job import create_target_topic
from runnel.pipelines.restore.writing import RestoreTarget, write_rows

FAR_MS = 4_000_000_000_000


class OldBroker(BrokerView):
    """A broker that refuses some settings: as Kafka does before 3.6, and where an operator forbids them."""

    refused: tuple[str, ...] = ("message.timestamp.after.max.ms",)
    error = ErrorCode.INVALID_CONFIG

    def create_topic(
        self, name: str, *, partitions: int = BROKER_DEFAULT, settings: Mapping[str, str] | None = None
    ) -> None:
        if any(setting in self.refused for setting in settings or ()):
            error = BrokerError(self.error, f"creating topic {name}")
            raise pipeline_error(error) from error
        super().create_topic(name, partitions=partitions, settings=settings)


def test_records_that_only_just_fitted_and_wrong_clocks_come_back(runnel):
    with BrokerView(runnel.bootstrap_servers) as broker:
        reported = create_target_topic(broker, "new", 1)
        assert "retention.ms=-1" in reported and "max.message.bytes=104857600" in reported
        value = random.Random(1).randbytes(1_048_400)
        row = {
            "partition": 0,
            "offset": 7,
            "timestamp_ms": FAR_MS,
            "key": None,
            "value": value,
            "headers": None,
        }
        kinds = {
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp_ms": pa.int64(),
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        }
        batch = pa.RecordBatch.from_pylist([row], pa.schema(list(kinds.items())))
        list(write_rows(RestoreTarget(runnel.bootstrap_servers, "new", "orders"), [batch]))
    with runnel.client() as client:
        (message,) = client.read("new", committed_only=True)
    assert (message.timestamp_ms, message.value) == (FAR_MS, value)


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (("message.timestamp.after.max.ms",), ErrorCode.INVALID_CONFIG),
        (("message.timestamp.after.max.ms", "max.message.bytes"), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_settings_that_a_broker_does_not_take_are_left_out(runnel, refused, error):
    broker = OldBroker(runnel.bootstrap_servers)
    broker.refused, broker.error = refused, error
    with broker:
        reported = create_target_topic(broker, "new", 1)
        assert not any(name in reported for name in refused)
        settings = broker.topic_settings("new")
    assert settings["retention.ms"] == "-1"
    is_large = settings["max.message.bytes"] == "104857600"
    assert is_large is ("max.message.bytes" not in refused)


def test_other_refusals_are_reported(runnel):
    broker = OldBroker(runnel.bootstrap_servers)
    broker.refused, broker.error = ("retention.ms",), ErrorCode.POLICY_VIOLATION
    with broker:
        with pytest.raises(PipelineError, match="POLICY_VIOLATION"):
            create_target_topic(broker, "new", 1)
        broker.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(PipelineError, match="CLUSTER_AUTHORIZATION_FAILED"):
            create_target_topic(broker, "new", 1)
