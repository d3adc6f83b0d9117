"""One run of the workload: clients and faults for a while, then healing and draining."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.workload.consumers import Assigned, Member, Reading
from support.workload.copiers import COPYING, Copier, Feeder
from support.workload.faults import Nemesis, Server
from support.workload.java_producer import JavaProducers
from support.workload.observer import Committer, Drain, Observer
from support.workload.producers import Sender, TransactionalSender
from support.workload.world import COPIES, NUMBERS, PARTITIONS, Worker, World

DRAIN_LIMIT_S = 120.0
ABANDON_S = 20.0


CALM_S = (0.5, 4)
"""Between two faults, at least and at most."""


class Clients(NamedTuple):
    """Who takes part, in the order in which they end."""

    producers: Sequence[Worker]
    copiers: Sequence[Worker] = ()
    readers: Sequence[Worker] = ()


def run(world: World, server: Server, directory: Path, *, seconds: float, faults_least: int) -> Nemesis:
    """Fill the history of a world whose broker serves and has no such topics yet; it serves at the end too. Who broke it, with counts.

    It goes on for so long, and until there were so many faults: chance may make the first ones long. `directory` is for compiled classes.
    Raises what a client raised that it should not, and AssertionError if the drain takes longer than DRAIN_LIMIT_S.
    """
    _create_topics(world)
    world.history.forward_groups |= {"eager", "cooperative", COPYING}
    eager, cooperative = "range", "cooperative-sticky"
    java = JavaProducers(world.bootstrap, directory)
    producers: list[Worker] = [
        Sender(world, "sender"),
        Sender(world, "careless", idempotent=False, per_second=60),
        TransactionalSender(world, "writer-1"),
        TransactionalSender(world, "writer-2"),
        TransactionalSender(world, "writer-java", java),
        Feeder(world, "feeder-1"),
        Feeder(world, "feeder-2"),
    ]
    readers: list[Worker] = [
        Assigned(world, "reader", committed=True),
        Assigned(world, "everything", committed=False),
        *(Member(world, f"eager-{n}", group="eager", strategy=eager) for n in range(2)),
        *(Member(world, f"cooperative-{n}", group="cooperative", strategy=cooperative, instance=f"i{n}" if n else "") for n in range(2)),
        Committer(world, "committer"),
        Observer(world, "observer", ["eager", "cooperative", "committer", COPYING]),
    ]
    copiers: list[Worker] = [Copier(world, f"copier-{n}", strategy=eager) for n in range(2)]
    nemesis = Nemesis(world, server, calm_s=CALM_S)
    try:
        until = time.monotonic() + seconds
        drive(
            world,
            Clients(producers, copiers, readers),
            nemesis,
            lambda: time.monotonic() >= until and nemesis.kills + nemesis.stops >= faults_least,
        )
    finally:
        java.close()
    history = world.history
    faults = f"{nemesis.kills} kills, {nemesis.stops} stops"
    counts = f"{len(history.sends)} sends, {len(history.transactions)} transactions, {len(history.offset_commits)} offset commits"
    polled = sum(len(reader.value) for reader in history.readers)
    print(f"{faults}; {counts}; {polled} records polled by {len(history.readers)} readers; {history.ended:.0f} s")
    return nemesis


def drive(world: World, clients: Clients, nemesis: Worker, is_enough: Callable[[], bool]) -> None:
    """Start all, end them in their order when it is enough, and read everything that is there. Raises as `run` does."""
    everyone = [*clients.producers, *clients.readers, *clients.copiers, nemesis]
    for worker in everyone:
        worker.start()
    try:
        while not is_enough() and not world.failures:
            time.sleep(0.2)
        end(world, [nemesis])
        end(world, clients.producers)
        if clients.copiers:
            end(world, [_until_copied(world)])
        end(world, clients.copiers)
        end(world, clients.readers)
        for isolation in (True, False):
            name = f"drain, {'committed' if isolation else 'everything'}"
            end(world, [_started(Drain(world, name, committed=isolation))])
    finally:
        _abandon(everyone)


def _create_topics(world: World) -> None:
    admin = AdminClient(world.settings())
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in (NUMBERS, COPIES)]).values():
        future.result(30)


def _started(worker: Worker) -> Worker:
    worker.start()
    return worker


def end(world: World, workers: Sequence[threading.Thread]) -> None:
    """Tell them to stop and wait until they have; raise what went wrong with any client so far."""
    for worker in workers:
        if isinstance(worker, Worker):
            worker.stopping.set()
    deadline = time.monotonic() + DRAIN_LIMIT_S
    while any(worker.is_alive() for worker in workers) and not world.failures:
        slow = [worker.name for worker in workers if worker.is_alive()]
        assert time.monotonic() < deadline, f"after {DRAIN_LIMIT_S} s without a fault these have not ended: {slow}"
        time.sleep(0.05)
    if world.failures:
        raise world.failures[0]


def _abandon(workers: Sequence[Worker]) -> None:
    """Whatever happened, nobody goes on; who hangs in a call of the library is left there."""
    for worker in workers:
        worker.stopping.set()
    deadline = time.monotonic() + ABANDON_S
    for worker in workers:
        worker.join(max(deadline - time.monotonic(), 0))


class _UntilCopied(Worker):
    """Ends when the copiers' group has passed the last number that is visible."""

    def run(self) -> None:
        try:
            drain = Drain(self.world, "drain, before the copies", topics=(NUMBERS,))
            drain.live(drain.name)
            ends = {number: end for (topic, number), end in drain.last.items() if topic == NUMBERS}
            look = Reading(self, "look at the copiers", group=COPYING)
            while any(place.offset < ends[place.partition] for place in look.committed([TopicPartition(NUMBERS, n) for n in ends])):
                time.sleep(0.1)
            look.end()
        except BaseException as failure:
            self.world.failures.append(failure)


def _until_copied(world: World) -> Worker:
    return _started(_UntilCopied(world, "until copied"))
