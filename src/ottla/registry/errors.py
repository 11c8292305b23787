"""The registry's error answers: an HTTP status, Confluent's error code and a message, in one exception."""

from __future__ import annotations

from typing import Final

# Codes that other modules compare with.
SUBJECT_SOFT_DELETED: Final = 40404
VERSION_SOFT_DELETED: Final = 40406
INVALID_SCHEMA: Final = 42201
NOT_PERMITTED: Final = 42205


class RegistryError(Exception):
    """An error answer. Clients act on the status; the code distinguishes errors with the same status."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class InvalidSchema(Exception):
    """The text is not a schema of its type. The registry turns this into an `invalid_schema` answer."""


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(which: int | str | None = None) -> RegistryError:
    return RegistryError(404, 40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    message = f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(404, SUBJECT_SOFT_DELETED, message)


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    message = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(404, VERSION_SOFT_DELETED, message)


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(404, 40407, message)


def config_not_set(subject: str) -> RegistryError:
    return RegistryError(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_set(subject: str) -> RegistryError:
    return RegistryError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def association_not_found(resource: str) -> RegistryError:
    return RegistryError(404, 40410, f"Association for '{resource}' not found.")


def incompatible_schema(subject: str, messages: list[str]) -> RegistryError:
    details = f"[{', '.join(messages)}]"
    message = (
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}'
    )
    return RegistryError(409, 40901, message)


def association_exists_for_resource(kind: str, resource: str) -> RegistryError:
    return RegistryError(409, 40903, f"An association of type '{kind}' already exists for resource '{resource}'")


def association_exists_for_subject(subject: str) -> RegistryError:
    return RegistryError(409, 40904, f"An association already exists for subject '{subject}'")


def strong_association_exists(subject: str) -> RegistryError:
    return RegistryError(409, 40905, f"A strong association already exists for subject '{subject}'")


def no_active_version(subject: str) -> RegistryError:
    return RegistryError(409, 40907, f"No active (non-deleted) version exists for subject '{subject}'")


def association_frozen(kind: str, subject: str) -> RegistryError:
    return RegistryError(409, 40908, f"The association of type  '{kind}' is frozen for subject '{subject}'")


def invalid_schema(message: str) -> RegistryError:
    return RegistryError(422, INVALID_SCHEMA, message)


def invalid_version(version: str | int) -> RegistryError:
    message = (
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"'
    )
    return RegistryError(422, 42202, message)


def invalid_compatibility_level() -> RegistryError:
    message = (
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive"
    )
    return RegistryError(422, 42203, message)


def invalid_mode(message: str | None = None) -> RegistryError:
    return RegistryError(
        422, 42204, message or "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."
    )


def not_permitted(message: str) -> RegistryError:
    return RegistryError(422, NOT_PERMITTED, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(422, 42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large() -> RegistryError:
    return RegistryError(422, 42209, "Register operation failed because schema is too large")


def invalid_rule_set(message: str) -> RegistryError:
    return RegistryError(422, 42210, message)


def context_not_empty(context: str) -> RegistryError:
    return RegistryError(422, 42211, f"The specified context '{context}' is not empty.")


def invalid_association(name: str, detail: str) -> RegistryError:
    message = f"The association specified an invalid value for property: '{name}', detail: {detail}"
    return RegistryError(422, 42212, message)


def bad_request(message: str) -> RegistryError:
    return RegistryError(400, 400, message)


def store_failed(message: str) -> RegistryError:
    return RegistryError(500, 50001, message)
