"""Produce requests with acks all of a partition with followers, on their shortest way: the rows of a read wait at the gate as one.

Each test runs with the shortest way open and closed, and expects the same answers.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from moldau.broker.handlers.produce.fast_path import ProduceFastPath
from moldau.model.errors import ErrorCode, PeerError
from moldau.ports.transport import Part
from support.broker_world import Client, batch, produce_request
from support.replica_world import TOPIC_ID, ReplicaWorld, produced

OK = ErrorCode.NONE
AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@pytest.fixture(autouse=True, params=["shortest", "general"])
def staged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What went the shortest way."""
    rows: list[bool] = []
    stage = ProduceFastPath.stage

    def noted(self: ProduceFastPath, frame: memoryview, correlation_id: int, now_ms: int) -> bool:
        if request.param == "general":
            return False
        rows.append(stage(self, frame, correlation_id, now_ms))
        return rows[-1]

    monkeypatch.setattr(ProduceFastPath, "stage", noted)
    return rows


@pytest.fixture
def world() -> ReplicaWorld:
    made = ReplicaWorld(3, min_insync_replicas=2)
    made.lead(1)
    made.run(0.1)
    return made


def frame(client: Client, *values: bytes, timeout_ms: int = 1000, **producer: Any) -> bytes:
    request = produce_request(TOPIC_ID, batch(client.world, *values, **producer), acks=-1)
    request.timeout_ms = timeout_ms
    return client.frame(request, 13)


def known(world: ReplicaWorld, **options: Any) -> Client:
    """A connection that has sent a request of the usual kind."""
    client = world.client(1)
    client.peer.send(frame(client, b"first", **options))
    world.run(0.1)
    assert produced(client) == [(OK, 0)]
    return client


def test_requests_of_one_read_are_acknowledged_when_the_followers_have_them(world: ReplicaWorld, staged: list[bool]) -> None:
    client = known(world)
    client.peer.send(b"".join(frame(client, *values) for values in ((b"a",), (b"b", b"c"), (b"d",))))
    assert produced(client) == [], "the followers have none"
    assert world.machine(1).log_end_offset == 5
    world.run(0.1)
    assert produced(client) == [(OK, 1), (OK, 2), (OK, 4)]
    assert world.values(2) == world.values(3) == [b"first", b"a", b"b", b"c", b"d"]
    assert staged in ([], [True] * 3)


def test_a_request_in_between_that_is_not_usual_keeps_the_order(world: ReplicaWorld, staged: list[bool]) -> None:
    client = known(world)
    client.peer.send(frame(client, b"a") + frame(client, b"b", timeout_ms=900) + frame(client, b"c"))
    world.run(0.1)
    assert produced(client) == [(OK, 1), (OK, 2), (OK, 3)]
    assert staged in ([], [True, False, False, True])


def test_partitions_in_turn_go_the_shortest_way_and_are_answered_in_order(staged: list[bool]) -> None:
    world = ReplicaWorld(3, partitions=2)
    world.lead(1)
    world.lead(1, index=1)
    world.run(0.1)
    client = world.client(1)
    requests = [produce_request(TOPIC_ID, batch(client.world, b"x"), partition=number % 2, acks=-1) for number in range(8)]
    for request in requests[:2]:
        client.send(request, 13)
    world.run(0.1)
    staged.clear()
    client.peer.send(b"".join(client.frame(request, 13) for request in requests[2:]))
    assert staged.count(True) in (0, 6)
    assert len(client.answers()) == 2, "the first ones"
    world.run(0.1)
    answers = [each.body.responses[0].partition_responses[0] for each in client.answers()]
    found = [(each.index, each.error_code, each.base_offset) for each in answers]
    assert found == [(index, OK, offset) for offset in (1, 2, 3) for index in (0, 1)]


def test_ways_that_are_closed_are_forgotten(staged: list[bool]) -> None:
    world = ReplicaWorld(2, partitions=2)
    world.lead(1)
    world.lead(1, index=1)
    world.run(0.1)
    client = world.client(1)
    (*_, connection) = world.worlds[1].broker.connections
    for index in (0, 1):
        client.send(produce_request(TOPIC_ID, batch(client.world, b"x"), partition=index, acks=-1), 13)
    assert len(connection._producing._paths) == 2
    world.worlds[1].broker.replicas.appends.permits.value += 1
    client.send(produce_request(TOPIC_ID, batch(client.world, b"x"), partition=0, acks=-1), 13)
    assert len(connection._producing._paths) == 1


