"""What a run of two clusters and a mirror is like: drawn from its seed, before it begins."""

from dataclasses import dataclass
from enum import Enum
from random import Random

from moldau.mirror.fetched import Limits
from moldau.testing.simulation.fleet import LOSING, SEVERAL_PRODUCERS
from moldau.testing.simulation.mirrors.faults import MIRROR_FAULTS
from moldau.testing.simulation.mirrors.ring_topics import RING_CLIENTS, RING_COUNTS, RING_TOPIC_OF
from moldau.testing.simulation.mirrors.topics import COUNTS, TOPIC_OF
from moldau.testing.simulation.mirrors.work import Sharing, WorkPlan
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
RING_OPERATIONS = 30, 120
"""Of each cluster."""
PROMOTED = 0.6
"""So many of the copies are promoted."""
FAILED_BACK = 0.7
"""So many of those that are promoted fail back, where the source has lost nothing."""


class Kind(Enum):
    """What mirrors there are."""

    MERGE = "merge"
    """One, from the source to the target."""
    RING = "ring"
    """Two merges in opposite directions, which keep the names of topics."""
    COPY = "copy"
    """One, which may be promoted."""


@dataclass(slots=True)
class MirrorOptions:
    """A run's world."""

    source: Options
    target: Options
    kind: Kind
    plans: list[WorkPlan]
    """Of each host of the mirror."""
    returning: list[WorkPlan]
    """Of each host of the mirror in the opposite direction."""
    promoted_at_s: float | None
    """When the copy is promoted; None: never."""
    fails_back: bool
    """Whether the source of a copy that was promoted becomes its copy in the end."""
    may_lose: bool
    """Whether the source may lose what it has not synced, and shown."""
    compacts_positions: bool

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.source.seed


def mirror_options_of(seed: int) -> MirrorOptions:
    """Everything that a seed draws before its run."""
    options = _merge_of(seed)
    random = generator(seed, "mirrors/kind")
    kind = options.kind = random.choice((Kind.MERGE, Kind.MERGE, Kind.RING, Kind.COPY, Kind.COPY))
    if kind is Kind.RING:
        _make_ring(options, random)
    elif kind is Kind.COPY:
        _make_copy(options, random)
    elif random.random() < 0.5:
        options.plans = _beside(options.plans, Sharing.MERGE, random)
    return options


def _merge_of(seed: int) -> MirrorOptions:
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
        WorkPlan("1" if has_one_name else f"{number + 1}", topics, random.choice((6.0, 10.0)), limits)
        for number in range(random.choice((1, 2, 2)))
    ]
    return MirrorOptions(source, target, Kind.MERGE, plans, [], None, False, may_lose, random.random() < 0.5)


def _beside(plans: list[WorkPlan], sharing: Sharing, random: Random) -> list[WorkPlan]:
    """Of the real program one process more: there is more to share."""
    more = [*plans, plans[0]._replace(instance=str(len(plans) + 1))] if random.random() < 0.5 else plans
    return [each._replace(sharing=sharing) for each in more]


def _make_ring(options: MirrorOptions, random: Random) -> None:
    source, target = options.source, options.target
    for cluster in (source, target):
        cluster.clients = sorted(random.choice(RING_CLIENTS) for _ in range(random.randint(1, 3)))
        cluster.operations = random.randint(*RING_OPERATIONS)
        if cluster.brokers == 1:  # what a mirror has read is on disk, also where a sync fails
            cluster.settings |= {"log.flush.interval.messages": 1, "log.visibility": "flushed"}
    options.may_lose = False
    topics = {name: RING_COUNTS[name] for name in dict.fromkeys(RING_TOPIC_OF[each] for each in (*source.clients, *target.clients))}
    plans = [each._replace(topics=topics) for each in _beside(options.plans, Sharing.MERGE, random)]
    options.plans = [each._replace(mirror="there") for each in plans]
    options.returning = [each._replace(mirror="back") for each in plans[: random.choice((1, len(plans)))]]


def _make_copy(options: MirrorOptions, random: Random) -> None:
    """Without what is not simulated: a topic that is made again; compaction, whose gaps the judge of one broker's crashes does not know in
    other logs.
    """
    source, target = options.source, options.target
    without = {"renew"}
    if random.random() < PROMOTED:
        options.promoted_at_s = random.uniform(0.2, 0.95) * source.faults_s
    if target.brokers == 1:
        target.settings["log.flush.interval.messages"] = 1
        without.add("overwrite")
    source.clients = [each for each in source.clients if each not in without] or ["write"]
    topics = {name: COUNTS[name] for name in dict.fromkeys(TOPIC_OF.get(client, TOPIC) for client in source.clients)}
    options.plans = [each._replace(topics=topics) for each in _beside(options.plans, Sharing.COPY, random)]
    options.fails_back = options.promoted_at_s is not None and not options.may_lose and random.random() < FAILED_BACK


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
