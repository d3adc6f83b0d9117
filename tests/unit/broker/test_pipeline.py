"""What a request passes on its way to its handler and back: authorisation and quotas, of which production has the empty ones."""

import pytest

from moldau.broker.security import ANONYMOUS, Channel, Operation
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.messages.cluster import DescribableLogDirTopic, DescribeLogDirsRequest
from moldau.protocol.messages.configs import ListConfigResourcesRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.group_members import HeartbeatRequest
from moldau.protocol.messages.metadata import MetadataRequest
from support.broker_world import BrokerWorld, batch, produce_request, values_of


@pytest.fixture
def world() -> BrokerWorld:
    return BrokerWorld()


class DenyingAuthorizer:
    """Denies one operation, on one topic or on the cluster, and notes who asked for what. `revokes`: the topic that, when it is asked for,
    has `denied` withdrawn from then on.
    """

    def __init__(self, denied: Operation, topic: str | None = None, *, world: BrokerWorld | None = None, revokes: str = "") -> None:
        self.denied = denied
        self.topic = topic
        self.asked: list[tuple[str, str, Operation]] = []
        self.world = world
        self.revokes = revokes

    def allows(self, channel: Channel, operation: Operation, topic: str | None = None) -> bool:
        self.asked.append((channel.principal, channel.listener, operation))
        if topic == self.revokes and self.world is not None:
            self.revokes = ""
            self.world.broker.replicas.appends.permits.value += 1
        return bool(self.revokes) or operation is not self.denied or topic != self.topic


class ExhaustedQuota:
    """Throttles every request but those of one API."""

    def __init__(self, throttle_ms: int, free: int = -1) -> None:
        self.time_ms = throttle_ms
        self.free = free
        self.counted: list[tuple[int, int]] = []

    def throttle_ms(self, channel: Channel, api_key: int, requests: int) -> int:
        self.counted.append((api_key, requests))
        return 0 if api_key == self.free else self.time_ms


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
    assert quota.counted == [(35, 1), (12, 1), (12, 1)]


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


@pytest.mark.parametrize("acks", [1, -1])
def test_produce_asks_for_each_topic_and_appends_to_the_others(world: BrokerWorld, acks: int) -> None:
    for name in ("allowed", "denied"):
        world.create_topic(name)
    client = world.connect()
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.WRITE, "denied")
    assert client.produce("denied", b"x", acks=acks).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.produce("allowed", b"x", acks=acks).error_code == 0
    assert (client.values("denied"), client.values("allowed")) == ([], [b"x"])
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.WRITE, "missing")
    assert client.produce("missing", b"x", acks=acks).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("by_id", [False, True])
def test_produce_asks_where_the_partition_is_led_elsewhere_too(world: BrokerWorld, by_id: bool) -> None:
    world.create_topic("secret")
    partition = world.partition("secret")
    world.broker.replicas.lose_leadership(partition, PeerError(ErrorCode.FENCED_LEADER_EPOCH, "test"))
    client = world.connect()
    request = produce_request(partition.topic_id if by_id else "secret", batch(world, b"x"))
    (before,) = client.ask(request, 13 if by_id else 12).responses[0].partition_responses
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.WRITE, "secret")
    (after,) = client.ask(request, 13 if by_id else 12).responses[0].partition_responses
    assert [before.error_code, after.error_code] == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_a_permission_that_is_withdrawn_ends_the_shortest_way(world: BrokerWorld) -> None:
    world.create_topic("t")
    client = world.connect()
    world.broker.pipeline.authorizer = authorizer = DenyingAuthorizer(Operation.READ)
    for _ in range(3):
        assert client.produce("t", b"x").error_code == 0
    assert len(authorizer.asked) == 1, "the others went the shortest way"
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.WRITE, "t")
    world.broker.replicas.appends.permits.value += 1
    assert client.produce("t", b"x").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.values("t") == [b"x"] * 3


def test_a_permission_that_is_withdrawn_between_two_requests_of_one_read_is_refused_to_the_second(world: BrokerWorld) -> None:
    for name in ("t", "u"):
        world.create_topic(name)
    client = world.connect()
    client.produce("t", b"0")
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.WRITE, "t", world=world, revokes="u")
    frames = [client.frame(produce_request(topic, batch(world, b"x")), 9) for topic in ("t", "u", "t")]
    client.peer.send(b"".join(frames))
    codes = [answer.body.responses[0].partition_responses[0].error_code for answer in client.answers()]
    assert codes == [0, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (client.values("t"), client.values("u")) == ([b"0", b"x"], [b"x"])


def test_the_shortest_way_is_throttled_once_for_each_read(world: BrokerWorld) -> None:
    world.create_topic("t")
    client = world.connect()
    client.produce("t", b"0")
    world.broker.pipeline.quotas = quota = ExhaustedQuota(500)
    frame = client.frame(produce_request("t", batch(world, b"x")), 9)
    more = [client.frame(produce_request("t", batch(world, b"x")), 9) for _ in range(2)]
    client.peer.send(b"".join([frame, *more]))
    assert [answer.body.responses[0].partition_responses[0].error_code for answer in client.answers()] == [0, 0, 0]
    assert quota.counted == [(0, 3)]
    client.send(produce_request("t", batch(world, b"y")), 9)
    assert client.answers() == []
    world.clock.advance(0.5)
    client.peer.push()
    (answer,) = client.answers()
    assert answer.body.throttle_time_ms == 500, "it went the general way"
    assert quota.counted == [(0, 3), (0, 1)]


def fetches(*topics: str | bytes, partitions: int = 1, max_wait_ms: int = 0) -> FetchRequest:
    """One request for so many partitions of each topic, by name or by id."""
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(partitions)]
    named = [
        FetchTopic(each, partitions=wanted) if isinstance(each, str) else FetchTopic(topic_id=each, partitions=wanted) for each in topics
    ]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=named)


