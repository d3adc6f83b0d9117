"""The limits of a mirror's file, as its parts get them."""

import asyncio
from random import Random
from typing import Any, cast

import pytest

from moldau.mirror.clients import brokers_of
from moldau.mirror.copy.writer import CopyWriter, Outlet
from moldau.mirror.plan.values import Limits, Mode
from moldau.mirror.process import fetch_limits
from moldau.model.identity import TopicPartition
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from moldau.testing.clock import FakeClock


def test_pauses_double_up_to_the_longest() -> None:
    limits = Limits(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    assert [limits.backoff_s(failures) for failures in (0, 1, 2, 3, 4, 5, 10_000)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_clients_of_a_mirror_pause_as_its_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    brokers = brokers_of("m", cast("Any", None), (("a", 1),), Random(1), Limits(retry_backoff_ms=1000, retry_backoff_max_ms=3000))
    for failures in (1, 2, 3, 50):
        asyncio.run(brokers.back_off(failures))
    for seconds, expected in zip(paused, (1.0, 2.0, 3.0, 3.0), strict=True):
        assert 0.5 * expected <= seconds <= 1.5 * expected


def test_a_reader_asks_for_no_more_than_fits() -> None:
    small = fetch_limits(Limits(buffer_bytes=2**20, transaction_bytes=50_000, retry_backoff_max_ms=200), Mode.MERGE)
    assert small == (2**18, 50_000, 0.2, 4, 50_000)
    assert fetch_limits(Limits(), Mode.COPY) == (2 * 2**20, 2**20, 1.0, 4, 6 * 2**20)
    one = fetch_limits(Limits(fetchers=1, partition_fetch_bytes=2**19), Mode.COPY)
    assert one == (8 * 2**20, 2**19, 1.0, 1, 2**19)
    assert fetch_limits(Limits(retry_backoff_ms=3000), Mode.COPY).back_off_s == 3.0


class Leader:
    """Of all partitions; it answers only when it is asked to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, asyncio.Future[Any]]] = []

    async def leader(self, partition: TopicPartition) -> tuple[str, int]:
        return "a", 1

    async def connection(self, address: object, purpose: str) -> "Leader":
        return self

    def send(self, api_key: object, request: Any, **_: object) -> "asyncio.Future[Any]":
        self.waiting.append((request, asyncio.get_running_loop().create_future()))
        return self.waiting[-1][1]

    def answer(self) -> None:
        request, future = self.waiting.pop(0)
        topics = [
            TopicProduceResponse(topic.name, partition_responses=[PartitionProduceResponse(each.index) for each in topic.partition_data])
            for topic in request.topic_data
        ]
        future.set_result(ProduceResponse(topics))


@pytest.mark.parametrize("out_max", [1, 2, 5])
def test_so_many_requests_of_a_copy_wait_for_their_answers(out_max: int) -> None:
    async def run() -> None:
        leader = Leader()
        writer = CopyWriter(cast("Any", leader), "m", out_max, FakeClock())
        running = asyncio.ensure_future(writer.run())
        stored: list[int] = []
        for number in range(8):
            writer.add(Outlet(TopicPartition("t", number), 0, lambda end, size: stored.append(size), print), memoryview(b"."))
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(leader.waiting) == min(number + 1, out_max)
        while leader.waiting:
            leader.answer()
            for _ in range(5):
                await asyncio.sleep(0)
        assert len(stored) == 8
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
