"""What a run of two clusters and a mirror is like: drawn from its seed, before it begins."""

from dataclasses import dataclass
from random import Random

from moldau.mirror.fetched import Limits
from moldau.testing.simulation.fleet import LOSING, SEVERAL_PRODUCERS
from moldau.testing.simulation.mirrors.faults import MIRROR_FAULTS
from moldau.testing.simulation.mirrors.member import MirrorPlan
from moldau.testing.simulation.mirrors.topics import COUNTS, TOPIC_OF
from moldau.testing.simulation.options import Options, draw_cluster, draw_options, generator, log_uniform
from moldau.testing.simulation.workloads import TRANSACTIONAL
from moldau.testing.simulation.workloads.plain import TOPIC

CLIENTS = ("feed", "overwrite", "renew", "retain", "succeed", "transact", "write", "write_carelessly")
CLIENTS_MIN, CLIENTS_MAX = 2, 4
ONCE = ("renew", "overwrite", "retain")
"""Workloads of which one client at a time knows what there is."""
CLUSTERS = 0.4
"""So many of the clusters have several brokers."""
FAULTS_S = 25.0
TREE_LATENCY_S = 0.02
OPERATIONS = 80, 300


@dataclass(slots=True)
class MirrorOptions:
    """A run's world."""

    source: Options
    target: Options
    plans: list[MirrorPlan]
    """Of each host of the mirror."""
    may_lose: bool
    """Whether the source may lose what it has not synced, and shown."""
    compacts_positions: bool

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.source.seed


def mirror_options_of(seed: int) -> MirrorOptions:
    """Everything that a seed draws before its run."""
    random = generator(seed, "mirrors")
    source = _cluster(seed, random)
    target = _cluster(random.getrandbits(48), random)
    target.faults_s = source.faults_s
    target.clients = ["mirror"]
    source.operations = random.randint(*OPERATIONS)
    source.clients = _clients(random)
    may_lose = source.brokers == 1 and any(kind in source.faults for kind in LOSING)
    if may_lose and any(name in TRANSACTIONAL for name in source.clients):
        source.settings["log.flush.interval.messages"] = 1
    if target.brokers == 1 and any(kind in target.faults for kind in LOSING):
        target.settings["log.flush.interval.messages"] = 1
    for options in (source, target):
        options.settings["producer.ids.max"] = max(SEVERAL_PRODUCERS, int(str(options.settings["producer.ids.max"])))
    for kind in MIRROR_FAULTS:
        if random.random() < 0.6:
            source.faults[kind] = log_uniform(random, 1.0, 10.0)
    topics = {name: COUNTS[name] for name in dict.fromkeys(TOPIC_OF.get(client, TOPIC) for client in source.clients)}
    has_one_name = random.random() < 0.5
    limits = Limits(int(log_uniform(random, 2_000, 1_000_000)), int(log_uniform(random, 500, 100_000)))
    plans = [
        MirrorPlan("1" if has_one_name else f"{number + 1}", topics, random.choice((6.0, 10.0)), limits)
        for number in range(random.choice((1, 2, 2)))
    ]
    return MirrorOptions(source, target, plans, may_lose, random.random() < 0.5)


def _cluster(seed: int, random: Random) -> Options:
    """A cluster without what the runs of one cluster look into: its disk is damaged by no fault, and no log moves."""
    options = draw_options(seed)
    options.faults.pop("flip_bit", None)
    options.faults.pop("misdirect_write", None)
    options.faults.pop("client_death", None)
    options.faults_s = min(options.faults_s, random.uniform(10.0, FAULTS_S))
    options.directories = 1
    options.tree_latency_s = min(options.tree_latency_s, TREE_LATENCY_S)
    if random.random() < CLUSTERS:
        draw_cluster(options)
        options.tree_latency_s = min(options.tree_latency_s, TREE_LATENCY_S)
        options.brokers = random.choice((2, 3, 3))
        replicas = min(int(str(options.settings["default.replication.factor"])), options.brokers)
        minimum = min(int(str(options.settings["min.insync.replicas"])), replicas)
        options.settings |= {
            "default.replication.factor": replicas,
            "min.insync.replicas": minimum,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": minimum,
        }
    return options


def _clients(random: Random) -> list[str]:
    kinds = random.sample(CLIENTS, random.randint(1, 4))
    drawn = [random.choice(kinds) for _ in range(random.randint(CLIENTS_MIN, CLIENTS_MAX))]
    return sorted([name for name in drawn if name not in ONCE] + [name for name in ONCE if name in drawn])
