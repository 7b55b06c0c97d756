"""Which decisions of the authorizer are recorded, and in which form.

Denials are recorded up to a rate. Of what is permitted, changes are always recorded; the other operations
only if that is configured, and the same one once in a while, because a consumer reads its topics many times a
second.
"""

from dataclasses import dataclass
from typing import Any

from runnel.messages.registry import API_NAMES
from runnel.security.acl import Operation, Permission, ResourceType

CHANGES = frozenset(
    {Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CREATE_TOKENS}
)
"""Operations that change the cluster."""

REPEATED_MAX = 10_000
"""Decisions that are remembered to record them once in a while."""

TEXT_CHARACTERS_MAX = 1024
"""Clients may choose names of many kilobytes: longer ones are cut, so that the queue has a bounded size."""


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """What is recorded."""

    allowed: str = "changes"
    """Which permitted operations: none, changes or all."""
    repeat_interval_ms: int = 60_000
    denials_per_second_max: int = 100


class AuditFilter:
    """Decides which decisions are recorded, and counts the others."""

    def __init__(self, policy: AuditPolicy) -> None:
        self._policy = policy
        self._recorded_ms: dict[tuple[str, ...], int] = {}
        self._second = -1
        self._denials = 0
        self.suppressed = 0
        """Denials that were not recorded since this was last reset."""

    def admits(self, key: tuple[str, ...], operation: Operation, now_ms: int, *, is_allowed: bool) -> bool:
        """Whether to record a decision; `key` is the same for the same one."""
        if not is_allowed:
            return self._admits_denial(now_ms)
        if operation in CHANGES:
            return self._policy.allowed != "none"
        return self._policy.allowed == "all" and self._is_due(key, now_ms)

    def _admits_denial(self, now_ms: int) -> bool:
        second = now_ms // 1000
        if second != self._second:
            self._second, self._denials = second, 0
        self._denials += 1
        if self._denials <= self._policy.denials_per_second_max:
            return True
        self.suppressed += 1
        return False

    def _is_due(self, key: tuple[str, ...], now_ms: int) -> bool:
        recorded_ms = self._recorded_ms.get(key)
        if recorded_ms is not None and 0 <= now_ms - recorded_ms < self._policy.repeat_interval_ms:
            return False
        if len(self._recorded_ms) >= REPEATED_MAX:
            self._recorded_ms.clear()
        self._recorded_ms[key] = now_ms
        return True


def audit_event(
    now_ms: int,
    principal: str,
    host: str,
    client_id: str | None,
    listener: str,
    api_key: int,
    permission: Permission,
    *,
    is_allowed: bool,
) -> dict[str, Any]:
    """One line of the audit log."""
    return {
        "timestamp_ms": now_ms,
        "outcome": "allowed" if is_allowed else "denied",
        "principal": _short(principal),
        "host": host,
        "client_id": None if client_id is None else _short(client_id),
        "listener": listener,
        "api": API_NAMES.get(api_key, str(api_key)),
        "operation": Operation(permission.operation).name,
        "resource_type": ResourceType(permission.resource_type).name,
        "resource_name": _short(permission.name),
    }


def _short(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}…"
