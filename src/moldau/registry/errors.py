"""What the registry answers when it cannot do what was asked: HTTP status, Confluent's error code, and Confluent's words.

Clients look at the codes, and people search for the words; both are those of Confluent's ``Errors`` table.
"""

from moldau.model.errors import MoldauError

NOT_FOUND = frozenset({40401, 40402, 40403})
"""Codes for a subject, a version or a schema that does not exist."""


class RestError(MoldauError):
    """An answer with an error."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def subject_not_found(subject: str) -> RestError:
    """40401."""
    return RestError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RestError:
    """40402."""
    return RestError(404, 40402, f"Version {version} not found.")


def schema_not_found(what: object = None) -> RestError:
    """40403."""
    return RestError(404, 40403, "Schema not found" if what is None else f"Schema {what} not found")


def subject_soft_deleted(subject: str) -> RestError:
    """40404."""
    return RestError(404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RestError:
    """40405."""
    return RestError(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RestError:
    """40406."""
    return RestError(404, 40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently")


def version_not_soft_deleted(subject: str, version: int) -> RestError:
    """40407."""
    return RestError(404, 40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted")


def compatibility_not_configured(subject: str) -> RestError:
    """40408."""
    return RestError(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> RestError:
    """40409."""
    return RestError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> RestError:
    """409."""
    return RestError(
        409, 409, f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{", ".join(details)}]'
    )


def invalid_schema(details: str) -> RestError:
    """42201."""
    return RestError(422, 42201, details)


def invalid_version(text: object) -> RestError:
    """42202."""
    allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
    return RestError(422, 42202, f"The specified version '{text}' is not a valid version id. {allowed}")


def invalid_compatibility() -> RestError:
    """42203."""
    levels = "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"
    return RestError(422, 42203, f"Invalid compatibility level. Valid values are {levels}")


def invalid_mode() -> RestError:
    """42204."""
    return RestError(422, 42204, "Invalid mode. Valid values are READWRITE, READONLY and IMPORT.")


def not_permitted(message: str) -> RestError:
    """42205."""
    return RestError(422, 42205, message)


def reference_exists(subject: str, version: int) -> RestError:
    """42206."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RestError(422, 42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RestError:
    """42208."""
    return RestError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large(message: str = "Register operation failed because schema is too large") -> RestError:
    """42209."""
    return RestError(422, 42209, message)


def registry_full(most: int) -> RestError:
    """42209, where it is not one schema that is too large but all of them."""
    return schema_too_large(f"The registry's memory is full ({most:,} bytes, registry.memory.max.bytes); delete unused schemas")


def registry_incomplete(most: int) -> RestError:
    """42209, for a registration while records of the topic are left out."""
    return schema_too_large(f"The registry has left out records of its topic: {_beyond(most)}")


def not_among_the_kept(most: int) -> RestError:
    """50001, for what is not found while records of the topic are left out: it may be among them."""
    return store_failed(f"Not found, but the registry has left out records of its topic: {_beyond(most)}")


def left_out(what: str, most: int) -> RestError:
    """50001, for a question about something of which records are left out: what is kept may be older."""
    return store_failed(f"The registry has left out records of {what}: {_beyond(most)}")


def referrers_left_out(most: int) -> RestError:
    """42209, for a deletion for good while schemas are left out."""
    return schema_too_large(f"Not deleted: the registry has left out schemas that may refer to it: {_beyond(most)}")


def _beyond(most: int) -> str:
    return f"they do not fit into {most:,} bytes; start it with a larger registry.memory.max.bytes (--max-memory)"


def answer_too_large(most: int) -> RestError:
    """422: for a list that has to be asked for in pages."""
    return unprocessable(f"The answer would have more than {most:,} bytes; ask for less with offset and limit, or subjectPrefix")


def invalid_rule_set(message: str) -> RestError:
    """42210."""
    return RestError(422, 42210, message)


def context_not_empty(context: str) -> RestError:
    """42211."""
    return RestError(422, 42211, f"The specified context '{context}' is not empty.")


def unprocessable(message: str) -> RestError:
    """422: a body or a parameter of another form than expected."""
    return RestError(422, 422, message)


def store_failed(message: str) -> RestError:
    """50001."""
    return RestError(500, 50001, message)


def timed_out(message: str) -> RestError:
    """50002."""
    return RestError(500, 50002, message)


def forwarding_failed(message: str) -> RestError:
    """50003."""
    return RestError(500, 50003, message)


def unknown_leader() -> RestError:
    """50004."""
    return RestError(500, 50004, "Leader not known.")
