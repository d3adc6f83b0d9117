"""What a change comes to: records to write, and what to answer when they are written. Deciding writes nothing."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.registry.records import SchemaVersion

Write = tuple[bytes, bytes | None]
"""Key and value of a record; without a value it is a tombstone."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Records in the order in which they are to be written, perhaps none, and the answer as JSON has it.

    `registered` is the version that has to be there when all is read back.
    """

    answer: Any
    writes: list[Write] = field(default_factory=list)
    registered: "SchemaVersion | None" = None
