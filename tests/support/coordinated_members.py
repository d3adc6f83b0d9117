"""Groups of members that share partitions out among themselves in a tree in memory, and read logs that are numbers."""

from collections.abc import Mapping
from functools import cache, partial

from moldau.client.coordinated import nodes
from moldau.client.coordinated.assignment import range_assignment
from moldau.client.coordinated.member import GroupMember, MemberTiming
from moldau.client.coordinated.offsets import TreeOffsets
from moldau.cluster import znodes
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Create, Outcome, SetData
from moldau.testing.clock import FakeClock
from moldau.testing.coordination import FakeTree

GROUP = "g"
SESSION_S = 6.0
owner_path = cache(partial(nodes.owner, GROUP))
offset_path = cache(partial(nodes.offset, GROUP))
TIMING = MemberTiming(session_timeout_s=SESSION_S, backoff_s=0.5, commit_interval_s=1.0)


class TreeOfTopics:
    """A tree with topics, and their logs: how many messages each partition has."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.clock = FakeClock()
        self.tree = FakeTree(self.clock)
        self.admin = self.tree.session()
        for path in ("/brokers", "/brokers/topics"):
            self.do(Create(path))
        self.logs: dict[TopicPartition, int] = {}
        for topic, partitions in topics.items():
            self.create_topic(topic, partitions)

    def do(self, request: Create | SetData) -> Outcome:
        outcomes: list[Outcome] = []
        self.admin.submit(request, outcomes.append)
        return outcomes[0]

    def owner(self, where: TopicPartition) -> tuple[str, int] | None:
        """The thread that owns a partition, and its session. Read often, so past all sessions."""
        node = self.tree._nodes.get(owner_path(where))
        return None if node is None else (node.data.decode(), node.owner)

    def committed(self, where: TopicPartition) -> int | None:
        node = self.tree._nodes.get(offset_path(where))
        return None if node is None else int(node.data)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._grow(topic, partitions)
        self.do(Create(znodes.topic(topic), znodes.encode_topic(bytes(16), [[0]] * partitions)))

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._grow(topic, partitions)
        self.do(SetData(znodes.topic(topic), znodes.encode_topic(bytes(16), [[0]] * partitions)))

    def _grow(self, topic: str, partitions: int) -> None:
        for partition in range(partitions):
            self.logs.setdefault(TopicPartition(topic, partition), 0)


class Member:
    """A member, and what it reads: a program with one loop over all its streams."""

    def __init__(
        self, world: TreeOfTopics, consumer: str, streams: Mapping[str, int], *, latency_s: float = 0.0, timing: MemberTiming = TIMING
    ) -> None:
        self.world = world
        self.name = consumer
        self.streams = dict(streams)
        self.session = world.tree.session(latency_s)
        self.timing = timing
        self.starts: list[tuple[TopicPartition, int | None]] = []
        """Where it began to read, of every partition that it ever got."""
        self.at: dict[TopicPartition, int] = {}
        """The next offset of each partition that it reads."""
        self.finished: dict[TopicPartition, int] = {}
        """Those that it has read and not stored."""
        self.is_closed = False
        self.member = GroupMember(
            self.session,
            world.clock,
            TreeOffsets(self.session, GROUP),
            self,
            group=GROUP,
            consumer=consumer,
            streams=streams,
            timing=timing,
        )
        self.member.start()

    # What the member calls

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        assert self.at == {}, "it has released all before"
        for where, offset in offsets.items():
            self.starts.append((where, offset))
            self.at[where] = offset or 0

    def stop(self) -> None:
        self.store()
        self.abandon()

    def abandon(self) -> None:
        self.at.clear()
        self.finished.clear()

    # What the program does

    def take(self, where: TopicPartition, most: int) -> range:
        """Read so many messages at most."""
        start = self.at[where]
        found = range(start, min(start + most, self.world.logs[where]))
        self.at[where] = self.finished[where] = found.stop if found else start
        return found

    def store(self) -> None:
        self.member.store(self.finished)
        self.finished.clear()

    def close(self) -> None:
        def closed() -> None:
            self.is_closed = True

        self.member.close(closed)


def expected_ranges(streams: Mapping[str, Mapping[str, int]], partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """The thread of each partition, where these consumers have so many streams of each topic. By the definition: one after another."""
    found = {}
    for topic, number in partitions.items():
        threads = sorted(f"{name}-{index}" for name, each in streams.items() for index in range(each.get(topic, 0)))
        for thread, mine in range_assignment(number, threads).items():
            found.update({TopicPartition(topic, partition): thread for partition in mine})
    return found
