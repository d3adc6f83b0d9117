"""What a partition is to a mirror is in its state and in its topic's configuration, by one write, whatever else is written meanwhile."""

from collections.abc import Mapping
from typing import Any

import pytest

from moldau.cluster import znodes
from moldau.cluster.changes import NewTopic, PutState, PutTopicConfig, writes_of
from moldau.cluster.controller.mirrors import EPOCHS_APART
from moldau.cluster.controller.requests import AlteredMirror, AlterMirrors
from moldau.cluster.znodes import PartitionState, decode_config
from moldau.model.identity import LogCut, TopicPartition
from moldau.ports.coordination import Multi
from support.controllers import Broker, Cluster, error_of

SOURCE = "mirror.source"


def cluster_with(partitions: int, **configs: str) -> Cluster:
    cluster = Cluster(3)
    cluster.settle(5)
    active(cluster).create("t", partitions, 3, configs=[(name.replace("_", "."), text) for name, text in configs.items()])
    cluster.settle(5)
    for broker in cluster.brokers.values():
        broker.take()
    return cluster


def active(cluster: Cluster) -> Broker:
    (broker,) = cluster.controllers()
    return broker


def alter(cluster: Cluster, *altered: AlteredMirror, source: str = "") -> list[str]:
    """Alter the first partitions; the code of each."""
    partitions = {TopicPartition("t", index): each for index, each in enumerate(altered)}
    outcomes = active(cluster).ask(AlterMirrors(partitions, {"t": source} if source else {}))
    cluster.settle(3)
    return [error_of(outcomes[0][each]) for each in partitions]


def states(cluster: Cluster) -> list[tuple[bool, LogCut | None, int]]:
    found = [each for each in cluster.states("t") if each is not None]
    return [(each.is_mirror, each.cut, each.leader_epoch) for each in found]


def config(cluster: Cluster, name: str = "t") -> Mapping[str, str]:
    return decode_config("", cluster.data(znodes.topic_config(name)) or b"")


def write(cluster: Cluster, *changes: Any) -> None:
    """As another broker or a tool does."""
    outcomes: list[object] = []
    cluster.other.submit(Multi(tuple(each for change in changes for each in writes_of(change))), outcomes.append)
    assert not isinstance(outcomes[0], Exception), outcomes


def test_many_partitions_are_promoted_in_several_writes_and_the_configuration_goes_with_the_last() -> None:
    cluster = cluster_with(150, mirror_source="s", retention_ms="5")
    assert alter(cluster, *[AlteredMirror(False, 7, index) for index in range(149)]) == ["NONE"] * 149
    assert config(cluster) == {SOURCE: "s", "retention.ms": "5"}
    own = 7 + EPOCHS_APART
    assert states(cluster) == [*((False, LogCut(own - 1, index), own) for index in range(149)), (True, None, 0)]
    assert alter(cluster, *[AlteredMirror(False)] * 150) == ["NONE"] * 150
    assert config(cluster) == {"retention.ms": "5"}
    assert states(cluster)[149] == (False, None, EPOCHS_APART)
    assert states(cluster)[0] == (False, LogCut(own - 1, 0), own), "it was promoted already"


def test_leaders_receive_what_was_written() -> None:
    cluster = cluster_with(1)
    assert alter(cluster, AlteredMirror(True, 4, 20), source="s") == ["NONE"]
    assert states(cluster) == [(True, LogCut(4, 20), 5)]
    assert config(cluster) == {SOURCE: "s"}
    for broker in cluster.brokers.values():
        assert "lead t-0 0 in 5" in broker.take()
        info = broker.snapshot.topics["t"].partitions[0]
        assert (info.is_mirror, info.cut) == (True, LogCut(4, 20))


def test_a_mirror_keeps_its_cut_while_its_epoch_is_raised() -> None:
    cluster = cluster_with(1)
    alter(cluster, AlteredMirror(True, 4, 20), source="s")
    assert alter(cluster, AlteredMirror(True, 30)) == ["NONE"]
    assert states(cluster) == [(True, LogCut(4, 20), 31)]


def test_a_state_and_a_configuration_that_others_write_meanwhile_are_kept() -> None:
    cluster = cluster_with(2, mirror_source="s")
    state = cluster.states("t")[1]
    assert isinstance(state, PartitionState)
    write(cluster, PutState("t", 1, state._replace(isr=(1, 2)), 0))
    write(cluster, PutTopicConfig("t", {SOURCE: "s", "retention.ms": "9"}, 0))
    assert alter(cluster, AlteredMirror(False, 3, 8), AlteredMirror(False, 3, 9)) == ["NONE", "NONE"]
    assert config(cluster) == {"retention.ms": "9"}
    after = cluster.states("t")[1]
    assert after is not None
    assert (after.isr, after.is_mirror, after.cut) == ((1, 2), False, LogCut(2 + EPOCHS_APART, 9))


def test_elections_and_restarts_of_controllers_keep_both() -> None:
    cluster = cluster_with(1)
    alter(cluster, AlteredMirror(True, 4, 20), source="s")
    for broker_id in (0, 1):
        cluster.brokers[broker_id].session.expire()
        cluster.settle(10)
        ((is_mirror, cut, _),) = states(cluster)
        assert (is_mirror, cut) == (True, LogCut(4, 20))


@pytest.mark.parametrize(("configs", "is_mirror"), [({SOURCE: "s"}, True), ({SOURCE: ""}, False), ({}, False)])
def test_what_a_tool_creates_and_a_controller_completes_is_a_mirror_by_its_configuration(configs: dict[str, str], is_mirror: bool) -> None:
    cluster = cluster_with(1)
    write(cluster, NewTopic("u", b"u" * 16, [(0, 1), (1, 2)], configs))
    cluster.settle(5)
    assert [each.is_mirror for each in cluster.states("u") if each is not None] == [is_mirror, is_mirror]


def test_an_internal_topic_is_no_mirror() -> None:
    cluster = cluster_with(1)
    outcomes = active(cluster).create("__consumer_offsets", 3, 1, configs=[(SOURCE, "s")])
    cluster.settle(3)
    assert error_of(outcomes[0], "__consumer_offsets") == "INVALID_CONFIG"
    active(cluster).create("__consumer_offsets", 3, 1)
    cluster.settle(3)
    where = TopicPartition("__consumer_offsets", 0)
    asked = active(cluster).ask(AlterMirrors({where: AlteredMirror(True)}, {where.topic: "s"}))
    cluster.settle(3)
    assert error_of(asked[0][where]) == "INVALID_CONFIG"


def test_a_request_without_partitions_is_answered() -> None:
    cluster = cluster_with(1)
    assert active(cluster).ask(AlterMirrors({}, {})) == [{}]
