"""What `_mirror_state` says of one mirror, record after record."""

import json
import logging
from typing import TYPE_CHECKING, Any

from moldau.mirror.partitions import SourcePartition
from moldau.mirror.selection import Change, TopicSelection
from moldau.mirror.state.following import Following, following_in
from moldau.mirror.state.orders import Accepted, Pause, Scope, Withdrawn, order_in, to_json
from moldau.mirror.state.reports import Process, Row, process_in, rows_in

if TYPE_CHECKING:
    from moldau.protocol.records.record import Record

_LOG = logging.getLogger(__name__)


class Board:
    """See the module. `take` gets the topic's records in their order."""

    def __init__(self, mirror: str) -> None:
        self.mirror = mirror
        self.changes: list[Change] = []
        """Of the selection, the oldest first."""
        self.pauses: dict[Scope, Pause] = {}
        self.accepted: dict[tuple[str, str, int], Accepted] = {}
        """By source, topic and partition."""
        self.processes: dict[str, Process] = {}
        """By instance."""
        self.resumed: list[Scope] = []
        """Pauses that were ended since the list was emptied."""
        self.newly_accepted: list[Accepted] = []
        """Since the list was emptied."""
        self.following: Following | None = None
        """What comes along with the records, as it was reported last."""
        self._chunks: dict[tuple[str, int], list[Row]] = {}
        self._rows: dict[tuple[str, str, bytes, int], Row] | None = None
        """Of all processes, the newest; None: not looked up since the last report."""

    def take(self, record: "Record") -> None:
        """The next record. One that cannot be read is passed over, with a line in the log."""
        try:
            key = json.loads(record.key or b"")
            if key["mirror"] == self.mirror:
                self._take(key, record.value)
        except (KeyError, TypeError, ValueError) as error:
            _LOG.warning("record of _mirror_state cannot be read: offset=%d reason=%r", record.offset, error)

    def selection(self, before: TopicSelection) -> TopicSelection:
        """The selection of the file, with all changes."""
        for change in self.changes:
            before = before.with_change(change)
        return before

    def pause_of(self, topic: str, partition: int) -> tuple[Scope, Pause] | None:
        """What pauses a partition: the widest."""
        found = [each for each in self.pauses.items() if each[0].covers(topic, partition)]
        return min(found, key=lambda each: [part is not None for part in each[0]], default=None)

    def rows(self, instance: str) -> list[Row]:
        """What a process reported last of its partitions."""
        process = self.processes.get(instance)
        count = 0 if process is None else process.chunks
        return [row for number in range(count) for row in self._chunks.get((instance, number), ())]

    def chunks(self, instance: str) -> list[int]:
        """The numbers of the records with rows that a process has in the topic, those that are out of use included."""
        return [number for name, number in self._chunks if name == instance]

    def last_row(self, partition: SourcePartition) -> Row | None:
        """What was reported last of a partition, by any process."""
        if self._rows is None:
            by_age = sorted(self.processes, key=lambda instance: self.processes[instance].at_ms)
            self._rows = {row[:4]: row for instance in by_age for row in self.rows(instance)}
        return self._rows.get((partition.source, partition.topic, partition.topic_id, partition.number))

    def _take(self, key: dict[str, Any], value: bytes | None) -> None:
        if "process" in key:
            self._take_report(key["process"], key.get("chunk"), value)
            return
        if "following" in key:
            self.following = None if value is None else following_in(value)
            return
        match order_in(key, value):
            case Change() as change:
                self.changes = [each for each in self.changes if each != change] + [change]
            case Withdrawn(change):
                self.changes = [each for each in self.changes if each != change]
            case Accepted() as accepted:
                self.accepted[accepted.source, accepted.topic, accepted.partition] = accepted
                self.newly_accepted.append(accepted)
            case (Scope() as scope, None):
                self.pauses.pop(scope, None)
                self.resumed.append(scope)
            case (Scope() as scope, Pause() as pause):
                self.pauses[scope] = pause

    def _take_report(self, instance: str, chunk: int | None, value: bytes | None) -> None:
        self._rows = None
        if chunk is None:
            if value is None:
                self.processes.pop(instance, None)
            else:
                self.processes[instance] = process_in(instance, value)
        elif value is None:
            self._chunks.pop((instance, chunk), None)
        else:
            self._chunks[instance, chunk] = rows_in(value)


def process_key(mirror: str, instance: str, chunk: int | None = None) -> bytes:
    """The key of a process's record, or of one with rows."""
    key: dict[str, Any] = {"mirror": mirror, "process": instance}
    return to_json(key if chunk is None else key | {"chunk": chunk})
