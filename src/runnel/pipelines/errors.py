"""Errors of pipelines that a user can act on.

PipelineError
├── NoJava            no Java runtime that Spark can use
├── NoSpark           Spark is not installed, does not start, or cannot run with these settings
├── BadOption         an invalid option of the source or the sink
├── BadCheckpoint     a checkpoint of another query, or one that is in use
├── DataLost          records were deleted before they were read
├── BrokerUnreachable no broker is reachable at the bootstrap addresses
├── UnknownTopic      a topic, or a partition of it, that does not exist
├── SchemaUnavailable a schema registry does not respond, or refuses a request
├── DamagedRecords    records with an invalid checksum or format
├── TableError        a table cannot be read or written
│   ├── NoSuchTable       the table does not exist
│   ├── SchemaChanged     rows are incompatible with the table schema
│   ├── CommitConflict    too many concurrent commits to the table
│   └── CatalogBusy       the catalog is not available
├── BadDataFolder     not the data folder of a stopped broker
└── TargetInUse       the target of a restore has other records
"""


class PipelineError(Exception):
    """A pipeline cannot run or has failed."""


class NoJava(PipelineError):
    """No Java runtime that Spark can use."""


class NoSpark(PipelineError):
    """Spark is not installed, does not start, or cannot run with these settings."""


class BadOption(PipelineError):
    """An invalid option of the source or the sink."""


class BadCheckpoint(PipelineError):
    """A checkpoint that belongs to another query or is in use."""


class DataLost(PipelineError):
    """Records were deleted before they were read."""


class BrokerUnreachable(PipelineError):
    """No broker is reachable at the bootstrap addresses."""


class UnknownTopic(PipelineError):
    """A topic, or a partition of it, that does not exist."""


class SchemaUnavailable(PipelineError):
    """A schema registry does not respond, or refuses a request."""


class DamagedRecords(PipelineError):
    """Records with an invalid checksum or format."""


class TableError(PipelineError):
    """A table cannot be read or written."""


class NoSuchTable(TableError):
    """The table does not exist."""


class SchemaChanged(TableError):
    """Rows are incompatible with the table schema, even with schema evolution."""


class CommitConflict(TableError):
    """A snapshot could not be committed because of concurrent commits."""


class CatalogBusy(TableError):
    """The catalog is not available, and the result of a commit is unknown."""


class BadDataFolder(PipelineError):
    """Not the data folder of a broker, or the broker is running."""


class TargetInUse(PipelineError):
    """The target topic of a restore has records of other producers."""
