"""Whatever is lost, late or crashes: a transaction has one outcome, in every partition, and its producer was not told another.

Producers of both protocols make transactions over a few partitions. Their requests are answered, or the answer is lost and they ask again,
while the first request may still be on its way and arrive later. They die and are replaced, sometimes while they go on. The coordinator
crashes before or after any store and any marker. Stores and markers fail for a while. Time passes.

The partitions keep to the rules of a log: the newest epoch of a producer, one transaction of a producer at a time. Each record carries the
number of the transaction that its client means, which nothing but this test looks at.
"""

from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.coordinators.state_log import Done, KeyValue, TransactionalProducer
from moldau.broker.transactions.markers import Marker, MarkerResults, MarkersDone
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from support.sizes import sized
from support.state_logs import ListStateLog
from support.transactions import Asked, Told, TransactionWorld

NONE = ErrorCode.NONE
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
TIMEOUT_MS = 30_000
PARTITIONS = [TopicPartition("t", index) for index in range(3)]


class Crash(BaseException):
    """The coordinator's process ends here."""


class CrashingLog(ListStateLog):
    """The list ends the process before or after an append when `due` says so."""

    due: Callable[[], bool] = staticmethod(lambda: False)

    def append(self, partition: int, records: Sequence[KeyValue], done: Done, producer: TransactionalProducer | None = None) -> None:
        if self.due():
            raise Crash
        after = self.due()

        def answered(error: object) -> None:
            if after:
                raise Crash
            done(error)  # type: ignore[arg-type]

        super().append(partition, records, answered, producer)


class PartitionModel:
    """What a log knows of producers, and what became of each transaction that has records in it."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: dict[int, int] = {}
        """By producer id, the number of the transaction that is open here."""
        self.outcomes: dict[int, set[bool]] = {}
        """By number, how markers ended it."""

    def append(self, producer_id: int, epoch: int, number: int) -> bool:
        if epoch < self.epochs.get(producer_id, -1):
            return False
        assert self.open.get(producer_id, number) == number, "two transactions of a producer at a time"
        self.epochs[producer_id] = epoch
        self.open[producer_id] = number
        self.outcomes.setdefault(number, set())
        return True

    def mark(self, marker: Marker) -> ErrorCode:
        known = self.epochs.get(marker.producer_id, -1)
        is_open = marker.producer_id in self.open
        if marker.producer_epoch < known or (marker.transaction_version >= 2 and marker.producer_epoch == known and is_open):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[marker.producer_id] = marker.producer_epoch
        if is_open:
            self.outcomes[self.open.pop(marker.producer_id)].add(marker.committed)
        return NONE


class World(TransactionWorld):
    """A coordinator that crashes, over partitions that are models."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.crashes = 0
        self.connections = 0
        self.crash_chance = 0.0
        self.fail_chance = 0.0
        self.lose_chance = 0.0
        self.on_the_way: list[tuple[Callable[[], object], bool]] = []
        """Requests that arrive late, and whether they are lost with the connections of a coordinator that crashes."""
        self.logs = {each: PartitionModel() for each in PARTITIONS}
        super().__init__(state_partitions=2)

    def start(self) -> None:
        if not isinstance(self.log, CrashingLog):
            self.log = CrashingLog(2)
            self.log.due = self.crash_is_due
        super().start()

    def crash_is_due(self) -> bool:
        return self.random.random() < self.crash_chance

    def guarded(self, action: Callable[[], object]) -> None:
        """Do something; where it ends the process, start another, which may crash too."""
        while True:
            try:
                action()
            except Crash:
                self.crashes += 1
                action = self._restart
            else:
                return

    def _restart(self) -> None:
        chance, self.crash_chance = self.crash_chance, 0.0
        self.coordinator.close()
        self.on_the_way = [each for each in self.on_the_way if not each[1]]
        self.crash_chance = chance
        self.start()

    def _write(self, markers: Sequence[Marker], done: MarkersDone) -> None:
        results: list[MarkerResults] = []
        for marker in markers:
            codes: MarkerResults = {}
            for each in marker.partitions:
                if self.crash_is_due():
                    raise Crash
                fails = self.random.random() < self.fail_chance
                codes[each] = ErrorCode.KAFKA_STORAGE_ERROR if fails else self.logs[each].mark(marker)
            results.append(codes)
        if self.crash_is_due():
            raise Crash
        done(results)

    def new_connection(self) -> int:
        """The number of a client's next connection."""
        self.connections += 1
        return self.connections

    def exchange(self, send: Callable[[], Asked], *, late: bool = False, old: bool = False) -> Told | None:
        """Send a request; the answer, None if it was lost. With `late` the request itself may arrive after the client has given it up."""
        if late and self.random.random() < self.lose_chance:
            self.on_the_way.append((send, old))
            return None
        asked: list[Asked] = []
        self.guarded(lambda: asked.append(send()))
        if not asked or asked[0].told is None or self.random.random() < self.lose_chance:
            return None
        return asked[0].told

    def deliver_late(self) -> None:
        """Let a request arrive whose client waits no longer."""
        if self.on_the_way:
            send, _ = self.on_the_way.pop(self.random.randrange(len(self.on_the_way)))
            self.guarded(send)

    def produce(self, client: "Client", producer_id: int, epoch: int, partition: TopicPartition) -> bool | None:
        """Append a record of a client's transaction as a broker does; None if it is not known what became of it."""
        log = self.logs[partition]
        if log.open.get(producer_id) is not None and log.epochs.get(producer_id) == epoch:
            return log.append(producer_id, epoch, client.number)
        told: list[ErrorCode] = []
        ask = self.coordinator.verify if client.old else self.coordinator.add_partitions_for_produce
        self.guarded(lambda: ask(client.transactional_id, producer_id, epoch, [partition], lambda codes: told.append(codes[partition])))
        if not told or told[0] in AGAIN:
            return None
        return told[0] is NONE and log.append(producer_id, epoch, client.number)


