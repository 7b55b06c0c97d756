"""What tests of pipelines share: one Spark session per test process, as it takes many seconds to start."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from runnel.pipelines.session import spark_session
from tools.kafka import node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The first test pays for the start of Spark, which takes long on a busy machine.
TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark without its zipped Python sources, which every Python worker would compile again.

    Workers import the same modules from the installed package, where they are compiled.
    """
    home = tmp_path_factory.mktemp("spark")
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


@pytest.fixture(scope="session")
def spark(spark_home: Path) -> "Iterator[SparkSession]":
    """A local Spark session with two task slots. Tests leave no query running in it."""
    with ExitStack() as stack:
        # Only the session's own processes inherit it: tests of other sessions run Spark as it is installed.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARK_HOME", str(spark_home))
            session = stack.enter_context(spark_session("tests", master="local[2]"))
        yield session


@pytest.fixture(scope="session")
def apache_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node of Apache Kafka."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    running = node.start(tmp_path_factory.mktemp("peer") / "kafka", settings, flags=node.QUICK_START)
    try:
        yield running.bootstrap
    finally:
        running.stop()
