"""What a request passes on its way to its handler and back: authorisation and quotas, of which production has the empty ones."""

import pytest

from moldau.broker.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.broker.security.channel import ANONYMOUS, Channel
from moldau.model.errors import ErrorCode
from moldau.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.list_config_resources import ListConfigResourcesRequest
from moldau.protocol.messages.metadata import MetadataRequest
from support.broker_world import BrokerWorld


@pytest.fixture
def world() -> BrokerWorld:
    return BrokerWorld()


class DenyingAuthorizer:
    """Denies one operation, and notes who asked for what."""

    def __init__(self, denied: Operation) -> None:
        self.denied = denied
        self.asked: list[tuple[str, str, Operation]] = []

    def allows(self, channel: Channel, operation: Operation) -> bool:
        self.asked.append((channel.principal, channel.listener, operation))
        return operation is not self.denied


class ExhaustedQuota:
    """Throttles every request but those of one API."""

    def __init__(self, throttle_ms: int, free: int = -1) -> None:
        self.time_ms = throttle_ms
        self.free = free
        self.counted: list[tuple[int, int, str | None]] = []

    def throttle_ms(self, request: Request) -> int:
        self.counted.append((request.api_key, request.size, request.client_id))
        return 0 if request.api_key == self.free else self.time_ms


def test_an_operation_that_is_denied_is_refused_before_its_handler(world: BrokerWorld) -> None:
    world.create_topic("t")
    client = world.connect()
    world.broker.pipeline.authorizer = authorizer = DenyingAuthorizer(Operation.DESCRIBE)
    refused = client.ask(DescribeLogDirsRequest(None), 4)
    assert (refused.error_code, refused.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    assert client.ask(ListConfigResourcesRequest([]), 1).error_code == 0
    assert authorizer.asked == [(ANONYMOUS, "PLAINTEXT", Operation.DESCRIBE), (ANONYMOUS, "PLAINTEXT", Operation.DESCRIBE_CONFIGS)]
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.CLUSTER_ACTION)
    assert client.ask(DescribeLogDirsRequest(None), 4).results


def test_a_long_request_is_refused_too(world: BrokerWorld) -> None:
    client = world.connect()
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.DESCRIBE)
    client.send(DescribeLogDirsRequest([DescribableLogDirTopic("t" * 200, list(range(5000)))]), 4)
    client.send(HeartbeatRequest("g", 1, "m"), 4)
    world.clock.settle()
    client.peer.push()
    refused, _ = client.answers()
    assert refused.body.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert world.broker.request_memory.held == 0


@pytest.mark.parametrize("partitions", [1, 5000])
def test_a_throttled_response_says_so_and_the_next_request_waits_for_that_time(world: BrokerWorld, partitions: int) -> None:
    client, other = world.connect(), world.connect()
    world.broker.pipeline.quotas = quota = ExhaustedQuota(700, free=HeartbeatRequest.API)
    client.send(DescribeLogDirsRequest([DescribableLogDirTopic("t", list(range(partitions)))]), 4)
    client.send(HeartbeatRequest("g", 1, "m"), 4)
    world.clock.settle()
    client.peer.push()
    (first,) = client.answers()
    assert first.body.throttle_time_ms == 700
    assert other.ask(HeartbeatRequest("g", 1, "m"), 4).throttle_time_ms == 0
    world.clock.advance(0.699)
    client.peer.push()
    assert client.answers() == []
    world.clock.advance(0.001)
    client.peer.push()
    (second,) = client.answers()
    assert second.body.throttle_time_ms == 0
    assert [(key, client_id) for key, _, client_id in quota.counted] == [(35, "tests"), (12, "tests"), (12, "tests")]
    assert quota.counted[0][1] > 4 * partitions


def test_a_throttled_connection_that_is_lost_is_forgotten(world: BrokerWorld) -> None:
    client = world.connect()
    world.broker.pipeline.quotas = ExhaustedQuota(700)
    client.send(MetadataRequest([]), 12)
    client.send(MetadataRequest([]), 12)
    client.peer.disconnect()
    world.clock.advance(1)
    assert not world.broker.connections


def test_within_its_quota_a_client_sends_as_much_as_it_likes_at_once(world: BrokerWorld) -> None:
    client = world.connect()
    world.broker.pipeline.quotas = ExhaustedQuota(0)
    for _ in range(10):
        client.send(MetadataRequest([]), 12)
    assert [each.body.throttle_time_ms for each in client.answers()] == [0] * 10
