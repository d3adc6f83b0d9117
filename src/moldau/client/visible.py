"""Which of the batches that a fetch brought are there for readers of committed records. No I/O.

The broker tells with each fetch which aborted transactions reach into it, and nothing beyond the last stable offset. A producer's
records are hidden from the first offset of its aborted transaction up to the marker that ends it; markers themselves are never shown.
"""

from collections.abc import Iterable

from moldau.client.partition_requests import AbortedTransaction
from moldau.protocol.records.batch import iterate
from moldau.protocol.records.control import ControlType, decode_end_txn_marker
from moldau.protocol.records.header import BatchHeader

_MARKER_BYTES_MAX = 4096


class Visible:
    """Looks at the batches of one fetch, each once, in their order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def shows(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the records of this batch are shown. PeerError INVALID_RECORD for a marker that cannot be read."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._aborting.add(self._coming.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._aborting and self._ends_by_abort(batch):
                self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)

    def _ends_by_abort(self, batch: memoryview) -> bool:
        for record in iterate(batch, max_decompressed_bytes=_MARKER_BYTES_MAX):
            marker = decode_end_txn_marker(record)
            return marker is not None and marker.type is ControlType.ABORT
        return False
