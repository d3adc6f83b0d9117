"""OffsetCommit and OffsetFetch: how far a group has read; and what TxnOffsetCommit shares with them."""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from moldau.broker.groups.offsets import Commit, CommittedOffset, GroupOffsets, is_other_topic
from moldau.broker.groups.states import GroupState
from moldau.broker.handlers.services import AdminServices, ConfigServices, GroupServices, MetadataServices
from moldau.broker.request import Reply, Request
from moldau.cluster.snapshot import MetadataSnapshot, TopicInfo
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause, Steps, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_log import Done
    from moldau.broker.groups.group import Group


class Services(AdminServices, ConfigServices, GroupServices, MetadataServices, Protocol):
    """What these handlers use of the broker."""


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


class CommitOutcome(Generic[A]):
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
    """What a client receives for a commit that could not be stored."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code is ErrorCode.MESSAGE_TOO_LARGE else code


def _java_length(text: str) -> int:
    """Length in UTF-16 units: what Kafka compares, whatever the name of the configuration says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


FIRST_BY_ID = 10
FIRST_WITH_NOT_FOUND = 9
"""GROUP_ID_NOT_FOUND for a member of a group that is not there; before, ILLEGAL_GENERATION."""
NOT_SAID = -1
_Verdict = CommitOutcome[OffsetCommitResponsePartition]
OFFSETS_SHOWN = 5
"""Offsets that a line in the log names."""


def commit_offsets(services: Services, message: OffsetCommitRequest, request: Request, reply: Reply) -> Steps | None:
    """Commit what can be, partition by partition.

    Codes: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE; for all that are there, if the group refuses: those of
    `Membership.check_commit`, GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
    INVALID_COMMIT_OFFSET_SIZE, POLICY_VIOLATION at a bound on groups or on memory.
    """
    return unless_few(_commit_in_steps(services, message, request, reply), sum(len(topic.partitions) for topic in message.topics))


def _commit_in_steps(services: Services, message: OffsetCommitRequest, request: Request, reply: Reply) -> Steps:
    verdict = CommitOutcome(OffsetCommitResponsePartition)
    topics = yield from _judged(services, message, verdict, by_id=request.api_version >= FIRST_BY_ID)
    retention_ms = None if message.retention_time_ms == NOT_SAID else message.retention_time_ms
    encoded = yield from services.groups.encode(message.group_id, verdict.commits, retention_ms)

    def answer(error: PeerError | None) -> None:
        if error is not None:
            verdict.refuse(commit_code(error.code))
        reply(OffsetCommitResponse(topics=topics))

    if not verdict.is_for_the_group:
        answer(None)
        return
    try:
        verdict.check_topics(services.metadata)
        group = _group_for(services, message, request.api_version, create=bool(verdict.commits))
    except PeerError as error:
        answer(error)
        return
    if group is None or not verdict.commits:
        answer(None)
        return
    is_reset = message.generation_id_or_member_epoch < 0 and group.membership is not None
    done = _noted(services, message, request, verdict, answer) if is_reset else answer
    services.groups.commit(group, verdict.commits, done, encoded=encoded)


def _noted(services: Services, message: OffsetCommitRequest, request: Request, verdict: _Verdict, answer: "Done") -> "Done":
    """`answer`, with a line in the log: who is no member sets offsets of a group that has had members, as tools do that reset it."""
    first = " ".join(f"{each.topic}-{each.partition}={each.offset}" for each in verdict.commits[:OFFSETS_SHOWN])
    count = len(verdict.commits)

    def done(error: PeerError | None) -> None:
        if error is None:
            services.admin_log.note(request, "group offsets set", group=message.group_id, offsets=count, first=first)
        answer(error)

    return done


