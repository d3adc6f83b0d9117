"""Making a damaged index of aborted transactions anew, from the segment's records and the producers' state before them."""

import logging

from moldau.log.producer_replay import replay_producers
from moldau.log.producer_states import ProducerStates
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.log.snapshots import Snapshots
from moldau.log.transaction_index import AbortedTransaction

_LOG = logging.getLogger(__name__)


def mend(segments: Segments, segment: Segment, snapshots: Snapshots, partition: str, log_end_offset: int) -> None:
    """Find what the segment's index has to hold, and put that in its place. StorageError.

    What the damage is may not be told a second time, so the file is replaced as a whole, and is on disk before anybody relies on it.
    """
    producers, aborted = ProducerStates(partition), list[AbortedTransaction]()
    _LOG.warning("index of aborted transactions is damaged and rebuilt: path=%s", segment.transaction_index.path)
    first_offset = segments.bases[0]
    loaded = snapshots.load_newest(segment.base_offset, 0, producers.most)
    if loaded is not None:
        first_offset, entries = loaded
        producers.load(entries)
    end_offset = segments.end_of(segments.slot_of(segment.base_offset), log_end_offset)
    replay_producers(segments, producers, first_offset, end_offset, 0, aborted.append)
    segment.transaction_index.replace([each for each in aborted if each.last_offset >= segment.base_offset])
    segment.store_checksums()
