"""Members of a group share partitions with every mainstream client: two share, a third joins, one is killed, one leaves.

Every record is processed once between them: a record counts when the offset behind it is committed. Records are produced all the while, but
for the moment of the kill, whose victim takes its last words with it.
"""

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from support.group_members import COMMANDS, GroupMember
from support.server import ServerProcess

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of the clients, not ours
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PARTITIONS = 6
EVERYTHING = set(range(PARTITIONS))
SESSION_MS = 1500
WAYS: dict[str, tuple[str, dict[str, str]]] = {name: (name, {}) for name in COMMANDS} | {
    "cooperative-sticky": ("confluent-kafka", {"strategy": "cooperative-sticky"})
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("groups"), settings={"group.min.session.timeout.ms": "500"}) as server:
        yield server


class Story:
    """A topic, the members of its group, and what was produced."""

    def __init__(self, name: str, way: str, server: ServerProcess, stack: contextlib.ExitStack) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        self.server, self.topic = server, f"{name}-{way}"
        self.group = f"group-{self.topic}"
        self.client, given = WAYS[way]
        self.settings = {"session_ms": str(SESSION_MS), **given}
        self.members: list[GroupMember] = []
        self.produced: list[str] = []
        self._stack = stack
        self._numbers = itertools.count()
        self._producer = Producer({"bootstrap.servers": server.bootstrap})
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap})
        self._admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(20)

    def come(self, **settings: str) -> GroupMember:
        """Another member."""
        command = COMMANDS[self.client](self.server.bootstrap, self.group, self.topic, self.settings | settings)
        self.members.append(self._stack.enter_context(GroupMember(command)))
        return self.members[-1]

    def produce(self, count: int) -> None:
        """Records in every partition."""
        for _ in range(count):
            for partition in range(PARTITIONS):
                value = f"v{next(self._numbers)}"
                self.produced.append(value)
                self._producer.produce(self.topic, value, partition=partition)
        assert self._producer.flush(20) == 0

    def shared_by(self, *members: GroupMember) -> None:
        """Wait until these share everything, each with a part; produce meanwhile."""

        def done() -> bool:
            self.produce(1)
            parts = [member.assigned for member in members]
            return all(parts) and set.union(*parts) == EVERYTHING and sum(map(len, parts)) == PARTITIONS

        members[-1].wait_for(done, f"{len(members)} members that share {self.topic}")

    def all_taken_once(self) -> None:
        """Every record so far was processed, and by one member."""
        expected = sorted(self.produced)

        def taken() -> list[str]:
            return sorted(value for member in self.members for _, _, value in member.taken)

        self.members[-1].wait_for(lambda: len(taken()) >= len(expected), "all records")
        assert taken() == expected
        for member in self.members:
            for partition in range(PARTITIONS):
                offsets = [offset for place, offset, _ in member.taken if place == partition]
                assert offsets == sorted(offsets)

    def all_committed(self) -> None:
        """Wait until no offset is missing: kcat commits when it likes to."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        def committed() -> int:
            asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])
            return sum(place.offset for place in asked[self.group].result(20).topic_partitions)

        self.members[-1].wait_for(lambda: committed() == len(self.produced), "all offsets")


@pytest.mark.parametrize("way", WAYS)
def test_members_share_join_die_and_leave(way: str, server: ServerProcess) -> None:
    with contextlib.ExitStack() as stack:
        story = Story("shared", way, server, stack)
        story.produce(10)
        first, second = story.come(), story.come()
        story.shared_by(first, second)
        third = story.come()
        story.shared_by(first, second, third)
        story.all_taken_once()
        story.all_committed()
        second.kill()
        story.shared_by(first, third)
        story.produce(10)
        if way == "kcat":
            story.all_taken_once()  # it loses what it has in hand when it is told to end
        first.leave()
        story.shared_by(third)
        story.produce(10)
        story.all_taken_once()
        assert third.assigned == EVERYTHING


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka", "java"])
def test_a_static_member_comes_back_unnoticed(client: str, server: ServerProcess) -> None:
    """It is killed, and comes back within its session: the others keep their partitions, it gets its own again."""
    with contextlib.ExitStack() as stack:
        story = Story("static", client, server, stack)
        long = {"session_ms": "20000"}
        first, second = story.come(instance="one", **long), story.come(instance="two", **long)
        story.shared_by(first, second)
        story.all_taken_once()
        story.all_committed()
        before, told = set(second.assigned), first.assignments
        second.kill()
        again = story.come(instance="two", **long)
        story.shared_by(first, again)
        story.all_taken_once()
        assert again.assigned == before
        assert first.assignments == told
