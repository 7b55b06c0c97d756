"""Iceberg catalogs; the default is a SQLite file in the warehouse."""

import re
from collections.abc import Mapping
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from sqlalchemy.exc import OperationalError

from runnel.pipelines.errors import TableError

NAME = "runnel"
FILE = "catalog.db"
BUSY_TIMEOUT_S = 60
"""How long to wait for a lock of the SQLite file."""


def open_catalog(warehouse: str, properties: Mapping[str, str] | None = None) -> Catalog:
    """The catalog of a warehouse; `properties` are Iceberg's and may select another catalog.

    The warehouse is a local path, or a URI that Iceberg and Spark support (`check_location`), which requires
    another catalog: a SQLite file needs a local path.
    """
    chosen = {"warehouse": _uri(warehouse), **(properties or {})}
    name = chosen.pop("name", NAME)
    if "uri" not in chosen and "type" not in chosen:
        chosen |= _sqlite(chosen["warehouse"])
    try:
        return load_catalog(name, **chosen)
    except (OperationalError, ValueError) as error:
        raise TableError(f"the catalog of {warehouse} cannot be opened: {error}") from error


def ensure_namespace(catalog: Catalog, namespace: str) -> None:
    """Create a namespace if it does not exist."""
    if not catalog.namespace_exists(namespace):
        try:
            catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            return  # created concurrently


def table_name_of(topic: str) -> str:
    """The table name of a topic: SQL names have no dots and dashes."""
    return re.sub(r"[.-]", "_", topic)


def _uri(warehouse: str) -> str:
    # Not as_uri(): neither Iceberg nor Hadoop decodes %20.
    return warehouse if "://" in warehouse else f"file://{Path(warehouse).absolute()}"


def _sqlite(uri: str) -> dict[str, str]:
    scheme, _, path = uri.partition("://")
    if scheme != "file":
        raise TableError(
            f"a warehouse at {uri} requires another catalog: set the properties type and uri, as a "
            "SQLite file cannot be stored there"
        )
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / FILE}?timeout={BUSY_TIMEOUT_S}",
        # Files must be durable before the catalog refers to them.
        "py-io-impl": "runnel.pipelines.tables.durable.DurableFileIO",
    }
