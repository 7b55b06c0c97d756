"""The cause of a failure, extracted from the traces of Java and of Python workers that Spark wraps it in."""

import re

from runnel.pipelines import errors
from runnel.pipelines.errors import BadCheckpoint, NoSpark, PipelineError

_PYTHON_TRACE = "Traceback (most recent call last):"
# The last line of a Python trace: a class, with or without its module, and the message.
_RAISED = re.compile(r"^(?P<kind>(?:\w+\.)*[A-Za-z_]\w*)(?:: (?P<text>.*))?$")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_END_OF_TRACE = re.compile(r"^(\s+at |Driver stacktrace|\s*SQLSTATE|\s*JVM stacktrace)")
_SQLSTATE = re.compile(r"\.? SQLSTATE: \w+.*$", re.DOTALL)
_JAVA_TYPES = re.compile(r"^(?:: )?(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_FOREIGN = ("/pyspark/", "/site-packages/", "/py4j", "<frozen", "pyspark.zip")

_KNOWN: tuple[tuple[str, type[PipelineError], str], ...] = (
    (
        "OutOfMemoryError",
        NoSpark,
        "Spark has run out of memory; increase it with --set spark.driver.memory=4g",
    ),
    (
        "All masters are unresponsive",
        NoSpark,
        "the Spark master is not responding, or the cluster rejected this application",
    ),
    (
        "PYTHON_VERSION_MISMATCH",
        NoSpark,
        "Spark's workers run a different version of Python than this process; set PYSPARK_PYTHON to one of "
        "the same version that has runnel[spark] installed",
    ),
    (
        "Failed to find the data source: runnel",
        NoSpark,
        "Spark looks for the format runnel with the Python of its workers, which is the python3 of the PATH "
        "unless PYSPARK_PYTHON is set, and runnel is not installed there: activate the virtual "
        "environment, or set PYSPARK_PYTHON to its Python before the session starts",
    ),
    (
        "Concurrent update to the log",
        BadCheckpoint,
        "another query is using the same checkpoint; use one checkpoint per query",
    ),
    (
        "sources in the checkpoint offsets and now there are",
        BadCheckpoint,
        "the checkpoint belongs to another query, with a different number of sources; use another checkpoint",
    ),
    (
        "Python worker failed to connect back",
        NoSpark,
        "a Python worker did not start within Spark's timeout of ten seconds: the machine is overloaded",
    ),
    ("Answer from Java side is empty", NoSpark, "Spark's Java process has exited unexpectedly"),
    ("Error while sending or receiving", NoSpark, "Spark's Java process has exited unexpectedly"),
)


def is_spark_error(error: BaseException) -> bool:
    """Was this raised by Spark or Py4J?"""
    # By module name, without importing Spark.
    return any(kind.__module__.startswith(("pyspark.", "py4j.")) for kind in type(error).__mro__)


def explained(error: BaseException) -> PipelineError:
    """Convert an error of Spark to a PipelineError with a short message."""
    if isinstance(error, PipelineError):
        return error
    return explained_text(str(error))


def explained_text(text: str) -> PipelineError:
    """The cause of a failure, from its text with all stack traces."""
    raised = _raised_in_python(text)
    if raised is not None and isinstance(raised[0], type):
        return raised[0](raised[1])
    for sign, kind, sentence in _KNOWN:
        if sign in text:
            return kind(sentence)
    if raised is not None:
        return PipelineError(raised[1])
    return PipelineError(_first_sentence(text))


def _raised_in_python(text: str) -> tuple[type[PipelineError] | None, str] | None:
    """The first PipelineError in the text, else the client's error, else the last error with its location."""
    of_the_client: str | None = None
    other: str | None = None
    for trace in text.split(_PYTHON_TRACE)[1:]:
        found = _end_of(trace)
        if found is None:
            continue
        kind, message, location = found
        ours = getattr(errors, kind.rpartition(".")[2], None)
        if isinstance(ours, type) and issubclass(ours, PipelineError):
            return ours, message
        if kind.startswith("runnel."):
            of_the_client = of_the_client or message
        other = (f"{kind}: {message}" if message else kind) + (
            f" ({location})" if location is not None else ""
        )
    if of_the_client is not None:
        return PipelineError, of_the_client
    return None if other is None else (None, other)


def _end_of(trace: str) -> tuple[str, str, str | None] | None:
    """(class, message, location in user code) of a Python trace."""
    location: str | None = None
    lines = trace.splitlines()
    for index, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame is not None:
            if not any(part in frame["file"] for part in _FOREIGN):
                location = f"{frame['file']}, line {frame['line']}, in {frame['function']}"
            continue
        raised = _RAISED.match(line)
        if raised is not None and not line.startswith(" "):
            return raised["kind"], "\n".join(_message(raised["text"] or "", lines[index + 1 :])), location
    return None


def _message(first: str, following: list[str]) -> list[str]:
    message = [first]
    for line in following:
        if not line.strip() or _END_OF_TRACE.match(line):
            break
        message.append(line)
    return message


def _first_sentence(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    while len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        lines.pop(0)
    first = _SQLSTATE.sub("", lines[0]) if lines else "Spark failed without an error message"
    while (plain := _JAVA_TYPES.sub("", first)) != first:
        first = plain
    return first.removeprefix(": ")
