"""The nodes of a consumer group in the coordination tree: paths and values as those of Kafka 0.8, whose tools and consumers read them.

/consumers/GROUP/ids/CONSUMER           ephemeral  a member and its subscription, JSON
/consumers/GROUP/owners/TOPIC/PARTITION ephemeral  the thread that reads a partition, as ``CONSUMER-NUMBER``
/consumers/GROUP/offsets/TOPIC/PARTITION           the offset to read next, as a number
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from moldau.cluster.znodes import MalformedNodeError
from moldau.model.identity import TopicPartition
from moldau.model.topic_names import is_internal
from moldau.model.value import Value

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
_QUOTES = "\"'"


def ids(group: str) -> str:
    """Parent of the registrations of a group's members."""
    return f"/consumers/{group}/ids"


def registration(group: str, consumer: str) -> str:
    """A member's registration."""
    return f"/consumers/{group}/ids/{consumer}"


def owner(group: str, where: TopicPartition) -> str:
    """The thread that owns a partition."""
    return f"/consumers/{group}/owners/{where.topic}/{where.partition}"


def offset(group: str, where: TopicPartition) -> str:
    """Where the group reads a partition next."""
    return f"/consumers/{group}/offsets/{where.topic}/{where.partition}"


def parents(group: str, topics: Iterable[str]) -> list[str]:
    """The nodes that last, each after its parent."""
    base = f"/consumers/{group}"
    lasting = ["/consumers", base, f"{base}/ids", f"{base}/owners", f"{base}/offsets"]
    return lasting + [f"{base}/{kind}/{topic}" for topic in topics for kind in ("owners", "offsets")]


def check_group(group: str) -> None:
    """ValueError for a name that is no node's."""
    if not group or "/" in group or group in (".", "..") or not group.isprintable():
        raise ValueError(f"group id {group!r} cannot be the name of a node: it is empty, or has a slash or control characters")


def thread_id(consumer: str, number: int) -> str:
    """The id of one of a member's threads of a topic."""
    return f"{consumer}-{number}"


class Subscription(Value):
    """What a member reads: how many threads it has for each topic; with a pattern, for each topic that one matches or does not match."""

    streams: Mapping[str, int]
    pattern: str = STATIC

    def threads(self, topic: str) -> int:
        """How many threads share the partitions of a topic."""
        if self.pattern == STATIC:
            return self.streams.get(topic, 0)
        ((regex, count),) = self.streams.items()
        does_match = re.fullmatch(_python_regex(regex), topic) is not None
        return count if does_match == (self.pattern == WHITE_LIST) and not is_internal(topic) else 0


def encode_subscription(streams: Mapping[str, int], timestamp_ms: int) -> bytes:
    """Format 1, of topics by name."""
    value = {"version": 1, "subscription": dict(streams), "pattern": STATIC, "timestamp": str(timestamp_ms)}
    return json.dumps(value, separators=(",", ":")).encode()


def decode_subscription(path: str, data: bytes) -> Subscription:
    """Format 1, by name or by a pattern. MalformedNodeError."""
    try:
        node: Any = json.loads(data)
        streams = {str(topic): int(count) for topic, count in node["subscription"].items()}
        pattern = str(node.get("pattern", STATIC))
        if pattern not in (STATIC, WHITE_LIST, BLACK_LIST):
            raise ValueError(pattern)
        if pattern != STATIC:
            (regex,) = streams
            re.compile(_python_regex(regex))
    except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
        raise MalformedNodeError(path, data) from error
    return Subscription(streams, pattern)


def encode_offset(offset: int) -> bytes:
    """A plain number."""
    return b"%d" % offset


def decode_offset(path: str, data: bytes) -> int:
    """A plain number, 0 or more. MalformedNodeError."""
    if not data.isdigit():
        raise MalformedNodeError(path, data)
    return int(data)


def _python_regex(text: str) -> str:
    """A topic filter as a regular expression: commas separate alternatives, spaces and quotes around it do not count."""
    return text.replace(",", "|").replace(" ", "").strip(_QUOTES)
