"""The newest record of each key in the dirty part of a log, and what that makes of every record there.

Records of the dirty part are numbered as they come. `states` has a byte for each: as long as no newer record has its key, it says
whether the record has a value or is a tombstone; then that it is replaced. So the second reading of the dirty part needs no keys any more:
a batch without a replaced record is copied as it is, one of which all are is dropped, and only of the others the sizes of the records are
walked. A record of the clean part is replaced when its key is in the map at all, for everything in the map is newer.

**The table** has two rows of 64-bit numbers: Python's hash of the key, and after a CRC of the key the number of its newest record. Slots
are searched one after the other from the one that the hash points to; 0 is a free one::

    hashes     ... | hash(key)      | 0 | ...
    newest     ... | crc32 : number | 0 | ...

**Keys are not kept.** Two keys of which hash and CRC are the same would cost the newest record of one of them. That are 95 bits: among the
4.7 million keys that the default of `log.cleaner.dedupe.buffer.size` holds, the chance is 3 in 10^16 a pass. A client cannot choose such
keys: the hash (SipHash) has a secret of the process, and a worker never runs with a fixed one. (Kafka's map has MD5, 128 bits.)
Nothing else depends on the hash or its secret (PYTHONHASHSEED): it decides where a key stands in the table, and the table is only searched.
States, counts, and so the bytes that a pass writes are the same for every hash.

**Memory** is bounded by `bytes_max`, and what is counted is all that there is: 16 bytes a slot, of which three quarters are used; the
smaller table beside the larger one while it grows; a byte for each record, and eight for each batch.
"""

from array import array
from zlib import crc32

from moldau.protocol.records.walk import long_varint

KEPT = 0
REPLACED = 1
TOMBSTONE = 2
"""States of a record. Do not compare with anything else: the walks below rely on these numbers."""

SLOT_BYTES = 16
BATCH_BYTES = 8
LOAD_MAX = 0.75
"""Fuller, and every key that is not there costs ten steps."""
TABLE_SHARE = 0.75
"""Of the memory that the largest table takes. The one before it, and the states, have to find room beside it."""
SLOTS_MIN = 1024
GROWTH = 4
_NUMBER = 2**32 - 1


class UnreadableRecordsError(Exception):
    """Records that are not as their batch's header says."""


class KeyMap:
    """See the module. `load_factor`: how full the table may be; never more than :data:`LOAD_MAX`.

    `batch_offsets` are the base offsets of the batches that were added, so that a later walk recognises them.
    """

    def __init__(self, bytes_max: int, load_factor: float = LOAD_MAX) -> None:
        self.states = bytearray()
        self.batch_offsets = array("q")
        self._bytes_max = bytes_max
        self._load = min(max(load_factor, 0.01), LOAD_MAX)
        self._filled = 0
        self._granted = 0
        """So many records surely fit, each in a batch of its own."""
        self._slots_max = max(SLOTS_MIN, int(bytes_max * TABLE_SHARE) // SLOT_BYTES)
        self._slots = self._slots_max
        while self._slots // GROWTH >= SLOTS_MIN:
            self._slots //= GROWTH
        self._hashes = array("q", bytes(8)) * self._slots
        self._newest = array("q", bytes(8)) * self._slots

    def __len__(self) -> int:
        return self._filled

    def take_room(self, count: int, *, anyway: bool = False) -> bool:
        """Whether a batch of `count` records fits; if so it is to come now. `anyway`: whatever the bounds say."""
        if count <= self._granted:
            self._granted -= count
            return True
        beside = (len(self.states) + count + BATCH_BYTES * (len(self.batch_offsets) + 1)) * 9 // 8  # they grow by steps of an eighth
        slots = self._slots
        while self._filled + count > slots * self._load and (slots < self._slots_max or anyway):
            slots = slots * GROWTH if anyway else min(slots * GROWTH, self._slots_max)
        if not anyway:
            both = slots + self._slots if slots > self._slots else slots
            if self._filled + count > slots * self._load or SLOT_BYTES * both + beside > self._bytes_max:
                return False
        if slots > self._slots:
            self._grow(slots)
        room = self._bytes_max - SLOT_BYTES * slots - beside
        self._granted = max(0, min(int(slots * self._load) - self._filled - count, room // (3 + BATCH_BYTES)))
        return True

    def _grow(self, slots: int) -> None:
        hashes, newest = array("q", bytes(8)) * slots, array("q", bytes(8)) * slots
        for h, value in zip(self._hashes, self._newest, strict=True):
            if h:
                s = h % slots
                while hashes[s]:
                    s = s + 1 if s + 1 < slots else 0
                hashes[s] = h
                newest[s] = value
        self._hashes, self._newest, self._slots = hashes, newest, slots

    def add_batch(self, offset: int, records: bytes, position: int, end: int, count: int) -> None:
        """Note the `count` records of the batch with this base offset, uncompressed, from `position` to `end`. There is room for them.

        UnreadableRecordsError: not all of them could be walked; those before count all the same.
        """
        self.batch_offsets.append(offset)
        states, first = self.states, len(self.states)
        states += bytes(count)
        hashes, newest, slots = self._hashes, self._newest, self._slots
        new = 0
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
                    p = -1
                    break
                if records[k] == 1:
                    states[number] = TOMBSTONE
                key = records[q:k]
                h, c = hash(key) or 1, crc32(key) >> 1
                s = h % slots
                found = hashes[s]
                while found:
                    if found == h:
                        older = newest[s]
                        if older >> 32 == c:
                            states[older & _NUMBER] = REPLACED
                            break
                    s += 1
                    if s == slots:
                        s = 0
                    found = hashes[s]
                else:
                    hashes[s] = h
                    new += 1
                newest[s] = c << 32 | number
        except IndexError:
            p = -1
        self._filled += new
        if p != end:
            raise UnreadableRecordsError

    def judge_batch(self, records: bytes, position: int, end: int, count: int) -> bytearray:
        """States of the records of a batch that is older than everything in the map. UnreadableRecordsError."""
        states = bytearray(count)
        hashes, newest, slots = self._hashes, self._newest, self._slots
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
                    p = -1
                    break
                if records[k] == 1:
                    states[number] = TOMBSTONE
                key = records[q:k]
                h = hash(key) or 1
                s = h % slots
                found = hashes[s]
                while found:
                    if found == h and newest[s] >> 32 == crc32(key) >> 1:
                        states[number] = REPLACED
                        break
                    s += 1
                    if s == slots:
                        s = 0
                    found = hashes[s]
        except IndexError:
            p = -1
        if p != end:
            raise UnreadableRecordsError
        return states
