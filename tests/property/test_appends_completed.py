"""Each append is completed once, not before its batches have reached their levels, and never inside another append.

A whole broker gets appends of all acks to three partitions: one that is acknowledged by the write, one whose acknowledgements wait for the
disk, one with a follower in sync. What is called when an append is completed may itself append and write, delete a partition, or close a
connection that waits. Meanwhile writes and syncs fail, for lack of room or for good, syncs end or not, the follower fetches or not, the
in-sync set changes, new leader epochs begin, time passes. After every step nothing is staged, and in the end nothing waits.
"""

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.broker.replicas.append_batch import AppendBatch
from moldau.broker.replicas.manager import FollowerState, LeaderState
from moldau.broker.replicas.partition_events import Level
from moldau.model.errors import PeerError, StorageError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.header import check_batch
from support.broker_world import BrokerWorld, batch, fetch_request, produce_request
from support.sizes import sized

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition

TOPICS = ("plain", "safe", "followed")
APPEND = st.tuples(
    st.just("append"),
    st.lists(st.integers(0, 2), min_size=1, max_size=3),
    st.sampled_from((0, 1, -1, -1)),
    st.sampled_from(("", "", "append", "delete", "close")),
)
STEPS = st.one_of(
    APPEND,
    APPEND,
    APPEND,
    st.tuples(st.just("append_at_once"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("produce"), st.integers(0, 2), st.sampled_from((1, -1))),
    st.tuples(st.just("disk"), st.sampled_from(("works", "works", "full", "append", "sync"))),
    st.tuples(st.just("sync")),
    st.tuples(st.just("fetch"), st.integers(0, 3)),
    st.tuples(st.just("isr"), st.booleans(), st.integers(0, 1)),
    st.tuples(st.just("follow")),
    st.tuples(st.just("stop"), st.integers(0, 2)),
    st.tuples(st.just("time"), st.integers(1, 40)),
)


class Completion:
    """One append, and what it does when it is completed."""

    def __init__(self, story: "Story", places: list[int], acks: int, then: str) -> None:
        self.story, self.acks, self.then = story, acks, then
        self.batches = [AppendBatch(story.partitions[place], story.records(), check_batch(story.records())) for place in places]
        self.done = 0

    def __call__(self) -> None:
        story = self.story
        assert not story.appending, "completed inside an append"
        self.done += 1
        for each in self.batches:
            machine = each.partition.machine
            if each.error is None and each.partition.is_open:
                assert each.in_log
                assert self.acks == 0 or each.last_offset < machine.open_offset(each.level)
                assert each.last_offset < machine.log_end_offset
        if self.then == "append" and any(each.partition.is_led for each in self.batches):
            story.append([0, 1], self.acks, "")
        elif self.then == "delete":
            story.world.broker.replicas.stop([self.batches[0].partition.topic_partition], delete=True)
        elif self.then == "close":
            story.client.peer.transport.abort()


class Story:
    def __init__(self) -> None:
        self.world = BrokerWorld(immediate=False)
        for name in TOPICS:
            self.world.create_topic(name, **({"flush_messages": 1} if name == "safe" else {}))
        self.world.background.run_all()
        self.partitions: list[HostedPartition] = [self.world.partition(name) for name in TOPICS]
        self.settings = {name: self.world.broker.topic_settings.of(self.world.broker.metadata.topic_config(name)) for name in TOPICS}
        self.client = self.world.connect()
        self.follower = self.world.connect()
        self.completions: list[Completion] = []
        self.appending = False
        self.isr(True, 0)

    def records(self) -> memoryview:
        return memoryview(bytearray(batch(self.world, b"v")))

    def append(self, places: list[int], acks: int, then: str) -> None:
        completion = Completion(self, places, acks, then)
        self.completions.append(completion)
        replicas = self.world.broker.replicas
        self.appending = True
        replicas.append(completion.batches, acks, self.world.clock.time_ms(), completion, timeout_ms=10_000)
        self.appending = False
        replicas.write_staged()
        assert all(each.in_log or each.error is not None for each in completion.batches)

    def append_at_once(self, place: int, behind: bool) -> None:
        """A batch that is written by itself, also if another is staged in its log."""
        replicas, now_ms = self.world.broker.replicas, self.world.clock.time_ms()
        completion, before = Completion(self, [place], -1, ""), Completion(self, [place], 1, "")
        self.completions.append(completion)
        if behind:
            self.completions.append(before)
            replicas.append(before.batches, before.acks, now_ms, before)
        (batch,) = completion.batches
        replicas.append_at_once(batch, now_ms)

        def reached(error: PeerError | StorageError | None) -> None:
            batch.error = error
            completion()

        if batch.error is not None or batch.level is Level.WRITTEN:
            assert batch.in_log is (batch.error is None)
            completion()
        else:
            replicas.wait(batch.partition, batch.last_offset, batch.level, reached)
        replicas.write_staged()
        if behind and batch.in_log and before.batches[0].in_log:
            assert before.batches[0].last_offset == batch.base_offset - 1

    def produce(self, place: int, acks: int) -> None:
        if self.client.peer.transport.closed:
            self.client = self.world.connect()
        self.client.send(produce_request(TOPICS[place], batch(self.world, b"v"), acks=acks), 9)

    def disk(self, how: str) -> None:
        disk = self.world.disk
        disk.capacity = 0 if how == "full" else None
        disk.fail = None if how in ("works", "full") else lambda operation, path: operation == how and path.endswith(".log")

    def sync(self) -> None:
        if self.world.background.jobs:
            self.world.background.run_next()

    def fetch(self, behind: int) -> None:
        partition = self.partitions[2]
        request = fetch_request("followed", max(partition.log.log_end_offset - behind, 0), max_wait_ms=0)
        request.replica_id = 1
        request.topics[0].partitions[0].current_leader_epoch = partition.machine.leader_epoch
        self.follower.ask(request, 12)

    def isr(self, follower: bool, epochs: int) -> None:
        partition = self.partitions[2]
        if partition.is_open:
            machine = partition.machine
            state = LeaderState(machine.leader_epoch + epochs, machine.state_version + 1, (0, 1), (0, 1) if follower else (0,))
            if not partition.is_led:
                state = state._replace(epoch=machine.leader_epoch + 1)
            self.become(state)

    def follow(self) -> None:
        partition = self.partitions[2]
        if partition.is_led:
            machine = partition.machine
            replicas = self.world.broker.replicas
            state = FollowerState(machine.leader_epoch + 1, machine.state_version + 1, (0, 1), 1)
            replicas.become_follower(partition.topic_partition, state, partition.topic_id, self.settings["followed"])

    def become(self, state: LeaderState) -> None:
        partition = self.partitions[2]
        try:
            self.world.broker.replicas.become_leader(TopicPartition("followed", 0), state, partition.topic_id, self.settings["followed"])
        except StorageError:
            assert self.world.disk.capacity is not None or self.world.disk.fail is not None

    def stop(self, place: int) -> None:
        """What waits for the partition fails at once."""
        partition = self.partitions[place]
        self.world.broker.replicas.stop([partition.topic_partition], delete=False)
        assert partition.gate is None or len(partition.gate) == 0

    def time(self, tenths: int) -> None:
        self.world.clock.advance(tenths / 10)

    def end(self) -> None:
        """All is well again: nothing waits for ever."""
        self.disk("works")
        self.world.background.run_all()
        if self.partitions[2].is_led:
            self.fetch(0)
        self.world.clock.advance(11)
        self.world.background.run_all()
        self.world.clock.settle()


def step(story: Story, action: str, *args: Any) -> None:
    getattr(story, action)(*args)
    story.world.clock.settle()
    story.world.check_replicas()
    for each in story.completions:
        assert each.done <= 1


@settings(max_examples=sized(80, 5000), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=5, max_size=30))
def test_each_append_is_completed_once_and_not_too_early(steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    for action, *args in steps:
        step(story, action, *args)
    story.end()
    assert [each.done for each in story.completions] == [1] * len(story.completions)
    if not story.client.peer.transport.closed:
        story.client.answers()
        assert story.client.expected == [], "a request without its answer"
