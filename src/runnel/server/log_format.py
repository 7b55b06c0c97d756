"""The log of a node on standard error: as text, or as one JSON object per line for programs.

{"time": "2026-11-18T08:00:00.123Z", "level": "warning", "logger": "runnel.net", "event": "closed …",
 "fields": {…}, "trace_id": "…", "exception": "…"}

`fields` are what the code logged with `extra=`; they, `trace_id` and `exception` are left out if there are
none. Messages that repeat quickly are suppressed, and the next one states how many were.
"""

import logging
import time
from typing import Any

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
REPEATS_MAX = 100
"""Messages of the same wording that are logged within an interval."""
INTERVAL_S = 10.0
WORDINGS_MAX = 1_000

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "trace_id"}


def configure_logging(level: str, *, is_json: bool = False) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter(TEXT_FORMAT))
    handler.addFilter(RepetitionLimit())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class TextFormatter(logging.Formatter):
    """Text that states how many messages were suppressed before."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        suppressed = getattr(record, "suppressed", 0)
        return f"{text} ({suppressed} more like this were left out)" if suppressed else text


class JsonFormatter(logging.Formatter):
    """One JSON object per message, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        whole_seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{whole_seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if fields:
            line["fields"] = fields
        if trace_id := getattr(record, "trace_id", None):
            line["trace_id"] = trace_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # ASCII only: no character of a client's input can end the line or confuse a terminal.
        return json.dumps(line, default=str)


class RepetitionLimit(logging.Filter):
    """Lets a limited number of messages of the same wording pass within an interval."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}
        """By logger and wording: when the interval began, and how many messages there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        key = record.name, str(record.msg)
        began, count = self._counts.get(key, (record.created, 0))
        if not 0 <= record.created - began < INTERVAL_S:
            if count > REPEATS_MAX:
                record.suppressed = count - REPEATS_MAX
            began, count = record.created, 0
        if len(self._counts) >= WORDINGS_MAX and key not in self._counts:
            self._counts.clear()
        self._counts[key] = began, count + 1
        return count < REPEATS_MAX
