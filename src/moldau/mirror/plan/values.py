"""What the file of a mirror says, as values. Defaults are those of the file; docs/mirroring.md has them all."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from moldau.mirror.naming import Naming, TopicNames
from moldau.mirror.patterns import NamePatterns, parse_pattern
from moldau.mirror.plan.start import Start
from moldau.mirror.selection import TopicSelection
from moldau.model.host_port import Address

COPY_REQUESTS: Final = 4
"""Of a copy that wait for their answers, by default: each has a connection of its own."""
FETCHERS: Final = 4
COPY_SOURCE: Final = "source"
"""The name of the only source of a copy."""
_INTERNAL_GROUPS: Final = (parse_pattern("mirror[.].*"), parse_pattern("connect-.*"))
"""The groups of mirrors themselves, and of Connect."""


class Mode(Enum):
    """How records get into the target. The values are those of the file."""

    COPY = "copy"
    """The source's batches at the source's offsets. The target's topics take nothing else."""
    MERGE = "merge"
    """Produced in transactions, beside what others produce; offsets differ."""


class Partitioning(Enum):
    """The partition of the target that a record goes to. The values are those of the file."""

    SAME = "same"
    """The partition with the number that it has in the source."""
    KEY = "key"
    """By the hash of its key, as Kafka's producers choose it."""
    ROUND_ROBIN = "round-robin"
    """One after the other, whatever its key is."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that is written to."""

    bootstrap_servers: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A cluster that is read."""

    name: str
    """Invariant: no dot."""
    bootstrap_servers: tuple[Address, ...]
    start: Start = field(default_factory=Start)


@dataclass(frozen=True, slots=True)
class Groups:
    """The consumer groups whose committed offsets are mirrored."""

    patterns: NamePatterns = field(default_factory=lambda: NamePatterns((), _INTERNAL_GROUPS))
    interval_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class Sync:
    """What of the source's topics is kept equal in the target, beside their records."""

    configs: bool = True
    exclude_configs: frozenset[str] = frozenset(
        {
            "follower.replication.throttled.replicas",
            "leader.replication.throttled.replicas",
            "message.timestamp.after.max.ms",
            "message.timestamp.before.max.ms",
            "message.timestamp.difference.max.ms",
            "message.timestamp.type",
            "min.insync.replicas",
            "unclean.leader.election.enable",
        }
    )
    growth: bool = True
    """Partitions that a topic of the source gets."""
    interval_ms: int = 60_000
    """Between two looks at the configurations."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one process of the mirror, and its pauses."""

    buffer_bytes: int = 16 * 1024 * 1024
    """Records that are fetched and not stored in the target yet. At this bound nothing is fetched."""
    transaction_bytes: int = 8 * 1024 * 1024
    """Records of one transaction of a merge; a batch that is larger goes alone."""
    linger_ms: int = 0
    """How long a transaction of a merge waits for more records before it begins."""
    requests_per_connection: int = 5
    """Requests to a broker of the target with records that wait for their answers."""
    retry_backoff_ms: int = 100
    """The pause before the first retry; it doubles with each."""
    retry_backoff_max_ms: int = 5_000
    fetchers: int = FETCHERS
    """Connections to each broker of a source over which records are fetched."""
    partition_fetch_bytes: int = 6 * 1024 * 1024
    """The most records of a partition in one answer of a source; a batch that is larger comes alone."""

    def backoff_s(self, failures: int) -> float:
        """The pause after so many failures in a row, from 0 on."""
        return min(self.retry_backoff_ms * 2.0 ** min(failures, 30), self.retry_backoff_max_ms) / 1000


LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """The file of a mirror.

    Invariant: a copy has one source, keeps topics' names and partitions, and has no limits of transactions other than the defaults.
    """

    name: str
    """Invariant: no dot. It is part of the name of its group and of its transactional ids."""
    mode: Mode
    sources: tuple[Source, ...]
    target: Target
    topics: NamePatterns
    naming: Naming = Naming.TOPIC
    partitioning: Partitioning = Partitioning.SAME
    groups: Groups = field(default_factory=Groups)
    sync: Sync = field(default_factory=Sync)
    limits: Limits = field(default_factory=Limits)
    audit_tier: str | None = None
    """The tier under which records are counted as they are stored in the target; None: they are not counted."""

    def label(self, source: str) -> str:
        """What a source is called in messages."""
        return "source" if self.mode is Mode.COPY else f"source {source}"

    @property
    def names(self) -> TopicNames:
        """What its topics are called in the target."""
        return TopicNames(self.naming, tuple(source.name for source in self.sources))

    @property
    def selection(self) -> TopicSelection:
        """Which topics are mirrored before anything was changed at run time."""
        return TopicSelection(self.topics)
