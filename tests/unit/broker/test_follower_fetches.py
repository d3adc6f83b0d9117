"""What followers send: requests of a session that name what has changed, at once for a partition that is new, ahead of large answers."""

from collections.abc import Sequence
from typing import Any

import pytest

from moldau.broker.handlers.fetch.operation import Fetch
from moldau.broker.handlers.fetch.sessions import SessionPartition
from moldau.broker.replicas.fetchers import SourceFetcher
from moldau.fetching import messages
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.fast.fetch import FetchFramePartition, FetchPartitionResult
from moldau.protocol.messages.fetch import FetchRequest
from support.replica_world import ReplicaWorld, produced

MANY = 100


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[FetchRequest]:
    """The Fetch requests of followers, as they are sent."""
    requests: list[FetchRequest] = []
    request = SourceFetcher._request

    def note(self: SourceFetcher, api_key: ApiKey, message: Any, *rest: Any) -> None:
        if isinstance(message, FetchRequest):
            requests.append(message)
        request(self, api_key, message, *rest)

    monkeypatch.setattr(SourceFetcher, "_request", note)
    return requests


def named(request: FetchRequest) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


def test_with_many_partitions_a_request_names_those_that_have_changed(sent: list[FetchRequest]) -> None:
    world = ReplicaWorld(2, partitions=MANY)
    for index in range(MANY):
        world.lead(1, index=index)
    world.run(1.0)
    assert len(world.worlds[1].broker.fetch_sessions) == 1
    assert world.worlds[1].broker.fetch_sessions.partitions == MANY
    sent.clear()
    world.run(2.0)
    assert [named(request) for request in sent] == [[]] * 4, "one each half second"
    sent.clear()
    client = world.append(1, b"a", partition=7)
    world.run(0.1)
    assert produced(client) == [(0, 0)]
    assert [named(request) for request in sent] == [[7]]


def test_a_partition_that_is_added_while_a_fetch_waits_is_not_kept_waiting() -> None:
    world = ReplicaWorld(2, partitions=2)
    world.lead(1)
    world.run(0.1)
    assert world.worlds[1].broker.purgatory.waiting == 1
    world.lead(1, index=1)
    client = world.append(1, b"a", partition=1)
    world.run()
    assert produced(client) == [(0, 0)], "acknowledged with no time passing"


