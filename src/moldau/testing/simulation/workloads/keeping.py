"""Topics that keep less than was written: by key, by size, and by request of an administrator.

They are not in the history, which knows of no deletion. Each client has topics of its own, whose records are synced before their
acknowledgement, and its own model of what must be there. A leader that another one has replaced, and that is cut off so that it does not
know it, answers for a while as it was: what must be there is looked for again.
"""

from moldau.client.failures import SendError
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.clients.admin import SimulatedAdmin
from moldau.testing.simulation.clients.cause import took_effect_perhaps
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.fetching import SimulatedMessage
from moldau.testing.simulation.clients.producer import SimulatedProducer
from moldau.testing.simulation.workloads.recording import ensure_topic, pause

KEYS = 8
READS_MAX = 5
LAG_S = 120.0
"""How long a broker may not know that it leads no more."""
SMALL = {"segment_index_bytes": 48, "index_interval_bytes": 64, "flush_messages": 1}


class KeptError(AssertionError):
    """A topic does not hold what it must."""


async def compact(context: ClientContext) -> None:
    """Write values and tombstones for few keys; what is read back is the newest of each key."""
    topic, random = f"compacted-{context.name}", context.random
    partition = TopicPartition(topic, 0)
    retention_ms = random.choice((0, 86_400_000))
    await ensure_topic(
        context, topic, 1, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, delete_retention_ms=retention_ms, **SMALL
    )
    producer = SimulatedProducer(context, delivery_timeout_s=600.0)
    possible: dict[bytes, list[bytes | None]] = {}
    """Per key: the newest value that was acknowledged, and those after it of which nothing is known."""
    kept: dict[bytes, None] = {}
    """Keys that have a record as long as no tombstone goes."""
    count = end = 0
    while context.budget.take():
        for number in range(random.choice((1, 5, 20))):
            if number and not context.budget.take():
                break
            count += 1
            key = b"%d" % random.randrange(KEYS)
            value = None if random.random() < 0.2 else b"%d" % count
            try:
                delivered = await producer.send_and_wait(topic, value, key=key, partition=0)
            except SendError as error:
                if took_effect_perhaps(error):
                    possible.setdefault(key, [None]).append(value)
            else:
                possible[key] = [value]
                end = max(end, -1 if delivered.offset is None else delivered.offset + 1)
                if retention_ms:
                    kept[key] = None
        if random.random() < 0.1:
            await _check_newest(context, partition, end, possible, kept, reads=1 if retention_ms else READS_MAX)
        await pause(context)
    await _check_newest(context, partition, end, possible, kept, reads=1 if retention_ms else READS_MAX)
    await producer.close()


async def _check_newest(
    context: ClientContext,
    partition: TopicPartition,
    end: int,
    possible: dict[bytes, list[bytes | None]],
    kept: dict[bytes, None],
    *,
    reads: int,
) -> None:
    """Read up to `reads` times until all is as it must be: a tombstone that may go at once may do so while it is read, after the value
    that it deletes has been.
    """
    for left in reversed(range(reads)):
        newest = {message.key: message.value for message in await read_all(context, partition, end)}
        wrong = [key for key, values in possible.items() if newest.get(key) not in values]
        if not wrong:
            break
        if not left:
            key = wrong[0]
            raise KeptError(f"{partition}: key {key!r} has {newest.get(key)!r}, it must have one of {possible[key]}")
    for key in kept:
        if key not in newest:
            raise KeptError(f"{partition}: the tombstone of key {key!r} was removed before its time")


async def delete(context: ClientContext) -> None:
    """Write, and delete from the front, by DeleteRecords, by size or by time; what is left is whole and in order."""
    topic, random = f"deleted-{context.name}", context.random
    partition = TopicPartition(topic, 0)
    by_size = random.random() < 0.5
    by_time = not by_size and len(context.servers) > 1 and random.random() < 0.5
    await ensure_topic(context, topic, 1, retention_bytes=4096 if by_size else -1, retention_ms=200 if by_time else -1, **SMALL)
    producer, admin = SimulatedProducer(context, delivery_timeout_s=600.0), SimulatedAdmin(context)
    stored: dict[int, bytes] = {}
    count = 0
    while context.budget.take():
        count += 1
        value = b"%d" % count
        delivered = await producer.send_and_wait(topic, value, partition=0)
        if delivered.offset is not None:
            stored[delivered.offset] = value
        if not (by_size or by_time) and random.random() < 0.1:
            before = random.randint(0, max(stored, default=0))
            if await _delete_before(context, admin, partition, before) < before:
                raise KeptError(f"{partition}: records before {before} were deleted, and it begins before")
        if random.random() < 0.1:
            _check_left(partition, stored, await read_all(context, partition, max(stored, default=-1) + 1))
        await pause(context)
    found = await read_all(context, partition, max(stored, default=-1) + 1)
    _check_left(partition, stored, found)
    await producer.close()
    admin.close()


async def _delete_before(context: ClientContext, admin: SimulatedAdmin, partition: TopicPartition, before: int) -> int:
    """Delete the records before an offset that is committed; the first one left."""
    until = context.clock.monotonic() + LAG_S
    while True:
        try:
            return await admin.delete_records(partition, before)
        except PeerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or _is_over(context, until):
                raise
        await admin.brokers.back_off()


def _is_over(context: ClientContext, until: float) -> bool:
    """Whether no broker may answer as it was, then."""
    return len(context.servers) == 1 or context.clock.monotonic() > until


def _check_left(partition: TopicPartition, stored: dict[int, bytes], found: list[SimulatedMessage]) -> None:
    if not found:
        return
    first = found[0].offset
    if [message.offset for message in found] != list(range(first, first + len(found))):
        raise KeptError(f"{partition}: offsets are missing between {first} and {found[-1].offset}")
    for message in found:
        if stored.get(message.offset, message.value) != message.value:
            raise KeptError(f"{partition}: offset {message.offset} has {message.value!r}, not {stored[message.offset]!r}")
    if max(stored, default=-1) > found[-1].offset:
        raise KeptError(f"{partition}: it ends after {found[-1].offset}, and {max(stored)} was acknowledged")


async def read_all(context: ClientContext, partition: TopicPartition, least: int) -> list[SimulatedMessage]:
    """A partition's records from its beginning to its present end, which is `least` or later; read again from the start where the beginning
    has moved meanwhile.
    """
    has_moved: list[object] = []
    until = context.clock.monotonic() + LAG_S
    while True:
        consumer = SimulatedConsumer(context, on_reset=lambda *where: has_moved.append(where))
        (begin,) = (await consumer.beginning_offsets([partition])).values()
        (end,) = (await consumer.end_offsets([partition])).values()
        if end < least and not _is_over(context, until):
            await consumer.close()
            await pause(context)
            continue
        await consumer.assign({partition: begin})
        found: list[SimulatedMessage] = []
        while consumer.next_offset(partition) < end and not has_moved:
            found += await consumer.consume(1000, 0.2)
        while not has_moved and (more := await consumer.consume(1000, 0.0)):
            found += more
        await consumer.close()
        if not has_moved:
            return [message for message in found if message.offset < end]
        has_moved.clear()
