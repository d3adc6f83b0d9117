"""What a replica's machine wants done, in the order in which it says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from moldau.changelog.store import Position
from moldau.changelog.values import Change, Table


@dataclass(frozen=True, slots=True)
class AskEnds:
    """Ask where these topics begin and end. → Ends"""

    topics: Sequence[str]


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make these tables in the store, or the columns that they have got."""

    tables: Sequence[Table]


@dataclass(frozen=True, slots=True)
class Clear:
    """Remove the shard's rows, and store the position, in one transaction."""

    position: Position


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply these changes and store the position, in one transaction."""

    changes: Sequence[Change]
    position: Position
    spilled: bool = False
    """What was spilled is applied before them, and the file is emptied."""


@dataclass(frozen=True, slots=True)
class Spill:
    """Append these changes to a file, for the `Apply` that takes them from there."""

    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class Reload:
    """Forget this machine and what was spilled; load from the stored position on."""

    reason: str
    find_tables: bool = False
    """Definitions of tables are to be looked for from the beginning."""


Effect: TypeAlias = AskEnds | Prepare | Clear | Apply | Spill | Reload
