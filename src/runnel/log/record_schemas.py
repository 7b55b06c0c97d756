"""The ids of the schemas that keys and values of a batch are framed with."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from runnel.batch.records import unpack_records, walk_records
from runnel.log.validation import RECORD_ERRORS_MAX, sound_batch
from runnel.model.errors import ApiError, ErrorCode, RecordValidationError
from runnel.model.limits import VALIDATED_BATCH_BYTES_MAX, VALIDATED_IDS_MAX, VALIDATED_RECORDS_MAX
from runnel.model.log_config import LogConfig
from runnel.registry.framing import schema_id_at
from runnel.registry.subject_ids import KEY, VALUE

Ids = dict[str, set[int]]
"""The ids of keys and values, as far as they are validated; 0 is that of data without one."""

NO_ID = 0


def schema_ids(records: memoryview, config: LogConfig, max_bytes: int = VALIDATED_BATCH_BYTES_MAX) -> Ids:
    """The ids in the batch of a producer. Raises ApiError; BatchInflatesTooFar beyond `max_bytes`.

    RecordValidationError if records have none.
    """
    ids: Ids = {part: set() for part in parts_of(config)}
    adders = {part: found.add for part, found in ids.items()}
    for _, part, schema_id in _walk(records, config, max_bytes):
        adders[part](schema_id)
    if any(NO_ID in found for found in ids.values()):
        raise refusal(records, config, dict.fromkeys(ids, frozenset([NO_ID])), {}, max_bytes)
    if any(len(found) > VALIDATED_IDS_MAX for found in ids.values()):
        why = f"a batch with more than {VALIDATED_IDS_MAX} schemas"
        raise ApiError(ErrorCode.INVALID_RECORD, why)
    return ids


def refusal(
    records: memoryview,
    config: LogConfig,
    unknown: Mapping[str, Collection[int]],
    subjects: Mapping[str, str],
    max_bytes: int = VALIDATED_BATCH_BYTES_MAX,
) -> RecordValidationError:
    """The error that names the records with ids that are not known."""
    found = (each for each in _walk(records, config, max_bytes) if each[2] in unknown[each[1]])
    messages: dict[int, str] = {}
    for index, part, schema_id in islice(found, RECORD_ERRORS_MAX):
        if schema_id == NO_ID:
            why = f"the {part} does not begin with a zero byte and the id of a schema"
        else:
            why = f"the {part} has schema {schema_id}, which is not registered under {subjects[part]}"
        messages[index] = f"{messages[index]}; {why}" if index in messages else why
    first = min(messages)
    return RecordValidationError(
        ErrorCode.INVALID_RECORD,
        f"record {first} of the batch is refused: {messages[first]}",
        list(messages),
        list(messages.values()),
    )


def _walk(records: memoryview, config: LogConfig, max_bytes: int) -> Iterator[tuple[int, str, int]]:
    """The index of a record, the part, and the id of its schema; nulls have none."""
    header = sound_batch(records, config)
    if header.record_count > VALIDATED_RECORDS_MAX:
        why = f"a batch of {header.record_count} records; {VALIDATED_RECORDS_MAX} is the limit for a topic "
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, why + "that validates schemas")
    raw = unpack_records(records, header, max_bytes)
    has_keys, has_values = config.runnel_key_schema_validation, config.runnel_value_schema_validation
    for index, span in enumerate(walk_records(raw, header.record_count)):
        _, _, _, _, key_start, key_length, value_start, value_length = span
        if has_keys and key_length >= 0:
            yield index, KEY, schema_id_at(raw, key_start, key_length)
        if has_values and value_length >= 0:
            yield index, VALUE, schema_id_at(raw, value_start, value_length)


def parts_of(config: LogConfig) -> list[str]:
    """What a topic validates."""
    checked = (KEY, config.runnel_key_schema_validation), (VALUE, config.runnel_value_schema_validation)
    return [part for part, is_checked in checked if is_checked]


def strategy_of(config: LogConfig, part: str) -> str:
    """How the subjects of the keys or values of a topic are named."""
    if part == KEY:
        return config.runnel_key_subject_name_strategy
    return config.runnel_value_subject_name_strategy
