"""The cause of a failure, extracted from the traces of Java and of Python workers that Spark wraps it in."""

import re

from runnel.pipelines import errors
from runnel.pipelines.errors import BadCheckpoint, NoSpark, PipelineError

_PYTHON_TRACE = "Traceback (most recent call last):"
# The last line of a Python trace: a class, with its modules or without, and what it says.
_RAISED = re.compile(r"^(?P<kind>(?:\w+\.)*[A-Za-z_]\w*)(?:: (?P<text>.*))?$")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_END_OF_TRACE = re.compile(r"^(\s+at |Driver stacktrace|\s*SQLSTATE|\s*JVM stacktrace)")
_SQLSTATE = re.compile(r"\.? SQLSTATE: \w+.*$", re.DOTALL)
_JAVA_TYPES = re.compile(r"^(?:: )?(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_FOREIGN = ("/pyspark/", "/site-packages/", "/py4j", "<frozen", "pyspark.zip")

_KNOWN: tuple[tuple[str, type[PipelineError], str], ...] = (
    ("OutOfMemoryError", NoSpark, "Spark has run out of memory; give it more: --set spark.driver.memory=4g"),
    (
        "All masters are unresponsive",
        NoSpark,
        "the Spark master does not answer any more, or its cluster refused this application",
    ),
    (
        "PYTHON_VERSION_MISMATCH",
        NoSpark,
        "Spark's workers run another version of Python than this process; set PYSPARK_PYTHON to one of the "
        "same version that has runnel[spark] installed",
    ),
    (
        "Failed to find the data source: runnel",
        NoSpark,
        "Spark looks for the format runnel with the Python of its workers, which is the python3 of the PATH "
        "unless PYSPARK_PYTHON says otherwise, and runnel is not installed there: activate the virtual "
        "environment, or set PYSPARK_PYTHON to its Python before the session starts",
    ),
    (
        "Concurrent update to the log",
        BadCheckpoint,
        "another query is using the same checkpoint; give each one of its own",
    ),
    (
        "sources in the checkpoint offsets and now there are",
        BadCheckpoint,
        "the checkpoint belongs to another query, with another number of sources; "
        "give this one a checkpoint of its own",
    ),
    (
        "Python worker failed to connect back",
        NoSpark,
        "a Python worker did not start within Spark's ten seconds: this machine has too much to do",
    ),
    ("Answer from Java side is empty", NoSpark, "Spark's Java process has ended in the middle of the work"),
    ("Error while sending or receiving", NoSpark, "Spark's Java process has ended in the middle of the work"),
)


def is_of_spark(error: BaseException) -> bool:
    """Has Spark, or the bridge to it, raised this?"""
    # By name: neither is imported where Spark is not.
    return any(kind.__module__.startswith(("pyspark.", "py4j.")) for kind in type(error).__mro__)


def explained(error: BaseException) -> PipelineError:
    """The error in words for the pipeline's owner; keep the original as its cause."""
    if isinstance(error, PipelineError):
        return error
    return explained_text(str(error))


def explained_text(text: str) -> PipelineError:
    """What a failure's text, with all its traces, comes down to."""
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
    """What the first error of ours says, else the client's, else the last of any kind with its place."""
    of_the_client: str | None = None
    other: str | None = None
    for trace in text.split(_PYTHON_TRACE)[1:]:
        found = _end_of(trace)
        if found is None:
            continue
        kind, said, place = found
        ours = getattr(errors, kind.rpartition(".")[2], None)
        if isinstance(ours, type) and issubclass(ours, PipelineError):
            return ours, said
        if kind.startswith("runnel."):
            of_the_client = of_the_client or said
        other = (f"{kind}: {said}" if said else kind) + (f" ({place})" if place is not None else "")
    if of_the_client is not None:
        return PipelineError, of_the_client
    return None if other is None else (None, other)


def _end_of(trace: str) -> tuple[str, str, str | None] | None:
    """(class, message, where in the owner's own code) of what a Python trace ends with."""
    place: str | None = None
    lines = trace.splitlines()
    for index, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame is not None:
            if not any(part in frame["file"] for part in _FOREIGN):
                place = f"{frame['file']}, line {frame['line']}, in {frame['function']}"
            continue
        raised = _RAISED.match(line)
        if raised is not None and not line.startswith(" "):
            return raised["kind"], "\n".join(_message(raised["text"] or "", lines[index + 1 :])), place
    return None


def _message(first: str, following: list[str]) -> list[str]:
    said = [first]
    for line in following:
        if not line.strip() or _END_OF_TRACE.match(line):
            break
        said.append(line)
    return said


def _first_sentence(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    while len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        lines.pop(0)
    first = _SQLSTATE.sub("", lines[0]) if lines else "Spark failed without saying why"
    while (plain := _JAVA_TYPES.sub("", first)) != first:
        first = plain
    return first.removeprefix(": ")
