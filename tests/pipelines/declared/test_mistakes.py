"""Errors in a pipeline file are reported with position, expectation and suggestion."""

from pathlib import Path

import pytest

from runnel.pipelines.declared.findings import Findings
from runnel.pipelines.declared.reading import read_text
from tests.pipelines.declared.mistaken import MistakenFile, mistaken_files

ENVIRONMENT = {"SHOP_BROKER": "127.0.0.1:9092", "TOPIC": "orders"}


@pytest.mark.parametrize("file", mistaken_files("mistakes"), ids=lambda file: file.path.stem)
def test_without_spark(file: MistakenFile, rewrite: bool) -> None:
    def explain(text: str, folder: Path) -> Findings:
        findings = Findings()
        read_text(text, folder, ENVIRONMENT, findings)
        return findings

    file.check(explain, rewrite=rewrite)
