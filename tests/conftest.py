"""Shared options and fixtures."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools.fetch.programs import Unavailable
from tools.kafka import commands

# Single examples are occasionally slow on two cores; the suite has its own time limit.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("RUNNEL_HYPOTHESIS", "suite"))

SLOW_TIMEOUT_S = 600
JVM_FIXTURES = {"spark", "apache_kafka"}
JVM_GROUP = "jvm"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="regenerate the expected output of all transcripts"
    )


def shares_a_jvm(item: pytest.Item) -> bool:
    """True for tests of which one worker runs all, so that Spark and Apache Kafka start only once."""
    return not JVM_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def is_slow(item: pytest.Item) -> bool:
    """True for tests that take long."""
    return any(item.get_closest_marker(name) for name in ("slow", "java"))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Group the tests that share a JVM, and exempt slow tests from the common time limit.

    Tests that share a JVM run first, then slow ones, so that no worker is idle at the end. The order is
    random otherwise.
    """
    for item in items:
        if shares_a_jvm(item) and config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(JVM_GROUP))
        if is_slow(item):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
    outcome = yield
    items.sort(key=lambda item: (not shares_a_jvm(item), not is_slow(item)))
    return outcome


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """Apache Kafka's jars, fetched once with Maven; a skip that names what the machine lacks."""
    try:
        return commands.kafka_jars()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """True if transcripts are regenerated instead of compared."""
    return bool(request.config.getoption("--rewrite"))
