"""Which brokers a cluster on this host has, and where: what it had, what options say, what is free."""

from pathlib import Path

import pytest

from moldau.adapters.process_identity import identity_of
from moldau.assembly.local_cluster.plan import FREE_PORTS, default_settings, kept_settings, plan
from moldau.assembly.local_cluster.state import (
    START_ZOOKEEPER,
    BrokerProcess,
    ClusterState,
    LocalClusterError,
    existing_state,
    read_state,
    write_state,
)
from moldau.assembly.local_cluster.supervisor import Supervisor


def ports(state: ClusterState) -> list[int]:
    assert [each.broker_id for each in state.brokers] == list(range(1, len(state.brokers) + 1))
    return [each.port for each in state.brokers]


def test_the_first_time_there_are_three_brokers_on_kafkas_port_and_those_after_it() -> None:
    assert ports(plan("c", None, None, None, None)) == [9092, 9093, 9094]
    assert ports(plan("c", None, 2, 19_000, None)) == [19_000, 19_001]


def served(state: ClusterState) -> ClusterState:
    """The same when all have been up."""
    return state._replace(brokers=[each._replace(has_served=True) for each in state.brokers])


def test_port_0_picks_different_ones_that_outgoing_connections_do_not_get() -> None:
    picked = plan("c", None, 5, 0, START_ZOOKEEPER)
    every = [*ports(picked), picked.zookeeper_port]
    assert len(dict.fromkeys(every)) == 6
    assert all(port in FREE_PORTS for port in every)


def test_brokers_keep_their_ports_and_new_ones_get_others() -> None:
    before = plan("c", None, 2, 0, START_ZOOKEEPER)
    again = plan("c", before, None, None, None)
    assert (ports(again), again.zookeeper, again.zookeeper_port) == (ports(before), START_ZOOKEEPER, before.zookeeper_port)
    grown = ports(plan("c", before, 4, None, None))
    assert grown[:2] == ports(before)
    assert grown[2:] == [grown[1] + 1, grown[1] + 2]
    assert ports(plan("c", before, None, 19_000, None)) == [19_000, 19_001]


def test_a_cluster_does_not_lose_brokers_with_what_is_on_them_nor_its_metadata() -> None:
    before = served(plan("c", None, 3, None, None))
    with pytest.raises(LocalClusterError, match="c: the cluster has 3 brokers, and partitions on each; give --brokers 3 or more"):
        plan("c", before, 2, None, None)
    with pytest.raises(LocalClusterError, match=r"the metadata of the cluster is in cluster\.sqlite, and is not moved"):
        plan("c", before, None, None, "localhost:2181")


def test_brokers_that_were_added_and_never_served_may_be_left_out_again() -> None:
    grown = plan("c", served(plan("c", None, 3, None, None)), 5, None, None)
    assert ports(plan("c", grown, None, None, None)) == ports(grown)
    assert ports(plan("c", grown, 3, None, None)) == ports(grown)[:3]
    with pytest.raises(LocalClusterError, match="give --brokers 3 or more"):
        plan("c", grown, 2, None, None)


def test_of_a_first_start_that_failed_nothing_is_kept(tmp_path: Path) -> None:
    chosen = plan("c", None, 5, 19_000, "h:1", ["num.partitions=3"])
    write_state(str(tmp_path), chosen)
    first, second = Supervisor(str(tmp_path), print), Supervisor(str(tmp_path), print)
    assert first.hold() is None
    first.kill()
    write_state(str(tmp_path), served(chosen))
    assert second.hold() == served(chosen)
    second.kill()


def test_settings_are_kept_until_they_are_set_again_or_deleted() -> None:
    before = plan("c", None, None, None, None, kept_settings(None, ["num.partitions = 3", "log.retention.ms=5"], []))
    assert kept_settings(before, [], []) == ["num.partitions=3", "log.retention.ms=5"]
    assert kept_settings(before, ["num.partitions=4", "log.roll.ms=1"], ["log.retention.ms"]) == ["num.partitions=4", "log.roll.ms=1"]
    with pytest.raises(LocalClusterError, match=r"^--delete log.x: not set here; set are num.partitions, log.retention.ms$"):
        kept_settings(before, [], ["log.x"])
    with pytest.raises(LocalClusterError, match=r"^--delete log.x: not set here$"):
        kept_settings(None, [], ["log.x"])


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_one_of_the_replicas_may_fail(brokers: int, replicas: int, in_sync: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_TRANSACTION_STATE_LOG_MIN_ISR", "1")
    settings = default_settings(brokers)
    assert settings[:2] == [f"default.replication.factor={replicas}", f"min.insync.replicas={in_sync}"]
    assert not any(each.startswith("transaction.state.log.min.isr") for each in settings), "the environment says otherwise"


def test_the_state_is_kept_in_a_file(tmp_path: Path) -> None:
    assert read_state(str(tmp_path)) is None
    with pytest.raises(LocalClusterError, match=r"there is no cluster here; `moldau cluster up --data .*` starts one"):
        existing_state(str(tmp_path))
    brokers = [BrokerProcess(1, "127.0.0.1", 9092, identity_of(1), has_served=True), BrokerProcess(2, "127.0.0.1", 9093)]
    state = ClusterState(brokers, "5 6 pid:[7]", "h:1", None, ["a=b"])
    write_state(str(tmp_path), state)
    assert read_state(str(tmp_path)) == state
    with pytest.raises(LocalClusterError, match="there is no broker 3 in this cluster, there are 1, 2"):
        state.broker(3)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "brokers": [{"id": 1}]}'])
def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalClusterError, match=r"cluster\.json: not the state of a cluster"):
        read_state(str(tmp_path))