def _judged(
    services: Services, message: OffsetCommitRequest, verdict: _Verdict, *, by_id: bool
) -> Generator[Pause, None, list[OffsetCommitResponseTopic]]:
    snapshot = services.metadata
    metadata_max = services.config.int("offset.metadata.max.bytes")
    topics: list[OffsetCommitResponseTopic] = []
    for each in message.topics:
        topic = snapshot.topics_by_id.get(each.topic_id) if by_id else snapshot.topics.get(each.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = yield from verdict.judge(topic, unknown, each.partitions, metadata_max)
        topics.append(OffsetCommitResponseTopic(each.name, each.topic_id, partitions))
    return topics


def _group_for(services: Services, message: OffsetCommitRequest, version: int, *, create: bool) -> "Group | None":
    """The group, once it has agreed. A consumer that is no member of anything makes it. PeerError."""
    generation = message.generation_id_or_member_epoch
    group = services.groups.group_for(message.group_id, empty_id=True)
    if group is None:
        if generation < 0:
            return services.groups.group_for(message.group_id, create=create, empty_id=True)
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= FIRST_WITH_NOT_FOUND else ErrorCode.ILLEGAL_GENERATION
        raise PeerError(code, f"group '{message.group_id}' is not there")
    code = group.check_commit(message.member_id, message.group_instance_id, generation)
    if code is not ErrorCode.NONE:
        raise PeerError(code, f"group '{message.group_id}': member '{message.member_id}' of generation {generation} may not commit")
    membership = group.membership
    if membership is not None and message.member_id and membership.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        services.groups.heard_from(group, message.member_id)
    return group


FIRST_WITH_GROUPS = 8
FIRST_WITH_ERROR = 2
"""Before, an error of the group stands with each partition."""
NOTHING = -1


def fetch_offsets(services: Services, message: OffsetFetchRequest, request: Request, reply: Reply) -> Steps:
    """Answer for one group, or from version 8 on for many; null topics mean all that the group has.

    Codes of a group: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS. Of a partition: UNKNOWN_TOPIC_ID; UNSTABLE_OFFSET_COMMIT where stable
    offsets are asked for and a transaction that has not ended is about to change this one.
    """
    version = request.api_version
    if version >= FIRST_WITH_GROUPS:
        fetching = _OffsetFetch(services, stable=message.require_stable, by_id=version >= FIRST_BY_ID)
        groups = []
        for each in _once(message.groups):
            groups.append((yield from fetching.group(each)))
            yield None
        reply(OffsetFetchResponse(groups=groups))
        return
    topics = (
        None
        if message.topics is None
        else [OffsetFetchRequestTopics(each.name, partition_indexes=each.partition_indexes) for each in message.topics]
    )
    asked = OffsetFetchRequestGroup(message.group_id, topics=topics)
    found = yield from _OffsetFetch(services, stable=message.require_stable, by_id=False).group(asked)
    reply((yield from _as_one(found, asked, version)))


def _once(groups: list[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Without the repeated wishes for all that a group has: they would multiply the answer."""
    whole = {each.group_id: each for each in groups if each.topics is None}
    return [each for each in groups if each.topics is not None or each is whole[each.group_id]]


class _OffsetFetch:
    """One request."""

    def __init__(self, services: Services, *, stable: bool, by_id: bool) -> None:
        self._services = services
        self._snapshot = services.metadata
        self._stable = stable
        self._by_id = by_id

    def group(self, asked: OffsetFetchRequestGroup) -> Generator[Pause, None, OffsetFetchResponseGroup]:
        try:
            group = self._services.groups.group_for(asked.group_id, empty_id=True)
        except PeerError as error:
            return OffsetFetchResponseGroup(asked.group_id, error_code=error.code)
        offsets = GroupOffsets() if group is None else group.offsets
        if asked.topics is None:
            return OffsetFetchResponseGroup(asked.group_id, (yield from self._all(offsets)))
        topics = []
        for topic in asked.topics:
            found = yield from self._topic(offsets, topic)
            topics.append(found)
        return OffsetFetchResponseGroup(asked.group_id, topics)

    def _topic(self, offsets: GroupOffsets, asked: OffsetFetchRequestTopics) -> Generator[Pause, None, OffsetFetchResponseTopics]:
        topic = self._snapshot.topics_by_id.get(asked.topic_id) if self._by_id else self._snapshot.topics.get(asked.name)
        if self._by_id and topic is None:
            partitions = [_failed(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes]
        else:
            name = asked.name if topic is None else topic.name
            partitions = []
            for index in asked.partition_indexes:
                partitions.append(self._partition(offsets, name, index, topic))
                yield None
        return OffsetFetchResponseTopics(asked.name, asked.topic_id, partitions)

    def _all(self, offsets: GroupOffsets) -> Generator[Pause, None, list[OffsetFetchResponseTopics]]:
        """What the group has; not of deleted topics where topics are named by id."""
        topics = []
        for name, committed in list(offsets.committed.items()):
            topic = self._snapshot.topics.get(name)
            if topic is None and self._by_id:
                continue
            partitions = []
            for index, offset in list(committed.items()):
                if topic is None or not is_other_topic(offset.topic_id, topic.topic_id):
                    partitions.append(self._partition(offsets, name, index, topic))
                yield None
            if partitions:
                topics.append(OffsetFetchResponseTopics(name, bytes(16) if topic is None else topic.topic_id, partitions))
        return topics

    def _partition(self, offsets: GroupOffsets, name: str, index: int, topic: "TopicInfo | None") -> OffsetFetchResponsePartitions:
        if self._stable and offsets.is_pending(name, index):
            return _failed(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found: CommittedOffset | None = offsets.get(name, index) if topic is None else offsets.get(name, index, topic.topic_id)
        if found is None:
            return _failed(index, ErrorCode.NONE)
        return OffsetFetchResponsePartitions(index, found.offset, found.leader_epoch, found.metadata)


def _failed(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(index, NOTHING, NOTHING, "", code)


def _as_one(group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int) -> Generator[Pause, None, OffsetFetchResponse]:
    """The answer in the versions before 8."""
    if group.error_code and version < FIRST_WITH_ERROR:
        code = ErrorCode(group.error_code)
        group.topics = [
            OffsetFetchResponseTopics(each.name, partitions=[_failed(index, code) for index in each.partition_indexes])
            for each in asked.topics or ()
        ]
    topics: list[OffsetFetchResponseTopic] = []
    for topic in group.topics:
        partitions: list[OffsetFetchResponsePartition] = []
        for each in topic.partitions:
            found = OffsetFetchResponsePartition(
                each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code
            )
            partitions.append(found)
            yield None
        topics.append(OffsetFetchResponseTopic(topic.name, partitions))
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


HANDLERS = {
    ApiKey.OFFSET_COMMIT: commit_offsets,
    ApiKey.OFFSET_FETCH: fetch_offsets,
}
