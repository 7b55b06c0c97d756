"""Configs are resolved by precedence, and subscribers are notified of changes."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.controller.config_types import BadConfig
from runnel.controller.log_settings import log_config, topic_default
from runnel.controller.settings import Settings
from runnel.model.configs import ConfigSource
from runnel.model.log_config import FlushPolicy, LogConfig, TimestampType

TLS = {
    "listeners": "INSIDE://:9092,OUTSIDE://:9093",
    "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL",
}


def test_defaults_match_kafka() -> None:
    assert log_config(Settings(), {}) == LogConfig()


def test_static_configs_are_validated() -> None:
    with pytest.raises(BadConfig, match=r"did you mean num\.partitions"):
        Settings({"num.partition": "3"})
    with pytest.raises(BadConfig, match=r"Invalid value many for configuration num\.partitions"):
        Settings({"num.partitions": "many"})
    settings = Settings({"num.io.threads": "8", "num.partitions": "3"})
    assert settings.ignored == ("num.io.threads",)
    assert settings["num.partitions"] == settings.int("num.partitions") == 3


def test_values_are_typed() -> None:
    settings = Settings({"log.dirs": "/a, /b", "auto.create.topics.enable": "FALSE"})
    assert settings.words("log.dirs") == ["/a", "/b"]
    assert settings.bool("auto.create.topics.enable") is False
    assert settings.text("broker.rack") is None
    assert settings["log.cleaner.min.cleanable.ratio"] == 0.5
    assert Settings({"broker.id": "7"}).int("node.id") == 7
    assert Settings({"node.id": "7"}).int("broker.id") == 7
    assert Settings().int("node.id") == 1


def test_dynamic_configs_take_precedence_and_are_reported() -> None:
    settings = Settings({"message.max.bytes": "1000"})
    notified: list[frozenset[str]] = []
    settings.subscribe(notified.append)
    settings.apply_dynamic({"message.max.bytes": "2000"}, {})
    assert settings["message.max.bytes"] == 2000
    settings.apply_dynamic({"message.max.bytes": "2000"}, {"message.max.bytes": "3000"})
    assert settings["message.max.bytes"] == 3000
    settings.apply_dynamic({"message.max.bytes": "4000"}, {"message.max.bytes": "3000"})
    assert [layer.source for layer in settings.layers("message.max.bytes")] == [
        ConfigSource.DYNAMIC_BROKER,
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ConfigSource.STATIC_BROKER,
        ConfigSource.DEFAULT,
    ]
    settings.apply_dynamic({}, {})
    assert settings["message.max.bytes"] == 1000
    # The third change is overridden by a source of higher precedence, so it is not reported.
    assert notified == [frozenset({"message.max.bytes"})] * 3


def test_a_config_of_a_listener_takes_precedence_over_the_bare_one() -> None:
    settings = Settings(
        TLS | {"ssl.client.auth": "requested", "listener.name.inside.ssl.client.auth": "none"}
    )
    assert settings.of_listener("INSIDE", "ssl.client.auth") == "none"
    assert settings.of_listener("INSIDE", "ssl.client.auth", "PLAIN") == "none"
    assert settings.of_listener("OUTSIDE", "ssl.client.auth") == "requested"
    assert settings.of_listener("OUTSIDE", "ssl.enabled.protocols") == ["TLSv1.2", "TLSv1.3"]
    notified: list[frozenset[str]] = []
    settings.subscribe(notified.append)
    settings.apply_dynamic({}, {"listener.name.outside.ssl.client.auth": "required"})
    assert settings.of_listener("OUTSIDE", "ssl.client.auth") == "required"
    settings.apply_dynamic({}, {})
    assert settings.of_listener("OUTSIDE", "ssl.client.auth") == "requested"
    assert notified == [frozenset({"listener.name.outside.ssl.client.auth"})] * 2


@pytest.mark.parametrize("name", ["ssl.keystroe.location", "listener.name.inside.ssl.keystroe.location"])
def test_an_unknown_config_of_tls_is_rejected(name: str) -> None:
    with pytest.raises(BadConfig, match=f"Unknown broker config name: {name}"):
        Settings(TLS | {name: "x"})


def test_no_suggestions_are_made_for_unknown_dynamic_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take milliseconds."""
    monkeypatch.setattr(difflib, "get_close_matches", None)
    settings = Settings()
    settings.apply_dynamic({}, {f"listener.name.a.ssl.nonsense{number}": "1" for number in range(100)})
    assert settings.of_listeners() == []


