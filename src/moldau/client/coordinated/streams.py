"""Message streams of a group that shares partitions out in the coordination tree: what users call."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

from moldau.client.coordinated import nodes
from moldau.client.coordinated.member import MemberTiming
from moldau.client.coordinated.source import CoordinatedSource, SourceOptions
from moldau.client.coordinated.trees import in_shared_file, in_zookeeper
from moldau.client.session import Session
from moldau.client.settings import CLOSE_TIMEOUT_MS, ConsumerOptions, IsolationLevel, consumer_settings
from moldau.client.streams import FETCH_WAIT_MS, MessageStreams, streams_by_topic

OffsetsStorage = Literal["zookeeper", "kafka"]
_STARTS = ("smallest", "largest", "earliest", "latest")


def create_coordinated_streams(
    topics: str | Mapping[str, int],
    streams: int = 1,
    *,
    group_id: str,
    zookeeper_connect: str | None = None,
    metadata_store_file: str | None = None,
    bootstrap_servers: str | Sequence[str] | None = None,
    offsets_storage: OffsetsStorage = "zookeeper",
    dual_commit: bool = False,
    auto_offset_reset: Literal["smallest", "largest", "earliest", "latest"] = "smallest",
    auto_commit: bool = True,
    auto_commit_interval_ms: int = 5_000,
    session_timeout_ms: int = 6_000,
    rebalance_backoff_ms: int = 2_000,
    connection_timeout_ms: int = 30_000,
    close_timeout_ms: int = CLOSE_TIMEOUT_MS,
    max_poll_interval_ms: int = 300_000,
    client_id: str = "moldau",
    isolation_level: IsolationLevel = "read_committed",
    settings: Mapping[str, Any] | None = None,
) -> MessageStreams:
    """Streams as of `moldau.client.streams.create_message_streams`, of a group without a coordinator: its members find each other in the
    tree, and each rebalances by itself.

    The tree is in ZooKeeper (`zookeeper_connect`, ``HOST:PORT,HOST:PORT/CHROOT``) or in the file that the brokers of this host share
    (`metadata_store_file`). Without `bootstrap_servers` the brokers are those that are registered there. `offsets_storage`: where offsets
    are committed, in the tree ("zookeeper") or in the brokers ("kafka"); with `dual_commit` in both, while a group moves from the tree to
    the brokers. A member whose session has expired registers again. `rebalance_backoff_ms`: how long a partition is waited for that another
    member owns still, before the next attempt. ValueError for what cannot be meant, MissingExtraError without kazoo.
    """
    wanted = streams_by_topic(topics, streams)
    nodes.check_group(group_id)
    if auto_offset_reset not in _STARTS:
        raise ValueError(f"auto_offset_reset is one of {', '.join(_STARTS)}, not {auto_offset_reset!r}")
    if offsets_storage not in ("zookeeper", "kafka"):
        raise ValueError(f"offsets_storage is 'zookeeper' or 'kafka', not {offsets_storage!r}")
    if dual_commit and offsets_storage != "kafka":
        raise ValueError("dual_commit needs offsets_storage='kafka': it commits in the tree too")
    if (zookeeper_connect is None) == (metadata_store_file is None):
        raise ValueError("one of zookeeper_connect and metadata_store_file says where the coordination tree is")
    if min(session_timeout_ms, rebalance_backoff_ms, connection_timeout_ms, auto_commit_interval_ms) <= 0:
        raise ValueError("session_timeout_ms, rebalance_backoff_ms, connection_timeout_ms and auto_commit_interval_ms are above 0")
    if zookeeper_connect is not None:
        open_tree = in_zookeeper(zookeeper_connect, session_timeout_ms)
    else:
        assert metadata_store_file is not None, "checked above"
        open_tree = in_shared_file(metadata_store_file, session_timeout_ms)
    options = ConsumerOptions(
        client_id=client_id,
        auto_offset_reset=auto_offset_reset,
        auto_commit=False,
        isolation_level=isolation_level,
        close_timeout_ms=close_timeout_ms,
        settings=settings,
    )

    def settings_for(brokers: str | Sequence[str]) -> dict[str, Any]:
        return {"fetch.wait.max.ms": FETCH_WAIT_MS} | consumer_settings(brokers, group_id, options)

    settings_for(bootstrap_servers or "localhost:9092")  # what cannot be meant is refused now
    source = CoordinatedSource(
        open_tree,
        lambda found: Session(settings_for(bootstrap_servers or found), group_id, close_timeout_ms / 1000),
        SourceOptions(
            group=group_id,
            consumer=consumer_id(group_id),
            streams=wanted,
            timing=MemberTiming(
                session_timeout_s=session_timeout_ms / 1000,
                backoff_s=rebalance_backoff_ms / 1000,
                commit_interval_s=auto_commit_interval_ms / 1000 if auto_commit else None,
            ),
            auto_commit=auto_commit,
            begins_at_end=auto_offset_reset in ("largest", "latest"),
            in_tree=offsets_storage == "zookeeper" or dual_commit,
            in_brokers=offsets_storage == "kafka",
            connection_timeout_s=connection_timeout_ms / 1000,
            close_timeout_s=close_timeout_ms / 1000,
        ),
    )
    return MessageStreams(wanted, source, patience_s=max_poll_interval_ms / 1000)


def consumer_id(group: str) -> str:
    """A new id, as Kafka 0.8 makes them: group, host, time, and a part that is unique."""
    import socket

    host = socket.gethostname().replace("/", "-")
    return f"{group}_{host}-{time.time_ns() // 1_000_000}-{uuid4().hex[:8]}"
