"""Client quotas of users, client ids and IP addresses: changes and descriptions."""

import math
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Protocol

from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult, duplicates_in
from runnel.controller.values import QuotaEntity
from runnel.messages import describe_client_quotas as describe
from runnel.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AnsweredEntryData,
    EntryData,
)
from runnel.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import ClientQuotaRecord, EntityData, MetadataRecord
from runnel.security.quotas.entities import (
    ADDRESS,
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    USER,
)

MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2

WHOLE_NUMBERS = {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE}
ENTITY_TYPES = (USER, CLIENT_ID, ADDRESS)
ADDRESS_KEYS = (CONNECTION_CREATION_RATE,)


class _Part(Protocol):
    entity_type: str
    entity_name: str | None


def decide_alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> ControllerResult[AlterClientQuotasResponse]:
    """Set and remove quotas; all changes of an entity are applied or none."""
    outcome = ControllerResult[AlterClientQuotasResponse]([], AlterClientQuotasResponse())
    for entry in request.entries:
        result = AnsweredEntryData(error_message=None, entity=entry.entity)
        try:
            records = _alter(image, entry)
        except ApiError as error:
            result.error_code, result.error_message = error.code, str(error)
        else:
            outcome.records += [] if request.validate_only else records
        outcome.response.entries.append(result)
    return outcome


def _alter(image: MetadataImage, entry: EntryData) -> list[MetadataRecord]:
    entity = _entity(entry.entity)
    keys = ADDRESS_KEYS if entity[0][0] == ADDRESS else CLIENT_KEYS
    present = image.quotas.get(entity, {})
    records: list[MetadataRecord] = []
    # The last one of each key counts, as in Kafka.
    for operation in {operation.key: operation for operation in entry.ops}.values():
        if operation.key not in keys:
            raise _bad(f"Invalid configuration key {operation.key}")
        if not operation.remove:
            _check_value(operation.key, operation.value)
        elif operation.key not in present:
            continue
        parts = [EntityData(*part) for part in entity]
        records.append(ClientQuotaRecord(parts, operation.key, operation.value, operation.remove))
    return records


def _check_value(key: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise _bad(f"Quota {key} must be greater than 0")
    if key in WHOLE_NUMBERS and value != int(value):
        raise _bad(f"{key} cannot be a fractional value.")


def _entity(parts: Sequence[_Part]) -> QuotaEntity:
    if not parts:
        raise _bad("Invalid empty client quota entity")
    # Beyond these, types are unknown or repeated.
    parts = parts[: len(ENTITY_TYPES) + 1]
    entity = tuple(sorted(((part.entity_type, part.entity_name) for part in parts), key=lambda part: part[0]))
    types = [entity_type for entity_type, _ in entity]
    unknown = [entity_type for entity_type in types if entity_type not in ENTITY_TYPES]
    if unknown:
        raise _bad(f"Unhandled client quota entity type: {unknown[0]}")
    if duplicates_in(types):
        raise _bad(f"Invalid client quota entity, contains duplicate entity type: {types[0]}")
    if ADDRESS in types and len(types) > 1:
        raise _bad("Invalid quota entity combination: ip cannot be combined with other entity types")
    for entity_type, name in entity:
        if name == "":
            raise _bad(f"Empty {entity_type} not supported")
        if entity_type == ADDRESS and name is not None and not _is_address(name):
            raise _bad(f"{name} is not a valid IP")
    return entity


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _bad(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def describe_quotas(
    image: MetadataImage, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that match all filter components; `strict` excludes entities with others."""
    for component in request.components:
        _check_component(component)
    types = [component.entity_type for component in request.components]
    if duplicates_in(types):
        raise _bad("An entity type cannot appear more than once in the filter.")
    if ADDRESS in types and len(types) > 1:
        raise _bad(
            "Invalid entity filter component combination: ip cannot be combined with other entity types"
        )
    entries = [
        describe.EntryData(
            entity=[describe.EntityData(*part) for part in entity],
            values=[describe.ValueData(key, value) for key, value in values.items()],
        )
        for entity, values in image.quotas.items()
        if _matches(dict(entity), request)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _check_component(component: ComponentData) -> None:
    if not component.entity_type:
        raise _bad("Unexpected empty filter component entity type.")
    if component.entity_type not in ENTITY_TYPES:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {component.entity_type}")
    if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
        raise _bad(f"Unknown match type {component.match_type}")
    if component.match_type == MATCH_EXACT and component.match is None:
        raise _bad("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if component.match_type != MATCH_EXACT and component.match is not None:
        raise _bad("The match string must be null unless the match type is exact.")


def _matches(entity: dict[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    for component in request.components:
        if component.entity_type not in entity:
            return False
        name = entity[component.entity_type]
        # The name of a default entity is None, like the match string of a default match.
        if component.match_type != MATCH_ANY and name != component.match:
            return False
    return True
