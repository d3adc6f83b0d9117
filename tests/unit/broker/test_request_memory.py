"""What peers have sent in part takes bounded memory over all of them, and nobody waits for ever."""

import struct
from typing import Any

import pytest

from moldau.broker.admission.memory import READ_BYTES, SMALL_BYTES, RequestMemory
from moldau.protocol.messages.group_members import HeartbeatRequest
from moldau.testing.clock import FakeClock
from support.broker_world import BrokerWorld, Client, batch, produce_request

BOUND = 1_000_000
FRAME = 400_000
TIMEOUT_S = 10


@pytest.fixture
def world() -> BrokerWorld:
    made = BrokerWorld(queued_max_request_bytes=BOUND, incomplete_request_timeout_ms=TIMEOUT_S * 1000)
    made.create_topic("t")
    return made


def large(world: BrokerWorld, client: Client) -> bytes:
    """A Produce request of some hundred kilobytes."""
    return client.frame(produce_request("t", batch(world, b"x" * FRAME)), 9)


def send_part(world: BrokerWorld, count: int = 200_000) -> tuple[Client, bytes]:
    """A client that has sent that much of a large request, and the rest of it."""
    client = world.connect()
    frame = large(world, client)
    client.peer.send(frame[:count])
    return client, frame[count:]


def held(world: BrokerWorld) -> int:
    return sum(connection.held_bytes for connection in world.broker.connections)


def push(world: BrokerWorld, clients: list[tuple[Client, bytes]]) -> None:
    for _ in range(400):
        world.clock.settle()
        for client, _ in clients:
            client.peer.push()


def test_the_memory_of_incomplete_requests_is_bounded_over_all_connections(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(50)]
    push(world, clients)
    memory = world.broker.request_memory
    assert memory.held == held(world)
    assert memory.held <= BOUND + FRAME + 1000 + 50 * (SMALL_BYTES + READ_BYTES)
    assert memory.waiting > 0


def test_short_requests_are_served_meanwhile(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(50)]
    assert world.broker.request_memory.exhausted
    other = world.connect()
    for _ in range(10):
        assert other.ask(HeartbeatRequest("g", 1, "m"), 4).error_code
    assert len(clients) == 50


def test_all_who_send_on_are_served_one_after_the_other(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(20)]
    for client, rest in clients:
        client.peer.send(rest)
    push(world, clients)
    codes = [client.answers()[0].body.responses[0].partition_responses[0].error_code for client, _ in clients]
    assert codes == [0] * 20
    assert (world.broker.request_memory.held, world.broker.request_memory.waiting) == (0, 0)


def test_who_sends_nothing_more_is_closed_and_others_get_on(world: BrokerWorld) -> None:
    silent = [send_part(world) for _ in range(10)]
    late, rest = send_part(world)
    late.peer.send(rest)
    push(world, [*silent, (late, b"")])
    assert late.answers() == []
    for _ in range(TIMEOUT_S + 3):
        world.clock.advance(1)
        late.peer.push()
    push(world, [(late, b"")])
    assert all(client.closed for client, _ in silent)
    assert world.broker.request_memory.cut >= 10


def test_while_there_is_memory_nobody_is_hurried(world: BrokerWorld) -> None:
    client, rest = send_part(world)
    world.clock.advance(10 * TIMEOUT_S)
    client.peer.send(rest)
    assert client.answers()[0].body.responses[0].partition_responses[0].error_code == 0


def test_what_a_lost_connection_held_is_there_again(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(20)]
    for client, _ in clients:
        client.peer.disconnect()
    world.clock.settle()
    assert (world.broker.request_memory.held, world.broker.request_memory.waiting) == (0, 0)


def test_a_request_split_into_bytes_gets_on_at_the_bound(world: BrokerWorld) -> None:
    clients = [send_part(world) for _ in range(20)]
    other = world.connect(piece=1)
    assert other.ask(HeartbeatRequest("g", 1, "m"), 4).error_code
    assert len(clients) == 20


