"""A copy's writer sends the batches of a partition in order, one request at a time, and asks leaders of idle partitions without records."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from moldau.mirror.copy.writer import JOINED_BYTES, REQUEST_BYTES, CopyWriter, Outlet
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse
from moldau.testing.clock import FakeClock

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers

ORDERS = TopicPartition("orders", 0)


class Leader:
    """The leader of all partitions: requests that wait for the test's answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[ProduceRequest, asyncio.Future[ProduceResponse]]] = []
        self.connections: list[str] = []
        """Their purposes, one for each request."""
        self.clock = FakeClock()

    async def leader(self, _partition: TopicPartition) -> tuple[str, int]:
        return "b", 1

    async def connection(self, _address: object, purpose: str) -> "Leader":
        self.connections.append(purpose)
        return self

    def forget_topic(self, _topic: str) -> None:
        """Nothing is kept."""

    def send(self, _api_key: object, request: ProduceRequest, **_options: object) -> asyncio.Future[ProduceResponse]:
        self.asked.append((request, asyncio.get_running_loop().create_future()))
        return self.asked[-1][1]

    def sent(self) -> list[bytes | None]:
        """What each request has of the partition."""
        return [None if (data := request.topic_data[0].partition_data[0].records) is None else bytes(data) for request, _ in self.asked]

    async def answer(self, number: int, error: ErrorCode = ErrorCode.NONE, end: int = -1) -> None:
        self.asked[number][1].set_result(
            ProduceResponse([TopicProduceResponse("orders", partition_responses=[PartitionProduceResponse(0, error, end)])])
        )
        await settle()


class Seen:
    """What the writer has reported of its outlet."""

    def __init__(self, partition: TopicPartition = ORDERS) -> None:
        self.stored: list[tuple[int, int]] = []
        self.failed: list[PeerError | WorldError] = []
        self.outlet = Outlet(
            partition, 0, lambda end, size: self.stored.append((end, size)), lambda error, _size: self.failed.append(error)
        )


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def on(act: Callable[[Leader, CopyWriter, Seen], Awaitable[None]]) -> None:
    async def main() -> None:
        leader = Leader()
        writer = CopyWriter(cast("Brokers", cast("Any", leader)), "standby", 2, leader.clock)
        running = asyncio.ensure_future(writer.run())
        try:
            await act(leader, writer, Seen())
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_a_partition_has_one_request_out_and_its_pieces_stay_in_order() -> None:
    async def act(leader: Leader, writer: CopyWriter, seen: Seen) -> None:
        writer.add(seen.outlet, memoryview(b"one"))
        await settle()
        writer.add(seen.outlet, memoryview(b"two"))
        writer.add(seen.outlet, memoryview(b"three"))
        await settle()
        assert leader.sent() == [b"one"]
        await leader.answer(0, end=1)
        assert leader.sent() == [b"one", b"twothree"]
        await leader.answer(1, end=3)
        assert seen.stored == [(1, 3), (3, 8)]

    on(act)


def test_each_request_says_where_the_log_ends_by_the_last_answer() -> None:
    """A log that has lost records since takes none after them. Batches end where they end: the rest of the offsets was compacted."""

    async def act(leader: Leader, writer: CopyWriter, seen: Seen) -> None:
        for number, end in enumerate((5, 9)):
            writer.add(seen.outlet, memoryview(b"one"))
            await settle()
            await leader.answer(number, end=end)
        writer.probe(seen.outlet)
        await settle()
        assert [request.known_ends for request, _ in leader.asked] == [[0], [5], [9]]
        await leader.answer(2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert len(seen.failed) == 1

    on(act)


def test_large_pieces_of_two_partitions_are_out_at_the_same_time_each_over_a_connection_of_its_own() -> None:
    async def act(leader: Leader, writer: CopyWriter, seen: Seen) -> None:
        other = Seen(TopicPartition("orders", 1))
        for outlet in (seen.outlet, other.outlet):
            writer.add(outlet, memoryview(bytes(REQUEST_BYTES)))
        await settle()
        assert [len(request.topic_data[0].partition_data) for request, _ in leader.asked] == [1, 1]
        assert leader.connections == ["copy 0", "copy 1"]
        writer.add(seen.outlet, memoryview(b"next"))
        await leader.answer(0, end=1)
        assert leader.connections == ["copy 0", "copy 1", "copy 0"]

    on(act)


def test_small_pieces_of_partitions_share_a_request() -> None:
    async def act(leader: Leader, writer: CopyWriter, seen: Seen) -> None:
        other = Seen(TopicPartition("orders", 1))
        for outlet in (seen.outlet, other.outlet):
            writer.add(outlet, memoryview(b"small"))
        await settle()
        assert [len(request.topic_data[0].partition_data) for request, _ in leader.asked] == [2]

    on(act)


def test_pieces_are_joined_to_larger_ones_where_answers_take_long() -> None:
    async def act(leader: Leader, writer: CopyWriter, seen: Seen) -> None:
        sizes = []
        for number in range(5):
            for _ in range(40):
                writer.add(seen.outlet, memoryview(bytes(JOINED_BYTES)))
            await settle()
            sizes.append(len(leader.sent()[-1] or b"") // JOINED_BYTES)
            leader.clock.advance(0.3)
            await leader.answer(number, end=1)
        assert sizes == [1, 2, 4, 8, 16]

    on(act)


def test_an_idle_partition_that_is_still_a_mirrors_stays_as_it_is() -> None:
    async def act(leader: Leader, writer: CopyWriter, seen: Seen) -> None:
        writer.probe(seen.outlet)
        await settle()
        assert leader.sent() == [None]
        # records that come meanwhile wait for the answer
        writer.add(seen.outlet, memoryview(b"one"))
        await settle()
        assert leader.sent() == [None]
        await leader.answer(0, ErrorCode.INVALID_RECORD)
        assert leader.sent() == [None, b"one"]
        await leader.answer(1, end=1)
        assert (seen.stored, seen.failed) == ([(1, 3)], [])

    on(act)


def test_an_idle_partition_that_was_promoted_fails_as_records_would() -> None:
    async def act(leader: Leader, writer: CopyWriter, seen: Seen) -> None:
        writer.probe(seen.outlet)
        await settle()
        await leader.answer(0, ErrorCode.INVALID_REQUEST)
        (error,) = seen.failed
        assert isinstance(error, PeerError)
        assert error.code is ErrorCode.INVALID_REQUEST

    on(act)


def test_invalid_record_in_answer_to_records_is_an_error() -> None:
    async def act(leader: Leader, writer: CopyWriter, seen: Seen) -> None:
        writer.add(seen.outlet, memoryview(b"one"))
        await settle()
        await leader.answer(0, ErrorCode.INVALID_RECORD)
        assert (seen.stored, len(seen.failed)) == ([], 1)

    on(act)