def test_an_invalid_dynamic_value_falls_back() -> None:
    settings = Settings({"message.max.bytes": "1000"})
    settings.apply_dynamic({"message.max.bytes": "huge", "gone.with.the.release": "1"}, {})
    assert settings["message.max.bytes"] == 1000


HOURS, MINUTES = st.integers(1, 10_000), st.integers(1, 600_000)
AGES = st.one_of(st.just(-1), st.integers(1, 2**40))


@given(
    own=st.none() | AGES,
    dynamic_own=st.none() | AGES,
    dynamic_all=st.none() | AGES,
    static=st.none() | AGES,
    minutes=st.none() | MINUTES,
    hours=st.none() | HOURS,
)
def test_retention_resolves_by_precedence(
    own: int | None,
    dynamic_own: int | None,
    dynamic_all: int | None,
    static: int | None,
    minutes: int | None,
    hours: int | None,
) -> None:
    """The reference: the first value that is set, in milliseconds."""
    static_layer = {"ms": static, "minutes": minutes, "hours": hours}
    settings = Settings({f"log.retention.{k}": str(v) for k, v in static_layer.items() if v is not None})
    settings.apply_dynamic(
        {} if dynamic_all is None else {"log.retention.ms": str(dynamic_all)},
        {} if dynamic_own is None else {"log.retention.ms": str(dynamic_own)},
    )
    expected = next(
        value
        for value in (
            dynamic_own,
            dynamic_all,
            static,
            minutes and minutes * 60_000,
            hours and hours * 3_600_000,
            168 * 3_600_000,
        )
        if value is not None
    )
    assert settings["log.retention.ms"] == expected
    assert topic_default(settings, "retention.ms") == expected
    configs = {} if own is None else {"retention.ms": str(own)}
    assert log_config(settings, configs).retention_ms == (expected if own is None else own)


def test_topics_without_overrides_share_one_config() -> None:
    settings = Settings()
    assert log_config(settings, {}) is log_config(settings, {})
    settings.apply_dynamic({"log.segment.bytes": "2000000"}, {})
    assert log_config(settings, {}).segment_bytes == 2000000


def test_every_type_of_topic_config_reaches_the_log() -> None:
    config = log_config(
        Settings({"log.flush.policy": "commit", "producer.id.expiration.ms": "5000"}),
        {
            "cleanup.policy": "compact",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.25",
            "compression.type": "zstd",
            "max.message.bytes": "77",
            "segment.ms": "99",
            "remote.log.copy.disable": "true",
            "unknown.to.this.release": "1",
            "retention.bytes": "not any more",
        },
    )
    assert (config.cleanup_compact, config.cleanup_delete) == (True, False)
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.min_cleanable_dirty_ratio == 0.25
    assert (config.compression_type, config.max_message_bytes, config.segment_ms) == ("zstd", 77, 99)
    assert config.retention_bytes == -1
    assert (config.flush_policy, config.producer_id_expiration_ms) == (FlushPolicy.COMMIT, 5000)


def test_the_interval_policy_flushes_every_second_by_default() -> None:
    settings = Settings()
    assert log_config(settings, {"flush.policy": "interval"}).flush_ms == 1000
    assert log_config(settings, {"flush.policy": "interval", "flush.ms": "50"}).flush_ms == 50
    everywhere = Settings({"log.flush.policy": "interval", "log.flush.interval.ms": "70"})
    assert log_config(everywhere, {}).flush_ms == 70
