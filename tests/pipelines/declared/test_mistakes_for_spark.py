"""Errors that Spark finds are reported like the others."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.pipelines.declared.analysis import analyse
from runnel.pipelines.declared.findings import Findings
from runnel.pipelines.declared.reading import read_text
from tests.pipelines.declared.mistaken import MistakenFile, mistaken_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("file", mistaken_files("mistakes_for_spark"), ids=lambda file: file.path.stem)
def test_with_spark(file: MistakenFile, rewrite: bool, spark: "SparkSession") -> None:
    def explain(text: str, folder: Path) -> Findings:
        findings = Findings()
        declaration = read_text(text, folder, {}, findings)
        assert declaration is not None
        analyse(spark, declaration, findings)
        return findings

    file.check(explain, rewrite=rewrite)
