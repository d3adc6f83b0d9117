"""Which clients a run has: some of the workloads, drawn from its seed."""

from collections.abc import Collection

from moldau.broker.replicas.directory_moves import RATE
from moldau.testing.simulation.options import (
    MANY_PRODUCERS,
    Options,
    draw_cluster,
    draw_options,
    draw_racks,
    generator,
    log_uniform,
)
from moldau.testing.simulation.workloads import OF_A_CLUSTER, OF_TWO_DIRECTORIES, TRANSACTIONAL, WORKLOADS, Workload

CLIENTS_MIN, CLIENTS_MAX = 2, 8
CLUSTERS = 0.5
"""So many of the runs have several brokers."""
MOVING = 0.75
"""So many of the runs with two directories move logs."""
COPYING_BYTES = 20, 5_000
"""A second, of the logs that move slowly."""
SEVERAL_PRODUCERS = 40
"""More than have a transaction open in some partition at a time: where only such are remembered, a new producer is refused."""
BUSY_TWICE = {"administrate", "move_logs"}
"""Workloads beside which one open transaction counts in several logs."""
LOSING = ("power_cut", "fail_sync", "fail_directory")
"""Faults that may take what was not synced."""
OF_ALL = tuple(name for name in WORKLOADS if name not in OF_TWO_DIRECTORIES)
ALONE = tuple(name for name in OF_ALL if name not in OF_A_CLUSTER)


def draw_clients(seed: int, workloads: Collection[str] = ALONE) -> list[str]:
    """Names of workloads, some of them several times."""
    random = generator(seed, "clients")
    kinds = random.sample(list(workloads), random.randint(1, min(4, len(workloads))))
    return sorted(random.choice(kinds) for _ in range(random.randint(CLIENTS_MIN, CLIENTS_MAX)))


def clients_of(options: Options) -> list[tuple[str, Workload]]:
    """The workloads that the options name."""
    return [(name, WORKLOADS[name]) for name in options.clients]


def options_of(seed: int) -> Options:
    """Everything that a seed draws before its run."""
    options = draw_options(seed)
    if generator(seed, "brokers").random() < CLUSTERS:
        draw_cluster(options)
        draw_racks(options)
        options.clients = draw_clients(seed, OF_ALL)
        options.damaged_topics = ["plain", "copies", "__consumer_offsets", "__transaction_state"]
    else:
        options.clients = draw_clients(seed)
        settle(options)
    if options.directories > 1:
        draw_moves(options)
    if _is_transactional(options):
        least = SEVERAL_PRODUCERS if BUSY_TWICE.isdisjoint(options.clients) else MANY_PRODUCERS
        options.settings["producer.ids.max"] = max(least, int(str(options.settings["producer.ids.max"])))
    return options


def draw_moves(options: Options) -> None:
    """Have logs move between directories in many of the runs, slowly in some: a copy then sees more of what happens to its log."""
    random = generator(options.seed, "options/moves")
    if random.random() < MOVING:
        options.clients.append("move_logs")
        if random.random() < 0.5:
            options.settings[RATE] = int(log_uniform(random, *COPYING_BYTES))


def _is_transactional(options: Options) -> bool:
    return any(name in TRANSACTIONAL for name in options.clients)


def settle(options: Options) -> None:
    """Fit the world to what its clients can claim in it.

    Transactional clients meet losses only where everything is synced before it is acknowledged: a coordinator that has lost an epoch gives
    it to the next producer too, whose first batches are then taken for repeated ones; one that has lost the begin of a transaction never
    ends it. Clients whose own models know of no damage have topics of their own, which are not damaged.
    """
    is_transactional = _is_transactional(options)
    options.damaged_topics = [] if is_transactional else ["plain", "__consumer_offsets"]
    if is_transactional and any(kind in options.faults for kind in LOSING):
        options.settings["log.flush.interval.messages"] = 1
