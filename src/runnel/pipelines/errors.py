"""What can be wrong around a pipeline, said so that its owner can mend it.

PipelineError
├── NoJava            no Java runtime that Spark can use
├── NoSpark           Spark is not installed, does not start, or cannot run with these settings
├── BadOption         an option of the source or the sink that cannot be used
├── BadCheckpoint     a checkpoint of another query, or one that is in use
├── DataLost          records that should be read are not there any more
├── BrokerUnreachable no broker answers at the addresses that were given
├── UnknownTopic      a topic, or a partition of it, that does not exist
├── DamagedRecords    records that are not as their writer made them
├── TableError        a table cannot be read or written
│   ├── NoSuchTable       the table that should be read is not there
│   ├── SchemaChanged     rows do not fit the table
│   ├── CommitConflict    others write to the table again and again
│   └── CatalogBusy       the catalog does not answer
├── BadDataFolder     a folder that is not a stopped broker's
└── TargetInUse       a topic that has records which a restore did not write
"""


class PipelineError(Exception):
    """A pipeline cannot run, or has failed, for a reason that its owner can understand."""


class NoJava(PipelineError):
    """No Java runtime that Spark can use."""


class NoSpark(PipelineError):
    """Spark is not installed, does not start, or cannot run with these settings."""


class BadOption(PipelineError):
    """An option of the source or the sink that cannot be used."""


class BadCheckpoint(PipelineError):
    """A checkpoint that belongs to another query, or that another process uses right now."""


class DataLost(PipelineError):
    """Records that should be read are not there any more."""


class BrokerUnreachable(PipelineError):
    """No broker answers at the addresses that were given."""


class UnknownTopic(PipelineError):
    """A topic, or a partition of it, that does not exist."""


class DamagedRecords(PipelineError):
    """Records that came from the broker and are not as their writer made them."""


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


class BadDataFolder(PipelineError):
    """A folder that is not a broker's, or whose broker is running."""


class TargetInUse(PipelineError):
    """A topic that should be restored to, and has records that came from elsewhere."""