class Client:
    """One producer: its program is :meth:`turn`, a step at a time."""

    numbers = 0

    def __init__(self, world: World, transactional_id: str, *, old: bool) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.old = old
        self.alive = True
        self.connection = world.new_connection()
        self.known: tuple[int, int] | None = None
        self.number = 0
        self.wrote: set[TopicPartition] = set()
        self.ending: bool | None = None
        self.wanted: set[int] = set()
        """Numbers of transactions that the client has asked to commit."""
        self.told: dict[int, bool] = {}
        """By number of transaction, how it ended as far as the client was told."""

    def turn(self) -> None:
        random = self.world.random
        if self.known is None:
            self._init()
        elif self.ending is None and (not self.wrote or random.random() < 0.6):
            self._produce(random.choice(PARTITIONS))
        else:
            if self.ending is None:
                self.ending = random.random() < 0.7
            self._end()

    def _init(self) -> None:
        asked = self.world.exchange(lambda: self.world.ask_init(self.transactional_id, timeout_ms=TIMEOUT_MS))
        if asked is not None and asked.code is NONE:
            self.known = asked.producer_id, asked.epoch
            self._begin()

    def _begin(self) -> None:
        Client.numbers += 1
        self.number, self.wrote, self.ending = Client.numbers, set(), None

    def _produce(self, partition: TopicPartition) -> None:
        assert self.known is not None
        producer_id, epoch = self.known
        if self.old and partition not in self.wrote:
            asked = self.world.exchange(lambda: self.world.ask_add(self.transactional_id, producer_id, epoch, str(partition), old=True))
            if asked is None or asked.code in AGAIN:
                return
            if asked.code is not NONE:
                self.alive = False
                return
        done = self.world.produce(self, producer_id, epoch, partition)
        if done:
            self.wrote.add(partition)
        elif done is False:
            self.ending = False  # the transaction can only be aborted

    def _end(self) -> None:
        assert self.known is not None
        assert self.ending is not None
        (producer_id, epoch), committed = self.known, self.ending
        if committed:
            self.wanted.add(self.number)
        name, over, old = self.transactional_id, self.connection, self.old
        asked = self.world.exchange(
            lambda: self.world.ask_end(name, producer_id, epoch, committed=committed, old=old, connection=over), late=True, old=old
        )
        if asked is None:
            self.connection = self.world.new_connection()
        if asked is None or asked.code in AGAIN:
            return
        if asked.code is NONE:
            self.told[self.number] = committed
            if not self.old:
                self.known = asked.producer_id, asked.epoch
            self._begin()
        elif asked.code is ErrorCode.INVALID_TXN_STATE and committed and not self.old:
            self.ending = False  # it was late, and has been aborted
        elif asked.code is ErrorCode.INVALID_TXN_STATE and self.old and not self.wrote:
            self._begin()
        else:
            self.alive = False


