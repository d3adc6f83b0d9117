"""FindCoordinator: where a group's or a transactional id's requests go. The internal topic is made when it is first asked for.

Only this broker leads partitions yet, so it is the coordinator of whatever has one; the answer still comes from the metadata, as it will
with many brokers.
"""

from typing import TYPE_CHECKING

from moldau.broker.handlers.metadata import broker_addresses
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.coordinators.state_topic import StateTopic

FIRST_WITH_KEYS = 4
NOBODY = -1

Node = tuple[int, str, int]


def handle(broker: "Broker", request: FindCoordinatorRequest, context: Request, reply: Reply) -> Steps:
    """One answer per key. Codes: COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST for keys that are neither groups nor transactions."""
    many = context.api_version >= FIRST_WITH_KEYS
    keys = request.coordinator_keys if many else [request.key]
    try:
        topic = _topic(broker, request.key_type)
        yield from topic.ensured()
        nodes = {each[0]: each[:3] for each in broker_addresses(broker, context)}
        answers = []
        for key in keys:
            answers.append(_answer(broker, topic, nodes, key))
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


def _topic(broker: "Broker", kind: int) -> "StateTopic":
    match kind:
        case 0:
            return broker.coordinators.offsets_topic
        case 1:
            return broker.coordinators.transactions_topic
    raise PeerError(ErrorCode.INVALID_REQUEST, f"key type {kind}: there are coordinators of groups (0) and of transactions (1)")


def _answer(broker: "Broker", topic: "StateTopic", nodes: dict[int, Node], key: str) -> Coordinator:
    index = topic.partition_for(key)
    leader = broker.metadata.topics[topic.name].partitions[index].leader
    node = nodes.get(leader)
    if node is None or (leader == broker.broker_id and broker.partitions.get(TopicPartition(topic.name, index)) is None):
        message = f"'{key}' belongs to {topic.name}-{index}, which nobody can serve now"
        return _refusal(key, PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))
    return Coordinator(key, *node)


def _refusal(key: str, error: PeerError) -> Coordinator:
    return Coordinator(key, NOBODY, "", NOBODY, error.code, error.message)


HANDLERS = {ApiKey.FIND_COORDINATOR: handle}
