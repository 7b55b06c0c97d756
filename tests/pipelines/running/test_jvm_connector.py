"""Spark's own Kafka connector, unchanged, against Runnel; and the same rows through ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.running import both_connectors
from tools.spark_bench.connector import JARS, NoConnector, connector_jars

CACHE = Path(os.environ.get("RUNNEL_CONFORMANCE_CACHE") or Path.home() / ".cache" / "runnel-conformance")
FETCH = "RUNNEL_FETCH_CONNECTOR"


@pytest.fixture(scope="module")
def jars() -> str:
    """The connector's jars, from the cache; from Maven only where somebody asked for that."""
    folder = CACHE / "spark-jars"
    is_cached = all((folder / f"{name}-{version}.jar").exists() for _, name, version in JARS)
    if not is_cached and FETCH not in os.environ:
        pytest.skip(f"Spark's Kafka connector is not in {folder}; {FETCH}=1 fetches it with Maven")
    try:
        return ",".join(map(str, connector_jars(folder)))
    except NoConnector as error:
        pytest.skip(str(error))


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.runnel({"num.partitions": 3})
def test_sparks_own_connector_reads_writes_and_streams_and_sees_what_ours_sees(jars, runnel, tmp_path):
    driver = Path(both_connectors.__file__)
    ended = subprocess.run(
        [sys.executable, driver, jars, runnel.bootstrap_servers, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout)
    their_types, our_types = seen.pop("types")
    assert their_types == our_types
    assert seen == {
        "rows": both_connectors.RECORDS,
        "tombstones": both_connectors.RECORDS // 10,
        "headers": both_connectors.RECORDS,
        "only theirs": 0,
        "only ours": 0,
        "streamed": 0,
        "streamed rows": both_connectors.RECORDS,
        "batches": 3,
    }
