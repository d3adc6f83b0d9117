"""What brokers ask the controller for, and what it answers."""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from moldau.model.identity import TopicPartition

USE_DEFAULT = -1


class TopicSpec(NamedTuple):
    """A topic as a peer wants it. `partitions` and `replication_factor` may be -1: the broker's default, or as `assignments` say.

    `topic_id` and `first_epochs` are those of a topic whose logs exist already, None of one that is new.
    """

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()
    topic_id: bytes | None = None
    first_epochs: Mapping[int, int] | None = None


class CreateTopics(NamedTuple):
    """Create topics, or only check them. Answer by name: `PlannedTopic` or PeerError.

    With `waits`, topics that are being created or changed are waited for: TOPIC_ALREADY_EXISTS is the answer for those that exist then, and
    those whose creation has failed are made.
    """

    topics: Sequence[TopicSpec]
    validate_only: bool = False
    waits: bool = False


class PlannedTopic(NamedTuple):
    """A topic as it is made."""

    name: str
    topic_id: bytes
    replicas: Sequence[tuple[int, ...]]
    configs: Mapping[str, str]
    first_epochs: Mapping[int, int] | None


class GrowthSpec(NamedTuple):
    """How many partitions a topic shall have; `assignments` are those of the new ones, None leaves them to the controller."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class GrowTopics(NamedTuple):
    """Add partitions to topics, or only check. Answer by name: None or PeerError."""

    topics: Sequence[GrowthSpec]
    validate_only: bool = False


class TopicChoice(NamedTuple):
    """The topic that has this name, this id, or both."""

    name: str | None
    topic_id: bytes | None = None


class DeletedTopic(NamedTuple):
    """A topic that was deleted."""

    name: str
    topic_id: bytes
    partitions: int


class DeleteTopics(NamedTuple):
    """Delete topics. Answer by choice: DeletedTopic or PeerError."""

    topics: Sequence[TopicChoice]


class ConfigTarget(NamedTuple):
    """A topic, a broker, or all brokers: one of both is None."""

    topic: str | None
    broker_id: int | None = None


class ConfigOperation(Enum):
    """What an edit does with a value."""

    SET = "set"
    DELETE = "delete"
    APPEND = "append"
    SUBTRACT = "subtract"


class ConfigEdit(NamedTuple):
    """One step of a change."""

    name: str
    operation: ConfigOperation
    text: str = ""


class AlterConfig(NamedTuple):
    """Change a configuration, or only check. Answer: `AlteredConfig` or PeerError."""

    resource: ConfigTarget
    edits: Sequence[ConfigEdit]
    replaces: bool = False
    """Whether what the edits do not name goes back to its default."""
    validate_only: bool = False


class AlteredConfig(NamedTuple):
    """What is set before and after a change."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    notification: str | None
    """Name of the notification that tells brokers; None if nothing was written, or if its name is not known."""


class ElectLeaders(NamedTuple):
    """Elect the preferred replicas of some partitions or of all (None); or, `unclean`, any live replica where no broker leads.

    Answer by partition: None or PeerError; of all partitions only those for which an election was made.
    """

    partitions: Sequence[TopicPartition] | None
    unclean: bool = False


class ShutDownBroker(NamedTuple):
    """Move leaders away from a broker that is about to end, in this incarnation or any (-1).

    Answer: a list of the partitions with other replicas that it still leads, or PeerError.
    """

    broker_id: int
    broker_epoch: int = -1


class ReportLeader(NamedTuple):
    """A broker, in this incarnation, does not get what it fetches from another one. Answer: an empty list."""

    leader_id: int
    reporter_id: int
    reporter_epoch: int


class AlterReassignments(NamedTuple):
    """Move replicas of partitions to other brokers; None cancels what is under way. Answer by partition: None or PeerError."""

    targets: Mapping[TopicPartition, Sequence[int] | None]
    may_change_factor: bool = True


class ListReassignments(NamedTuple):
    """Which partitions are moving, of some or of all (None). Answer by partition: `OngoingReassignment`."""

    partitions: Collection[TopicPartition] | None = None


class OngoingReassignment(NamedTuple):
    """All replicas of a partition, and which of them are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class AlteredMirror(NamedTuple):
    """What a partition is to be: a mirror's or not, with what its log must not have then.

    Its leader epoch becomes later than `epoch`, also without a cut (`cut_offset` -1).
    """

    is_mirror: bool
    epoch: int = -1
    cut_offset: int = -1


class AlterMirrors(NamedTuple):
    """Make partitions those of a mirror, or promote them. Answer by partition: None or PeerError.

    `sources`: the value of `mirror.source` of topics that become mirrors.
    """

    partitions: Mapping[TopicPartition, AlteredMirror]
    sources: Mapping[str, str]


Request = (
    CreateTopics
    | GrowTopics
    | DeleteTopics
    | AlterConfig
    | ElectLeaders
    | ShutDownBroker
    | ReportLeader
    | AlterReassignments
    | ListReassignments
    | AlterMirrors
)
