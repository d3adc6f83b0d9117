"""How slow this machine is, so that a bound in seconds means the same on each.

A bound such as "3 s" is that of a machine that does `piece_of_work` in `UNIT_S`; a slower machine gets more time in proportion. A faster
one gets no less: the bound in seconds is also what a user sees.
"""

import statistics
import struct
import time
from zlib import crc32

UNIT_S = 0.02


def piece_of_work() -> int:
    """What a broker's code consists of: packing, dictionaries, slices, small objects, a checksum."""
    pack, unpack = struct.Struct(">iqh").pack, struct.Struct(">iqh").unpack
    found: dict[bytes, tuple[int, int, int]] = {}
    total = 0
    for number in range(40_000):
        data = pack(number, number << 20, number & 0x7FFF)
        fields = unpack(data)
        found[data[:3]] = fields
        total += crc32(data, fields[2])
    return total + len(found)


def slowness() -> float:
    """1 or more: the processor time of a piece of work here, in units of `UNIT_S` (the median of nine)."""
    took_s = []
    for _ in range(9):
        begin = time.process_time()
        piece_of_work()
        took_s.append(time.process_time() - begin)
    return max(1.0, statistics.median(took_s) / UNIT_S)
