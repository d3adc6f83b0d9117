"""The names of the differences between two Protobuf schemas, and the sentence for each that does harm.

Names, verdicts and sentences are those of Confluent's registry.
"""

from typing import NamedTuple

from moldau.registry.schemas.language import Incompatibility


class Difference(NamedTuple):
    """A difference and where it is: `#/Flight/3` is field number 3 of the message Flight."""

    type: str
    path: tuple[str, ...]


HARMFUL = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {reader} schema does not match the package in the {writer} schema",
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {reader} schema does not match the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the {reader} schema does not match its kind in the {writer} schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the {reader} schema does not match its type in the {writer} schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the {reader} schema does not match its label in the {writer} schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {reader} schema is missing in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The {reader} schema is missing a required field at path: '{path}' in the {writer} schema",
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the {reader} schema are outside a oneof in the {writer} schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the {reader} schema is outside an existing oneof in the {writer} schema"
    ),
}
"""The differences that keep a newer schema from reading what an older one wrote. The others are harmless: messages and fields added,
optional fields removed, names changed, enums and their constants changed in any way, oneofs added or removed whole."""


def incompatibility(difference: Difference) -> Incompatibility:
    """A difference that does harm, in the registry's words."""
    path = "#/" + "/".join(difference.path)
    return Incompatibility(difference.type, path, HARMFUL[difference.type].replace("{path}", path))
