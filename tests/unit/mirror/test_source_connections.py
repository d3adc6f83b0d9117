"""A source's partitions are fetched over several connections to the broker that leads them."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.adapters.event_loop import LoopClock
from moldau.mirror.fetched import Limits
from moldau.mirror.partitions import Position, SourcePartition
from moldau.mirror.source import SourceReader
from moldau.protocol.messages.fetch import FetchRequest
from moldau.wire.brokers import Topic

TOPIC_ID = bytes(range(16))
EARLIER, LATER = ("a", 1), ("b", 2)


class Leaders:
    """The brokers of a source: one leads all partitions, and answers no Fetch."""

    def __init__(self) -> None:
        self.leader = EARLIER
        self.epoch = 1
        self.fetched: dict[tuple[tuple[str, int], str], set[int]] = {}
        """By address and purpose of the connection: the partitions that were asked for."""
        self.closed: list[str] = []

    async def ask(self, _api_key: object, request: Any) -> Any:
        return SimpleNamespace(topics=[SimpleNamespace(name=each.name, error_code=0, topic_id=TOPIC_ID) for each in request.topics])

    def learn_brokers(self, _response: object) -> None:
        """They are known."""

    def learn(self, _found: object) -> Topic:
        return Topic(TOPIC_ID, (self.leader,) * 10, (self.epoch,) * 10)

    async def connection(self, address: tuple[str, int], purpose: str) -> Any:
        asked = self.fetched.setdefault((address, purpose), set())

        def send(_api_key: object, request: FetchRequest, **_options: object) -> asyncio.Future[Any]:
            asked.update(each.partition for topic in request.topics for each in topic.partitions)
            return asyncio.get_running_loop().create_future()

        return SimpleNamespace(is_closed=False, send=send, close=lambda: self.closed.append(purpose))


def partition(number: int) -> SourcePartition:
    return SourcePartition("east", TOPIC_ID, "orders", number)


def reading(act: Callable[[SourceReader, Leaders], Awaitable[None]], connections: int) -> None:
    async def main() -> None:
        leaders, may_fetch = Leaders(), asyncio.Event()
        may_fetch.set()
        clock = LoopClock(asyncio.get_running_loop())
        limits = Limits(connections=connections)
        reader = SourceReader(
            "east", cast("Any", leaders), clock, cast("Any", None), may_fetch, committed=False, verifies=False, limits=limits
        )
        try:
            await act(reader, leaders)
        finally:
            await reader.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moldau.mirror.source.REFRESH_S", 0)
        asyncio.run(main())


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def readers(reader: SourceReader, partitions: int) -> list[tuple[tuple[str, int], int]]:
    """By partition: the broker that it is fetched from, and the number of the connection."""
    found = (reader.followed(partition(number).topic_partition) for number in range(partitions))
    leaders = [each.leader for each in found if each is not None]
    return [(each.address, each.number) for each in leaders if each is not None]


def test_each_connection_has_as_many_partitions_as_the_others() -> None:
    async def act(reader: SourceReader, leaders: Leaders) -> None:
        for number in range(8):
            reader.follow(partition(number), Position(0))
        await settled()
        assert readers(reader, 8) == [(EARLIER, number % 3) for number in range(8)]
        # the first Fetch of a session has one partition, those that come while it is out are in the next one
        assert sorted(map(sorted, leaders.fetched.values())) == [[0], [1], [2]]

    reading(act, 3)


def test_there_are_no_more_connections_than_partitions_and_one_without_any_is_closed() -> None:
    async def act(reader: SourceReader, leaders: Leaders) -> None:
        for number in range(2):
            reader.follow(partition(number), Position(0))
        await settled()
        assert len(leaders.fetched) == 2
        reader.unfollow(partition(0))
        assert len(leaders.closed) == 1
        reader.follow(partition(2), Position(0))
        await settled()
        assert readers(reader, 3) == [(EARLIER, 1), (EARLIER, 0)]

    reading(act, 4)


def test_partitions_stay_on_their_connection_in_a_new_epoch_and_leave_it_for_another_leader() -> None:
    async def act(reader: SourceReader, leaders: Leaders) -> None:
        for number in range(4):
            reader.follow(partition(number), Position(0))
        await settled()
        before = readers(reader, 4)
        leaders.epoch = 2
        reader.find_leader("orders")
        await settled()
        assert readers(reader, 4) == before == [(EARLIER, 0), (EARLIER, 1), (EARLIER, 0), (EARLIER, 1)]
        assert not leaders.closed
        leaders.leader, leaders.epoch = LATER, 3
        reader.find_leader("orders")
        await settled()
        assert readers(reader, 4) == [(LATER, 0), (LATER, 1), (LATER, 0), (LATER, 1)]
        assert len(leaders.closed) == 2

    reading(act, 2)
