"""OffsetCommit: a group stores how far it has read."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from moldau.broker.groups.membership_states import State
from moldau.broker.handlers.committing import Verdict, commit_code
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause, Steps, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.coordinators.state_log import Done
    from moldau.broker.groups.group import Group

FIRST_BY_ID = 10
FIRST_WITH_NOT_FOUND = 9
"""GROUP_ID_NOT_FOUND for a member of a group that is not there; before, ILLEGAL_GENERATION."""
NOT_SAID = -1
_Verdict = Verdict[OffsetCommitResponsePartition]
OFFSETS_SHOWN = 5
"""Offsets that a line in the log names."""


def handle(broker: "Broker", request: OffsetCommitRequest, context: Request, reply: Reply) -> Steps | None:
    """Commit what can be, partition by partition.

    Codes: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, OFFSET_METADATA_TOO_LARGE; for all that are there, if the group refuses: those of
    `Membership.check_commit`, GROUP_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
    INVALID_COMMIT_OFFSET_SIZE, POLICY_VIOLATION at a bound on groups or on memory.
    """
    return unless_few(_handle(broker, request, context, reply), sum(len(topic.partitions) for topic in request.topics))


def _handle(broker: "Broker", request: OffsetCommitRequest, context: Request, reply: Reply) -> Steps:
    verdict = Verdict(OffsetCommitResponsePartition)
    topics = yield from _judged(broker, request, verdict, by_id=context.api_version >= FIRST_BY_ID)
    retention_ms = None if request.retention_time_ms == NOT_SAID else request.retention_time_ms
    encoded = yield from broker.groups.encode(request.group_id, verdict.commits, retention_ms)

    def answer(error: PeerError | None) -> None:
        if error is not None:
            verdict.refuse(commit_code(error.code))
        reply(OffsetCommitResponse(topics=topics))

    if not verdict.is_for_the_group:
        answer(None)
        return
    try:
        verdict.check_topics(broker.metadata)
        group = _group_for(broker, request, context.api_version, create=bool(verdict.commits))
    except PeerError as error:
        answer(error)
        return
    if group is None or not verdict.commits:
        answer(None)
        return
    is_reset = request.generation_id_or_member_epoch < 0 and group.membership is not None
    done = _noted(broker, request, context, verdict, answer) if is_reset else answer
    broker.groups.commit(group, verdict.commits, done, encoded=encoded)


def _noted(broker: "Broker", request: OffsetCommitRequest, context: Request, verdict: _Verdict, answer: "Done") -> "Done":
    """`answer`, with a line in the log: who is no member sets offsets of a group that has had members, as tools do that reset it."""
    first = " ".join(f"{each.topic}-{each.partition}={each.offset}" for each in verdict.commits[:OFFSETS_SHOWN])
    count = len(verdict.commits)

    def done(error: PeerError | None) -> None:
        if error is None:
            broker.admin_log.note(context, "group offsets set", group=request.group_id, offsets=count, first=first)
        answer(error)

    return done


def _judged(
    broker: "Broker", request: OffsetCommitRequest, verdict: _Verdict, *, by_id: bool
) -> Generator[Pause, None, list[OffsetCommitResponseTopic]]:
    snapshot = broker.metadata
    metadata_max = broker.config.int("offset.metadata.max.bytes")
    topics: list[OffsetCommitResponseTopic] = []
    for each in request.topics:
        topic = snapshot.topics_by_id.get(each.topic_id) if by_id else snapshot.topics.get(each.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = yield from verdict.judge(topic, unknown, each.partitions, metadata_max)
        topics.append(OffsetCommitResponseTopic(each.name, each.topic_id, partitions))
    return topics


def _group_for(broker: "Broker", request: OffsetCommitRequest, version: int, *, create: bool) -> "Group | None":
    """The group, once it has agreed. A consumer that is no member of anything makes it. PeerError."""
    generation = request.generation_id_or_member_epoch
    group = broker.groups.group_for(request.group_id, empty_id=True)
    if group is None:
        if generation < 0:
            return broker.groups.group_for(request.group_id, create=create, empty_id=True)
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= FIRST_WITH_NOT_FOUND else ErrorCode.ILLEGAL_GENERATION
        raise PeerError(code, f"group '{request.group_id}' is not there")
    code = group.check_commit(request.member_id, request.group_instance_id, generation)
    if code is not ErrorCode.NONE:
        raise PeerError(code, f"group '{request.group_id}': member '{request.member_id}' of generation {generation} may not commit")
    membership = group.membership
    if membership is not None and request.member_id and membership.state in (State.STABLE, State.PREPARING_REBALANCE):
        broker.groups.heard_from(group, request.member_id)
    return group


HANDLERS = {ApiKey.OFFSET_COMMIT: handle}
