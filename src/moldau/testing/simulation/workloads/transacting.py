"""Transactional producers, which commit and abort, are killed in the middle, and go on as zombies beside their heirs."""

from moldau.client.failures import ClientError, TransactionAbortedError
from moldau.model.identity import TopicPartition
from moldau.testing.history.history import Outcome
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.transactions import TransactionalProducer
from moldau.testing.simulation.workloads.recording import RecordedProducer, ensure_topic, outcome_of, pause

TOPIC, PARTITIONS = "plain", 2


async def transact(context: ClientContext) -> None:
    """One transaction after the other."""
    await ensure_topic(context, TOPIC, PARTITIONS)
    history, random = context.history, context.random
    protocol = random.choice((0, 1, 2))
    lives = 0
    while context.budget.left > 0:
        lives += 1
        number = history.add_producer(f"{context.name}.{lives}", transactional_id=context.name)
        producer = TransactionalProducer(context, context.name, protocol=protocol or 1, timeout_s=random.choice((3.0, 20.0)))
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
    """One transaction; whether the producer can go on."""
    history, random, producer = context.history, context.random, recorded.producer
    assert isinstance(producer, TransactionalProducer)
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
