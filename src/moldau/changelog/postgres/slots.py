"""What has to be done when a source starts: decided from the replication slot, the publication and the changelog's last commit."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from moldau.changelog.all_shards import SHARDS
from moldau.changelog.postgres.errors import SlotState
from moldau.changelog.postgres.lsn import lsn_of, lsn_text
from moldau.changelog.postgres.tables import TableName

PLUGIN = "pgoutput"
LSN = "lsn"
"""In the `source` of each commit: after which place in the server's log to continue."""
READING = "reading"
"""In the `source` of a commit with rows that were there already: `all` while all tables are published, or the name of a table."""
ALL = "all"


def slot_name(changelog: str) -> str:
    """Of the replication slot and the publication of a changelog, unless another one is chosen."""
    return f"moldau_{changelog}"


class SlotRow(NamedTuple):
    """A replication slot as the server has it."""

    plugin: str | None
    is_of_database: bool
    wal_status: str | None
    """`reserved`, `extended`, `unreserved`, `lost`; None also after an invalidation."""
    confirmed_lsn: int | None
    active_pid: int | None


class Origin(NamedTuple):
    """Of a changelog: a place in the log of a server means nothing in that of another. In the `source` of each commit, beside the place."""

    system: str
    """Identifier of the cluster of databases; a copy by `pg_basebackup` has it too."""
    timeline: int
    """Another one after a promotion or a recovery to a point in time."""
    database: int
    """Its OID."""


class ServerPlace(NamedTuple):
    """What a source is connected to."""

    origin: Origin
    flushed_lsn: int
    """The end of the server's log."""


class Standing(NamedTuple):
    """How the slot stands to the changelog."""

    state: SlotState
    detail: str


def standing(
    slot: SlotRow | None,
    published: Collection[TableName] | None,
    wanted: Collection[TableName],
    last: Mapping[str, str | int] | None,
    server: ServerPlace,
    altered: str = "",
    shards: int = 1,
) -> Standing:
    """`last` is the `source` of the changelog's last commit; None if it has none. `altered`: how the publication is not as it was made.
    `shards`: over how many the rows are to be divided.
    """
    if slot is not None and (slot.plugin != PLUGIN or not slot.is_of_database):
        return Standing(SlotState.FOREIGN, f"a slot of another {'database' if slot.plugin == PLUGIN else 'plugin'} has this name")
    if last is None:
        return Standing(SlotState.UNFINISHED, "the changelog is empty")
    if LSN not in last:
        return Standing(SlotState.REPLACED, "the last commit of the changelog was not made from this database")
    if (divided := last.get(SHARDS, 1)) != shards:
        return Standing(
            SlotState.DIVIDED, f"the last commit of the changelog was made with rows divided over {divided} shards, and {shards} are wanted"
        )
    if others := [
        f"{name} {last.get(name, 'unknown')}, not {here}" for name, here in server.origin._asdict().items() if last.get(name) != here
    ]:
        return Standing(SlotState.REPLACED, f"the last commit of the changelog was made from another database: {'; '.join(others)}")
    if (lsn := lsn_of(str(last[LSN]))) > server.flushed_lsn:
        return Standing(
            SlotState.REPLACED,
            f"the changelog ends at {lsn_text(lsn)}, after the end of the server's log, {lsn_text(server.flushed_lsn)}: was it restored?",
        )
    if last.get(READING) == ALL:
        return Standing(SlotState.UNFINISHED, "the rows that were there are not all in the log")
    if slot is None:
        return Standing(SlotState.MISSING, "there is none; it was dropped")
    if slot.wal_status == "lost" or slot.confirmed_lsn is None:
        return Standing(SlotState.LOST, "the server has removed the log that it needs, or invalidated it (max_slot_wal_keep_size)")
    if slot.confirmed_lsn > lsn:
        return Standing(SlotState.ADVANCED, f"it begins at {lsn_text(slot.confirmed_lsn)}, and the changelog ends at {lsn_text(lsn)}")
    if published is None or set(published) != set(wanted):
        names = "dropped" if published is None else f"of {', '.join(sorted(name.published for name in published)) or 'no table'}"
        return Standing(SlotState.TABLES, f"the publication is {names}, wanted are {', '.join(sorted(name.published for name in wanted))}")
    if altered:
        return Standing(SlotState.TABLES, f"the publication {altered}")
    return Standing(SlotState.READY, "")
