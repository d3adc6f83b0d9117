"""What a run is like: drawn first, from the seed alone.

Each kind of fault is in the run or is not, before its rate is drawn: runs without most of them find what the many together would hide.
"""

import math
from dataclasses import dataclass, field
from random import Random

from moldau.broker.handlers.fetch.read_replicas import RACK_AWARE
from moldau.testing.simulation.disk import DiskOptions
from moldau.testing.simulation.network import NO_PIECE, NetworkOptions

COMMON_FAULTS = ("kill", "power_cut", "crash_at_call", "stop", "pause", "disconnect", "half_open", "refuse", "disk_full", "slow_disk")
"""Kinds that half of the runs have, in the order in which they are drawn."""
RARE_FAULTS = (
    "flip_bit",
    "misdirect_write",
    "fail_sync",
    "fail_directory",
    "suspend_session",
    "expire_session",
    "lose_answer",
    "client_death",
)
"""Kinds that a quarter of the runs have. Each has a generator of its own, so that one more changes nothing of the others."""
FAULTS = COMMON_FAULTS + RARE_FAULTS
CLUSTER_FAULTS = ("cut_link", "isolate", "late_tree", "refuse_write", "kill_controller", "roll")
"""Kinds that need several brokers."""
FAULTS_OF_A_CLUSTER_S = 40.0
"""How long faults happen at most where there are several brokers, whose fetches cost time also when nothing happens."""
MANY_PRODUCERS = 100_000
"""More than there are in a run: none is refused because all others have open transactions."""


@dataclass(slots=True)
class Options:
    """A run's world."""

    seed: int
    faults: dict[str, float] = field(default_factory=dict)
    """The kinds of faults that happen, with the mean time between two of a kind in seconds."""
    clients: list[str] = field(default_factory=list)
    """The workloads, by name."""
    settings: dict[str, object] = field(default_factory=dict)
    """Of the broker."""
    network: NetworkOptions = field(default_factory=NetworkOptions)
    disk: DiskOptions = field(default_factory=DiskOptions)
    directories: int = 1
    """Log directories of the broker."""
    tree_latency_s: float = 0.0
    """Of each request to the coordination tree."""
    tree_linger_s: float = 0.0
    """How long the session of a process lasts after its end."""
    brokers: int = 1
    session_s: float = 0.0
    """Session time-out of the tree; 0: sessions of processes that are cut off do not expire by themselves."""
    racks: int = 0
    """How many racks brokers and clients are in, where clients read from replicas in theirs; 0: they read from leaders."""
    damaged_topics: list[str] = field(default_factory=list)
    """Topics whose records may be damaged on disk where they are not known to be synced. Indexes may be damaged of all topics."""
    reading_cost_s: float = 0.0
    faults_s: float = 30.0
    """How long the phase of faults lasts."""
    operations: int = 1500
    """How many operations the workloads begin at most."""


def generator(seed: int, concern: str) -> Random:
    """A generator for one concern, so that a draw more in one does not move the others."""
    return Random(f"{seed}/{concern}")


def draw_options(seed: int, faults: tuple[str, ...] = FAULTS) -> Options:
    """The options of a seed, with no other kinds of faults than these."""
    random = generator(seed, "options")
    options = Options(seed)
    for kind in COMMON_FAULTS:
        is_in, interval_s = random.random() < 0.5, log_uniform(random, 2.0, 30.0)
        if is_in and kind in faults:
            options.faults[kind] = interval_s
    options.faults_s = random.uniform(10.0, 60.0)
    options.operations = random.randint(300, 1500)
    options.network = NetworkOptions(
        latency_s=log_uniform(random, 0.0001, 0.01),
        tail=random.choice((0.0, 0.01, 0.05)),
        window=1 << random.randint(9, 16),
        piece_max=int(log_uniform(random, 8, 4096)) if random.random() < 0.1 else NO_PIECE,
    )
    options.disk = DiskOptions(log_uniform(random, 0.0002, 0.02), random.choice((0.0, 0.02, 0.2)))
    options.reading_cost_s = random.choice((0.0, 0.0, 0.00001, 0.001))
    options.settings = draw_settings(random)
    for kind in RARE_FAULTS:
        random = generator(seed, f"options/{kind}")
        if random.random() < 0.25 and kind in faults:
            options.faults[kind] = log_uniform(random, 2.0, 30.0)
    random = generator(seed, "options/world")
    options.directories = random.choice((1, 1, 2))
    options.tree_latency_s = random.choice((0.0, 0.0, 0.005, 0.2))
    options.tree_linger_s = random.choice((0.0, 0.0, 6.0))
    return options


