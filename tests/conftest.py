"""What every test of the project shares."""

import os

import pytest
from hypothesis import HealthCheck, settings

# Two cores and random order make single examples slow now and then; the whole suite has its own time limit.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("RUNNEL_HYPOTHESIS", "suite"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the expected half of all transcripts anew")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether transcripts are to be written instead of compared."""
    return bool(request.config.getoption("--rewrite"))
