"""What can be wrong around a pipeline, said so that its owner can mend it."""


class PipelineError(Exception):
    """A pipeline cannot run, or has failed, for a reason that its owner can understand."""


class NoJava(PipelineError):
    """No Java runtime that Spark can use."""


class BadOption(PipelineError):
    """An option of the source or the sink that cannot be used."""


class DataLost(PipelineError):
    """Records that should be read are not there any more."""
