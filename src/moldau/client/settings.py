"""Arguments of producers and consumers as librdkafka's settings: safe where nothing is said.

Whatever librdkafka knows beyond the arguments goes into `settings`, under its own name ("socket.keepalive.enable"); there too stands what
is at odds with how the library works, and is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Acks = Literal["all", 0, 1, "0", "1"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
StartOffset = Literal["smallest", "largest", "earliest", "latest", "error"]
"""Where a group begins that has committed nothing, or whose offset is gone: P's words, or Kafka's (mission C3)."""
IsolationLevel = Literal["read_committed", "read_uncommitted"]
Assignor = Literal["range", "roundrobin", "cooperative-sticky"]

MISSING = "producers and consumers need confluent-kafka: pip install 'moldau[client]'"

QUEUE_MESSAGES_MAX = 100_000
QUEUE_KIB_MAX = 128 * 1024
"""What a producer holds of messages on their way; who sends faster waits."""

_OURS = {
    "on_delivery": "Delivery.add_done_callback",
    "dr_cb": "Delivery.add_done_callback",
    "delivery.report.only.error": "nothing: deliveries report themselves",
    "error_cb": "logging, and the exceptions of the calls",
    "logger": 'logging.getLogger("moldau.client")',
    "on_commit": "the exceptions of commit",
    "enable.auto.offset.store": "auto_commit",
    "enable.auto.commit": "auto_commit",
    "enable.partition.eof": "end_offsets",
}


def bootstrap_text(bootstrap_servers: str | Sequence[str]) -> str:
    """One string of brokers; ValueError says what is wrong with it."""
    from moldau.client.address import parse_addresses

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
    """Settings of a producer. ValueError for what cannot be meant together."""
    everybody = str(acks) in ("all", "-1")
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
        "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
        "queue.buffering.max.kbytes": QUEUE_KIB_MAX,
    }
    if transactional_id is not None:
        made["transactional.id"] = transactional_id
        made["transaction.timeout.ms"] = transaction_timeout_ms
        made["delivery.timeout.ms"] = min(delivery_timeout_ms, transaction_timeout_ms)
    return made | _checked(settings)


def consumer_settings(
    bootstrap_servers: str | Sequence[str],
    *,
    client_id: str,
    group_id: str | None,
    group_instance_id: str | None,
    auto_offset_reset: StartOffset,
    auto_commit: bool,
    auto_commit_interval_ms: int,
    isolation_level: IsolationLevel,
    assignor: Assignor | Sequence[Assignor],
    session_timeout_ms: int,
    max_poll_interval_ms: int,
    settings: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Settings of a consumer."""
    made: dict[str, Any] = {
        "bootstrap.servers": bootstrap_text(bootstrap_servers),
        "client.id": client_id,
        "group.id": group_id or f"{client_id} without a group",
        "auto.offset.reset": auto_offset_reset,
        "enable.auto.commit": auto_commit and group_id is not None,
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": auto_commit_interval_ms,
        "isolation.level": isolation_level,
        "partition.assignment.strategy": assignor if isinstance(assignor, str) else ",".join(assignor),
        "session.timeout.ms": session_timeout_ms,
        "max.poll.interval.ms": max(max_poll_interval_ms, session_timeout_ms),
    }
    if group_instance_id is not None:
        made["group.instance.id"] = group_instance_id
    return made | _checked(settings)


def _checked(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    for name in settings or {}:
        if name in _OURS:
            raise ValueError(f"setting {name} is the library's own; use {_OURS[name]}")
    return dict(settings or {})
