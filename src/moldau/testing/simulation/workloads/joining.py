"""Members of groups: eager, cooperative, static; they commit, rewind, leave, crash and join again. And committers that are no members."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from moldau.client.failures import ClientError, CommitError, ConsumeError
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.identity import TopicPartition
from moldau.testing.history.history import NONE, Outcome
from moldau.testing.simulation.clients.consumer import SimulatedConsumer
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.group import COOPERATIVE, RANGE
from moldau.testing.simulation.workloads.plain import PARTITIONS, TOPIC
from moldau.testing.simulation.workloads.recording import RecordedReader, ensure_topic, pause

_NOT_COMMITTED = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
"""The coordinator refuses a whole commit so, and for certain."""


class RecordedMember:
    """A consumer in a group, whose positions, polls and commits are in the history."""

    def __init__(self, context: ClientContext, name: str, group: str, *, assignor: str = RANGE, instance_id: str | None = None) -> None:
        self.context = context
        self.group = group
        timeout_s = context.random.choice((6.0, 10.0))
        self.consumer = SimulatedConsumer(
            context,
            group_id=group,
            assignor=assignor,
            group_instance_id=instance_id,
            session_timeout_s=timeout_s,
            on_reset=self._reset,
        )
        self.reader = RecordedReader(context, self.consumer, name, group=group)

    async def join(self, topic: str) -> None:
        """Join at the next poll."""
        await self.consumer.subscribe([topic], on_assign=self.place, on_revoke=self._revoked)

    async def place(self, partitions: list[TopicPartition]) -> None:
        """Read these on from what the group has committed."""
        if not partitions:
            return
        self._revoked(partitions)
        found = await look_at_offsets(self.context, self.consumer, self.group, partitions)
        for partition in partitions:
            offset = found.get(partition, 0)
            await self.consumer.seek(partition, offset)
            self.reader.placed({partition: offset})

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these, noted."""
        await commit(self.context, self.consumer, self.group, offsets)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.reader.placed(dict.fromkeys(partitions, NONE))

    def _reset(self, partition: TopicPartition, offset: int) -> None:
        """What was committed is beyond what a power cut has left: from now on the group may commit less than before."""
        self.context.history.forward_groups.discard(self.group)
        self.reader.reset(partition, offset)


async def look_at_offsets(
    context: ClientContext, consumer: SimulatedConsumer, group: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """A group's offsets there, noted."""
    begun = context.history.now()
    found = await consumer.committed(partitions)
    for partition in partitions:
        context.history.saw_offset(group, context.partitions.number(*partition), found.get(partition, NONE), begun)
    return found


async def commit(context: ClientContext, consumer: SimulatedConsumer, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit a group's offsets, noted, with what is known of the outcome."""
    history = context.history
    numbers = [history.commit_offset(group, context.partitions.number(*partition), offset) for partition, offset in offsets.items()]
    outcome = Outcome.OK
    try:
        await consumer.commit(offsets)
    except CommitError as error:
        outcome = Outcome.FAILED if error.code in _NOT_COMMITTED else Outcome.UNKNOWN
    except asyncio.CancelledError:  # the client is ended
        outcome = Outcome.UNKNOWN
        raise
    finally:
        for number in numbers:
            history.offset_commit_ended(number, outcome)


async def join(context: ClientContext) -> None:
    """One member after another, of the one group or the other."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    random, lives = context.random, 0
    assignor = random.choice((RANGE, COOPERATIVE))
    group = f"group-{assignor}"
    instance_id = f"instance-{context.name}" if random.random() < 0.3 else None
    if not any(commit.group == group for commit in context.history.offset_commits):
        context.history.forward_groups.add(group)
    while context.budget.left > 0:
        lives += 1
        member = RecordedMember(context, f"{context.name}.{lives}", group, assignor=assignor, instance_id=instance_id)
        await member.join(TOPIC)
        is_killed = await _live(member)
        if is_killed:
            member.consumer.crash()
        else:
            await member.consumer.close()


async def _live(member: RecordedMember) -> bool:
    """Poll and commit for a while; whether it ends as by a crash."""
    context = member.context
    random = context.random
    while context.budget.take():
        try:
            found = await member.reader.poll(0.5)
        except ConsumeError:
            return True  # another has its instance id
        ends = {TopicPartition(message.topic, message.partition): message.offset + 1 for message in found}
        if ends and random.random() < 0.7:
            await member.commit(ends)
        if random.random() < 0.05:
            await member.place(member.consumer.assigned)
        if random.random() < 0.03:
            return random.random() < 0.5
        await pause(context)
    return False


async def commit_plainly(context: ClientContext) -> None:
    """Commit any offsets for a group that has no members, and look at them."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    group, random = f"plain-{context.name}", context.random
    consumer = SimulatedConsumer(context, group_id=group)
    while context.budget.take():
        partition = TopicPartition(TOPIC, random.randrange(PARTITIONS))
        await commit(context, consumer, group, {partition: random.randrange(1_000_000)})
        if random.random() < 0.3:
            with suppress(ClientError, PeerError, WorldError):  # no coordinator for as long as the client insists
                await look_at_offsets(context, consumer, group, [partition])
        await pause(context)
    await consumer.close()
