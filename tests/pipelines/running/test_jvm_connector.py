"""Spark's own Kafka connector, unchanged, against Runnel; and the same rows through ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import QUICK_START
from tests.pipelines.running import both_connectors
from tools.fetch.programs import Unavailable
from tools.spark_bench.connector import connector_jars


@pytest.fixture(scope="module")
def jars() -> str:
    """The connector's jars, fetched once with Maven; a skip that names what the machine lacks."""
    try:
        return ",".join(map(str, connector_jars()))
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.long
@pytest.mark.java
@pytest.mark.slow
@pytest.mark.runnel({"num.partitions": 3})
def test_sparks_own_connector_reads_writes_and_streams_and_sees_what_ours_sees(
    jars, runnel, spark_home, tmp_path
):
    driver = Path(both_connectors.__file__)
    environment = {**os.environ, "SPARK_HOME": str(spark_home), "JAVA_TOOL_OPTIONS": QUICK_START}
    ended = subprocess.run(
        [sys.executable, driver, jars, runnel.bootstrap_servers, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        env=environment,
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
