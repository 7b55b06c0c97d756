"""Shared options and fixtures."""

import os
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="regenerate the expected output of all transcripts"
    )


def is_slow(item: pytest.Item) -> bool:
    """True for tests that are scheduled first."""
    return any(item.get_closest_marker(name) for name in ("slow", "java"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exempt slow tests from the common time limit, which a busy machine would exceed.

    Slow tests run first, in random order, so that no worker is idle at the end.
    """
    for item in items:
        if is_slow(item):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
    items.sort(key=is_slow, reverse=True)


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
