"""What every test of the project shares."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tools.fetch.programs import Unavailable
from tools.kafka import commands

# Two cores and random order make single examples slow now and then; the whole suite has its own time limit.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("RUNNEL_HYPOTHESIS", "suite"))

SLOW_TIMEOUT_S = 600


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the expected half of all transcripts anew")


def is_slow(item: pytest.Item) -> bool:
    """Does a test take long enough to be planned for?"""
    return any(item.get_closest_marker(name) for name in ("slow", "java"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes a minute takes many when others keep the machine busy: the common limit is for others.

    Slow tests go first, in random order as all: the last one would leave the other worker with nothing to do.
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
    """Whether transcripts are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite"))
