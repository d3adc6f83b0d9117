"""A partition is led by a live member of its in-sync set, in an epoch of its own for each incarnation of the leader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.controller.broadcast import NO_LEADER, elect
from moldau.cluster.znodes import PartitionState, decode_state, encode_state

CONTROLLER_EPOCH = 9


def led(leader: int, epoch: int, isr: tuple[int, ...], broker_epoch: int) -> PartitionState:
    return PartitionState(leader, epoch, isr, 1, broker_epoch)


def elected(leader: int, epoch: int, isr: tuple[int, ...], broker_epoch: int = 0) -> PartitionState:
    return PartitionState(leader, epoch, isr, CONTROLLER_EPOCH, broker_epoch)


@pytest.mark.parametrize(
    ("state", "live", "floor", "after"),
    [
        pytest.param(led(0, 5, (0, 1), 70), {0: 70, 1: 71}, 5, None, id="the leader lives"),
        pytest.param(led(0, 5, (0, 1), 70), {0: 80, 1: 71}, 0, elected(0, 6, (0, 1), 80), id="it has bounced"),
        pytest.param(led(0, 5, (0,), 0), {0: 80}, 0, elected(0, 6, (0,), 80), id="a store without incarnations"),
        pytest.param(led(0, 5, (0, 1), 70), {1: 71, 2: 72}, 0, elected(1, 6, (1,), 71), id="it is gone"),
        pytest.param(led(0, 5, (0,), 70), {1: 71, 2: 72}, 0, elected(NO_LEADER, 6, (0,)), id="no other has all records"),
        pytest.param(led(NO_LEADER, 6, (0,), 0), {1: 71}, 8, None, id="nobody leads, and nobody can"),
        pytest.param(led(NO_LEADER, 6, (0,), 0), {0: 90}, 0, elected(0, 7, (0,), 90), id="the last of the in-sync set is back"),
        pytest.param(led(1, 5, (1, 0), 71), {0: 70, 1: 71}, 8, elected(0, 9, (1, 0), 70), id="a log knows a later epoch"),
    ],
)
def test_the_state_after_an_election(state: PartitionState, live: dict[int, int], floor: int, after: PartitionState | None) -> None:
    assert elect(state, (0, 1, 2), live, CONTROLLER_EPOCH, floor) == after


brokers = st.integers(0, 4)
states = st.builds(
    led,
    st.integers(-1, 4),
    st.integers(0, 5),
    st.lists(brokers, min_size=1, max_size=4, unique=True).map(tuple),
    st.integers(0, 3),
)


@given(
    states,
    st.lists(brokers, min_size=1, max_size=5, unique=True),
    st.dictionaries(brokers, st.integers(1, 3), max_size=5),
    st.integers(0, 7),
)
def test_whatever_was_before(state: PartitionState, replicas: list[int], live: dict[int, int], floor: int) -> None:
    after = elect(state, replicas, live, CONTROLLER_EPOCH, floor)
    can_lead = [replica for replica in replicas if replica in state.isr and replica in live]
    if after is None:
        is_led = state.leader in live and live[state.leader] == state.leader_broker_epoch and state.leader_epoch >= floor
        assert is_led or (state.leader == NO_LEADER and not can_lead)
        return
    assert after.leader_epoch > state.leader_epoch
    assert after.leader_epoch > floor
    assert set(after.isr) <= set(state.isr), "nobody enters the in-sync set by an election"
    assert after.isr
    if after.leader == NO_LEADER:
        assert not can_lead
    else:
        assert after.leader in after.isr
        assert live[after.leader] == after.leader_broker_epoch
    assert elect(after, replicas, live, CONTROLLER_EPOCH, floor) is None, "one election is enough"


@pytest.mark.parametrize("state", [led(0, 5, (0, 1), 70), led(NO_LEADER, 5, (0,), 0)])
def test_a_state_is_read_as_it_was_written(state: PartitionState) -> None:
    data = encode_state(state)
    assert decode_state("", data) == state
    assert (b"broker_epoch" in data) == bool(state.leader_broker_epoch), "the file of a broker that does not know it stays as it is"
