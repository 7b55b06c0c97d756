"""What the rules of an API ask the authorizer about one request, and what of it is recorded."""

from runnel.broker.runtime.context import Context
from runnel.ports.gates import Operation, Permission, ResourceType


class Check:
    """The permissions of the client of a request."""

    __slots__ = ("_api_key", "_authorizer", "_ctx")

    def __init__(self, ctx: Context, api_key: int) -> None:
        self._ctx = ctx
        self._api_key = api_key
        self._authorizer = ctx.authorizer

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

    def some(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do this with any resource of the type."""
        return self._authorizer.allows_some(self._ctx.session, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may do on a resource, as a bit field."""
        return self._authorizer.operations(self._ctx.session, resource_type, name)

    def _record(self, permission: Permission, is_allowed: bool) -> None:
        ctx = self._ctx
        audit = ctx.broker.gates.audit
        if audit.is_enabled:
            audit.decided(ctx.session, ctx.client_id, self._api_key, permission, is_allowed=is_allowed)
