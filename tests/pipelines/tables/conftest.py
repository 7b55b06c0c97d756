"""What tests of tables share: a warehouse of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from runnel.pipelines.tables import open_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog in an empty folder, whose name has a space in it."""
    with open_catalog(str(tmp_path / "ware house")) as catalog:
        yield catalog
