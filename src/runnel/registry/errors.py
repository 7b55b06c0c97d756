"""Errors of the registry: an HTTP status, Confluent's error code, and a message."""

from dataclasses import dataclass


@dataclass
class RegistryError(Exception):
    """A refusal; `code` is Confluent's, which starts with the HTTP status, or is the status."""

    code: int
    message: str

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: str = "Schema") -> RegistryError:
    return RegistryError(40403, f"{what} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    message = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    return RegistryError(40404, message)


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    message = (
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )
    return RegistryError(40406, message)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(40407, message)


def no_own_level(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_own_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> RegistryError:
    # Confluent's code is 40901 today; clients compare with 409.
    shown = ", ".join(details)
    message = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
    return RegistryError(409, f"{message}, details: [{shown}]")


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {reason}")


def invalid_version(text: str) -> RegistryError:
    message = (
        f"The specified version '{text}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"'
    )
    return RegistryError(42202, message)


def invalid_level(level: object) -> RegistryError:
    from runnel.registry.settings import LEVELS

    shown = ", ".join(LEVELS)
    return RegistryError(42203, f"Invalid compatibility level {_shown(level)}. Valid values are {shown}")


def invalid_mode(mode: object) -> RegistryError:
    from runnel.registry.settings import MODES

    shown = ", ".join(MODES)
    return RegistryError(42204, f"Invalid mode {_shown(mode)}. Valid values are {shown}")


def _shown(value: object) -> str:
    """What was given instead of a name; lists and objects may be large, and too nested to be shown."""
    return repr(value[:100]) if isinstance(value, str) else type(value).__name__


def not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(42206, f"One or more references exist to the schema {subject} version {version}.")


def id_conflict(schema_id: int) -> RegistryError:
    return RegistryError(42207, f"Overwrite new schema with id {schema_id} is not permitted.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject[:100]}' is not a valid subject")


def too_large(what: str) -> RegistryError:
    return RegistryError(42209, what)


def invalid_rules(reason: str) -> RegistryError:
    return RegistryError(42210, f"Invalid rule set: {reason}")


def context_not_empty(context: str) -> RegistryError:
    return RegistryError(42211, f"The specified context '{context}' is not empty.")


def malformed(reason: str) -> RegistryError:
    return RegistryError(422, reason)
