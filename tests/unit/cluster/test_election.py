"""A partition is led by a replica that has all committed records, in an epoch of its own for each incarnation of the leader."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.controller.election_rules import NO_EPOCHS, NO_LEADER, Candidates, TopicRules, elect, is_settled
from moldau.cluster.znodes import PartitionState, decode_state, encode_state

CONTROLLER_EPOCH = 9
REPLICAS = (4, 5, 6)
INCARNATION = 70


def state(leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), known: tuple[int, ...] = ()) -> PartitionState:
    """Before an election: in epoch 5, led in the incarnation that all brokers have at first."""
    return PartitionState(leader, 5, isr, 1, 0 if leader == NO_LEADER else INCARNATION, elr, known)


def among(
    *live: int,
    shutting_down: tuple[int, ...] = (),
    lossy: tuple[int, ...] = (),
    moved: tuple[int, ...] = (),
    previous: Mapping[int, Sequence[int]] = NO_EPOCHS,
    suspected: tuple[int, ...] = (),
) -> Candidates:
    """Live brokers; those that have restarted uncleanly are in another incarnation, and so are those that have `moved` to one."""
    return Candidates({each: INCARNATION + (each in (*lossy, *moved)) for each in live}, shutting_down, lossy, previous, suspected)


def joined(before: PartitionState, *replicas: int) -> PartitionState:
    """Where the leader has added replicas, in the incarnation that all brokers have at first."""
    return before._replace(joined=tuple((each, INCARNATION) for each in replicas))


class Case(NamedTuple):
    name: str
    before: PartitionState
    candidates: Candidates
    after: tuple[int, tuple[int, ...], tuple[int, ...]] | None
    """Leader, in-sync set and eligible replicas; None where nothing changes."""
    min_isr: int = 1
    unclean: bool = False
    preferred: bool = False


CASES = [
    Case("suspected ones are elected last", state(4, (4, 5, 6)), among(5, 6, suspected=(5,)), (6, (5, 6), ())),
    Case("and where there is no other", state(4, (4, 5)), among(5, 6, suspected=(5,)), (5, (5,), ())),
    Case("of eligible ones too", state(4, (4,), (5, 6)), among(5, 6, suspected=(5,)), (6, (6,), (5, 4)), min_isr=2),
    Case("and uncleanly", state(4, (4,)), among(5, 6, suspected=(5,)), (6, (6,), ()), unclean=True),
    Case("a leader is not replaced because it is suspected", state(4, (4, 5, 6)), among(4, 5, 6, suspected=(4,)), None),
    Case("OfflinePartition", state(-1, (4, 5)), among(5), (5, (5,), ())),
    Case("OfflinePartition, both live: the assignment's order", state(-1, (5, 4)), among(4, 5), (4, (5, 4), ())),
    Case("OfflinePartitionLastIsrOfflineUncleanDisabled", state(4, (4,)), among(5), (NO_LEADER, (4,), ())),
    Case("OfflinePartitionLastIsrOfflineUncleanDisabled, again", state(-1, (4,)), among(5), None),
    Case("OfflinePartitionLastIsrOfflineUncleanEnabled", state(-1, (4,)), among(5), (5, (5,), ()), unclean=True),
    Case("OfflinePartition, unclean allowed and not needed", state(4, (4, 6)), among(5, 6), (6, (6,), ()), unclean=True),
    Case("OfflinePartition, no replica lives", state(-1, (4,)), among(7), None, unclean=True),
    Case("the leader lives", state(4, (4, 5)), among(4, 5), None),
    Case("a follower has ended", state(4, (4, 5)), among(4), (4, (4,), ())),
    Case("the last one of the in-sync set is back", state(-1, (4,)), among(4, 5), (4, (4,), ())),
    Case("PreferredReplica", state(5, (4, 5)), among(4, 5), (4, (4, 5), ()), preferred=True),
    Case("PreferredReplica leads already", state(4, (4, 5)), among(4, 5), None, preferred=True),
    Case("PreferredReplicaInIsrNotLive", state(5, (4, 5)), among(5), None, preferred=True),
    Case("PreferredReplicaNotInIsrLive", state(5, (5,)), among(4, 5), None, preferred=True),
    Case("PreferredReplicaNotInIsrNotLive", state(5, (5,)), among(5), None, preferred=True),
    Case("PreferredReplica is shutting down", state(5, (4, 5)), among(4, 5, shutting_down=(4,)), None, preferred=True),
    Case("ControlledShutdown", state(4, (4, 5)), among(4, 5, shutting_down=(4,)), (5, (5,), ())),
    Case("ControlledShutdown of a follower", state(4, (4, 5)), among(4, 5, shutting_down=(5,)), (4, (4,), ())),
    Case("ControlledShutdownLastIsrShuttingDown", state(4, (4,)), among(4, 5, shutting_down=(4,)), None),
    Case("ControlledShutdownAllIsrSimultaneouslyShutdown", state(5, (5, 4)), among(4, 5, shutting_down=(4, 5)), (5, (5,), ())),
    Case("ControlledShutdown is never unclean", state(4, (4,)), among(4, 5, shutting_down=(4,)), None, unclean=True),
    Case("below the minimum who leaves is eligible", state(4, (4, 5)), among(4), (4, (4,), (5,)), min_isr=2),
    Case("and adds to those that are", state(4, (4, 6), (5,)), among(4), (4, (4,), (5, 6)), min_isr=3),
    Case("none is at the minimum", state(4, (4, 5, 6)), among(4, 5), (4, (4, 5), ()), min_isr=2),
    Case("the minimum is at most all replicas", state(4, (4, 5, 6)), among(4, 5, 6, shutting_down=(4,)), (5, (5, 6), (4,)), min_isr=9),
    Case("an eligible replica leads alone", state(4, (4,), (6, 5)), among(5, 6), (5, (5,), (6, 4)), min_isr=2),
    Case("the last one in sync before those", state(-1, (4,), (5,)), among(4, 5), (4, (4,), (5,)), min_isr=2),
    Case("an eligible one before an unclean one", state(4, (4,), (6,)), among(5, 6), (6, (6,), (4,)), min_isr=2, unclean=True),
    Case("an unclean restart ends eligibility", state(4, (4,), (5,)), among(4, 5, lossy=(5,)), (4, (4,), ()), min_isr=2),
    Case("an unclean restart ends being in sync", state(4, (4, 5)), among(4, 5, lossy=(5,)), (4, (4,), ())),
    Case("also that of a leader", state(4, (4, 5)), among(4, 5, lossy=(4,)), (5, (5,), ())),
    Case("but for the last one", state(4, (4,)), among(4, 5, lossy=(4,)), (4, (4,), ())),
    Case("none is at today's minimum", state(-1, (4,), (5,)), among(5), None, min_isr=1),
    Case("one that has restarted since it joined", joined(state(4, (4, 5)), 5), among(4, 5, moved=(5,)), (4, (4,), ())),
    Case("but not with what it had", joined(state(4, (4, 5)), 5), among(4, 5, moved=(5,), previous={5: (INCARNATION,)}), None),
    Case("nor in several sessions", joined(state(4, (4, 5)), 5), among(4, 5, moved=(5,), previous={5: (INCARNATION, 2)}), None),
    Case("one that has joined since it restarted", joined(state(4, (4, 5)), 5), among(4, 5)._replace(lossy=(5,)), None),
    Case("one that has ended since", joined(state(4, (4, 5)), 5), among(4), (4, (4,), ())),
    Case("one that is eligible", joined(state(4, (4,), (5,)), 5), among(4, 5, moved=(5,)), (4, (4,), ()), min_isr=2),
    Case("all at once: the leader had the most", state(5, (4, 5)), among(4, 5, lossy=(4, 5)), (5, (5,), ())),
    Case("the last one, while an eligible one lives", state(4, (4,), (5,)), among(4, 5, lossy=(4,)), (5, (5,), ()), min_isr=2),
    Case("R22: one stopped in order, the other lost what it had", state(4, (4, 5)), among(5, lossy=(5,)), (-1, (4,), ())),
    Case("and while that may come back", state(4, (4,), (5,)), among(4, lossy=(4,)), (NO_LEADER, (5,), ()), min_isr=2),
    Case("it is the first to lead uncleanly", state(-1, (6,), (), (5,)), among(4, 5), (5, (5,), ()), min_isr=2, unclean=True),
    Case("Reassign: who is no replica does not lead", state(7, (7, 5)), among(5, 7), (5, (7, 5), ())),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_state_after_an_election(case: Case) -> None:
    rules = TopicRules(case.min_isr, case.unclean)
    after = elect(case.before, REPLICAS, case.candidates, rules, CONTROLLER_EPOCH, preferred=case.preferred)
    if case.after is None:
        assert after is None
        return
    assert after is not None
    assert (after.leader, after.isr, after.elr) == case.after
    assert (after.leader_epoch, after.controller_epoch) == (6, CONTROLLER_EPOCH)
    assert after.leader_broker_epoch == case.candidates.live.get(after.leader, 0)


@pytest.mark.parametrize(("floor", "epoch"), [(0, None), (5, None), (6, 7), (9, 10)])
def test_a_log_that_knows_a_later_epoch_has_the_partition_elected_after_it(floor: int, epoch: int | None) -> None:
    after = elect(state(4, (4, 5)), REPLICAS, among(4, 5), TopicRules(), CONTROLLER_EPOCH, floor)
    assert (after and after.leader_epoch) == epoch


def test_a_leader_that_bounced_leads_in_a_new_epoch_also_if_its_incarnation_was_not_known() -> None:
    for before in (state(4, (4,)), state(4, (4,))._replace(leader_broker_epoch=0)):
        after = elect(before, REPLICAS, Candidates({4: 80}), TopicRules(), CONTROLLER_EPOCH)
        assert after == PartitionState(4, 6, (4,), CONTROLLER_EPOCH, 80)


brokers = st.integers(0, 4)
some = st.lists(brokers, max_size=5, unique=True)


@st.composite
def situations(draw: st.DrawFn) -> tuple[PartitionState, tuple[int, ...], Candidates, TopicRules]:
    replicas = draw(st.lists(brokers, min_size=1, max_size=5, unique=True))
    held = draw(st.permutations(replicas))
    in_sync = draw(st.integers(1, len(held)))
    eligible = draw(st.integers(in_sync, len(held)))
    known = draw(st.integers(eligible, len(held)))
    isr = held[:in_sync]
    leader = draw(st.sampled_from([NO_LEADER, *isr]))
    broker_epoch = 0 if leader == NO_LEADER else draw(st.integers(1, 3))
    before = PartitionState(
        leader, draw(st.integers(0, 5)), tuple(isr), 1, broker_epoch, tuple(held[in_sync:eligible]), tuple(held[eligible:known])
    )
    live = {each: draw(st.integers(1, 3)) for each in draw(some)}
    shutting_down, lossy, suspected = ([each for each in draw(some) if each in live] for _ in range(3))
    added = draw(st.lists(st.sampled_from(held[:eligible]), max_size=2, unique=True))
    before = before._replace(joined=tuple((each, draw(st.integers(1, 3))) for each in added if each != leader))
    previous = {each: draw(st.lists(st.integers(0, 2), max_size=2)) for each in live}
    rules = TopicRules(draw(st.integers(1, 4)), draw(st.booleans()))
    return before, tuple(replicas), Candidates(live, shutting_down, lossy, previous, suspected), rules


def is_sound_in(before: PartitionState, candidates: Candidates, replica: int) -> bool:
    """Whether a replica has what it had when it was last known to be in sync."""
    live, _, lossy, previous, _ = candidates
    if replica == before.leader and live.get(replica) == before.leader_broker_epoch:
        return True
    epoch = dict(before.joined).get(replica)
    return replica not in lossy if epoch is None else replica not in live or epoch in (live[replica], *previous[replica])


def may_lead(before: PartitionState, replicas: tuple[int, ...], candidates: Candidates, rules: TopicRules) -> list[int]:
    """The replicas of the best rank of which any can lead: slow, one replica and one rank after the other."""
    live, shutting_down = candidates.live, candidates.shutting_down
    is_led = before.leader in live and live[before.leader] == before.leader_broker_epoch
    minimum = min(rules.min_isr, len(replicas))
    if len(before.isr) >= minimum:
        before = before._replace(elr=())

    def is_sound(replica: int) -> bool:
        return is_sound_in(before, candidates, replica)

    able = [each for each in replicas if each in live and each not in shutting_down]
    ranks = [[each for each in able if each in before.isr and is_sound(each)]]
    if not ranks[0] and is_led:
        return [before.leader]
    ranks.append([each for each in able if each in before.elr and is_sound(each)])
    others = {each for each in (*before.isr, *before.elr) if each in replicas and is_sound(each)}
    ranks.append([each for each in able if each in before.isr and not others])
    if rules.unclean and not any(each in live and is_sound(each) for each in before.isr):
        ranks.append(able)
    return next((rank for rank in ranks if rank), [])


@given(situations(), st.integers(0, 7))
def test_whatever_was_before(situation: tuple[PartitionState, tuple[int, ...], Candidates, TopicRules], floor: int) -> None:
    before, replicas, candidates, rules = situation
    live, shutting_down = candidates.live, candidates.shutting_down
    allowed = may_lead(*situation)
    after = elect(*situation, CONTROLLER_EPOCH, floor)
    if after is None:
        assert (before.leader in allowed and live[before.leader] == before.leader_broker_epoch) or (
            before.leader == NO_LEADER and not allowed
        )
        return
    assert after.leader_epoch > max(before.leader_epoch, floor)
    if after.leader in candidates.suspected and after.leader != before.leader and not rules.unclean:
        assert set(allowed) <= set(candidates.suspected)
    assert after.isr
    assert set(after.isr) <= {*before.isr, *before.elr, after.leader}
    assert not {*after.elr} & {*after.isr}, "no replica is both"
    assert all(is_sound_in(before, candidates, each) for each in after.elr if each != before.leader)
    assert not after.joined, "the election has taken account of it"
    if after.leader == NO_LEADER:
        assert not allowed
        assert set(after.isr) <= {*before.isr, *before.elr}
    else:
        assert after.leader in allowed
        assert after.leader in after.isr
        assert live[after.leader] == after.leader_broker_epoch
        assert all(each in live for each in after.isr)
        assert rules.unclean or after.leader in (*before.isr, *before.elr), "none but those with all committed records"
        assert not after.elr or len(after.isr) < min(rules.min_isr, len(replicas))
    if after.leader not in shutting_down:
        settled = candidates._replace(lossy=[each for each in candidates.lossy if each not in dict(before.joined)])
        assert elect(after, replicas, settled, rules, CONTROLLER_EPOCH) is None, "one election is enough"


@given(situations())
def test_what_is_settled_needs_no_election(situation: tuple[PartitionState, tuple[int, ...], Candidates, TopicRules]) -> None:
    before, replicas, candidates, rules = situation
    if is_settled(before, candidates):
        assert elect(before, replicas, candidates, rules._replace(min_isr=99), CONTROLLER_EPOCH) is None


@pytest.mark.parametrize("before", [state(4, (4, 5)), state(-1, (4,)), joined(state(4, (4, 5)), 5)])
def test_a_state_is_read_as_it_was_written(before: PartitionState) -> None:
    data = encode_state(before)
    assert decode_state("", data) == before
    assert (b"broker_epoch" in data) == bool(before.leader_broker_epoch), "the file of a broker that does not know it stays as it is"
