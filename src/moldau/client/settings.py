"""Arguments of producers and consumers as librdkafka's settings, with safe defaults.

A pattern leaves out internal topics. librdkafka has a setting for that, which holds for a consumer's whole life and for topics that are
named too; so a consumer is made for the topics that it subscribes to.

Further settings of librdkafka go into `settings`, under their own names ("socket.keepalive.enable"). One that an argument sets is refused
there, and so is one that contradicts how the library works.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from moldau.model.identity import TopicPartition
from moldau.model.topic_names import INTERNAL_PREFIX, is_internal, names_internal

if TYPE_CHECKING:
    from moldau.client.message import Headers
    from moldau.client.partitioning import Partitioner

_PATTERN = "^"


def hiding_settings(topics: Iterable[str]) -> dict[str, str]:
    """Settings of a consumer that subscribes to these. ValueError for internal topics beside a pattern that must not match them."""
    patterns = [each for each in topics if each.startswith(_PATTERN) and not names_internal(each)]
    internal = [each for each in topics if is_internal(each) or (each.startswith(_PATTERN) and names_internal(each))]
    if patterns and internal:
        raise ValueError(
            f"pattern {patterns[0]} leaves out internal topics, which {internal[0]} names: subscribe to them with a consumer of their own, "
            f"or begin the pattern with {_PATTERN}{INTERNAL_PREFIX}?"
        )
    return {"topic.blacklist": f"{_PATTERN}{INTERNAL_PREFIX}"} if patterns else {}


def checked_partitions(call: str, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """These partitions. TypeError for what `call` was given and is none; a pair of a topic and a number is one."""
    found = []
    for each in partitions:
        if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) and isinstance(each[1], int)):
            raise TypeError(f"{call} takes partitions, TopicPartition('orders', 0), not {each!r}")
        found.append(TopicPartition(*each))
    return found


def checked_offset(where: TopicPartition, offset: int) -> int:
    """This offset. ValueError where it is below 0."""
    if offset < 0:
        raise ValueError(f"partition {where[0]}-{where[1]}: an offset is 0 or more, not {offset}")
    return offset


Acks = Literal["all", 0, 1, "0", "1"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
StartOffset = Literal["smallest", "largest", "earliest", "latest", "error"]
"""Where a group begins that has committed nothing, or whose offset is out of range: in the words of Kafka 0.7, or of today."""
IsolationLevel = Literal["read_committed", "read_uncommitted"]
Assignor = Literal["range", "roundrobin", "cooperative-sticky"]


class ProducerOptions(TypedDict, total=False):
    """What a `moldau.client.producer.Producer` takes beside its brokers; see there."""

    client_id: str
    acks: Acks
    compression: Codec
    linger_ms: float
    delivery_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    partitioner: "Partitioner | None"
    settings: Mapping[str, Any] | None


class MessageOptions(TypedDict, total=False):
    """What `send` of a producer takes for all messages of a call that have none of their own."""

    key: bytes | str | None
    """Messages of one key go to one partition, in their order."""
    headers: "Headers | None"
    partition: int | None
    """Instead of the one that the key or the partitioner chooses."""
    timestamp: int | None
    """In ms since 1970; None: now."""


class ConsumerOptions(TypedDict, total=False):
    """What a `moldau.client.consumer.Consumer` takes beside its brokers, group and topics; see there."""

    client_id: str
    group_instance_id: str | None
    auto_offset_reset: StartOffset
    auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: IsolationLevel
    assignor: Assignor | Sequence[Assignor]
    session_timeout_ms: int
    max_poll_interval_ms: int
    close_timeout_ms: int
    settings: Mapping[str, Any] | None


REBOOTSTRAP_VERSION = 0x020C0000
NEW_TOPIC_WAIT_MS = 5_000
"""How long a producer waits for a topic that the brokers do not know: it may have been made a moment ago."""
MAX_POLL_INTERVAL_MS = 300_000
CLOSE_TIMEOUT_MS = 5_000
"""How long a consumer that is closed waits for its last commit."""
IDLE_MS_MAX = 20_000
"""A connection of a transactional producer that is silent for so long is closed."""
RECONNECT_MS_MAX = 1_000
"""Between two attempts to reach a broker that is away; so has the Java client."""
FETCH_PAUSE_MS = 10
"""How long a consumer fetches nothing of a partition of which 100,000 messages wait. Python empties that in a tenth of a second, and
would then wait for the rest of librdkafka's second: with a second it reads 114,000 messages/s, with this 290,000 to 360,000."""
QUEUE_MESSAGES_MAX = 100_000
QUEUE_KIB_MAX = 128 * 1024
"""Bounds of a producer's queue; `send` waits while it is full."""

_OURS = {
    "on_delivery": "Delivery.add_done_callback",
    "dr_cb": "Delivery.add_done_callback",
    "delivery.report.only.error": "nothing: deliveries report themselves",
    "error_cb": "logging, and the exceptions of the calls",
    "logger": 'logging.getLogger("moldau.client")',
    "on_commit": "logging, and the exceptions of commit and close",
    "enable.auto.offset.store": "auto_commit",
    "enable.partition.eof": "end_offsets",
}
_ARGUMENTS = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.id": "client_id",
    "acks": "acks",
    "request.required.acks": "acks",
    "compression.type": "compression",
    "compression.codec": "compression",
    "linger.ms": "linger_ms",
    "queue.buffering.max.ms": "linger_ms",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "message.timeout.ms": "delivery_timeout_ms",
    "transactional.id": "transactional_id",
    "transaction.timeout.ms": "transaction_timeout_ms",
    "group.id": "group_id",
    "group.instance.id": "group_instance_id",
    "auto.offset.reset": "auto_offset_reset",
    "enable.auto.commit": "auto_commit",
    "auto.commit.enable": "auto_commit",
    "auto.commit.interval.ms": "auto_commit_interval_ms",
    "isolation.level": "isolation_level",
    "partition.assignment.strategy": "assignor",
    "session.timeout.ms": "session_timeout_ms",
    "max.poll.interval.ms": "max_poll_interval_ms",
}
"""Arguments by librdkafka's names for them; older names too."""
_QUOTED = re.compile(r"[\"`]?\b([a-z]+(?:\.[a-z]+)+|acks)\b[\"`]?")