def run(seed: int, steps: int) -> None:
    random = Random(seed)
    world = World(random)
    clients = [Client(world, f"app-{index}", old=index == 2) for index in range(3)]
    everybody = list(clients)
    for _ in range(steps):
        if random.random() < 0.05:
            world.crash_chance = random.choice([0.0, 0.0, 0.02, 0.2])
            world.fail_chance = random.choice([0.0, 0.0, 0.1, 0.5])
            world.lose_chance = random.choice([0.0, 0.1, 0.4])
        what = random.random()
        if what < 0.03:
            world.guarded(lambda: world.clock.advance(random.choice([0.02, 1, 5, 20])))
        elif what < 0.1:
            world.deliver_late()
        elif what < 0.11:
            world.guarded(world._restart)
        elif what < 0.13:  # a second producer of the same id, while the first one may go on
            place = random.randrange(len(clients))
            clients[place] = Client(world, clients[place].transactional_id, old=clients[place].old)
            everybody.append(clients[place])
        elif what < 0.16 and len(everybody) > len(clients):
            zombie = random.choice(everybody)
            if zombie.alive and zombie.known is not None:
                zombie.turn()
        else:
            client = random.choice(clients)
            if not client.alive:
                clients[clients.index(client)] = client = Client(world, client.transactional_id, old=client.old)
                everybody.append(client)
            client.turn()
    # All is well again: what is on its way arrives, what is open runs out of time, what is decided is finished.
    world.crash_chance = world.fail_chance = world.lose_chance = 0.0
    while world.on_the_way:
        world.deliver_late()
    world.clock.advance(TIMEOUT_MS / 1000 + 30)
    check(world, everybody)


def check(world: World, clients: Sequence[Client]) -> None:
    outcomes: dict[int, set[bool]] = {}
    for partition, log in world.logs.items():
        assert not log.open, f"{partition}: open transactions are left: {log.open}"
        for number, ended in log.outcomes.items():
            assert len(ended) == 1, f"{partition}: transaction {number} ended as {ended}"
            outcomes.setdefault(number, set()).update(ended)
    torn = {number: ended for number, ended in outcomes.items() if len(ended) > 1}
    assert not torn, f"torn transactions: {torn}"
    committed_ones = {number for number, ended in outcomes.items() if ended == {True}}
    unasked = committed_ones.difference(*(client.wanted for client in clients))
    assert not unasked, f"committed, but nobody asked for it: {unasked}"
    for client in clients:
        for number, committed in client.told.items():
            assert outcomes.get(number, {committed}) == {committed}, f"transaction {number}: told {committed}, became {outcomes[number]}"


@settings(max_examples=sized(8, 250))
@given(st.integers(0, 2**32))
def test_a_transaction_has_one_outcome(seed: int) -> None:
    run(seed, 400)


@pytest.mark.torture
def test_a_transaction_has_one_outcome_over_many_runs() -> None:
    runs = sized(5, 2000)
    first = Random().randrange(2**32)
    print(f"seeds {first} to {first + runs - 1}")
    for seed in range(first, first + runs):
        run(seed, 1500)


def test_the_model_sees_faults() -> None:
    """A coordinator that forgets its decision between two markers tears the transaction, and the check says so."""
    world = World(Random(1))
    world.init("app")
    client = Client(world, "app", old=False)
    client.number = 1
    for partition in PARTITIONS[:2]:
        assert world.produce(client, 1000, 0, partition)
    world.logs[PARTITIONS[0]].mark(Marker(1000, 1, True, 1, 2, ()))
    world.clock.advance(TIMEOUT_MS / 1000 + 40)
    with pytest.raises(AssertionError, match="torn"):
        check(world, [])
