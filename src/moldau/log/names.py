"""Names of files and folders in a log directory. They are Kafka's: do not change.

**Files** of a partition. The part before the suffix is the offset, in twenty digits, of the first record that the file is about: for a
segment its base offset, for a producer snapshot the offset up to which (exclusive) it describes producers.

**Folders.** ``TOPIC-PARTITION`` holds a partition's log. ``TOPIC-PARTITION.HEX-delete`` is one to be removed, ``-stray`` one that belongs
to no topic any more and ``-future`` a copy that was being moved here; HEX are the 32 digits of a random UUID. A marked folder may carry a
topic's name cut short, so that the whole stays within the 255 bytes that file systems take: only its suffix is to be trusted.
"""

from collections.abc import Iterable
from enum import Enum

from moldau.model.identity import TopicPartition
from moldau.model.value import Value

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
CHECKSUMS = ".checksums"
"""Of a segment's indexes. Not Kafka's."""
SNAPSHOT = ".snapshot"

DELETED = ".deleted"
"""Added to a name when the file is out of use and waits to be unlinked."""
CLEANED = ".cleaned"
"""Added while compaction writes a file."""
SWAP = ".swap"
"""Added while a compacted file takes the place of older ones."""

LEADER_EPOCHS = "leader-epoch-checkpoint"
MOVE_MARK = "moldau-move"
"""Says in the folder of a copy, which is to take the place of a log in another directory, how far that is. Not Kafka's either."""
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, CHECKSUMS)

_DIGITS = 20
_KNOWN = {*SEGMENT_SUFFIXES, SNAPSHOT}
OFFSET_MAX = 2**63 - 2**31
"""No file's name has an offset above this: relative offsets in a segment take up to 31 bits, offsets 63."""
NAME_LENGTH_MAX = 255
METADATA_FOLDER = "__cluster_metadata-0"
"""Kafka's own log of cluster metadata in KRaft mode. It is none of ours: its records are not a topic's."""
PARTITION_MAX = 2**31 - 1
_UNIQUE_BYTES = 16
_DIGIT_CHARACTERS = frozenset("0123456789")


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


class FolderKind(Enum):
    """What a folder is for; the value is the end of its name."""

    LOG = ""
    DELETE = "-delete"
    STRAY = "-stray"
    FUTURE = "-future"


class Folder(Value):
    """What a folder's name says."""

    name: str
    kind: FolderKind
    topic_partition: TopicPartition


_MARKED = {kind.value: kind for kind in FolderKind if kind is not FolderKind.LOG}
"""Kinds by the last dash of the name and what follows."""


def parse_folder(name: str) -> Folder | None:
    """What a name in a log directory says; None for names that are not a partition's."""
    if name == METADATA_FOLDER:
        return None
    kind = _MARKED.get(name[name.rfind("-") :], FolderKind.LOG)
    rest = name
    if kind is not FolderKind.LOG:
        rest, dot, unique = name.removesuffix(kind.value).rpartition(".")
        if not dot or not unique:
            return None
    topic, dash, number = rest.rpartition("-")
    if not dash or not topic or not number or not _DIGIT_CHARACTERS.issuperset(number) or len(number) > 10 or int(number) > PARTITION_MAX:
        return None
    return Folder(name, kind, TopicPartition(topic, int(number)))


def marked_name(topic_partition: TopicPartition, kind: FolderKind, unique: bytes) -> str:
    """The name that marks a partition's folder; `unique` is 16 random bytes."""
    end = f"-{topic_partition.partition}.{unique.hex()}{kind.value}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(end)] + end


def mark_of(topic_partition: TopicPartition, kind: FolderKind) -> str:
    """What `marks` has of a folder that `marked_name` names."""
    return marked_name(topic_partition, kind, bytes(_UNIQUE_BYTES)).rpartition(".")[0]


def marks(names: Iterable[str], kind: FolderKind) -> set[str]:
    """The names of this kind without their random parts: of a long topic, as far as its name fits."""
    return {name.rpartition(".")[0] for name in names if name.endswith(kind.value)}
