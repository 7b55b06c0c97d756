"""What tests of running share: a Spark cluster, as it takes half a minute to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.spark_cluster import Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone master and two workers. Drivers that start meanwhile use the same Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(spark_home))
        with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
            yield running
