"""Spark's complaints about a query, in fewer words and with a place."""

import re
import traceback
from typing import Any

from runnel.pipelines.declared.declaration import PythonFunction
from runnel.pipelines.declared.findings import Place, did_you_mean
from runnel.pipelines.declared.tree import Scalar

_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)|== SQL \(line (\d+), position (\d+)\) ==")
_SQLSTATE = re.compile(r"\.?\s*SQLSTATE: \w+.*$", re.DOTALL)
_CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")

# What Spark says of a condition, in our words; {…} are its own parameters, backticks removed.
_PHRASES = {
    "PARSE_SYNTAX_ERROR": "makes no sense at {error}{hint}",
    "PARSE_EMPTY_STATEMENT": "is empty",
    "TABLE_OR_VIEW_NOT_FOUND": "there is no source or step {relationName}",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "there is no column {objectName}",
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION": "there is no column {objectName}",
    "UNRESOLVED_ROUTINE": "there is no function {routineName}",
    "AMBIGUOUS_REFERENCE": "{name} may be any of {referenceNames}: say which",
    "CANNOT_PARSE_INTERVAL": "{intervalString} is no span of time; write it as '10 minutes'",
    "MISSING_GROUP_BY": "a sum or count beside plain columns needs GROUP BY",
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": "{windowFunc} OVER (…) needs all rows, and a "
    "stream never has them; GROUP BY window(column, '1 minute') works",
}


def said(error: Any) -> str:
    """What an error of Spark's comes down to."""
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
        f"; there are {', '.join(known)}"
    )


def place_in(sql: Scalar, error: Any) -> Place:
    """The place in the file of the part of a query that an error is about."""
    for context in _contexts(error):
        return sql.place_of(context.startIndex())
    position = _POSITION.search(str(error))
    if position is None:
        return sql.place
    line, column = (
        (int(position[1]), int(position[2])) if position[1] else (int(position[3]), int(position[4]) - 1)
    )
    lines = sql.text.split("\n")
    index = sum(len(text) + 1 for text in lines[: line - 1]) + column
    # What is missing at the end is missing after the last word, not in the line behind the query.
    return sql.place_of(min(index, len(sql.text.rstrip())))


def _contexts(error: Any) -> list[Any]:
    try:
        return [context for context in error.getQueryContext() or () if context.contextType().name == "SQL"]
    except Exception:  # noqa: BLE001 - only a place is at stake, and errors without one answer in many ways
        return []


def said_of_function(function: PythonFunction, error: Exception) -> str:
    """What went wrong inside a function of the owner's, with the line of the owner's own file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(function.file) and frame.lineno
    ]
    where = f"{function.file.name}:{lines[-1]}" if lines else function.file.name
    return f"{where}: {type(error).__name__}: {said(error)}"
