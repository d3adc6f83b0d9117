"""What goes wrong with changelogs."""

from moldau.changelog.values import ALL_SHARDS
from moldau.model.errors import MoldauError


class ChangelogError(MoldauError):
    """Root of what publishers, sources and replicas raise."""


class RecordError(ChangelogError):
    """A record is not what a topic of a changelog holds."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(f"partition {topic}-{partition} at offset {offset}: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason


class ValueRefusedError(ChangelogError):
    """A change has a value that cannot be written."""


class TopicError(ChangelogError):
    """A topic exists and cannot be one of a changelog."""


class PublisherFencedError(ChangelogError):
    """Another publisher of the shard has started: this one can publish nothing any more."""

    def __init__(self, changelog: str, shard: int, commit: int) -> None:
        which, last = ("all shards", f"transaction {commit}") if shard == ALL_SHARDS else (f"shard {shard}", f"commit {commit}")
        super().__init__(
            f"changelog {changelog}, {which}: fenced after {last}: another publisher of {'a' if shard == ALL_SHARDS else 'this'} shard has"
            " started, and this store can publish nothing any more. If a replica was promoted, make this store again as a replica of it:"
            f" what it has committed after {last} was not acknowledged. If two processes publish the same store, stop one and start the"
            " other again"
        )
        self.changelog = changelog
        self.shard = shard
        self.commit = commit


class SequenceError(ChangelogError):
    """The log and the store do not continue each other."""


class CommitTooLongError(ChangelogError):
    """The transaction of a commit took longer than brokers allow, and was aborted. The publisher has to start again."""
