"""Where tables are found: any Iceberg catalog, and by default a SQLite file beside the data."""

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
"""How long to wait for another process that writes to the SQLite file."""


def open_catalog(warehouse: str, properties: Mapping[str, str] | None = None) -> Catalog:
    """The catalog of a warehouse folder; `properties` are Iceberg's, and choose any other kind of catalog.

    The folder may be a path of this machine, or any address that Iceberg and Spark reach (`check_location`),
    with a catalog of its own: a SQLite file needs a path.
    """
    chosen = {"warehouse": _address(warehouse), **(properties or {})}
    name = chosen.pop("name", NAME)
    if "uri" not in chosen and "type" not in chosen:
        chosen |= _sqlite(chosen["warehouse"])
    try:
        return load_catalog(name, **chosen)
    except (OperationalError, ValueError) as error:
        raise TableError(f"the catalog of {warehouse} cannot be opened: {error}") from error


def ensure_namespace(catalog: Catalog, namespace: str) -> None:
    """Make a namespace unless it is there."""
    if not catalog.namespace_exists(namespace):
        try:
            catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            return  # another process was quicker


def table_name_of(topic: str) -> str:
    """What the table of a topic is called: SQL wants names without dots and dashes."""
    return re.sub(r"[.-]", "_", topic)


def _address(warehouse: str) -> str:
    # Not as_uri(): neither Iceberg nor Hadoop turns %20 back into a space.
    return warehouse if "://" in warehouse else f"file://{Path(warehouse).absolute()}"


def _sqlite(address: str) -> dict[str, str]:
    scheme, _, path = address.partition("://")
    if scheme != "file":
        raise TableError(
            f"a warehouse at {address} needs a catalog of its own: give the properties type and uri, as a "
            "SQLite file cannot be stored there"
        )
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder / FILE}?timeout={BUSY_TIMEOUT_S}",
        # What the catalog names must be on the disk before the catalog names it.
        "py-io-impl": "runnel.pipelines.tables.durable.DurableFileIO",
    }
