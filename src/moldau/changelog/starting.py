"""Where a replica of a shard begins: where its store says, or from the log's beginning with an empty store. A decision; no I/O, no clock.

A deletion is in the log until `delete.retention.ms` after it. So a store that has to load, and may have missed deletions for longer than
that, is emptied: nothing could tell it which of its rows are no longer there.
"""

from collections.abc import Collection
from dataclasses import dataclass

from moldau.changelog.arrivals import Ends
from moldau.changelog.effects import Reload
from moldau.changelog.replica_errors import RecreatedTopicError, ReplicaError, TruncatedLogError
from moldau.changelog.store import Phase, Position


@dataclass(frozen=True, slots=True)
class Start:
    """From where on, and whether the store's rows of the shard are removed before."""

    position: Position
    clear: bool
    reason: str
    """For a person; empty for a replica that continues."""


def decide_start(
    shard: int,
    stored: Position | None,
    commits: str,
    log: Ends,
    now_ms: int,
    *,
    begin_again: bool = False,
    only: Collection[str] | None = None,
    reload: Reload | None = None,
    current_ms: int = 0,
) -> Start:
    """Where to begin in the partitions that `log` has, of the topic `commits` and of the tables that are stored.

    `only`: the tables that are wanted. `reload`: why it cannot follow. `current_ms`: when it had all that was in the log, 0 if not known.
    RecreatedTopicError, TruncatedLogError.
    """
    if stored is None or begin_again:
        return _from_the_beginning(commits, log, now_ms, "no position is stored" if stored is None else "it is to begin again")
    _check(shard, stored, log)
    have = {table.name for table in stored.tables.values()}
    new = [f"table {name} is" for name in sorted(set(only or ()) - have)]
    if only is None and stored.partial:
        new = ["other tables are"]
    if only is not None and have - set(only):
        raise ReplicaError(
            f"shard {shard}: table {min(have - set(only))} is in the store and is no longer wanted: nothing would change its rows; "
            f"the replica stops. Name it again, or load all tables again with begin_again"
        )
    if stored.phase is Phase.FOLLOWING and reload is None and not new:
        return Start(stored, clear=False, reason="")
    since_ms = stored.commit_ms if stored.phase is Phase.LOADING else max(stored.commit_ms, current_ms)
    reason = reload.reason if reload else f"{new[0]} new to it" if new else "it has not loaded all rows"
    if now_ms - since_ms > log.delete_retention_ms:
        reason += f", and deletions since may be forgotten (delete.retention.ms={log.delete_retention_ms})"
        return _from_the_beginning(commits, log, now_ms, reason)
    position = stored._replace(phase=Phase.LOADING, commit_ms=since_ms)
    if new or (reload and reload.find_tables):
        position = position._replace(epoch=0, commit=0, offsets={**stored.offsets, commits: log.starts[commits]})
    return Start(position, clear=False, reason=reason)


def _from_the_beginning(commits: str, log: Ends, now_ms: int, reason: str) -> Start:
    ids = {commits: log.ids[commits]} if commits in log.ids else {}
    return Start(Position(Phase.LOADING, 0, 0, now_ms, {commits: log.starts[commits]}, ids), clear=True, reason=reason)


def _check(shard: int, stored: Position, log: Ends) -> None:
    for topic, offset in stored.offsets.items():
        known, now = stored.ids.get(topic), log.ids.get(topic)
        if known is not None and known != now:
            raise RecreatedTopicError(topic, shard, offset, known, str(now))
        if offset < log.starts[topic]:
            reason = f"records from offset {offset} up to {log.starts[topic]} were deleted before they were read"
            raise TruncatedLogError(topic, shard, reason)
        if offset > log.ends[topic]:
            raise TruncatedLogError(topic, shard, f"the log ends at offset {log.ends[topic]}, before {offset}, up to which it was read")
