"""FindCoordinator: where a group's or a transactional id's requests go. The internal topic is made when it is first asked for.

The answer is the leader of a partition, by the metadata; where none lives, it waits for a moment for the next one.
"""

from typing import TYPE_CHECKING, Protocol

from moldau.broker.handlers.metadata import broker_addresses
from moldau.broker.handlers.services import ConfigServices, CoordinatorServices, MetadataServices, PartitionServices
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from moldau.broker.coordinators.state_topic import StateTopic


class Services(ConfigServices, CoordinatorServices, MetadataServices, PartitionServices, Protocol):
    """What these handlers use of the broker."""


FIRST_WITH_KEYS = 4
NOBODY = -1

Node = tuple[int, str, int]


def find_coordinator(services: Services, message: FindCoordinatorRequest, request: Request, reply: Reply) -> Steps:
    """One answer per key. Codes: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST for keys that are neither groups nor transactions."""
    many = request.api_version >= FIRST_WITH_KEYS
    keys = message.coordinator_keys if many else [message.key]
    try:
        topic = _topic(services, message.key_type)
        yield from topic.ensured()
        yield from topic.led(keys)
        nodes = {each[0]: each[:3] for each in broker_addresses(services, request)}
        answers = []
        for key in keys:
            answers.append(_answer(services, topic, nodes, key))
            yield None
    except PeerError as error:
        answers = [_refusal(key, error) for key in keys]
    if many:
        reply(FindCoordinatorResponse(coordinators=answers))
        return
    (only,) = answers
    reply(
        FindCoordinatorResponse(
            error_code=only.error_code, error_message=only.error_message, node_id=only.node_id, host=only.host, port=only.port
        )
    )


def _topic(services: Services, kind: int) -> "StateTopic":
    match kind:
        case 0:
            return services.coordinators.offsets_topic
        case 1:
            return services.coordinators.transactions_topic
    raise PeerError(ErrorCode.INVALID_REQUEST, f"key type {kind}: there are coordinators of groups (0) and of transactions (1)")


def _answer(services: Services, topic: "StateTopic", nodes: dict[int, Node], key: str) -> Coordinator:
    index = topic.partition_for(key)
    leader = services.metadata.topics[topic.name].partitions[index].leader
    node = nodes.get(leader)
    if node is None or (leader == services.broker_id and services.partitions.get(TopicPartition(topic.name, index)) is None):
        message = f"'{key}' belongs to {topic.name}-{index}, which no broker can serve now"
        return _refusal(key, PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
    return Coordinator(key, *node)


def _refusal(key: str, error: PeerError) -> Coordinator:
    return Coordinator(key, NOBODY, "", NOBODY, error.code, error.message)


HANDLERS = {
    ApiKey.FIND_COORDINATOR: find_coordinator,
}