def test_the_frame_is_whatever_it_says_to_be(world: BrokerWorld) -> None:
    """A peer that announces much and sends little takes no more than eight times what it sent."""
    for _ in range(100):
        world.connect().peer.send(struct.pack(">ihhi", 50_000_000, 0, 9, 1) + bytes(1000))
    assert world.broker.request_memory.held <= 100 * 8 * 1012


def test_a_request_larger_than_the_bound_may_take_its_time_while_no_other_waits() -> None:
    world = BrokerWorld(queued_max_request_bytes=BOUND, incomplete_request_timeout_ms=TIMEOUT_S * 1000)
    world.create_topic("t", max_message_bytes=4 * BOUND)
    client = world.connect()
    frame = client.frame(produce_request("t", batch(world, b"x" * 3 * BOUND)), 9)
    for start in range(0, len(frame), len(frame) // (3 * TIMEOUT_S)):
        client.peer.send(frame[start : start + len(frame) // (3 * TIMEOUT_S)])
        push(world, [(client, b"")])
        assert world.broker.request_memory.exhausted or start < BOUND or start > 2 * BOUND
        world.clock.advance(1)
    assert [answer.body.responses[0].partition_responses[0].error_code for answer in client.answers()] == [0]


class SlowProducer:
    """Sends one large request after the other, so many bytes in a second; connects again when it was closed."""

    def __init__(self, world: BrokerWorld, rate: int) -> None:
        self.world = world
        self.rate = rate
        self.completed = 0
        self.connect()

    def connect(self) -> None:
        self.client = self.world.connect()
        self.rest = large(self.world, self.client)

    def send(self) -> None:
        if self.client.closed:
            self.connect()
        if self.client.peer.unsent < 4 * self.rate:  # what its socket takes
            self.client.peer.send(self.rest[: self.rate])
            self.rest = self.rest[self.rate :]

    def receive(self) -> None:
        if not self.rest and not self.client.closed and self.client.answers():
            self.completed += 1
            self.rest = large(self.world, self.client)


@pytest.mark.parametrize("rate", [25_000, 80_000])
def test_producers_with_slow_links_that_need_more_than_the_bound_together_all_get_on(world: BrokerWorld, rate: int) -> None:
    """Each takes 16 s, or 5 s, for a request. Together they need twice the bound: some are closed, but not all and again and again."""
    producers = [SlowProducer(world, rate) for _ in range(5)]
    seconds = 160
    for _ in range(seconds):
        for producer in producers:
            producer.send()
        for _ in range(20):
            world.clock.settle()
            for producer in producers:
                producer.client.peer.push()
        for producer in producers:
            producer.receive()
        world.clock.advance(1)
    assert sum(producer.completed for producer in producers) >= 0.3 * len(producers) * seconds * rate / FRAME
    assert min(producer.completed for producer in producers) > 0


def test_a_silent_peer_makes_room_for_others_and_one_that_is_slow_is_kept(world: BrokerWorld) -> None:
    """All are late when further ones wait."""
    slow, silent = SlowProducer(world, 25_000), [send_part(world, 60_000) for _ in range(3)]
    client, waiting = slow.client, []
    for second in range(2 * TIMEOUT_S):
        slow.send()
        if second == TIMEOUT_S:
            waiting = [send_part(world) for _ in range(2)]
        push(world, [(client, b""), *waiting])
        slow.receive()
        if slow.completed:
            break
        world.clock.advance(1)
    assert (slow.completed, client.closed) == (1, False)
    assert all(client.closed for client, _ in silent)


def test_at_the_bound_what_connections_hold_grows_by_a_quarter_at_a_time(world: BrokerWorld) -> None:
    """A buffer of eight times what has come, for each of them, would be many times the bound."""
    clients = [send_part(world, 60_000) for _ in range(17)]
    memory = world.broker.request_memory
    assert memory.exhausted
    for client, _ in clients:
        client.peer.send(bytes(20_000))
    push(world, clients)
    assert memory.held <= 1.3 * BOUND + FRAME


class Recorder:
    """A connection that notes what it is called for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def release(self) -> None:
        self.calls.append("release")

    def starve(self) -> None:
        self.calls.append("starve")


class Line:
    """A `RequestMemory` of 100 KB, and connections of it that have sent a part of a request."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.memory = RequestMemory(self.clock)
        self.memory.bytes_max, self.memory.incomplete_max_s = 100_000, TIMEOUT_S

    def incomplete(self, size: int, *, waits: bool, has_room: bool = False) -> Recorder:
        connection = Recorder()
        assert self.memory.note(connection, size, 0, size, has_room=has_room) is waits
        return connection

    def whole(self, size: int) -> Recorder:
        """One of which a request has come whole in one read, and is worked at."""
        connection = Recorder()
        self.memory.keep(connection, size)
        return connection

    @property
    def state(self) -> tuple[int, int, int]:
        """Bytes held, connections that wait, connections closed."""
        return self.memory.held, self.memory.waiting, self.memory.cut


@pytest.fixture
def line() -> Line:
    return Line()


def test_a_whole_request_has_its_place_in_the_line_and_is_not_given_up(line: Line) -> None:
    """Large requests are not read faster than they are handled; the next one is read as soon as the whole one is at its end."""
    whole = line.whole(80_000)
    line.clock.advance(TIMEOUT_S)
    connection = line.incomplete(40_000, waits=True)
    assert not line.memory.note(connection, 40_000, 0, 40_000, has_room=False), "it waits already, and is released once"
    line.clock.advance(TIMEOUT_S / 2)
    assert (line.state, connection.calls) == ((120_000, 1, 0), [])
    line.memory.finish(whole, 80_000)
    assert (line.state, connection.calls, whole.calls) == ((40_000, 0, 0), ["release"], [])


def test_one_that_waits_and_gives_back_all_it_holds_is_released_too(line: Line) -> None:
    """A read was still on its way, and brought the rest of its request."""
    line.whole(80_000)
    connection = line.incomplete(40_000, waits=True)
    assert not line.memory.note(connection, 0, 50_000, 50_000, has_room=False)
    assert (line.state, connection.calls) == ((80_000, 0, 0), ["release"])


def test_a_request_that_has_come_whole_keeps_its_place(line: Line) -> None:
    """Otherwise the next one would be read on when the first has come whole, and so one after the other, while none is at its end."""
    first = line.incomplete(60_000, waits=False)
    second, third = line.incomplete(60_000, waits=True), line.incomplete(60_000, waits=True)
    line.memory.keep(first, 60_000)
    line.memory.note(first, 0, 60_000, 60_000, has_room=False)
    line.clock.advance(5)
    assert (line.state, second.calls, third.calls) == ((180_000, 2, 0), [], [])
    line.memory.finish(first, 60_000)
    assert (line.state, second.calls, third.calls) == ((120_000, 1, 0), ["release"], [])


def test_at_the_end_of_a_request_what_has_come_after_it_is_last_in_the_line(line: Line) -> None:
    first = line.incomplete(60_000, waits=False)
    second = line.incomplete(60_000, waits=True)
    line.memory.keep(first, 60_000)
    assert not line.memory.note(first, 70_000, 60_000, 130_000, has_room=False)
    assert second.calls == []
    line.clock.advance(TIMEOUT_S)
    line.memory.finish(first, 60_000)
    assert (line.state, second.calls) == ((130_000, 0, 0), ["release"])
    assert line.memory.note(first, 70_000, 60_000, 130_000, has_room=False), "it waits for the second one"
    line.clock.advance(TIMEOUT_S / 2)
    assert line.state == (130_000, 1, 0), "its time begins now"


def test_a_request_counts_to_its_end_though_its_connection_is_lost(line: Line) -> None:
    whole = line.incomplete(110_000, waits=False)
    line.memory.keep(whole, 100_000)
    waiting = line.incomplete(60_000, waits=True)
    line.memory.forget(whole)
    assert (line.state, waiting.calls) == ((160_000, 1, 0), [])
    line.memory.finish(whole, 100_000)
    assert (line.state, waiting.calls) == ((60_000, 0, 0), ["release"])


def test_no_connection_is_closed_because_requests_of_others_wait_for_a_thread(line: Line) -> None:
    """Not even while one that comes before them in the line takes its time, if all that is incomplete is less than the bound."""
    first, steady = (line.incomplete(20_000, waits=False, has_room=True) for _ in range(2))
    whole = line.whole(90_000)
    others = [line.incomplete(20_000, waits=True) for _ in range(2)]
    for received in range(20_000, 50_000, 1000):
        line.memory.note(first, 20_000, 0, received, has_room=True)
        line.memory.note(steady, 20_000, 0, received, has_room=True)
        line.clock.advance(1)
    assert line.state == (170_000, 2, 0)
    for each in (first, steady):
        line.memory.keep(each, 20_000)
        line.memory.note(each, 0, 50_000, 50_000, has_room=False)
    line.clock.advance(3 * TIMEOUT_S)
    for each in (first, steady):
        line.memory.finish(each, 20_000)
    line.clock.advance(3 * TIMEOUT_S)
    assert (line.state, [other.calls for other in others]) == ((130_000, 2, 0), [[], []])
    line.memory.finish(whole, 90_000)
    assert (line.state, [other.calls for other in others]) == ((40_000, 0, 0), [["release"], ["release"]])


def test_time_in_which_the_first_request_is_worked_at_does_not_count(line: Line) -> None:
    """What follows could not be read meanwhile; each may have its time afterwards."""
    whole = line.whole(30_000)
    others = [line.incomplete(50_000, waits=number > 0) for number in range(3)]
    for second in range(3 * TIMEOUT_S):
        line.memory.note(others[0], 50_000, 0, 50_000 + second * 1000, has_room=False)
        line.clock.advance(1)
    line.memory.finish(whole, 30_000)
    line.clock.advance(TIMEOUT_S - 3)
    assert [other.calls for other in others[1:]] == [[], []]
    line.clock.advance(5)
    assert [other.calls[-1] for other in others[1:]] == ["starve", "starve"]


def test_a_small_request_that_is_worked_at_keeps_no_other_waiting(line: Line) -> None:
    """It counts, but large ones are read on, one at a time, as without it."""
    small = line.whole(SMALL_BYTES)
    first, second = line.incomplete(60_000, waits=False), line.incomplete(60_000, waits=True)
    assert not line.memory.note(first, 70_000, 0, 70_000, has_room=False)
    line.memory.finish(small, SMALL_BYTES)
    assert (line.state, second.calls) == ((130_000, 1, 0), [])


# Batches that wait for the compute or the recompression thread


TOPICS: dict[str, dict[str, Any]] = {"compacted": {"cleanup_policy": "compact"}, "gzipped": {"compression_type": "gzip"}}


@pytest.fixture
def busy(world: BrokerWorld) -> BrokerWorld:
    """Its threads do nothing until the test says so."""
    for name, configs in TOPICS.items():
        world.create_topic(name, max_message_bytes=10 * BOUND, **configs)
    world.compute.immediate = world.recompress.immediate = False
    return world


def send_whole(world: BrokerWorld, count: int, topic: str, size: int = FRAME) -> list[tuple[Client, bytes]]:
    """So many clients that send a request each, none before the others."""
    clients = [world.connect(piece=100_000) for _ in range(count)]
    for client in clients:
        request = produce_request(topic, batch(world, b"x" * size, key=b"k"))
        client.peer.send(client.frame(request, 9))
    return [(client, b"") for client in clients]


def work(world: BrokerWorld, clients: list[tuple[Client, bytes]]) -> None:
    """Run what waits for the threads, one after the other, and all that follows."""
    while world.compute.jobs or world.recompress.jobs:
        for thread in (world.compute, world.recompress):
            if thread.jobs:
                thread.run_next()
        push(world, clients)


@pytest.mark.parametrize("topic", TOPICS)
def test_batches_that_wait_for_a_thread_are_bounded_over_all_connections(busy: BrokerWorld, topic: str) -> None:
    """However long that takes none is closed for it, and in the end each is served."""
    clients = send_whole(busy, 30, topic)
    push(busy, clients)
    memory = busy.broker.request_memory
    assert busy.request_bytes() <= memory.held <= BOUND + 2 * FRAME + 30 * (SMALL_BYTES + READ_BYTES)
    assert (memory.exhausted, memory.waiting > 0) == (True, True)
    for _ in range(3 * TIMEOUT_S):
        busy.clock.advance(1)
    work(busy, clients)
    assert [client.answers()[0].body.responses[0].partition_responses[0].error_code for client, _ in clients] == [0] * 30
    assert memory.statistics() == {"request_bytes_held": 0, "requests_waiting_for_memory": 0, "requests_cut_for_memory": 0}


def test_short_requests_are_served_while_batches_wait_for_a_thread(busy: BrokerWorld) -> None:
    push(busy, send_whole(busy, 30, "compacted"))
    assert busy.broker.request_memory.exhausted
    other = busy.connect()
    assert other.produce("t", b"a" * 10_000).error_code == 0
    assert other.ask(HeartbeatRequest("g", 1, "m"), 4).error_code


def test_batches_of_lost_connections_are_bounded_too(busy: BrokerWorld) -> None:
    for _ in range(10):
        clients = send_whole(busy, 5, "compacted")
        push(busy, clients)
        for client, _ in clients:
            client.peer.disconnect()
    assert busy.request_bytes() <= busy.broker.request_memory.held <= BOUND + 2 * FRAME
    busy.compute.run_all()
    busy.clock.settle()
    assert (busy.request_bytes(), busy.broker.request_memory.held) == (0, 0)


SMALL = 15_900
"""Small enough to be read at the bound, and too large to be recompressed at once."""


def test_small_requests_of_clients_that_send_and_close_do_not_pile_up(busy: BrokerWorld, caplog: pytest.LogCaptureFixture) -> None:
    """They would not be answered, so they are not checked."""
    for _ in range(100):
        send_whole(busy, 1, "gzipped", SMALL)[0][0].peer.disconnect()
        busy.clock.settle()
    assert (busy.request_bytes(), busy.broker.request_memory.held) == (0, 0)
    busy.recompress.run_all()
    assert (busy.request_bytes(), busy.broker.request_memory.held) == (0, 0)
    assert busy.partition("gzipped").log.log_end_offset == 0
    assert caplog.records == []


@pytest.mark.parametrize("size", [SMALL, FRAME])
def test_what_a_thread_has_begun_counts_to_its_end_though_the_connection_is_lost(busy: BrokerWorld, size: int) -> None:
    ((client, _),) = send_whole(busy, 1, "gzipped", size)
    ((work, done),) = busy.recompress.jobs
    busy.recompress.jobs.clear()
    walked = work()
    client.peer.disconnect()
    assert size < busy.broker.request_memory.held < size + 1000
    done(walked, None)
    busy.clock.settle()
    assert busy.broker.request_memory.held == 0
    assert busy.partition("gzipped").log.log_end_offset == 0


def test_requests_larger_than_the_bound_pass_one_after_the_other(busy: BrokerWorld) -> None:
    clients = send_whole(busy, 3, "compacted", 3 * BOUND)
    push(busy, clients)
    assert len(busy.compute.jobs) == 1
    assert busy.broker.request_memory.held <= 4 * BOUND + FRAME
    work(busy, clients)
    assert [client.answers()[0].body.responses[0].partition_responses[0].error_code for client, _ in clients] == [0] * 3
    assert busy.broker.request_memory.held == 0
