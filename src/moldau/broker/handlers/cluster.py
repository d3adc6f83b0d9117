"""DescribeCluster: who is there."""

from typing import TYPE_CHECKING

from moldau.broker.handlers.metadata import broker_addresses
from moldau.broker.handlers.operations import CLUSTER_OPERATIONS, NOT_ASKED
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

BROKERS = 1
CONTROLLERS = 2


def handle(broker: "Broker", request: DescribeClusterRequest, context: Request, reply: Reply) -> None:
    """The live brokers; none is ever fenced. MISMATCHED_ENDPOINT_TYPE to who looks for a quorum of controllers (KIP-919)."""
    if request.endpoint_type != BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if request.endpoint_type == CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        reply(DescribeClusterResponse(error_code=code, error_message=f"this is a broker, not an endpoint of type {request.endpoint_type}"))
        return
    snapshot = broker.registry.snapshot
    reply(
        DescribeClusterResponse(
            cluster_id=snapshot.cluster_id,
            controller_id=snapshot.controller_id,
            brokers=[DescribeClusterBroker(*each) for each in broker_addresses(broker, context)],
            cluster_authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED,
        )
    )


HANDLERS = {ApiKey.DESCRIBE_CLUSTER: handle}
