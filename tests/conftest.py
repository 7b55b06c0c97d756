"""Shared options and fixtures."""

import faulthandler
import os
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from tools.fetch.programs import Unavailable
from tools.kafka import commands

# Single examples are occasionally slow on two cores; the suite has its own time limit.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("RUNNEL_HYPOTHESIS", "suite"))

# Tests run little code often: the optimising compiler and parallel collectors cost more CPU than they save.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["SPARK_SUBMIT_OPTS"] = QUICK_START
# A test that wants a console asks for it.
os.environ["RUNNEL_HTTP"] = "off"

# Tests run side by side, and the default port of the admin listener is one: brokers in processes of their own
# have none, unless a test asks for it.
os.environ["RUNNEL_SET_ADMIN_LISTENERS"] = "off"

SLOW_TIMEOUT_S = 600
TEARDOWN_TIMEOUT_S = 300
JVM_FIXTURES = {"spark", "apache_kafka"}


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


def longest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The order for `--dist worksteal`, which first gives every worker an equal share of consecutive tests.

    The first share begins with the tests that share a JVM, the others with slow tests. Workers that are done
    take tests from the end of another share.
    """
    shared = [item for item in items if shares_a_jvm(item)]
    slow = [item for item in items if is_slow(item) and not shares_a_jvm(item)]
    rest = [item for item in items if not is_slow(item) and not shares_a_jvm(item)]
    others = workers - 1
    begins = [shared, *(slow[number::others] for number in range(others))] if others else [shared + slow]
    ordered: list[pytest.Item] = []
    for number, begin in enumerate(begins):
        share = (len(items) - len(ordered)) // (workers - number)
        count = max(0, share - len(begin))
        ordered += begin + rest[:count]
        del rest[:count]
    return ordered + rest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exempt slow tests from the common time limit, which a busy machine would exceed, and run them first."""
    for item in items:
        if is_slow(item):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
    items[:] = longest_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Limit the time of a teardown after a failure, with which pytest ends all other time limits."""
    if isinstance(node, pytest.Item) and not node.config.getoption("usepdb"):
        output = node.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(TEARDOWN_TIMEOUT_S, exit=True, file=output)


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
