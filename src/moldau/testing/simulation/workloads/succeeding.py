"""Two producers with one transactional id: the older does not know that it has an heir, and what it still does must fail."""

from moldau.client.failures import ClientError
from moldau.model.identity import TopicPartition
from moldau.testing.history.history import Outcome
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.transactions import TransactionalProducer
from moldau.testing.simulation.workloads.recording import RecordedProducer, ensure_topic, pause
from moldau.testing.simulation.workloads.writing import PARTITIONS, TOPIC


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
    producer = TransactionalProducer(context, context.name, protocol=protocol, timeout_s=10.0)
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
    assert isinstance(recorded.producer, TransactionalProducer)
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
    assert isinstance(recorded.producer, TransactionalProducer)
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
