"""Client quotas of users, client ids and IP addresses."""

from collections.abc import Mapping
from dataclasses import dataclass

from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from runnel.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

QuotaEntity = Mapping[str, str | None]
"""Names by type (`user`, `client-id` or `ip`); None is the default of its type."""

_EXACT, _DEFAULT = 0, 1


@dataclass(frozen=True, slots=True)
class QuotaView:
    """The quotas of one entity."""

    entity: dict[str, str | None]
    values: dict[str, float]


class Quotas:
    """Describes and alters client quotas."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self, entity: QuotaEntity | None = None, *, is_exact: bool = False) -> list[QuotaView]:
        """The quotas of all entities that have these names; with `is_exact`, and no others."""
        components = [
            ComponentData(kind, _DEFAULT if name is None else _EXACT, name)
            for kind, name in (entity or {}).items()
        ]
        request = DescribeClientQuotasRequest(components, strict=is_exact)
        response = await self._cluster.send_to_any(request, DescribeClientQuotasResponse)
        check(response.error_code, "describing quotas", response.error_message)
        views = [
            QuotaView(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in response.entries or []
        ]
        return sorted(
            views, key=lambda view: sorted((kind, name or "") for kind, name in view.entity.items())
        )

    async def alter(self, entity: QuotaEntity, values: Mapping[str, float | None]) -> None:
        """Set quotas of an entity, or remove those that are None; all changes are applied or none."""
        named = [EntityData(kind, name) for kind, name in entity.items()]
        ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
        request = AlterClientQuotasRequest([EntryData(named, ops)])
        response = await self._cluster.send_to_controller(request, AlterClientQuotasResponse)
        entry = response.entries[0]
        check(entry.error_code, f"altering the quotas of {entity_text(entity)}", entry.error_message)


def entity_text(entity: QuotaEntity) -> str:
    """An entity as it is shown."""
    return ", ".join(f"{kind} {'default' if name is None else name}" for kind, name in entity.items())
