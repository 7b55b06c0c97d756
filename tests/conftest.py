"""What every test of the project shares."""

import os

import pytest
from hypothesis import HealthCheck, settings

# Two cores and random order make single examples slow now and then; the whole suite has its own time limit.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("RUNNEL_HYPOTHESIS", "suite"))

SLOW_TIMEOUT_S = 600


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the expected half of all transcripts anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes a minute takes many when others keep the machine busy: the common limit is for others."""
    for item in items:
        if item.get_closest_marker("slow") or item.get_closest_marker("java"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether transcripts are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite"))