def in_our_words(complaint: str) -> str:
    """librdkafka's message about a setting, with the names of our arguments."""
    return _QUOTED.sub(lambda found: _ARGUMENTS.get(found[1], found[0]), complaint).strip()


def bootstrap_text(bootstrap_servers: str | Sequence[str]) -> str:
    """One string of brokers; ValueError names the fault."""
    from moldau.model.host_port import parse_addresses

    text = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
    parse_addresses(text)
    return text


def producer_settings(
    bootstrap_servers: str | Sequence[str],
    *,
    client_id: str,
    acks: Acks,
    compression: Codec,
    linger_ms: float,
    delivery_timeout_ms: int,
    transactional_id: str | None,
    transaction_timeout_ms: int,
    settings: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Settings of a producer. ValueError for options that contradict each other."""
    if str(acks) not in ("all", "-1", "0", "1"):
        raise ValueError(f"acks is 'all', 1 or 0, not {acks!r}")
    everybody = str(acks) in ("all", "-1")
    if transactional_id == "":
        raise ValueError("the transactional id is empty; None is for a producer without transactions")
    if transactional_id is not None and not everybody:
        raise ValueError(f"transactional id {transactional_id}: a transaction needs acks='all', not {acks!r}")
    made: dict[str, Any] = {
        "bootstrap.servers": bootstrap_text(bootstrap_servers),
        "client.id": client_id,
        "acks": str(acks),
        "enable.idempotence": everybody,
        "partitioner": "murmur2_random",
        "compression.type": compression,
        "linger.ms": linger_ms,
        "delivery.timeout.ms": delivery_timeout_ms,
        "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
        "topic.metadata.propagation.max.ms": NEW_TOPIC_WAIT_MS,
        "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
        "queue.buffering.max.kbytes": QUEUE_KIB_MAX,
    }
    if transactional_id is not None:
        made["transactional.id"] = transactional_id
        made["transaction.timeout.ms"] = transaction_timeout_ms
        made["delivery.timeout.ms"] = min(delivery_timeout_ms, transaction_timeout_ms)
        # Librdkafka looks for a group's coordinator three times within 300 ms, and then again only when a connection is made or ends,
        # whatever the call's time limit (issue 5456); nor does it see that it has dropped the one it knew, which the brokers named no more
        # (5511). Connections that end for being idle wake it.
        made["connections.max.idle.ms"] = IDLE_MS_MAX
        # Once all brokers were away at a time, librdkafka 2.12 and later restart from the bootstrap servers, and committing offsets in a
        # transaction then waits for ever for a coordinator that they have forgotten (librdkafka issues 5456 and 5511).
        from confluent_kafka import libversion

        if libversion()[1] >= REBOOTSTRAP_VERSION:
            made["metadata.recovery.strategy"] = "none"
    return made | _checked(settings)


def consumer_settings(bootstrap_servers: str | Sequence[str], group_id: str | None, options: ConsumerOptions) -> dict[str, Any]:
    """Settings of a consumer, with defaults. ValueError, TypeError for invalid options."""
    if group_id == "":
        raise ValueError("the group id is empty; None is for a consumer without a group")
    if options.get("close_timeout_ms", CLOSE_TIMEOUT_MS) < 0:
        raise ValueError(f"close_timeout_ms is 0 or more, not {options['close_timeout_ms']}")
    unknown = sorted(set(options) - ConsumerOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"unknown options: {', '.join(unknown)}")
    client_id = options.get("client_id", "moldau")
    session_timeout_ms = options.get("session_timeout_ms", 45_000)
    assignor = options.get("assignor", ("range", "roundrobin"))
    made: dict[str, Any] = {
        "bootstrap.servers": bootstrap_text(bootstrap_servers),
        "client.id": client_id,
        "group.id": group_id or f"{client_id} without a group",
        "auto.offset.reset": options.get("auto_offset_reset", "smallest"),
        "enable.auto.commit": options.get("auto_commit", True) and group_id is not None,
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": options.get("auto_commit_interval_ms", 5_000),
        "isolation.level": options.get("isolation_level", "read_committed"),
        "partition.assignment.strategy": assignor if isinstance(assignor, str) else ",".join(assignor),
        "session.timeout.ms": session_timeout_ms,
        "max.poll.interval.ms": max(options.get("max_poll_interval_ms", MAX_POLL_INTERVAL_MS), session_timeout_ms),
        "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
        "fetch.queue.backoff.ms": FETCH_PAUSE_MS,
        "check.crcs": True,
    }
    if options.get("group_instance_id") is not None:
        made["group.instance.id"] = options["group_instance_id"]
    return made | _checked(options.get("settings"))


def _checked(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    for name in settings or {}:
        if name in _ARGUMENTS:
            raise ValueError(f"setting {name} is set by the argument {_ARGUMENTS[name]}")
        if name in _OURS:
            raise ValueError(f"setting {name} is the library's own; use {_OURS[name]}")
    return dict(settings or {})
