"""Names of the folders in a log directory.

``TOPIC-PARTITION`` holds a partition's log. ``TOPIC-PARTITION.HEX-delete`` is one to be removed, ``-stray`` one that belongs to no topic
any more and ``-future`` a copy that was being moved here; HEX are the 32 digits of a random UUID. A marked folder may carry a topic's name
cut short, so that the whole stays within the 255 bytes that file systems take: only its suffix is to be trusted.
"""

from enum import Enum
from typing import NamedTuple

from moldau.model.identity import TopicPartition

NAME_LENGTH_MAX = 255
METADATA_FOLDER = "__cluster_metadata-0"
"""Kafka's own log of cluster metadata in KRaft mode. It is none of ours: its records are not a topic's."""

PARTITION_MAX = 2**31 - 1


class FolderKind(Enum):
    """What a folder is for; the value is the end of its name."""

    LOG = ""
    DELETE = "-delete"
    STRAY = "-stray"
    FUTURE = "-future"


class Folder(NamedTuple):
    """What a folder's name says."""

    name: str
    kind: FolderKind
    topic_partition: TopicPartition


_MARKED = (FolderKind.DELETE, FolderKind.STRAY, FolderKind.FUTURE)
_DIGITS = frozenset("0123456789")


def parse_folder(name: str) -> Folder | None:
    """What a name in a log directory says; None for names that are not a partition's."""
    if name == METADATA_FOLDER:
        return None
    kind = next((kind for kind in _MARKED if name.endswith(kind.value)), FolderKind.LOG)
    rest = name
    if kind is not FolderKind.LOG:
        rest, dot, unique = name.removesuffix(kind.value).rpartition(".")
        if not dot or not unique:
            return None
    topic, dash, number = rest.rpartition("-")
    if not dash or not topic or not number or not _DIGITS.issuperset(number) or len(number) > 10 or int(number) > PARTITION_MAX:
        return None
    return Folder(name, kind, TopicPartition(topic, int(number)))


def marked_name(topic_partition: TopicPartition, kind: FolderKind, unique: bytes) -> str:
    """The name that marks a partition's folder; `unique` is 16 random bytes."""
    end = f"-{topic_partition.partition}.{unique.hex()}{kind.value}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(end)] + end
