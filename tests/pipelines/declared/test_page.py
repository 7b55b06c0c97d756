"""The documentation of pipelines: its files are valid, and every key is documented."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.pipelines.declared.analysis import analyse
from runnel.pipelines.declared.declaration import DELIVERIES, FORMATS, METADATA, MODES, ON_MALFORMED
from runnel.pipelines.declared.reading import TOP_KEYS, read_file
from runnel.pipelines.declared.sections import SOURCE_KEYS, STEP_KEYS, WATERMARK_KEYS
from runnel.pipelines.declared.sink_sections import KINDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "PIPELINES.md"
BLOCKS = dict(re.findall(r"```(?:yaml|python) (\S+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
REGISTRY_FILE = "registry.yaml"
"""Its columns are in a registry: tests/pipelines/registered runs it."""
FILES = [name for name in BLOCKS if name.endswith(".yaml")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with all files of the page."""
    for name, text in BLOCKS.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_there_are_files() -> None:
    assert FILES == ["clicks.yaml", "sources.yaml", REGISTRY_FILE, "steps.yaml", "sinks.yaml"]


@pytest.mark.parametrize("name", FILES)
def test_files_are_valid(name: str, folder: Path) -> None:
    _, findings = read_file(folder / name, {})
    assert [finding.line(name) for finding in findings] == []


@pytest.mark.timeout(600)
def test_files_are_valid_for_spark(folder: Path, spark: "SparkSession") -> None:
    for name in FILES:
        if name == REGISTRY_FILE:
            continue
        declaration, findings = read_file(folder / name, {})
        assert declaration is not None
        analyse(spark, declaration, findings)
        assert [finding.line(name) for finding in findings] == []


def test_every_key_and_value_is_documented() -> None:
    page = PAGE.read_text("utf-8")
    keys = {
        *TOP_KEYS,
        *SOURCE_KEYS,
        *WATERMARK_KEYS,
        *STEP_KEYS,
        *(key for kind in KINDS.values() for key in kind),
    }
    words = {*FORMATS, *METADATA, *MODES, *ON_MALFORMED, *DELIVERIES}
    assert [word for word in sorted(keys | words) if f"`{word}`" not in page] == []


def test_every_key_is_used_in_a_file() -> None:
    used = set(re.findall(r"([a-z-]+):", "".join(BLOCKS[name] for name in FILES)))
    keys = {*SOURCE_KEYS, *WATERMARK_KEYS, *STEP_KEYS, *(key for kind in KINDS.values() for key in kind)}
    assert sorted(keys - used) == []
