"""AlterMirror: partitions become those of a mirror, or are promoted."""

from typing import TYPE_CHECKING, Any, Protocol

from moldau.broker.handlers.services import AdminServices
from moldau.broker.request import Reply, Request
from moldau.cluster.controller.requests import AlteredMirror, AlterMirrors
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.alter_mirror import (
    AlterMirrorPartitionResult,
    AlterMirrorRequest,
    AlterMirrorResponse,
    AlterMirrorTopicResult,
)

if TYPE_CHECKING:
    from moldau.broker.metadata.admin import ClusterAdmin


class Services(AdminServices, Protocol):
    """What this handler uses of the broker."""

    @property
    def admin(self) -> "ClusterAdmin":
        """Submits changes to the controller."""


def alter_mirror(services: Services, message: AlterMirrorRequest, request: Request, reply: Reply) -> Steps:
    """Change what partitions are. NOT_CONTROLLER for all; codes by partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST without a source,
    for a cut without an epoch and for a partition that is named twice, INVALID_CONFIG for an internal topic, KAFKA_STORAGE_ERROR.
    """
    wanted: dict[TopicPartition, AlteredMirror] = {}
    twice: dict[TopicPartition, PeerError] = {}
    for topic in message.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if partition in wanted:
                twice[partition] = PeerError(ErrorCode.INVALID_REQUEST, f"partition {partition} is named twice in one request")
            wanted[partition] = AlteredMirror(each.is_mirror, each.cut_epoch, each.cut_offset)
    once = {partition: altered for partition, altered in wanted.items() if partition not in twice}
    sources = {topic.name: topic.source for topic in message.topics if topic.source}
    outcomes = yield from services.admin.submit(AlterMirrors(once, sources), timeout_ms=message.timeout_ms)
    if isinstance(outcomes, PeerError):
        reply(AlterMirrorResponse(error_code=outcomes.code, error_message=outcomes.message))
        return
    by_topic: dict[str, AlterMirrorTopicResult] = {}
    for partition, error in {**outcomes, **twice}.items():
        result = by_topic.setdefault(partition.topic, AlterMirrorTopicResult(partition.topic, []))
        code, text = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
        result.partitions.append(AlterMirrorPartitionResult(partition.partition, code, text))
        if error is None:
            altered = once[partition]
            services.admin_log.note(request, "mirror altered", partition=partition, is_mirror=altered.is_mirror, cut=altered[1:])
    reply(AlterMirrorResponse(topics=list(by_topic.values())))


HANDLERS: dict[ApiKey, Any] = {ApiKey.ALTER_MIRROR: alter_mirror}
