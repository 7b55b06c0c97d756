"""Charges the partitions that a request creates and deletes to the quota of its client (KIP-599).

From some version of its API on, a topic beyond the quota is refused with THROTTLING_QUOTA_EXCEEDED. Older
clients would not understand that, and are only throttled, as are those whose topics are created on first use.
"""

from runnel.broker.runtime.context import Context
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.gates import Mutations


class MutationCharge:
    """The changes of one request. A topic is charged once, however often the controller decides about it."""

    __slots__ = ("_ctx", "_is_strict", "_outcomes", "_quota")

    def __init__(self, ctx: Context, *, is_strict: bool) -> None:
        self._ctx = ctx
        self._is_strict = is_strict
        self._quota = ctx.broker.gates.quotas.mutations(ctx.session)
        self._outcomes: dict[str, bool] = {}
        """Whether the change of a topic is permitted."""

    def __call__(self, topic: str, partitions: int) -> None:
        """Charge a change. Raises ApiError if it is refused."""
        if self._quota is None:
            return
        if topic not in self._outcomes:
            self._outcomes[topic] = self._charge(self._quota, partitions)
        if not self._outcomes[topic]:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def _charge(self, quota: Mutations, partitions: int) -> bool:
        if self._is_strict and (throttle_ms := quota.throttle_ms()):
            self._ctx.throttle(throttle_ms)
            return False
        quota.charge(partitions)
        if not self._is_strict and (throttle_ms := quota.throttle_ms()):
            self._ctx.throttle(throttle_ms)
        return True