def test_the_others_are_fetched_while_a_large_answer_is_applied(sent: list[FetchRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LARGE_BYTES", 1000)
    world = ReplicaWorld(2, partitions=2)
    world.lead(1)
    world.lead(1, index=1)
    world.run(0.1)
    sent.clear()
    client = world.append(1, b"x" * 2000)
    world.run(0.1)
    assert produced(client) == [(0, 0)]
    assert [(named(request), [each.partitions for each in request.forgotten_topics_data]) for request in sent] == [([], [[0]]), ([0], [])]
    assert world.values(2) == [b"x" * 2000]
    other = world.append(1, b"y" * 2000, partition=1)
    world.run(0.1)
    assert produced(other) == [(0, 0)]


@pytest.mark.parametrize("how", ["evicted", "epoch", "connection"])
def test_a_session_that_is_lost_at_the_leader_is_opened_again(sent: list[FetchRequest], how: str) -> None:
    world = ReplicaWorld(2, partitions=2)
    world.lead(1)
    world.lead(1, index=1)
    world.run(0.1)
    sessions = world.worlds[1].broker.fetch_sessions
    (session,) = sessions._sessions.values()
    if how == "evicted":
        sessions._close(session)
    elif how == "epoch":
        session.epoch += 5
    else:
        world.cut()
    client = world.append(1, b"a")
    world.run(1.0)
    assert produced(client) == [(ErrorCode.NONE, 0)]
    assert world.values(2) == [b"a"]
    assert (len(sessions), sessions.partitions) == (1, 2), "the earlier one is closed"


def test_without_room_for_sessions_followers_send_full_requests(sent: list[FetchRequest]) -> None:
    world = ReplicaWorld(2, partitions=2, max_incremental_fetch_session_cache_slots=0)
    world.lead(1)
    world.lead(1, index=1)
    world.run(1.0)
    client = world.append(1, b"a", partition=1)
    world.run(1.0)
    assert produced(client) == [(0, 0)]
    assert named(sent[-1]) == [1, 0] or named(sent[-1]) == [0, 1]
    sent.clear()
    world.run(2.0)
    assert len(sent) in (3, 4), "each waits at the leader"


def test_a_follower_that_has_truncated_learns_what_is_committed_though_nothing_more_happens() -> None:
    world = ReplicaWorld(2)
    world.lead(1)
    world.append(1, b"a")
    world.run()
    assert (world.machine(1).high_watermark, world.machine(2).high_watermark) == (1, 0)
    world.lead(2, followers=[])
    world.append(2, b"only here", acks=1)
    world.lead(1, isr=(1,))
    world.run(2.0)
    assert world.values(2) == [b"a"]
    assert world.machine(2).high_watermark == 1


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that leaders read, one after the other."""
    partitions: list[int] = []
    read_some = Fetch.read_some

    def note(self: Fetch, topic: bytes, wanted: Sequence[FetchFramePartition]) -> list[FetchPartitionResult]:
        partitions.extend(each.partition for each in wanted)
        return read_some(self, topic, wanted)

    monkeypatch.setattr(Fetch, "read_some", note)
    return partitions


def world_of_ten() -> ReplicaWorld:
    world = ReplicaWorld(3, partitions=10)
    for index in range(10):
        world.lead(1, index=index)
    world.run(1.1)
    return world


def test_what_rests_is_not_read_again(read: list[int]) -> None:
    world = world_of_ten()
    read.clear()
    client = world.append(1, b"a", partition=3)
    world.run(0.1)
    assert produced(client) == [(0, 0)]
    assert set(read) == {3}
    assert len(read) == 4, "by either follower, to be sent and when it has it"
    read.clear()
    client = world.append(1, b"a", partition=7)
    world.run(0.1)
    assert produced(client) == [(0, 0)]
    assert set(read) == {3, 7}, "of the first the followers learn that it is committed"
    world.run(2.0)
    assert world.worlds[2].broker.replicas.hosted[TopicPartition("t", 3)].machine.high_watermark == 1


def test_a_follower_of_what_rests_keeps_up(read: list[int]) -> None:
    world = world_of_ten()
    read.clear()
    world.run(60.0)
    assert not read
    now_s = world.clock.monotonic()
    for hosted in world.worlds[1].broker.replicas.partitions:
        for follower in hosted.machine.followers.values():
            assert now_s - follower.caught_up_s < 1.0
            assert now_s - follower.fetched_s < 1.0


def test_another_term_is_read_though_nothing_was_written(read: list[int]) -> None:
    world = world_of_ten()
    read.clear()
    world.lead(1, index=4)
    world.run(1.0)
    assert set(read) == {4}
    assert len(world.worlds[1].broker.replicas.hosted[TopicPartition("t", 4)].machine.followers) == 2


def test_what_is_no_longer_led_is_answered_at_once(read: list[int]) -> None:
    world = world_of_ten()
    read.clear()
    error = PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the session has expired")
    leader = world.worlds[1].broker.replicas
    leader.lose_leadership(leader.hosted[TopicPartition("t", 5)], error)
    world.run(0.01)
    assert set(read) == {5}


def test_a_fetch_that_has_waited_looks_at_what_has_changed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of_ten()
    looked: list[int] = []
    rests = SessionPartition.rests

    def note(self: SessionPartition, replica_id: int, replica_epoch: int, now_s: float | None) -> Any:
        looked.append(self.wanted.partition)
        return rests(self, replica_id, replica_epoch, now_s)

    monkeypatch.setattr(SessionPartition, "rests", note)
    client = world.append(1, b"a", partition=3)
    assert looked == [3, 3], "once for either follower's fetch"
    world.run(0.1)
    assert produced(client) == [(0, 0)]
    assert len(looked) == 22, "all when the next fetch comes"


def test_a_partition_that_is_served_from_another_log_is_read_while_a_fetch_waits() -> None:
    world = world_of_ten()
    replicas = world.worlds[1].broker.replicas
    hosted = replicas.hosted[TopicPartition("t", 3)]
    replicas.change_log(hosted, hosted.log)
    client = world.append(1, b"a", partition=3)
    world.run()
    assert produced(client) == [(0, 0)], "with no time passing"
