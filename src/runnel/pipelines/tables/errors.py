"""What can be wrong with a table."""

from runnel.pipelines.errors import PipelineError


class TableError(PipelineError):
    """A table cannot be read or written."""


class NoSuchTable(TableError):
    """The table that should be read is not there."""


class SchemaChanged(TableError):
    """Rows do not fit the table, and no change that keeps old rows readable would make them fit."""


class CommitConflict(TableError):
    """Others wrote to the table again and again, so that a snapshot could not be added in time."""


class CatalogBusy(TableError):
    """The catalog did not answer in time, and what became of the commit is unknown."""
