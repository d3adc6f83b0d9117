"""Which earlier versions a new schema is compared with, in which direction, and how the answer is worded.

BACKWARD: the new schema reads what the old one wrote. FORWARD: the old schema reads what the new one writes. FULL: both. Without
`_TRANSITIVE` only the latest version counts. With it every version does, the newest first, up to the first one that does not fit.

The wording is that of Confluent's registry, which tools search for `errorType`:

    {errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'gate' at path '/fields/1' in the new schema has no
    default value and is missing in the old schema', additionalInfo:'gate'}
    {oldSchemaVersion: 3}
    {oldSchema: '{"type":"record", ...}'}
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from moldau.registry.schemas.language import Incompatibility, InvalidSchemaError, ParsedSchema

OLD_SCHEMA_SHOWN = 10 * 1024
"""So many characters of the old schema are put into a message."""

OTHER_LANGUAGE = "Incompatible because of different schema type"


class CompatibilityLevel(StrEnum):
    """The rule of a subject."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def transitive(self) -> bool:
        """Every earlier version counts, not the latest only."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """The new schema must read old data."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Old schemas must read new data."""
        return self.value.startswith(("FORWARD", "FULL"))


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """A version of the subject; `load` parses it, and is called only if the version has to be looked at."""

    version: int | None
    load: Callable[[], ParsedSchema]


def incompatibilities(level: CompatibilityLevel, new: ParsedSchema, earlier_newest_last: Sequence[EarlierVersion]) -> list[str]:
    """Why the new schema may not follow the earlier versions, in Confluent's words; empty if it may."""
    if level is CompatibilityLevel.NONE:
        return []
    compared = earlier_newest_last if level.transitive else earlier_newest_last[-1:]
    for earlier in reversed(compared):
        messages = _against(level, new, earlier)
        if messages:
            return messages
    return []


def _against(level: CompatibilityLevel, new: ParsedSchema, earlier: EarlierVersion) -> list[str]:
    old = earlier.load()
    if old.language != new.language:
        return [OTHER_LANGUAGE]
    messages: list[str] = []
    try:
        if level.forward:
            messages += _worded(old.check(new), "old", "new")
        if level.backward:
            messages += _worded(new.check(old), "new", "old")
    except (InvalidSchemaError, RecursionError) as error:
        messages.append(f"Unexpected exception during compatibility check: {error}")
    if messages:
        if earlier.version is not None:
            messages.append(f"{{oldSchemaVersion: {earlier.version}}}")
        messages.append(_shown(old.canonical))
    return messages


def _worded(differences: list[Incompatibility], reader: str, writer: str) -> list[str]:
    return [difference.message(reader, writer) for difference in differences]


def _shown(text: str) -> str:
    if len(text) <= OLD_SCHEMA_SHOWN:
        return f"{{oldSchema: '{text}'}}"
    return f"{{oldSchema: <truncated> '{text[:OLD_SCHEMA_SHOWN]}...'}}"
