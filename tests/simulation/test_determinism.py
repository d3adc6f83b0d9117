"""One seed is one run: what happens, and in which order, follows from it alone."""

import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from moldau.model.errors import WorldError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.records.batch import RecordBatchBuilder, iterate_log
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.options import draw_options
from moldau.testing.simulation.simulation import Simulation
from support.rpc_caller import Caller, connect


async def create(caller: Caller, topic: str) -> None:
    answer = await caller.ask(CreateTopicsRequest(topics=[CreatableTopic(topic, 2, 1)], timeout_ms=10_000))
    assert answer.topics[0].error_code in (0, 36)


async def produce(caller: Caller, context: ClientContext, value: int) -> int:
    builder = RecordBatchBuilder()
    builder.append(context.clock.time_ms(), None, b"%d" % value)
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, builder.build())])]
    answer = (await caller.ask(ProduceRequest(None, -1, 5_000, data), 9)).responses[0].partition_responses[0]
    if answer.error_code:
        raise WorldError(f"error {answer.error_code}", retriable=True)
    return int(answer.base_offset)


async def fetch(caller: Caller) -> list[bytes | None]:
    topics = [FetchTopic("t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    answer = await caller.ask(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics), 11)
    records = answer.responses[0].partitions[0].records
    return [record.value for record in iterate_log(memoryview(bytes(records or b"")), max_decompressed_bytes=1 << 24)]


async def write_and_read(simulation: Simulation) -> list[bytes | None]:
    """Two writers and a reader, who try again until they are through."""
    simulation.host.start()
    writers = [simulation.client("writer"), simulation.client("writer")]
    for number, context in enumerate(writers):
        value = 0
        while value < 20:
            try:
                caller = await connect(context)
                await create(caller, "t")
                while value < 20:
                    await produce(caller, context, 100 * number + value)
                    value += 1
            except WorldError:
                await simulation.sleep(0.5)
    return await fetch(await connect(simulation.client("reader")))


Main = Callable[[Simulation], Coroutine[Any, Any, Any]]
REPORT = "from simulation.test_determinism import run; print([run(seed)[0].schedule.crc for seed in range(5)])"


def run(seed: int, main: Main = write_and_read) -> tuple[Simulation, Any]:
    simulation = Simulation(draw_options(seed))
    try:
        return simulation, simulation.run(main(simulation))
    finally:
        simulation.close()


def test_what_is_acknowledged_is_read_in_the_order_of_the_log() -> None:
    values = run(1)[1]
    assert [value for value in values if value is not None and len(value) < 3] == [b"%d" % value for value in range(20)]
    assert len(values) == 40


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_gives_the_same_run_twice(seed: int) -> None:
    first, second = run(seed)[0], run(seed)[0]
    assert (first.schedule.steps, first.schedule.crc) == (second.schedule.steps, second.schedule.crc)
    assert first.schedule.steps > 100


def test_the_order_of_hashes_decides_nothing() -> None:
    reports = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(["tests", *sys.path])}
        reports.append(subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True).stdout)
    assert reports[0] == reports[1]
