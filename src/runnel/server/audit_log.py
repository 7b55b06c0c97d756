"""The audit log: decisions of the authorizer as JSON lines, written by a thread, and as records of a topic.

    any thread ──▶ filter ──▶ queue (bounded) ──▶ thread ──▶ file, logger
                      └────▶ queue (bounded) ──▶ `broker/runtime/audit_topic.py`

Nothing waits for the thread: events that find the queue full are counted, and the count is recorded. JSON
escapes control characters, so that names which clients choose cannot forge lines. The file is opened again
when it was renamed or deleted, as by logrotate.
"""

import json
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import IO, Any

from runnel.broker.runtime.audit_topic import AuditTopic
from runnel.controller.settings import Settings
from runnel.ports.gates import Permission
from runnel.ports.service import Session
from runnel.security.audit import TEXT_CHARACTERS_MAX, AuditFilter, AuditPolicy, audit_event

log = logging.getLogger("runnel.server")
audit = logging.getLogger("runnel.audit")

FILE_MODE = 0o600
LINES_PER_WRITE = 1000
RETRY_SECONDS = 1.0
"""A file that cannot be written is retried this often; the queue holds what it can."""


class AuditLog:
    """Records decisions of the authorizer until it is closed."""

    def __init__(
        self, policy: AuditPolicy, *, path: str, has_logger: bool, queue_max: int, now_ms: Callable[[], int]
    ) -> None:
        """Raises OSError if the file cannot be opened."""
        self.is_enabled = True
        self.topic: AuditTopic | None = None
        """The topic that events are written to as well."""
        self._filter = AuditFilter(policy)
        self._path = path
        self._has_logger = has_logger
        self._queue_max = queue_max
        self._now_ms = now_ms
        self._queue: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._has_failed = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._file: IO[str] | None = self._open() if path else None
        self._thread: threading.Thread | None = None
        if path or has_logger:
            self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
            self._thread.start()

    @classmethod
    def of(cls, settings: Settings, now_ms: Callable[[], int]) -> "AuditLog | None":
        """The audit log with these settings; None if there is none. Raises OSError."""
        path, has_logger = settings.text("audit.log.file") or "", settings.bool("audit.log.logger")
        if not path and not has_logger and not settings.text("audit.log.topic"):
            return None
        policy = AuditPolicy(
            settings.text("audit.log.allowed") or "",
            settings.int("audit.log.repeat.interval.ms"),
            settings.int("audit.log.denials.per.second.max"),
        )
        queue_max = settings.int("audit.log.queue.max")
        return cls(policy, path=path, has_logger=has_logger, queue_max=queue_max, now_ms=now_ms)

    def decided(
        self,
        session: Session,
        client_id: str | None,
        api_key: int,
        permission: Permission,
        *,
        is_allowed: bool,
    ) -> None:
        """Record a decision, if that is configured and the queue has room."""
        now_ms, principal = self._now_ms(), str(session.principal)
        key = (
            principal,
            session.client_host,
            str(api_key),
            str(permission.operation),
            str(permission.resource_type),
            permission.name[:TEXT_CHARACTERS_MAX],
        )
        topic = self.topic
        if topic is not None and is_allowed and topic.is_own_write(session, client_id, api_key, permission):
            return
        with self._changed:
            if not self._filter.admits(key, permission.operation, now_ms, is_allowed=is_allowed):
                if topic is not None and not is_allowed:
                    topic.suppress()
                return
            event = audit_event(
                now_ms,
                principal,
                session.client_host,
                client_id,
                session.listener,
                api_key,
                permission,
                is_allowed=is_allowed,
            )
            if topic is not None:
                topic.offer(event)
            if self._thread is not None:
                self._offer(event)

    def _offer(self, event: dict[str, Any]) -> None:
        if len(self._queue) >= self._queue_max:
            self._dropped += 1
            return
        self._queue.append(event)
        if len(self._queue) == 1:
            self._changed.notify()

    def close(self) -> None:
        """Write what is queued, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        if self._file is not None:
            self._file.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_closed:
                    self._changed.wait()
                if not self._queue and not self._has_counts:
                    return
                events = [self._queue.popleft() for _ in range(min(len(self._queue), LINES_PER_WRITE))]
                events += self._counts()
            self._write([json.dumps(event) for event in events])

    @property
    def _has_counts(self) -> bool:
        return bool(self._dropped or self._filter.suppressed)

    def _counts(self) -> list[dict[str, Any]]:
        """What was not recorded since the last time."""
        if not self._has_counts:
            return []
        counts = {"denials_over_limit": self._filter.suppressed, "dropped": self._dropped}
        self._filter.suppressed = self._dropped = 0
        return [{"timestamp_ms": self._now_ms(), "outcome": "not recorded", **counts}]

    def _write(self, lines: list[str]) -> None:
        if self._has_logger:
            for line in lines:
                audit.info("%s", line)
        while self._path:
            try:
                self._append("".join(f"{line}\n" for line in lines))
            except OSError as error:
                if not self._has_failed:
                    log.error("the audit log %s cannot be written, will retry: %s", self._path, error)
                self._has_failed = True
                with self._changed:
                    if self._is_closed or (self._changed.wait(RETRY_SECONDS) and self._is_closed):
                        return
            else:
                self._has_failed = False
                return

    def _append(self, text: str) -> None:
        if self._file is None or not self._is_current(self._file):
            if self._file is not None:
                self._file.close()
            self._file = None
            self._file = self._open()
        self._file.write(text)
        self._file.flush()

    def _is_current(self, file: IO[str]) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _open(self) -> IO[str]:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        return os.fdopen(descriptor, "a", encoding="utf-8")
