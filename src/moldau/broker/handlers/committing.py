"""What OffsetCommit and TxnOffsetCommit have in common: which of the offsets of a request can be committed at all."""

from collections.abc import Sequence
from typing import Protocol

from moldau.broker.groups.offsets import Commit
from moldau.cluster.snapshot import TopicInfo
from moldau.model.errors import ErrorCode
from moldau.model.steps import Steps


class PartitionToCommit(Protocol):
    """The offset of one partition in a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class Verdict:
    """What becomes of the offsets of a request, partition by partition, in the order of the request."""

    __slots__ = ("_there", "codes", "commits")

    def __init__(self) -> None:
        self.codes: list[list[ErrorCode]] = []
        """By topic and partition, as they are answered."""
        self.commits: list[Commit] = []
        """Those without an error."""
        self._there: list[tuple[list[ErrorCode], int]] = []

    def judge(self, topic: TopicInfo | None, unknown: ErrorCode, partitions: Sequence[PartitionToCommit], metadata_max: int) -> Steps:
        """The next topic, in steps; None if there is none such: that is answered `unknown`.

        Further codes: UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE.
        """
        codes: list[ErrorCode] = []
        self.codes.append(codes)
        for each in partitions:
            yield None
            index = each.partition_index
            if topic is None:
                codes.append(unknown)
            elif not 0 <= index < len(topic.partitions):
                codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                self._there.append((codes, len(codes)))
                metadata = each.committed_metadata or ""
                if len(metadata) * 2 > metadata_max and _java_length(metadata) > metadata_max:
                    codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    continue
                codes.append(ErrorCode.NONE)
                self.commits.append(Commit(topic.name, index, each.committed_offset, each.committed_leader_epoch, metadata, topic.topic_id))

    @property
    def is_for_the_group(self) -> bool:
        """Whether a partition is left of which the group has to be asked."""
        return bool(self._there)

    def refuse(self, code: ErrorCode) -> None:
        """The group takes none of them."""
        self.commits = []
        for codes, place in self._there:
            codes[place] = code


def commit_code(code: ErrorCode) -> ErrorCode:
    """What a client is told of a commit that could not be stored."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code is ErrorCode.MESSAGE_TOO_LARGE else code


def _java_length(text: str) -> int:
    """Length in UTF-16 units: what Kafka compares, whatever the name of the configuration says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
