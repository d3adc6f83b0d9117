"""The names of the differences between two JSON Schemas, which of them do no harm, and the sentence for each of the others.

The names and the verdicts are those that Confluent's registry publishes (its strict policy).
"""

from typing import NamedTuple

from moldau.registry.schemas.language import DIFFERENCES_MAX, Incompatibility


class JsonDifference(NamedTuple):
    """A difference and where it is, from the schema under comparison down."""

    type: str
    path: tuple[str, ...] = ()


# fmt: off
HARMLESS = frozenset({
    "ID_CHANGED", "DESCRIPTION_CHANGED", "TITLE_CHANGED", "DEFAULT_CHANGED", "SCHEMA_REMOVED", "TYPE_EXTENDED",
    "MAX_LENGTH_INCREASED", "MAX_LENGTH_REMOVED", "MIN_LENGTH_DECREASED", "MIN_LENGTH_REMOVED", "PATTERN_REMOVED",
    "MAXIMUM_INCREASED", "MAXIMUM_REMOVED", "MINIMUM_DECREASED", "MINIMUM_REMOVED", "EXCLUSIVE_MAXIMUM_INCREASED",
    "EXCLUSIVE_MAXIMUM_REMOVED", "EXCLUSIVE_MINIMUM_DECREASED", "EXCLUSIVE_MINIMUM_REMOVED", "MULTIPLE_OF_REDUCED",
    "MULTIPLE_OF_REMOVED", "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", "REQUIRED_ATTRIBUTE_REMOVED", "DEPENDENCY_ARRAY_NARROWED",
    "DEPENDENCY_ARRAY_REMOVED", "DEPENDENCY_SCHEMA_REMOVED", "MAX_PROPERTIES_INCREASED", "MAX_PROPERTIES_REMOVED",
    "MIN_PROPERTIES_DECREASED", "MIN_PROPERTIES_REMOVED", "ADDITIONAL_PROPERTIES_ADDED", "ADDITIONAL_PROPERTIES_EXTENDED",
    "UNEVALUATED_PROPERTIES_ADDED", "UNEVALUATED_PROPERTIES_EXTENDED", "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL", "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "MAX_ITEMS_INCREASED", "MAX_ITEMS_REMOVED", "MIN_ITEMS_DECREASED", "MIN_ITEMS_REMOVED", "MAX_CONTAINS_INCREASED",
    "MAX_CONTAINS_REMOVED", "MIN_CONTAINS_DECREASED", "MIN_CONTAINS_REMOVED", "UNIQUE_ITEMS_REMOVED", "ADDITIONAL_ITEMS_ADDED",
    "ADDITIONAL_ITEMS_EXTENDED", "UNEVALUATED_ITEMS_ADDED", "UNEVALUATED_ITEMS_EXTENDED",
    "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
    "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ENUM_ARRAY_EXTENDED", "COMBINED_TYPE_EXTENDED", "PRODUCT_TYPE_NARROWED", "SUM_TYPE_EXTENDED", "NOT_TYPE_NARROWED",
})
# fmt: on

_ELSEWHERE = "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema"
_OPEN = "The {reader} schema has an open content model and has a property or item at path '{path}' which is missing in the {writer} schema"
_FEWER = "An array or combined type at path '{path}' has fewer elements in the {reader} schema than the {writer} schema"
_MORE = "An array or combined type at path '{path}' has more elements in the {reader} schema than the {writer} schema"
_OTHER_TYPE = "A type at path '{path}' is different between the {reader} schema and the {writer} schema"
_UNCOVERED_NEW = (
    "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} schema and is not covered by its "
    "partially open content model"
)
_UNCOVERED_OLD = (
    "A property or item is missing in the {reader} schema but present at path '{path}' in the {writer} schema and is not covered by "
    "its partially open content model"
)
_CLOSED = "The {reader} has a closed content model and is missing a property or item present at path '{path}' in the {writer} schema"
_SENTENCES = {
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "The {reader} schema has an unopen content model and has a required property at path '{path}' which is missing in the {writer} "
        "schema"
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _UNCOVERED_OLD,
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _UNCOVERED_OLD,
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _UNCOVERED_NEW,
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _UNCOVERED_NEW,
    "ADDITIONAL_PROPERTIES_REMOVED": _ELSEWHERE,
    "ADDITIONAL_ITEMS_REMOVED": _ELSEWHERE,
    "UNEVALUATED_PROPERTIES_REMOVED": _ELSEWHERE,
    "UNEVALUATED_ITEMS_REMOVED": _ELSEWHERE,
    "TYPE_NARROWED": _OTHER_TYPE,
    "TYPE_CHANGED": _OTHER_TYPE,
    "COMBINED_TYPE_CHANGED": _OTHER_TYPE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _OTHER_TYPE,
    "ENUM_ARRAY_CHANGED": _OTHER_TYPE,
}
_BY_ENDING = {
    "_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "_ADDED": _ELSEWHERE,
    "_NARROWED": _FEWER,
    "_EXTENDED": _MORE,
    "_INCREASED": "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema",
    "_EXPANDED": "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema",
    "_DECREASED": "The value at path '{path}' in the {reader} schema is less than its value in the {writer} schema",
    "_CHANGED": "The value at path '{path}' is different between the {reader} and {writer} schema",
}


def at(part: str, found: list[JsonDifference]) -> list[JsonDifference]:
    """Differences found below `part`, seen from above it."""
    return [JsonDifference(difference.type, (part, *difference.path)) for difference in found]


def harmless(found: list[JsonDifference]) -> bool:
    """Nothing among the differences keeps the newer schema from reading what the older one describes."""
    return all(difference.type in HARMLESS for difference in found)


def bounded(found: list[JsonDifference]) -> list[JsonDifference]:
    """At most `DIFFERENCES_MAX`, incompatible ones first: below a schema that many references lead to, the differences
    of one place would be reported once for each path to it."""
    if len(found) <= DIFFERENCES_MAX:
        return found
    return sorted(found, key=lambda difference: difference.type in HARMLESS)[:DIFFERENCES_MAX]


def incompatibility(difference: JsonDifference) -> Incompatibility:
    """A difference that does harm, in the registry's words."""
    path = "#/" + "/".join(difference.path)
    sentence = _SENTENCES.get(difference.type) or next(
        sentence for ending, sentence in _BY_ENDING.items() if difference.type.endswith(ending)
    )
    return Incompatibility(difference.type, path, sentence.replace("{path}", path))
