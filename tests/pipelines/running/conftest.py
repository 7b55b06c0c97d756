"""What tests of running share: a Spark cluster, as it takes half a minute to start."""

from collections.abc import Iterator

import pytest

from tools.spark_cluster import Cluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standalone master and two workers."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
