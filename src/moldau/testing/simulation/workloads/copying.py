"""Consume, transform, produce: each record of one topic is copied once to another, with the group's offsets in the transaction."""

from moldau.client.failures import ClientError, ConsumeError, TransactionAbortedError
from moldau.model.identity import TopicPartition
from moldau.testing.history.history import Outcome
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.fetching import Message
from moldau.testing.simulation.clients.group import COOPERATIVE, RANGE
from moldau.testing.simulation.clients.transactions import TransactionalProducer
from moldau.testing.simulation.workloads.joining import RecordedMember
from moldau.testing.simulation.workloads.recording import RecordedProducer, ensure_topic, pause, value_of
from moldau.testing.simulation.workloads.writing import PARTITIONS, TOPIC

COPIES = "copies"
GROUP = "copying"


async def copy(context: ClientContext) -> None:
    """One copier after another, each with the same transactional id."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    await ensure_topic(context, COPIES, PARTITIONS)
    random, history, lives = context.random, context.history, 0
    protocol, assignor = random.choice((1, 2)), RANGE if "2" in context.name else COOPERATIVE
    while context.budget.left > 0:
        lives += 1
        name = f"{context.name}.{lives}"
        number = history.add_producer(name, transactional_id=context.name, copies_for=GROUP)
        producer = TransactionalProducer(context, context.name, protocol=protocol, timeout_s=random.choice((5.0, 20.0)))
        member = RecordedMember(context, name, GROUP, assignor=assignor)
        try:
            await producer.init_transactions()
            history.producer_ready(number)
            await member.join(TOPIC)
            await _live(context, RecordedProducer(context, producer, number), member)
        except (ClientError, ConsumeError):
            pass  # it begins again
        producer.crash()
        history.producer_gone(number)
        if random.random() < 0.5:
            member.consumer.crash()
        else:
            await member.consumer.close()
        await pause(context)


async def _live(context: ClientContext, recorded: RecordedProducer, member: RecordedMember) -> None:
    while context.budget.take():
        begun = context.history.now()
        found = await member.consumer.consume(context.random.choice((2, 20, 100)), 0.5)
        if found and not await _copy(context, recorded, member, begun, found):
            await member.place(member.consumer.assigned)
        if context.random.random() < 0.05:
            return
        await pause(context)


async def _copy(context: ClientContext, recorded: RecordedProducer, member: RecordedMember, begun: float, found: list[Message]) -> bool:
    """Copy these in one transaction; whether it was committed."""
    history, producer = context.history, recorded.producer
    assert isinstance(producer, TransactionalProducer)
    transaction = history.begin(recorded.number)
    member.reader.take(begun, found, transaction=transaction)
    await producer.begin()
    try:
        ends = {TopicPartition(message.topic, message.partition): message.offset + 1 for message in found}
        for message in found:
            recorded.send(TopicPartition(COPIES, message.partition), transaction=transaction, source=value_of(message))
        for partition, offset in ends.items():
            history.commit_offset(GROUP, context.partitions.number(*partition), offset, transaction=transaction)
        await producer.commit_offsets(ends, member.consumer.group_metadata())
        if context.random.random() < 0.9:
            history.ask_commit(transaction)
            await producer.commit()
            history.transaction_ended(transaction, Outcome.OK)
            return True
    except TransactionAbortedError:
        pass
    await producer.abort()
    history.transaction_ended(transaction, Outcome.FAILED)
    return False
