"""What the rules of an API ask the authorizer about one request, and what of it is recorded."""

from collections.abc import Iterator

from runnel.broker.runtime.context import Context
from runnel.ports.gates import Operation, Permission, ResourceType


class Check:
    """The permissions of the client of a request."""

    __slots__ = ("_api_key", "_authorizer", "_ctx", "_search", "_some")

    def __init__(self, ctx: Context, api_key: int) -> None:
        self._ctx = ctx
        self._api_key = api_key
        self._authorizer = ctx.authorizer
        self._search: Iterator[bool | None] | None = None
        """Decides whether the client may use any topic at all."""
        self._some: bool | None = None
        """What it has decided."""

    def __call__(self, permission: Permission) -> bool:
        """Whether the client may do this, which it has requested."""
        is_allowed = self._authorizer.allows(self._ctx.session, permission)
        self._record(permission, is_allowed)
        return is_allowed

    def alternative(self, permission: Permission) -> bool:
        """The same, of a permission without which another one may do."""
        is_allowed = self._authorizer.allows(self._ctx.session, permission)
        if is_allowed:
            self._record(permission, is_allowed)
        return is_allowed

    def shows(self, permission: Permission) -> bool:
        """Whether the client may see something of which it did not know: that is not recorded."""
        return self._authorizer.allows(self._ctx.session, permission)

    def begin_search(self) -> bool:
        """Begin to decide whether the client may write to any topic; False if that takes more steps."""
        self._search = self._authorizer.allows_some(self._ctx.session, Operation.WRITE, ResourceType.TOPIC)
        return self.continue_search()

    def continue_search(self) -> bool:
        """The next step; whether it was the last one."""
        assert self._search is not None
        self._some = next(self._search)
        return self._some is not None

    def writes_to_some_topic(self) -> bool:
        """Whether the client may write to any topic."""
        if self._some is None:
            is_decided = self.begin_search()
            while not is_decided:
                is_decided = self.continue_search()
        return bool(self._some)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may do on a resource, as a bit field."""
        return self._authorizer.operations(self._ctx.session, resource_type, name)

    def _record(self, permission: Permission, is_allowed: bool) -> None:
        ctx = self._ctx
        audit = ctx.broker.gates.audit
        if audit.is_enabled:
            audit.decided(ctx.session, ctx.client_id, self._api_key, permission, is_allowed=is_allowed)
