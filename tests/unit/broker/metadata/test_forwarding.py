"""What a broker needs of the controller is sent to it, again while it is not reached or has moved, and has one outcome."""

from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.metadata.forwarding import AGAIN_S, ControllerForwarder
from moldau.broker.peers.connection import PeerCallError, PeerConnection
from moldau.cluster.controller.requests import (
    AlterConfig,
    AlteredConfig,
    ConfigEdit,
    ConfigOperation,
    ConfigTarget,
    CreateTopics,
    PlannedTopic,
    Request,
    TopicSpec,
)
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.model.errors import ErrorCode, PeerError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.messages.topics import CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse
from moldau.testing.clock import FakeClock

TIMEOUT_S = 30.0
CREATE = CreateTopics([TopicSpec("t", 2, 3, configs=[("retention.ms", "5")])])
CREATED = CreateTopicsResponse(topics=[CreatableTopicResult("t", b"i" * 16, num_partitions=2, configs=[CreatableTopicConfigs("a", "b")])])
MOVED = CreateTopicsResponse(topics=[CreatableTopicResult("t", error_code=ErrorCode.NOT_CONTROLLER)])
EDITS = [ConfigEdit("a", ConfigOperation.SET, "1"), ConfigEdit("b", ConfigOperation.SUBTRACT, "2")]


class Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.out: list[tuple[ApiKey, Any, Callable[[Any], object], float]] = []
        self.is_closed = False

    def request(self, api_key: ApiKey, message: Any, done: Callable[[Any], object], *, timeout_s: float) -> None:
        self.out.append((api_key, message, done, timeout_s))

    def close(self) -> None:
        self.is_closed = True
        out, self.out = self.out, []
        for _, _, done, _ in out:
            done(PeerCallError(self.address, "closed", was_sent=True))


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.controller: BrokerInfo | None = broker(1)
        self.is_own = False
        self.asked_here: list[Request] = []
        self.connections: list[Connection] = []
        self.outcomes: list[Any] = []
        self.forwarder = ControllerForwarder(
            self._connect, lambda: self.controller, lambda: self._ask_here if self.is_own else None, self.clock
        )

    def _connect(self, broker: BrokerInfo, purpose: str, **_options: object) -> PeerConnection:
        self.connections.append(Connection(broker.endpoints[0][1:]))
        return self.connections[-1]  # type: ignore[return-value]

    def _ask_here(self, request: Request, done: Callable[[Any], object]) -> None:
        self.asked_here.append(request)
        done("here")

    def ask(self, request: Request = CREATE) -> Any:
        """The message that is out then."""
        self.forwarder.ask(request, self.outcomes.append, TIMEOUT_S)
        return self.connections[-1].out[-1][:2] if self.connections else None

    def answer(self, response: Any) -> None:
        _, _, done, _ = self.connections[-1].out.pop(0)
        done(response)


def broker(number: int) -> BrokerInfo:
    return BrokerInfo(number, (Endpoint("PLAINTEXT", f"b{number}", 9092),))


def test_topics_are_created_as_they_are_wanted() -> None:
    world = World()
    api_key, message = world.ask()
    assert api_key is ApiKey.CREATE_TOPICS
    (topic,) = message.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 2, 3)
    assert [(each.name, each.value) for each in topic.configs] == [("retention.ms", "5")]
    world.answer(CREATED)
    assert world.outcomes == [{"t": PlannedTopic("t", b"i" * 16, [(), ()], {"a": "b"}, None)}]


def test_an_error_of_the_controller_is_the_outcome() -> None:
    world = World()
    world.ask()
    world.answer(
        CreateTopicsResponse(topics=[CreatableTopicResult("t", error_code=ErrorCode.INVALID_PARTITIONS, error_message="too many")])
    )
    ((outcome),) = world.outcomes
    assert (outcome["t"].code, outcome["t"].message) == (ErrorCode.INVALID_PARTITIONS, "too many")


@pytest.mark.parametrize(
    ("replaces", "api_key", "response"),
    [(False, ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsResponse), (True, ApiKey.ALTER_CONFIGS, AlterConfigsResponse)],
)
@pytest.mark.parametrize(
    ("target", "resource"),
    [(ConfigTarget("t"), (2, "t")), (ConfigTarget(None, 3), (4, "3")), (ConfigTarget(None), (4, ""))],
)
def test_configurations_are_changed_as_forwarded_ones(
    replaces: bool, api_key: ApiKey, response: type[Any], target: ConfigTarget, resource: tuple[int, str]
) -> None:
    world = World()
    edits = EDITS[:1] if replaces else EDITS
    asked, message = world.ask(AlterConfig(target, edits, replaces))
    assert asked is api_key
    assert message.is_forwarded
    (changed,) = message.resources
    assert (changed.resource_type, changed.resource_name) == resource
    given = [(each.name, each.value) if replaces else (each.name, each.config_operation, each.value) for each in changed.configs]
    assert given == ([("a", "1")] if replaces else [("a", 0, "1"), ("b", 3, "2")])
    world.answer(response(responses=[AlterConfigsResourceResponse(0, None, *resource)]))
    assert world.outcomes == [AlteredConfig({}, {}, None)]


@pytest.mark.parametrize("failure", [MOVED, PeerCallError(("b1", 9092), "lost", was_sent=True)])
def test_it_is_repeated_to_the_next_controller_with_the_time_that_is_left(failure: Any) -> None:
    world = World()
    world.ask()
    world.clock.advance(10.0)
    world.answer(failure)
    world.controller = broker(2)
    world.clock.advance(AGAIN_S)
    old, new = world.connections
    assert (old.is_closed, new.address) == (True, ("b2", 9092))
    assert new.out[0][3] == pytest.approx(TIMEOUT_S - 10.0 - AGAIN_S)
    world.answer(CREATED)
    assert len(world.outcomes) == 1
    assert world.clock.pending == 0


def test_it_is_carried_out_here_if_this_broker_becomes_controller() -> None:
    world = World()
    world.controller = None
    world.ask()
    world.is_own = True
    world.clock.advance(AGAIN_S)
    assert world.asked_here == [CREATE]
    assert world.outcomes == ["here"]
    assert world.connections == []


def test_without_a_controller_it_ends_at_its_time() -> None:
    world = World()
    world.controller = None
    world.ask()
    world.clock.advance(TIMEOUT_S - 1)
    assert world.outcomes == []
    world.clock.advance(1 + AGAIN_S)
    (outcome,) = world.outcomes
    assert isinstance(outcome, PeerError)
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT
    assert world.clock.pending == 0


def test_when_the_broker_stops_everything_has_an_outcome() -> None:
    world = World()
    world.ask()
    world.forwarder.close()
    world.clock.advance(AGAIN_S)
    world.forwarder.ask(CREATE, world.outcomes.append, TIMEOUT_S)
    assert [outcome.code for outcome in world.outcomes] == [ErrorCode.REQUEST_TIMED_OUT] * 2


@pytest.mark.parametrize("request_", [CREATE, AlterConfig(ConfigTarget("t"), EDITS)])
def test_a_response_without_results_is_an_error(request_: Request) -> None:
    world = World()
    world.ask(request_)
    world.answer(CreateTopicsResponse() if request_ is CREATE else IncrementalAlterConfigsResponse())
    (outcome,) = world.outcomes
    error = outcome["t"] if isinstance(outcome, dict) else outcome
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
