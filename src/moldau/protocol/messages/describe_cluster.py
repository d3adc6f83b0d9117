"""DescribeCluster (key 60): lists the brokers of a cluster."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, message, string


@message
class DescribeClusterRequest:
    """What to tell; `endpoint_type` is 1 for brokers, 2 for controllers."""

    API: ClassVar = ApiKey.DESCRIBE_CLUSTER

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", 1)
    include_fenced_brokers: bool = boolean("2+")


@message
class DescribeClusterBroker:
    """One broker and where it is reached."""

    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+")
    is_fenced: bool = boolean("2+")


@message
class DescribeClusterResponse:
    """The cluster's id, controller and brokers."""

    API: ClassVar = ApiKey.DESCRIBE_CLUSTER

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    endpoint_type: int = int8("1+", 1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", -1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", -2147483648)
