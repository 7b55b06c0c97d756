"""Short messages and positions for the errors of Spark."""

import re
import traceback
from typing import Any

from runnel.pipelines.declared.declaration import PythonFunction
from runnel.pipelines.declared.findings import Position, did_you_mean
from runnel.pipelines.declared.tree import Scalar

_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)|== SQL \(line (\d+), position (\d+)\) ==")
_SQLSTATE = re.compile(r"\.?\s*SQLSTATE: \w+.*$", re.DOTALL)
_CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")

# Messages by error condition; {…} are the message parameters without backticks.
_PHRASES = {
    "PARSE_SYNTAX_ERROR": "syntax error at {error}{hint}",
    "PARSE_EMPTY_STATEMENT": "is empty",
    "TABLE_OR_VIEW_NOT_FOUND": "no source or step {relationName}",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "unknown column {objectName}",
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION": "unknown column {objectName}",
    "UNRESOLVED_ROUTINE": "unknown function {routineName}",
    "AMBIGUOUS_REFERENCE": "{name} is ambiguous: it may be {referenceNames}",
    "CANNOT_PARSE_INTERVAL": "{intervalString} is not an interval; write it as '10 minutes'",
    "MISSING_GROUP_BY": "an aggregate beside other columns requires GROUP BY",
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": "{windowFunc} OVER (…) is not supported on "
    "streams; use GROUP BY window(column, '1 minute')",
}


def error_text(error: Any) -> str:
    """A short message for an error of Spark."""
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    parameters = (error.getMessageParameters() or {}) if condition else {}
    phrase = _PHRASES.get(condition or "")
    if phrase is not None:
        plain = {name: str(value).replace("`", "").strip("[]") for name, value in parameters.items()}
        return phrase.format(**plain) + _suggestion(plain)
    text = str(parameters.get("msg") or error).strip()
    first = _CONDITION.sub("", text).split("\n")[0].split(";")[0]
    return _SQLSTATE.sub("", first).strip().rstrip(".")


def _suggestion(parameters: dict[str, str]) -> str:
    if "proposal" not in parameters:
        return ""
    known = [name.strip() for name in parameters["proposal"].split(",")]
    wanted = parameters["objectName"]
    return did_you_mean(wanted.rpartition(".")[2], [name.rpartition(".")[2] for name in known]) or (
        f"; available: {', '.join(known)}"
    )


def position_in(sql: Scalar, error: Any) -> Position:
    """The position in the file of the part of a query that an error refers to."""
    for context in _contexts(error):
        return sql.position_of(context.startIndex())
    position = _POSITION.search(str(error))
    if position is None:
        return sql.position
    line, column = (
        (int(position[1]), int(position[2])) if position[1] else (int(position[3]), int(position[4]) - 1)
    )
    lines = sql.text.split("\n")
    index = sum(len(text) + 1 for text in lines[: line - 1]) + column
    # An unexpected end of the query is reported after its last word.
    return sql.position_of(min(index, len(sql.text.rstrip())))


def _contexts(error: Any) -> list[Any]:
    try:
        return [context for context in error.getQueryContext() or () if context.contextType().name == "SQL"]
    except Exception:  # noqa: BLE001 - errors without a context fail in many ways
        return []


def function_error_text(function: PythonFunction, error: Exception) -> str:
    """The error of a step's function, with the line in its file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(function.file) and frame.lineno
    ]
    where = f"{function.file.name}:{lines[-1]}" if lines else function.file.name
    return f"{where}: {type(error).__name__}: {error_text(error)}"
