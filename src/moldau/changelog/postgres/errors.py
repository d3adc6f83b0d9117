"""What goes wrong with PostgreSQL."""

from enum import Enum
from typing import Final

from moldau.changelog.errors import ChangelogError
from moldau.model.errors import WorldError


class SlotState(Enum):
    """How a replication slot stands to the changelog that is made from it."""

    READY = "ready"
    """All that was committed since the changelog's last commit will come."""
    MISSING = "missing"
    """There is none: it was never made, or it was dropped."""
    LOST = "lost"
    """The server has removed log that the slot needs (`max_slot_wal_keep_size`), or has invalidated it for another reason."""
    ADVANCED = "advanced"
    """It begins after the changelog's last commit: it was made again, or advanced by another program."""
    TABLES = "of other tables"
    """The publication has other tables than the changelog, is not there, or is not as it was made."""
    REPLACED = "replaced"
    """The changelog's last commit was not made from this database as it is: another store was promoted, or the server was restored."""
    DIVIDED = "of rows that are divided otherwise"
    """The changelog's last commit was made with rows divided over another number of shards: a row would be in two of them."""
    FOREIGN = "foreign"
    """A slot of another database or plugin has the name."""
    UNFINISHED = "unfinished"
    """The first rows, or those of a new publication, are not all in the log."""


class UnreachableServerError(WorldError):
    """The server cannot be reached, or the connection ended."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"{server}: {reason}", retriable=True)
        self.server = server


class RefusedError(ChangelogError):
    """The server refuses what a changelog needs: a privilege, a setting, a table that is not there."""


class StreamError(ChangelogError):
    """What the server sends cannot be read."""


_HELP: Final = {
    SlotState.DIVIDED: "publish as it was published before, or under another name",
    SlotState.FOREIGN: "nothing is done with it: drop it, or choose another name (slot)",
    SlotState.REPLACED: "what another store has published since is only removed if that is asked for (republish now)",
}
_REPUBLISH: Final = "changes since the last commit of the changelog may be missing, so it has to be published again as a whole (republish)"


class SlotLostError(ChangelogError):
    """The slot does not continue where the changelog ends. The message names what can be done: mostly, to publish again as a whole."""

    def __init__(self, server: str, slot: str, state: SlotState, detail: str) -> None:
        super().__init__(f"{server}: replication slot {slot} is {state.value}: {detail}; {_HELP.get(state, _REPUBLISH)}")
        self.slot = slot
        self.state = state


class TableError(ChangelogError):
    """A table cannot be published, or is not any more what was published. The message names table, column and key."""
