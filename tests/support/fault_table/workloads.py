"""What clients do to a cluster while it fails, by name."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from moldau.client.cluster import GROUP, TRANSACTION
from moldau.testing.history.history import Outcome
from support.workload.consumers import Assigned, Member
from support.workload.copiers import COPYING, Copier, Feeder
from support.workload.observer import Committer, Observer
from support.workload.producers import Sender, TransactionalSender, Transactions, send
from support.workload.run import Clients
from support.workload.world import GIVE_UP_S, NUMBERS, PARTITIONS, Worker, World

COMPACTED = "compacted"
COMPACTED_SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
KEYS = 10


class Workload(NamedTuple):
    """One cell's clients."""

    clients: Clients
    topic: str = NUMBERS
    """The one that faults aim at."""
    coordinated: Sequence[tuple[int, str]] = ()
    """Kind and name of groups and transactional ids."""
    judge: Callable[[World], list[str]] = lambda _world: []
    """What is wrong in the end that the history does not know."""
    acknowledged_at: Sequence[tuple[int, float]] = ()
    """Partition and time of acknowledgements that are not in the history."""


class Transfers(Worker):
    """Moves amounts between accounts: what a transaction takes from one partition, it adds to another."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.amounts: dict[int, int] = {}
        """By the value of the record."""

    def live(self, name: str) -> None:
        mine = Transactions(self, name, self.name)
        for _ in self.moments(3, 15):
            if not mine.carry_out(partial(self._transfer, mine)):
                break
        mine.close()

    def _transfer(self, mine: Transactions, transaction: int) -> None:
        amount = self.random.randrange(1, 100)
        for account, moved in zip(self.random.sample(range(PARTITIONS), 2), (-amount, amount), strict=True):
            self.amounts[send(self, mine.producer, mine.number, account, transaction=transaction)] = moved
        mine.producer.poll(0)


class Overwriter(Worker):
    """Writes the next number under some of its keys, in transactions, to a topic that is compacted."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.acknowledged_at: list[tuple[int, float]] = []
        self.written: dict[bytes, list[tuple[int, int]]] = {}
        """By key: numbers, each with the transaction that it was written in."""
        self._next = 0

    def live(self, name: str) -> None:
        mine = Transactions(self, name, self.name)
        for _ in self.moments(3, 15):
            if not mine.carry_out(partial(self._overwrite, mine)):
                break
        mine.close()

    def _overwrite(self, mine: Transactions, transaction: int) -> None:
        for key in self.random.sample(range(KEYS), self.random.randrange(1, 4)):
            self._write(mine, transaction, key)
        mine.producer.poll(0)

    def _write(self, mine: Transactions, transaction: int, key: int) -> None:
        name = b"%s %d" % (self.name.encode(), key)
        self.written.setdefault(name, []).append((self._next, transaction))
        mine.producer.produce(COMPACTED, b"%d" % self._next, name, partition=key % PARTITIONS, on_delivery=self._delivered)
        self._next += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged_at.append((message.partition() or 0, self.history.now()))

    def wrong(self, found: Mapping[bytes, int]) -> list[str]:
        """By the last numbers that were read under its keys."""
        complaints = []
        for key, written in self.written.items():
            allowed: list[int | None] = [None]
            for number, transaction in written:
                outcome = self.history.transactions[transaction].outcome
                if outcome is Outcome.OK:
                    allowed = [number]
                elif outcome is Outcome.UNKNOWN:
                    allowed.append(number)
            if found.get(key) not in allowed:
                complaints.append(f"{key.decode()}: the last number is {found.get(key)}, and not one of {allowed}")
        return complaints


def _judge_transfers(transfers: Sequence[Transfers]) -> Callable[[World], list[str]]:
    """The sum of all accounts, by what was read to the end, is 0."""

    def judge(world: World) -> list[str]:
        amounts = {value: amount for each in transfers for value, amount in each.amounts.items()}
        reader = next(each for each in world.history.readers if each.name == "drain, committed")
        total = sum(amounts.get(value, 0) for value in reader.value)
        return [f"the sum of all accounts is {total}"] if total else []

    return judge


def _judge_overwriters(overwriters: Sequence[Overwriter]) -> Callable[[World], list[str]]:
    def judge(world: World) -> list[str]:
        found = _last_numbers(world)
        return [complaint for each in overwriters for complaint in each.wrong(found)]

    return judge


