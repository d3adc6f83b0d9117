"""Two workloads without any client library: a writer that cares for nothing but answers, and a reader that reads everything."""

import asyncio

from moldau.model.errors import WorldError
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.records.batch import iterate_log
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD
from moldau.testing.history.history import Outcome
from moldau.testing.simulation.clients.context import ClientContext
from simulation.test_determinism import create, produce
from support.rpc_caller import connect

RETRY_S = 0.2


def records_of(data: bytes) -> list[tuple[int, int, int]]:
    """Offset, value and leader epoch of the records of whole batches."""
    found = []
    while len(data) >= HEADER_SIZE and len(data) >= LOG_OVERHEAD + int.from_bytes(data[8:12], "big"):
        size, epoch = LOG_OVERHEAD + int.from_bytes(data[8:12], "big"), int.from_bytes(data[12:16], "big")
        batch, data = memoryview(data[:size]), data[size:]
        found += [(record.offset, int(record.value or b"-1"), epoch) for record in iterate_log(batch, max_decompressed_bytes=1 << 24)]
    return found


async def write(context: ClientContext) -> None:
    """Send one record at a time, each once."""
    history, partition = context.history, context.partitions.number("t", 0)
    producer = history.add_producer(context.name, idempotent=False)
    caller = None
    while context.budget.take():
        try:
            if caller is None:
                caller = await connect(context)
                await create(caller, "t")
            value = history.send(producer, partition)
            offset = await produce(caller, context, value)
            history.send_ended(value, Outcome.OK, offset)
            await asyncio.sleep(context.random.expovariate(20))
        except WorldError:
            caller = None
            await asyncio.sleep(RETRY_S)


async def read(context: ClientContext) -> None:
    """Poll from the beginning until the end of the log is reached after the last write."""
    history, partition = context.history, context.partitions.number("t", 0)
    reader = history.add_reader(context.name, committed=True)
    caller, position = None, 0
    while True:
        try:
            if caller is None:
                caller = await connect(context)
                await create(caller, "t")
                position = 0  # the log may have lost its end and grown again since
                history.position(reader, partition, 0)
            begun, is_last = history.now(), context.budget.left <= 0
            wanted = FetchPartition(partition=0, fetch_offset=position, partition_max_bytes=context.random.choice((100, 10_000)))
            request = FetchRequest(
                max_wait_ms=500, isolation_level=1, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic("t", partitions=[wanted])]
            )
            answer = (await caller.ask(request, 11)).responses[0].partitions[0]
            if answer.error_code:
                if answer.error_code == 1:
                    history.told_out_of_range(reader, partition, position)
                    position = 0
                    history.position(reader, partition, 0)
                await asyncio.sleep(RETRY_S)
                continue
            found = [each for each in records_of(bytes(answer.records or b"")) if each[0] >= position]
            history.polled(reader, begun, [(partition, *each) for each in found])
            if found:
                position = found[-1][0] + 1
            elif is_last and position >= answer.high_watermark:
                return
        except WorldError:
            caller = None
            await asyncio.sleep(RETRY_S)
