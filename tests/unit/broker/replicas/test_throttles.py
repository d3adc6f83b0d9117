"""Which replicas are throttled, what the rate is, and whose turn it is when there is room."""

from collections.abc import Mapping

import pytest

from moldau.broker.replicas.throttles import RESUME_EVERY_S, FollowerThrottle, LeaderThrottle, WindowedRate
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.identity import TopicPartition
from moldau.testing.clock import FakeClock

ZERO, ONE, TWO = (TopicPartition("t", index) for index in range(3))
ME = 1
KIB = 1024


def test_the_rate_is_of_the_last_eleven_windows_and_of_one_at_least() -> None:
    rate = WindowedRate()
    assert rate.per_second(5.0) == 0
    rate.add(500, 5.0)
    rate.add(500, 5.5)
    assert rate.per_second(5.5) == 1000
    assert rate.per_second(9.0) == 250
    assert rate.room(100, 9.0) == -600
    rate.add(1000, 9.0)
    assert rate.per_second(15.0) == 200
    assert rate.per_second(16.0) == pytest.approx(1000 / 7), "the first window is over"
    assert rate.per_second(30.0) == 0


class World:
    """A broker's configuration, and a topic's."""

    def __init__(self, rate: int | None = KIB, replicas: str = "*") -> None:
        self.clock = FakeClock()
        rates = [] if rate is None else [f"{side}.replication.throttled.rate={rate}" for side in ("leader", "follower")]
        self.config = BrokerConfig(read_static(settings=[*rates, f"replica.fetch.max.bytes={KIB}"]))
        self.topic = {f"{side}.replication.throttled.replicas": replicas for side in ("leader", "follower")}
        self.resumed: list[TopicPartition] = []

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.topic if name == "t" else {}

    def leader(self) -> LeaderThrottle:
        return LeaderThrottle(ME, self.config, self.topic_config, self.clock)

    def follower(self) -> FollowerThrottle:
        return FollowerThrottle(ME, self.config, self.topic_config, self.clock)

    def resume(self, topic_partition: TopicPartition) -> None:
        self.resumed.append(topic_partition)


@pytest.mark.parametrize(("replicas", "limited"), [("*", [ZERO, ONE]), ("0:1,1:2", [ZERO]), ("0:2,1:1", [ONE]), ("0:2,1:3", []), ("", [])])
def test_replicas_of_this_broker_that_the_topic_lists_are_limited(replicas: str, limited: list[TopicPartition]) -> None:
    throttle = World(replicas=replicas).leader()
    assert [each for each in (ZERO, ONE) if throttle.limits(each)] == limited
    assert not throttle.limits(TopicPartition("other", 0))


def test_without_a_rate_nothing_is_and_changes_of_both_count_at_once() -> None:
    world = World(rate=None)
    throttle = world.leader()
    assert not throttle.limits(ZERO)
    world.config.set_dynamic(own={"leader.replication.throttled.rate": "5"}, cluster={}, nodes=("own", "all"))
    assert throttle.limits(ZERO)
    assert throttle.limit == 5
    world.topic["leader.replication.throttled.replicas"] = "1:1"
    assert not throttle.limits(ZERO)
    assert throttle.limits(ONE)


def test_a_follower_that_lags_waits_once_the_rate_is_exceeded_and_one_that_does_not_never() -> None:
    world = World()
    throttle = world.follower()
    assert not throttle.holds_back(ZERO, 900, lags=True, source=world), "there is room for more"
    assert throttle.holds_back(ZERO, 900, lags=True, source=world)
    assert not throttle.holds_back(ONE, 900, lags=False, source=world), "it is in sync; what it fetches counts"
    assert throttle.bytes_per_second == 2700
    world.clock.advance(2.5)
    assert world.resumed == []
    world.clock.advance(0.3)
    assert world.resumed == [ZERO]


def test_those_that_wait_are_resumed_in_turn_as_there_is_room_for_them() -> None:
    world = World()
    throttle = world.follower()
    for each in (ZERO, ONE, TWO):
        assert throttle.holds_back(each, 2 * KIB, lags=True, source=world)
    world.clock.advance(6.0 + RESUME_EVERY_S)
    assert world.resumed == [ZERO]
    assert throttle.holds_back(ZERO, 2 * KIB, lags=True, source=world)
    throttle.forget(ONE)
    world.clock.advance(2.0 + RESUME_EVERY_S)
    assert world.resumed[:2] == [ZERO, TWO]
    assert ONE not in world.resumed


def test_all_are_resumed_when_the_limit_goes() -> None:
    world = World()
    throttle = world.follower()
    for each in (ZERO, ONE):
        throttle.holds_back(each, 100 * KIB, lags=True, source=world)
    world.config.set_dynamic(own={"follower.replication.throttled.rate": str(2**63 - 1)}, cluster={}, nodes=("own", "all"))
    world.clock.advance(RESUME_EVERY_S)
    assert world.resumed == [ZERO, ONE]
