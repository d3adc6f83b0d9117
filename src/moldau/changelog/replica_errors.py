"""What stops a replica. Nothing after the last commit that it has applied is in its store; after a start it is where it was."""

from moldau.changelog.errors import ChangelogError, RecordError


class ReplicaError(ChangelogError):
    """Root of what replicas raise, but for records (RecordError) and stores (StoreError)."""


class CommitOrderError(RecordError):
    """A commit, or a change of one, comes after a later one; or its epoch is lower than that of the commit before."""


class CommitCountError(RecordError):
    """A commit has more changes than its record says."""


class CommitTooLargeError(RecordError):
    """A commit has more changes than a replica takes."""


class RecreatedTopicError(ReplicaError):
    """A topic was deleted and created again: its offsets are others than those that the store has."""

    def __init__(self, topic: str, partition: int, offset: int, stored: str, now: str) -> None:
        super().__init__(
            f"partition {topic}-{partition}: the topic was deleted and created again: the store has offset {offset} of the topic with id "
            f"{stored}, now it has id {now}; the replica stops. With begin_again it removes its rows and loads what is there now"
        )
        self.topic = topic
        self.partition = partition


class TruncatedLogError(ReplicaError):
    """Records that a replica needs are no longer in a topic, and not because of compaction."""

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        super().__init__(f"partition {topic}-{partition}: {reason}; the replica stops. With begin_again it loads what is there now")
        self.topic = topic
        self.partition = partition


class TableChangedError(ReplicaError):
    """A table has another primary key than before."""


class MissingTopicError(ReplicaError):
    """A topic of the changelog does not exist."""


class NoReplicaError(ReplicaError):
    """The store has rows and no position: it may be something else than a replica."""


class SlowLoadError(ReplicaError):
    """Loading took so long that deletions may have been forgotten meanwhile."""


class NotAppliedError(ReplicaError):
    """A commit was not applied within the time of a wait."""
