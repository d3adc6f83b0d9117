"""Names of the files in a partition's folder. They are Kafka's: do not change.

The part before the suffix is the offset, in twenty digits, of the first record that the file is about: for a segment its base offset,
for a producer snapshot the offset up to which (exclusive) it describes producers.
"""

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
CHECKSUMS = ".checksums"
"""Of a segment's indexes; the one kind of file here that is not Kafka's."""
SNAPSHOT = ".snapshot"

DELETED = ".deleted"
"""Added to a name when the file is out of use and waits to be unlinked."""
CLEANED = ".cleaned"
"""Added while compaction writes a file."""
SWAP = ".swap"
"""Added while a compacted file takes the place of older ones."""

LEADER_EPOCHS = "leader-epoch-checkpoint"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, CHECKSUMS)

_DIGITS = 20
_KNOWN = {*SEGMENT_SUFFIXES, SNAPSHOT}
OFFSET_MAX = 2**63 - 2**31
"""No file's name has an offset above this: relative offsets in a segment take up to 31 bits, offsets 63."""


def file_name(offset: int, suffix: str) -> str:
    """``file_name(5, LOG)`` is ``00000000000000000005.log``."""
    return f"{offset:0{_DIGITS}d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name, or None if the name is not of this kind."""
    known = parse(name)
    return None if known is None or known[1] != suffix else known[0]


def parse(name: str) -> tuple[int, str] | None:
    """Offset and suffix of the name of a segment's file or a snapshot; None for any other."""
    suffix, stem = name[_DIGITS:], name[:_DIGITS]
    if suffix not in _KNOWN or not (stem.isascii() and stem.isdigit()):
        return None
    offset = int(stem)
    return (offset, suffix) if offset <= OFFSET_MAX else None