def _last_numbers(world: World) -> dict[bytes, int]:
    """By key: the last one in the compacted topic, when no transaction is open any more."""
    consumers = {
        isolation: Consumer(world.settings(group_id="unused", isolation_level=isolation, enable_partition_eof=True))
        for isolation in ("read_committed", "read_uncommitted")
    }
    places = [TopicPartition(COMPACTED, number, 0) for number in range(PARTITIONS)]
    until = time.monotonic() + GIVE_UP_S
    while len({tuple(each.get_watermark_offsets(place, 5)[1] for place in places) for each in consumers.values()}) > 1:
        assert time.monotonic() < until, "transactions stay open"
        time.sleep(0.1)
    reader = consumers["read_committed"]
    reader.assign(places)
    found: dict[bytes, int] = {}
    at_end: dict[int | None, None] = {}
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < until, "the compacted topic is not read to its end"
        for message in reader.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found[message.key() or b""] = int(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end[message.partition()] = None
    for each in consumers.values():
        each.close()
    return found


def _compact(world: World) -> Workload:
    overwriters = [Overwriter(world, f"overwriter-{number}") for number in range(2)]
    acknowledged_at = _Joined([each.acknowledged_at for each in overwriters])
    return Workload(Clients(overwriters), COMPACTED, _ids(overwriters), _judge_overwriters(overwriters), acknowledged_at)


class _Joined(Sequence[tuple[int, float]]):
    """Lists that still grow, as one."""

    def __init__(self, parts: Sequence[list[tuple[int, float]]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __getitem__(self, place: Any) -> Any:
        return [each for part in self._parts for each in part][place]


def _ids(workers: Sequence[Worker]) -> list[tuple[int, str]]:
    """Workers' names are their transactional ids."""
    return [(TRANSACTION, each.name) for each in workers]


def _assigned(world: World) -> list[Worker]:
    return [Assigned(world, "reader", committed=True), Assigned(world, "everything", committed=False)]


def _members(world: World) -> list[Worker]:
    return [
        *(Member(world, f"eager-{number}", group="eager") for number in range(2)),
        *(Member(world, f"cooperative-{number}", group="cooperative", strategy="cooperative-sticky") for number in range(2)),
    ]


_GROUPS = [(GROUP, "eager"), (GROUP, "cooperative")]


def _writers(world: World) -> list[Worker]:
    return [TransactionalSender(world, f"writer-{number}") for number in range(2)]


def _reads_writes(world: World) -> Workload:
    return Workload(Clients([Sender(world, "careless", idempotent=False, per_second=200)], (), _assigned(world)))


def _reads_writes_idempotent(world: World) -> Workload:
    return Workload(Clients([Sender(world, "sender")], (), _assigned(world)))


def _list_offsets(world: World) -> Workload:
    producers = [Sender(world, "sender"), *_writers(world)]
    readers = [Committer(world, "committer"), Observer(world, "observer", ["committer"])]
    return Workload(Clients(producers, (), readers), coordinated=[(GROUP, "committer"), *_ids(producers[1:])])


def _subscribe(world: World) -> Workload:
    readers = [*_members(world), Observer(world, "observer", ["eager", "cooperative"])]
    return Workload(Clients([Sender(world, "sender")], (), readers), coordinated=_GROUPS)


def _tx_money(world: World) -> Workload:
    transfers = [Transfers(world, f"transfers-{number}") for number in range(2)]
    return Workload(Clients(transfers, (), _assigned(world)), coordinated=_ids(transfers), judge=_judge_transfers(transfers))


def _tx_reads_writes(world: World) -> Workload:
    writers = _writers(world)
    return Workload(Clients(writers, (), _assigned(world)), coordinated=_ids(writers))


def _tx_streaming(world: World) -> Workload:
    copiers = [Copier(world, f"copier-{number}") for number in range(2)]
    return Workload(Clients([Sender(world, "sender")], copiers, _assigned(world)), coordinated=[(GROUP, COPYING), *_ids(copiers)])


def _tx_subscribe(world: World) -> Workload:
    writers = _writers(world)
    return Workload(Clients(writers, (), _members(world)), coordinated=[*_GROUPS, *_ids(writers)])


def _tx_poll(world: World) -> Workload:
    feeders = [Feeder(world, f"feeder-{number}") for number in range(2)]
    return Workload(Clients(feeders, (), _assigned(world)), coordinated=_ids(feeders))


WORKLOADS: Mapping[str, Callable[[World], Workload]] = {
    "reads_writes": _reads_writes,
    "reads_writes_idempotent": _reads_writes_idempotent,
    "list_offsets": _list_offsets,
    "subscribe": _subscribe,
    "tx_money": _tx_money,
    "tx_compact": _compact,
    "tx_reads_writes": _tx_reads_writes,
    "tx_streaming": _tx_streaming,
    "tx_subscribe": _tx_subscribe,
    "tx_poll": _tx_poll,
}


def forward_groups() -> set[str]:
    """Groups whose members commit only forward."""
    return {"eager", "cooperative", COPYING}
