"""The newest record of each key in the dirty part of a log, and what that makes of every record there.

Records of the dirty part are numbered as they come. `states` has a byte for each: as long as no newer record has its key, it says
whether the record has a value or is a tombstone; then that it is replaced. So the second reading of the dirty part needs no keys any more:
a batch without a replaced record is copied as it is, one of which all are is dropped, and only of the others the sizes of the records are
walked. A record of the clean part is replaced when its key is in the map at all, for everything in the map is newer.

**Keys.** A key of up to 46 bytes is in the map itself. For a longer one its digest is, BLAKE2b of 47 bytes, so that no key and no digest
are the same bytes. Two keys with one digest would cost the newest record of one of them. Among 2^40 keys, more than any map holds, the
chance of two with one digest is below 2^-296, and nobody knows how to make two. (Kafka's map has MD5, 16 bytes, in place of every key.)

**Memory** is bounded by `bytes_max`, and honest: the objects that Python makes are counted, not only the bytes in them. An entry takes up
to 112 bytes as objects (its key 80, its number 32) and 30 to 60 in the table, whose growth needs the old one beside the new one. A byte
per record comes on top. So 128 MB are 699,050 keys.
"""

from array import array
from hashlib import blake2b

from moldau.protocol.records.walk import long_varint

KEPT = 0
REPLACED = 1
TOMBSTONE = 2
"""States of a record. Do not compare with anything else: the walks below rely on these numbers."""

KEY_BYTES_MAX = 46
DIGEST_BYTES = 47
ENTRY_BYTES = 80 + 32
BATCH_BYTES = 8
TABLE_HEAD_BYTES = 256
GRANTED = 4096
"""So many records are given room at a time, while there is plenty."""


class UnreadableRecordsError(Exception):
    """Records that are not as their batch's header says."""


def table_bytes(entries: int) -> int:
    """Bytes of a dict with so many entries that was filled one by one: CPython doubles it when two thirds of its slots are used."""
    slots = 8
    while slots * 2 // 3 < entries:
        slots *= 2
    return TABLE_HEAD_BYTES + 20 * slots


def digest(key: bytes) -> bytes:
    """What stands in the map for a key that is too long."""
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class KeyMap:
    """See the module. Invariant: `_newest` maps each key to the number of its newest record, whose state is not REPLACED.

    `batch_offsets` are the base offsets of the batches that were added, so that whoever reads them again can tell which these were.
    """

    def __init__(self, bytes_max: int) -> None:
        self.states = bytearray()
        self.batch_offsets = array("q")
        self._bytes_max = bytes_max
        self._newest: dict[bytes, int] = {}
        self._granted = 0

    def __len__(self) -> int:
        return len(self._newest)

    def take_room(self, count: int) -> bool:
        """Whether a batch of `count` records fits; if so it is to come now."""
        count += BATCH_BYTES
        if count > self._granted:
            if self._fits(count + GRANTED):
                self._granted = count + GRANTED
            elif self._fits(count):
                self._granted = count
            else:
                return False
        self._granted -= count
        return True

    def _fits(self, count: int) -> bool:
        entries = len(self._newest)
        table, grown = table_bytes(entries), table_bytes(entries + count)
        needed = ENTRY_BYTES * (entries + count) + grown + (table if grown > table else 0)
        needed += len(self.states) + BATCH_BYTES * len(self.batch_offsets) + count
        return needed <= self._bytes_max

    def add_batch(self, offset: int, records: bytes, position: int, end: int, count: int) -> None:
        """Note the `count` records of the batch with this base offset, uncompressed, from `position` to `end`.

        UnreadableRecordsError: not all of them could be walked; those before count all the same.
        """
        self.batch_offsets.append(offset)
        states, first = self.states, len(self.states)
        states += bytes(count)
        newest = self._newest
        setdefault = newest.setdefault
        p = position
        try:
            for number in range(first, first + count):
                n = records[p]
                if n < 0x80:
                    q = p + 3
                elif records[p + 1] < 0x80:
                    n += (records[p + 1] << 7) - 0x80
                    q = p + 4
                else:
                    n, q = long_varint(records, p)
                    q += 2
                p = q - 2 + (n >> 1)
                while records[q - 1] >= 0x80:  # timestamp
                    q += 1
                q += 1
                while records[q - 1] >= 0x80:  # offset
                    q += 1
                n = records[q]
                q += 1
                if n & 1:
                    states[number] = REPLACED  # without a key: a compacted log has no place for it
                    continue
                if n >= 0x80:
                    n, q = long_varint(records, q - 1)
                k = q + (n >> 1)
                if k >= p:
                    raise UnreadableRecordsError
                key = records[q:k] if n <= 2 * KEY_BYTES_MAX else digest(records[q:k])
                if records[k] == 1:
                    states[number] = TOMBSTONE
                older = setdefault(key, number)
                if older != number:
                    states[older] = REPLACED
                    newest[key] = number
        except IndexError:
            p = -1
        if p != end:
            raise UnreadableRecordsError

    def judge_batch(self, records: bytes, position: int, end: int, count: int) -> bytearray:
        """States of the records of a batch that is older than everything in the map. UnreadableRecordsError."""
        states = bytearray(count)
        newest = self._newest
        p = position
        try:
            for number in range(count):
                n = records[p]
                if n < 0x80:
                    q = p + 3
                elif records[p + 1] < 0x80:
                    n += (records[p + 1] << 7) - 0x80
                    q = p + 4
                else:
                    n, q = long_varint(records, p)
                    q += 2
                p = q - 2 + (n >> 1)
                while records[q - 1] >= 0x80:  # timestamp
                    q += 1
                q += 1
                while records[q - 1] >= 0x80:  # offset
                    q += 1
                n = records[q]
                q += 1
                if n & 1:
                    states[number] = REPLACED
                    continue
                if n >= 0x80:
                    n, q = long_varint(records, q - 1)
                k = q + (n >> 1)
                if k >= p:
                    raise UnreadableRecordsError
                if (records[q:k] if n <= 2 * KEY_BYTES_MAX else digest(records[q:k])) in newest:
                    states[number] = REPLACED
                elif records[k] == 1:
                    states[number] = TOMBSTONE
        except IndexError:
            p = -1
        if p != end:
            raise UnreadableRecordsError
        return states
