"""The programs of docs/SPARK.md run, one after the other, as a reader would type them."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.testing import Broker

PAGE = Path(__file__).parents[2] / "docs" / "SPARK.md"


@pytest.mark.runnel({"auto.create.topics.enable": True})
def test_the_page_on_spark_runs_from_top_to_bottom(
    spark: "SparkSession", runnel: "Broker", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 3
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"spark": spark}
    for program in programs:
        # Spark's JVM has a working folder of its own, so a relative one must be made absolute.
        text = program.replace("127.0.0.1:9092", runnel.bootstrap_servers)
        exec(text.replace("checkpoints/", f"{os.getcwd()}/checkpoints/"), names)
    with runnel.client() as client:
        paid = client.read("paid-orders", committed_only=True)
    assert sorted(message.key or b"" for message in paid) == [b"o-1", b"o-2"]