def draw_cluster(options: Options) -> None:
    """Make the run one of several brokers, with settings and faults of such."""
    seed = options.seed
    random = generator(seed, "options/cluster")
    options.brokers = random.choice((2, 3, 3, 3, 4, 5))
    options.faults_s = min(options.faults_s, FAULTS_OF_A_CLUSTER_S)
    options.operations //= 2
    options.tree_latency_s = random.choice((0.0, 0.002, 0.02, 0.2))
    options.session_s = random.choice((2.0, 6.0, 18.0))
    options.tree_linger_s = random.choice((options.session_s, options.session_s, 0.01))
    options.reading_cost_s = min(options.reading_cost_s, 0.00001)
    replicas = random.randint(2, min(3, options.brokers))
    options.settings |= {
        "default.replication.factor": replicas,
        "min.insync.replicas": (minimum := random.randint(1, replicas)),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": minimum,
        "zookeeper.session.timeout.ms": int(options.session_s * 1000),
        "replica.lag.time.max.ms": random.choice((1_000, 5_000, 10_000)),
        "replica.fetch.max.bytes": random.choice((256, 1_048_576)),
        "replica.fetch.wait.max.ms": random.choice((200, 500)),
        "replica.fetch.backoff.ms": random.choice((100, 1_000)),
        "replica.socket.timeout.ms": random.choice((2_000, 30_000)),
        "replica.high.watermark.checkpoint.interval.ms": random.choice((100, 5_000)),
        "leader.imbalance.check.interval.seconds": random.choice((5, 300)),
        "log.retention.check.interval.ms": generator(seed, "options/retention").choice((500, 300_000)),
    }
    for kind in CLUSTER_FAULTS:
        random = generator(seed, f"options/{kind}")
        if random.random() < 0.4:
            options.faults[kind] = log_uniform(random, 3.0, 30.0)


def draw_racks(options: Options) -> None:
    """Have clients of some clusters read from followers."""
    options.racks = generator(options.seed, "options/racks").choice((0, 0, 2, 3))
    if options.racks:
        options.settings["replica.selector.class"] = RACK_AWARE


def draw_settings(random: Random) -> dict[str, object]:
    """Settings of a broker. Segments are short since their indexes are."""
    return {
        "log.index.interval.bytes": 1 << random.randint(6, 12),
        "log.index.size.max.bytes": 1 << random.randint(4, 12),
        "log.flush.interval.messages": random.choice((9223372036854775807, 9223372036854775807, 1, 7)),
        "log.cleaner.backoff.ms": random.choice((500, 500, 15_000)),
        "log.cleaner.delete.retention.ms": random.choice((100, 86_400_000)),
        "log.segment.delete.delay.ms": random.choice((0, 1_000, 60_000)),
        "offsets.topic.num.partitions": random.randint(1, 3),
        "transaction.state.log.num.partitions": random.randint(1, 3),
        "delayed.requests.max": random.choice((20, 10_000)),
        "producer.ids.max": random.choice((8, MANY_PRODUCERS)),
    }


def log_uniform(random: Random, low: float, high: float) -> float:
    """As many draws in each decade as in any other."""
    return math.exp(random.uniform(math.log(low), math.log(high)))