def fetched(answer: FetchResponse) -> list[tuple[int, list[bytes | None]]]:
    """Code and values of partition 0 of each topic."""
    return [(each.partitions[0].error_code, values_of(each.partitions[0].records)) for each in answer.responses]


@pytest.mark.parametrize("partitions", [1, 200])
@pytest.mark.parametrize("by_id", [False, True])
def test_fetch_asks_for_each_topic_and_reads_the_others(world: BrokerWorld, by_id: bool, partitions: int) -> None:
    ids = {name: world.create_topic(name, partitions) for name in ("allowed", "denied")}
    client = world.connect()
    for name in ids:
        client.produce(name, name.encode())
    world.broker.pipeline.authorizer = authorizer = DenyingAuthorizer(Operation.READ, "denied")
    names = [ids["denied"], ids["allowed"]] if by_id else ["denied", "allowed"]
    client.send(fetches(*names, partitions=partitions, max_wait_ms=1000), 13 if by_id else 12)
    world.clock.settle()
    (answer,) = client.answers()
    assert fetched(answer.body) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, []), (0, [b"allowed"])]
    assert {operation for _, _, operation in authorizer.asked} == {Operation.READ}


def test_a_name_that_may_not_be_read_does_not_say_whether_it_exists(world: BrokerWorld) -> None:
    client = world.connect()
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.READ, "missing")
    assert client.fetch("missing", 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.fetch("another", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_like_the_one_before_does_not_ask_again_until_a_permission_is_withdrawn(world: BrokerWorld) -> None:
    for name in ("t", "u"):
        world.create_topic(name)
    client, other = world.connect(), world.connect()
    client.produce("t", b"x")
    world.broker.pipeline.authorizer = authorizer = DenyingAuthorizer(Operation.WRITE)
    for _ in range(3):
        assert client.values("t") == [b"x"]
    assert len(authorizer.asked) == 1
    assert other.values("t") == [b"x"]
    assert len(authorizer.asked) == 2, "a permission is that of its connection"
    client.fetch("u", 0)
    client.fetch("t", 0)
    assert len(authorizer.asked) == 4, "one topic is kept"
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.READ, "t")
    world.broker.replicas.appends.permits.value += 1
    assert client.fetch("t", 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.fetch("t", 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a refusal is not kept"


@pytest.mark.parametrize("partitions", [1, 200])
def test_a_fetch_that_waits_is_refused_when_its_permission_was_withdrawn(world: BrokerWorld, partitions: int) -> None:
    world.create_topic("t", partitions)
    client, producer = world.connect(), world.connect()
    client.send(fetches("t", partitions=partitions, max_wait_ms=10_000), 12)
    world.clock.settle()
    world.broker.pipeline.authorizer = DenyingAuthorizer(Operation.READ, "t")
    world.broker.replicas.appends.permits.value += 1
    producer.produce("t", b"x")
    world.clock.settle()
    (answer,) = client.answers()
    assert fetched(answer.body) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])]


def test_a_follower_needs_the_cluster_and_does_not_use_what_its_connection_may_read(world: BrokerWorld) -> None:
    world.create_topic("t")
    client = world.connect()
    client.produce("t", b"x")
    world.broker.pipeline.authorizer = authorizer = DenyingAuthorizer(Operation.CLUSTER_ACTION)
    assert client.values("t") == [b"x"]
    request = fetches("t")
    request.replica_id = 1
    assert fetched(client.ask(request, 12)) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])]
    assert [operation for _, _, operation in authorizer.asked] == [Operation.READ, Operation.CLUSTER_ACTION]


@pytest.mark.parametrize(
    ("partitions", "max_wait_ms", "session_epoch"), [(1, 0, -1), (1, 500, -1), (200, 0, -1), (200, 500, -1), (1, 0, 7), (200, 0, 7)]
)
def test_a_throttled_fetch_says_so_and_the_next_request_waits(
    world: BrokerWorld, partitions: int, max_wait_ms: int, session_epoch: int
) -> None:
    world.create_topic("t", partitions)
    client = world.connect()
    world.broker.pipeline.quotas = quota = ExhaustedQuota(700, free=HeartbeatRequest.API)
    request = fetches("t", partitions=partitions, max_wait_ms=max_wait_ms)
    request.session_epoch = session_epoch
    client.send(request, 12)
    world.clock.settle()
    world.clock.advance(max_wait_ms / 1000)
    client.peer.push()
    (throttled,) = client.answers()
    assert throttled.body.throttle_time_ms == 700
    client.send(HeartbeatRequest("g", 1, "m"), 4)
    world.clock.advance(0.699)
    client.peer.push()
    assert client.answers() == []
    world.clock.advance(0.002)
    client.peer.push()
    assert len(client.answers()) == 1
    assert quota.counted == [(1, 1), (12, 1)]