def test_ways_of_all_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.broker.handlers.produce.handler.PATHS_KEPT_MAX", 3)
    world = ReplicaWorld(2, partitions=2)
    world.lead(1)
    world.lead(1, index=1)
    world.run(0.1)
    appends = world.worlds[1].broker.replicas.appends
    clients = [world.client(1) for _ in range(3)]
    for client in clients:
        for index in (0, 1):
            client.send(produce_request(TOPIC_ID, batch(client.world, b"x"), partition=index, acks=-1), 13)
    world.run(0.1)
    assert appends.paths_kept == 3
    assert [len(client.answers()) for client in clients] == [2, 2, 2]
    for connection in list(world.worlds[1].broker.connections):
        connection.connection_lost(None)
    assert appends.paths_kept == 0


def test_what_one_fetch_acknowledges_leaves_with_one_send(world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    client = known(world)
    sends: list[int] = []
    send = client.peer.transport.send

    def noted(parts: Sequence[Part]) -> None:
        sends.append(len(parts))
        send(parts)

    monkeypatch.setattr(client.peer.transport, "send", noted)
    for value in (b"a", b"b", b"c"):
        client.peer.send(frame(client, value))
    world.run(0.1)
    assert produced(client) == [(OK, 1), (OK, 2), (OK, 3)]
    assert sends == [1, 2], "the followers waited for the first, and fetched the others together"


def test_a_batch_that_is_sent_again_waits_too(world: ReplicaWorld) -> None:
    client = known(world)
    other = frame(client, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    again = frame(client, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    client.peer.send(other)
    client.peer.send(again)
    assert produced(client) == []
    world.run(0.1)
    assert produced(client) == [(OK, 1), (OK, 1)]


def test_the_timeout_of_the_request_ends_the_wait(world: ReplicaWorld) -> None:
    client = known(world)
    world.kill(2)
    client.peer.send(frame(client, b"a") + frame(client, b"b"))
    world.run(0.9)
    assert produced(client) == []
    world.run(0.2)
    assert produced(client) == [(ErrorCode.REQUEST_TIMED_OUT, -1)] * 2
    assert world.values(1) == [b"first", b"a", b"b"], "it may be committed later"


def test_with_too_few_in_sync_what_waits_fails_and_what_comes_is_refused(world: ReplicaWorld) -> None:
    client = known(world)
    world.kill(2)
    world.kill(3)
    client.peer.send(frame(client, b"a") + frame(client, b"b"))
    assert produced(client) == []
    world.lead(1, isr=(1,), followers=[])
    assert produced(client) == [(AFTER_APPEND, -1)] * 2
    client.peer.send(frame(client, b"c"))
    assert produced(client) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert world.values(1) == [b"first", b"a", b"b"]


def test_a_leader_that_loses_its_partition_answers_so(world: ReplicaWorld) -> None:
    client = known(world)
    world.kill(2)
    client.peer.send(frame(client, b"a") + frame(client, b"b"))
    replicas = world.worlds[1].broker.replicas
    replicas.lose_leadership(world.hosted(1), PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads"))
    assert produced(client) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 2


def test_what_a_lost_connection_waited_for_leaves_the_gate(world: ReplicaWorld) -> None:
    client = known(world)
    world.kill(2)
    client.peer.send(frame(client, b"a") + frame(client, b"b"))
    gate = world.hosted(1).gate
    assert gate is not None
    assert len(gate) in (1, 2)
    client.peer.disconnect()
    world.run()
    assert len(gate) == 0


def test_a_set_in_sync_of_the_leader_alone_waits_for_nothing() -> None:
    world = ReplicaWorld(2)
    world.lead(1)
    world.run(0.1)
    client = known(world)
    world.kill(2)
    world.lead(1, isr=(1,), followers=[])
    client.peer.send(frame(client, b"a"))
    assert produced(client) == [(OK, 1)]
