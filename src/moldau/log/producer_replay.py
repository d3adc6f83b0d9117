"""Producer state from batches that are in the log: what came after a snapshot, what came just before it, and what an index of aborted
transactions has to hold. Headers are enough, but for markers.
"""

import logging
from collections.abc import Callable, Container

from moldau.log.batches import UNREADABLE, BadBatchError, walk
from moldau.log.producer_entry import ProducerEntry
from moldau.log.producer_snapshots import Snapshots
from moldau.log.producer_states import ProducerStates
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.log.transaction_index import TransactionIndexEntry
from moldau.ports.filesystem import File
from moldau.protocol.records.header import BatchHeader

LOOK_BACK_BYTES = 8 * 1024 * 1024
"""How much of the log is searched for the batches before a snapshot: five of the usual longest, and some of other producers between."""
_LOG = logging.getLogger(__name__)


def _nowhere(_: TransactionIndexEntry) -> None:
    """The index has it already."""


def replay_producers(
    segments: Segments,
    producers: ProducerStates,
    first_offset: int,
    end_offset: int,
    now_ms: int,
    ended: Callable[[TransactionIndexEntry], object] = _nowhere,
) -> int:
    """Bring the producers' state from `first_offset` to `end_offset` by the batches between. What lies after damage is left out: the offset
    before which nothing is.

    `ended` is called with each transaction that was aborted there.
    """
    whole_to = end_offset
    for slot in range(segments.slot_of(first_offset), len(segments)):
        segment = segments.items[slot]
        due = max(first_offset, segment.base_offset)
        if due >= end_offset:
            break
        try:
            start = _position_before(segment, first_offset) if segment.base_offset < first_offset else 0
            file = segment.file()
            for position, header in walk(file, start, segment.size, segment.base_offset):
                if header.base_offset >= end_offset:
                    return whole_to
                due = header.last_offset + 1
                if header.producer_id >= 0 and header.last_offset >= first_offset:  # a log may start in the middle of a batch
                    aborted = producers.replay(header, now_ms, _marker_at(file, position, header))
                    if aborted is not None:
                        ended(aborted)
        except BadBatchError:
            whole_to = min(whole_to, due)
    return whole_to


def marker_in(batch: memoryview) -> tuple[int, bool] | None:
    """What a control batch says of a transaction's end: the coordinator's epoch, and whether it aborts. None if it is of another kind."""
    from moldau.protocol.records.control import ControlType, end_txn_marker_of

    marker = end_txn_marker_of(batch)
    return None if marker is None else (marker.coordinator_epoch, marker.type is ControlType.ABORT)


def _marker_at(file: File, position: int, header: BatchHeader) -> tuple[int, bool] | None:
    return marker_in(memoryview(file.pread(header.size, position))) if header.is_control else None


def _position_before(segment: Segment, offset: int) -> int:
    """Where the index lets a walk to `offset` begin, if it proves right: after a crash it is not checked yet."""
    position = segment.index.position_before(offset)
    try:
        found = next(walk(segment.file(), position, segment.size, segment.base_offset), None)
    except BadBatchError:
        return 0
    return position if found is not None and found[1].base_offset <= offset else 0


def producers_before(segments: Segments, offset: int, now_ms: int, producer_ids: Container[int]) -> dict[int, ProducerEntry]:
    """The producers with these ids as the last :data:`LOOK_BACK_BYTES` of log before `offset` show them."""
    slot, wanted = segments.slot_of(max(offset - 1, 0)), LOOK_BACK_BYTES
    while slot > 0 and wanted > segments.items[slot].size:
        wanted -= segments.items[slot].size
        slot -= 1
    first = segments.items[slot]
    position = first.index.last_position_until(max(0, first.size - wanted))
    found = ProducerStates("")
    for segment in segments.items[slot:]:
        try:
            file = segment.file()
            for at, header in walk(file, position if segment is first else 0, segment.size, segment.base_offset):
                if header.base_offset >= offset:
                    return found.entries
                if header.producer_id in producer_ids:
                    found.replay(header, now_ms, _marker_at(file, at, header))
        except UNREADABLE:
            continue
    return found.entries


def mend(segments: Segments, segment: Segment, snapshots: Snapshots, partition: str, end_offset: int) -> None:
    """Find what the segment's index has to hold up to its end, and put that in its place if it holds something else. StorageError.

    The file is replaced as a whole, and is on disk before anybody relies on it: once the checksums are noted, nothing shows the damage.
    Of a log that cannot be read to the end the entries after that stay, unless they are known to be damaged.
    """
    index, producers, found = segment.transaction_index, ProducerStates(partition), list[TransactionIndexEntry]()
    first_offset = segments.bases[0]
    loaded = snapshots.load_newest(segment.base_offset, 0, producers.most)
    if loaded is not None:
        first_offset, entries = loaded
        producers.load(entries)
    whole_to = replay_producers(segments, producers, first_offset, end_offset, 0, found.append)
    segment.check_transactions()  # before it holds something else
    found = [each for each in found if each.last_offset >= segment.base_offset]
    held = list(index)
    if not index.damaged:  # known once its entries are
        found = [each for each in found if each.last_offset < whole_to] + [each for each in held if each.last_offset >= whole_to]
        if found == held:
            return
    _LOG.warning("index of aborted transactions is damaged and rebuilt: path=%s", index.path)
    index.replace(found)
    if not segment.knows_all_transactions():
        segment.store_checksums()
