"""What OffsetCommit and TxnOffsetCommit have in common: which of the offsets of a request can be committed at all."""

from collections.abc import Callable, Generator, Sequence
from typing import Generic, Protocol, TypeVar

from moldau.broker.groups.offsets import Commit
from moldau.cluster.snapshot import MetadataSnapshot, TopicInfo
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause


class PartitionToCommit(Protocol):
    """The offset of one partition in a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class PartitionAnswer(Protocol):
    """What is answered about it."""

    error_code: int


A = TypeVar("A", bound=PartitionAnswer)


class Verdict(Generic[A]):
    """What becomes of the offsets of a request, partition by partition, in the order of the request."""

    __slots__ = ("_answer", "_there", "_topics", "commits")

    def __init__(self, answer: Callable[[int, int], A]) -> None:
        """`answer` makes the answer about a partition: its number, a code."""
        self.commits: list[Commit] = []
        """Those without an error."""
        self._answer = answer
        self._there: list[A] = []
        self._topics: list[TopicInfo] = []
        """Those that existed when they were judged."""

    def judge(
        self, topic: TopicInfo | None, unknown: ErrorCode, partitions: Sequence[PartitionToCommit], metadata_max: int
    ) -> Generator[Pause, None, list[A]]:
        """The answers about the next topic, in steps; None if there is none such: that is answered `unknown`.

        Further codes: UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE.
        """
        answers: list[A] = []
        if topic is not None:
            self._topics.append(topic)
        for each in partitions:
            yield None
            index = each.partition_index
            if topic is None:
                answers.append(self._answer(index, unknown))
            elif not 0 <= index < len(topic.partitions):
                answers.append(self._answer(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                metadata = each.committed_metadata or ""
                is_too_large = len(metadata) * 2 > metadata_max and _java_length(metadata) > metadata_max
                answer = self._answer(index, ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE)
                answers.append(answer)
                self._there.append(answer)
                if not is_too_large:
                    commit = Commit(topic.name, index, each.committed_offset, each.committed_leader_epoch, metadata, topic.topic_id)
                    self.commits.append(commit)
        return answers

    def check_topics(self, snapshot: MetadataSnapshot) -> None:
        """Check that the topics still exist, by the present snapshot. Call it in the same step as the append: no topic is deleted between.

        Between the judgement and the append a topic may be deleted, and the removal of its offsets may have ended; the offsets that were
        appended then would stay. The alternative, a removal that waits for the commits under way, would have to know of them, and be
        delayed by any that waits for its transaction's coordinator. The commit is encoded as a whole, so it is refused as a whole:
        PeerError COORDINATOR_LOAD_IN_PROGRESS, with which clients retry and are answered for each topic.
        """
        for topic in self._topics:
            if topic.topic_id not in snapshot.topics_by_id:
                raise PeerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"topic '{topic.name}' was deleted before the commit was appended")

    @property
    def is_for_the_group(self) -> bool:
        """Whether a partition is left of which the group has to be asked."""
        return bool(self._there)

    def refuse(self, code: ErrorCode) -> None:
        """The group takes none of them."""
        self.commits = []
        for each in self._there:
            each.error_code = code


def commit_code(code: ErrorCode) -> ErrorCode:
    """What a client is told of a commit that could not be stored."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code is ErrorCode.MESSAGE_TOO_LARGE else code


def _java_length(text: str) -> int:
    """Length in UTF-16 units: what Kafka compares, whatever the name of the configuration says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
