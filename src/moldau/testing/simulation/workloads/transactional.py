"""Transactional producers, which commit and abort, are killed in the middle, and continue as zombies beside their heirs. Two producers with
one transactional id: the older does not know that it has an heir, and what it still does must fail. Consume, transform, produce: each
record of one topic is copied once to another, with the group's offsets in the transaction.
"""

from moldau.client.failures import ClientError, ConsumeError, TransactionAbortedError
from moldau.model.identity import TopicPartition
from moldau.testing.history.history import Outcome
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.fetching import SimulatedMessage
from moldau.testing.simulation.clients.group import COOPERATIVE, RANGE
from moldau.testing.simulation.clients.transactions import SimulatedTransactionalProducer
from moldau.testing.simulation.workloads.joining import RecordedMember
from moldau.testing.simulation.workloads.plain import PARTITIONS, TOPIC
from moldau.testing.simulation.workloads.recording import RecordedProducer, ensure_topic, outcome_of, pause, value_of


async def transact(context: ClientContext) -> None:
    """One transaction after the other."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    history, random = context.history, context.random
    protocol = random.choice((0, 1, 2))
    lives = 0
    while context.budget.left > 0:
        lives += 1
        number = history.add_producer(f"{context.name}.{lives}", transactional_id=context.name)
        producer = SimulatedTransactionalProducer(context, context.name, protocol=protocol or 1, timeout_s=random.choice((3.0, 20.0)))
        try:
            await producer.init_transactions()
        except ClientError:
            producer.crash()
            history.producer_gone(number)
            await pause(context)
            continue
        history.producer_ready(number)
        is_alive = True
        while is_alive and context.budget.take():
            is_alive = await _one(context, RecordedProducer(context, producer, number)) and random.random() > 0.03
            await pause(context)
        producer.crash()
        history.producer_gone(number)


async def _one(context: ClientContext, recorded: RecordedProducer) -> bool:
    """One transaction; whether the producer can continue."""
    history, random, producer = context.history, context.random, recorded.producer
    assert isinstance(producer, SimulatedTransactionalProducer)
    transaction = history.begin(recorded.number)
    try:
        await producer.begin()
        for _ in range(random.randint(1, 6)):
            recorded.send(TopicPartition(TOPIC, random.randrange(PARTITIONS)), transaction=transaction)
            if random.random() < 0.3:
                await pause(context)
        if random.random() < 0.02:
            return False
        if random.random() < 0.7:
            history.ask_commit(transaction)
            await producer.commit()
            history.transaction_ended(transaction, Outcome.OK)
        else:
            await producer.abort()
            history.transaction_ended(transaction, Outcome.FAILED)
    except TransactionAbortedError:
        try:
            await producer.abort()
        except ClientError:
            return False
        history.transaction_ended(transaction, Outcome.FAILED)
    except ClientError as error:
        if outcome_of(error) is Outcome.FAILED:
            pass
        return False
    return True


async def succeed(context: ClientContext) -> None:
    """Again and again an heir takes over in the middle of a transaction."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    random, lives = context.random, 0
    older: RecordedProducer | None = None
    open_transaction = -1
    while context.budget.take():
        lives += 1
        heir = await _made(context, f"{context.name}.{lives}", random.choice((1, 2)))
        if older is not None:
            await _send(context, older, open_transaction)
            await _commit(context, older, open_transaction)
            _give_up(context, older)
        older = None
        if heir is not None:
            transaction = await _begin(context, heir)
            if transaction is not None:
                await _send(context, heir, transaction)
                if random.random() < 0.5 and await _commit(context, heir, transaction):
                    transaction = await _begin(context, heir)
            if transaction is None:
                _give_up(context, heir)
            else:
                older, open_transaction = heir, transaction
        await pause(context)
    if older is not None:
        _give_up(context, older)


async def _made(context: ClientContext, name: str, protocol: int) -> RecordedProducer | None:
    number = context.history.add_producer(name, transactional_id=context.name)
    producer = SimulatedTransactionalProducer(context, context.name, protocol=protocol, timeout_s=10.0)
    try:
        await producer.init_transactions()
    except ClientError:
        producer.crash()
        context.history.producer_gone(number)
        return None
    context.history.producer_ready(number)
    return RecordedProducer(context, producer, number)


async def _begin(context: ClientContext, recorded: RecordedProducer) -> int | None:
    """The number of a new transaction; None if the producer is of no more use."""
    assert isinstance(recorded.producer, SimulatedTransactionalProducer)
    try:
        await recorded.producer.begin()
    except ClientError:
        return None
    return context.history.begin(recorded.number)


async def _send(context: ClientContext, recorded: RecordedProducer, transaction: int) -> None:
    try:
        for _ in range(context.random.randint(1, 5)):
            recorded.send(TopicPartition(TOPIC, context.random.randrange(PARTITIONS)), transaction=transaction)
            await pause(context)
    except ClientError:
        pass  # it is fenced, or can only abort


async def _commit(context: ClientContext, recorded: RecordedProducer, transaction: int) -> bool:
    assert isinstance(recorded.producer, SimulatedTransactionalProducer)
    context.history.ask_commit(transaction)
    try:
        await recorded.producer.commit()
    except ClientError:
        return False
    context.history.transaction_ended(transaction, Outcome.OK)
    return True


def _give_up(context: ClientContext, recorded: RecordedProducer) -> None:
    recorded.producer.crash()
    context.history.producer_gone(recorded.number)


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
        producer = SimulatedTransactionalProducer(context, context.name, protocol=protocol, timeout_s=random.choice((5.0, 20.0)))
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


async def _copy(
    context: ClientContext, recorded: RecordedProducer, member: RecordedMember, begun: float, found: list[SimulatedMessage]
) -> bool:
    """Copy these in one transaction; whether it was committed."""
    history, producer = context.history, recorded.producer
    assert isinstance(producer, SimulatedTransactionalProducer)
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
