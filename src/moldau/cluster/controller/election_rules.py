"""Who leads a partition, and who is in sync with it: values in, values out.

A leader was elected in one *incarnation*: one registration of its broker, known by its `created_id`. A broker that comes back, however
soon, is another one: it may have lost the tail of its log, so that its partitions get a new epoch. One rule holds for a first start, a
restart, an unnoticed bounce, and a store that was restored from a backup.

Where the in-sync set is below its minimum, high watermarks stand still, so that a replica that left it since has all committed records:
it is eligible to lead (KIP-966) until it restarts uncleanly. Where the set has the minimum of today, high watermarks may have moved since,
and none is eligible, whatever the state says. In the order of trust:

    in sync, live, restarted cleanly if at all      leads, in the order of the assignment
    eligible, live, restarted cleanly               leads alone
    in sync, live, restarted uncleanly              leads alone, unless another one of those above may come back
    any live replica                                leads alone, only with `unclean.leader.election.enable`

The in-sync set is never empty: where no replica can lead, it keeps those that could if they came back.

A leader that adds a replica writes in which incarnation that has joined. The controller may learn of it after it has looked for unclean
restarts, so a replica that is registered otherwise by now, and does not say that it has lost nothing since, is not in sync.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from moldau.cluster.znodes import PartitionState
from moldau.model.min_insync import effective_minimum

NO_LEADER = -1
NO_EPOCHS: Mapping[int, Sequence[int]] = MappingProxyType({})


class Candidates(NamedTuple):
    """What is known of brokers."""

    live: Mapping[int, int]
    """The incarnation of each live broker."""
    shutting_down: Collection[int] = ()
    """Live brokers that are about to end."""
    lossy: Collection[int] = ()
    """Live brokers that have restarted uncleanly: what they had may be lost."""
    previous: Mapping[int, Sequence[int]] = NO_EPOCHS
    """Of live brokers, the incarnations before theirs since which they have lost nothing."""
    suspected: Collection[int] = ()
    """Live brokers that do not answer: of several that may be elected one of the others is."""


class TopicRules(NamedTuple):
    """The settings of a topic that elections depend on."""

    min_isr: int = 1
    unclean: bool = False


def can_lead(replica: int, state: PartitionState, candidates: Candidates) -> bool:
    """Whether a replica that is in sync has all committed records and is to be elected."""
    return replica in candidates.live and replica not in candidates.shutting_down and replica not in _lost(state, candidates)


def is_settled(state: PartitionState, candidates: Candidates) -> bool:
    """Whether the leader and all in-sync replicas are live and stay: `elect` has nothing to do, unless by a floor or other settings."""
    live, shutting_down = candidates.live, candidates.shutting_down
    if live.get(state.leader) != state.leader_broker_epoch:
        return False
    for replica in state.isr:
        if replica not in live or replica in shutting_down:
            return False
    lost = _lost(state, candidates)
    return not (lost and any(replica in lost for replica in (*state.isr, *state.elr)))


def _lost(state: PartitionState, candidates: Candidates) -> Sequence[int]:
    """Live replicas that may have lost what they had when they were last known to be in sync; not a leader that was elected since."""
    if not candidates.lossy and not state.joined:  # most starts elect for all partitions so
        return ()
    live, previous = candidates.live, candidates.previous
    is_led = live.get(state.leader) == state.leader_broker_epoch and state.leader in state.isr
    joined = dict(state.joined)
    lost = [replica for replica in candidates.lossy if replica not in joined]
    lost += (replica for replica, epoch in state.joined if epoch not in (live.get(replica, epoch), *previous.get(replica, ())))
    return [replica for replica in lost if not (is_led and replica == state.leader)]


def elect(
    state: PartitionState,
    replicas: Sequence[int],
    candidates: Candidates,
    rules: TopicRules,
    controller_epoch: int,
    floor: int = 0,
    *,
    preferred: bool = False,
) -> PartitionState | None:
    """The state after an election, or None if nothing changes; always with a new epoch, after the last one and after the floor.

    `floor` is the latest epoch that a log of the partition knows. A leader that can stay does, and replicas that have ended, restarted
    uncleanly or are shutting down leave the in-sync set. With `preferred` only the first replica of the assignment is elected.
    """
    live, shutting_down = candidates.live, candidates.shutting_down
    if state.elr and len(state.isr) >= effective_minimum(rules.min_isr, replicas):
        state = state._replace(elr=(), last_known_elr=(*state.last_known_elr, *state.elr))
    is_led = live.get(state.leader) == state.leader_broker_epoch and state.leader in state.isr and state.leader in replicas
    lost = _lost(state, candidates)
    in_sync = [replica for replica in state.isr if replica in live and replica not in lost]
    can_lead = [replica for replica in replicas if replica in in_sync and replica not in shutting_down]
    if candidates.suspected:
        can_lead.sort(key=lambda replica: replica in candidates.suspected)
    leader = NO_LEADER
    if preferred:
        if can_lead[:1] != list(replicas[:1]) or (is_led and state.leader == replicas[0]):
            return None
        leader = can_lead[0]
    elif is_led and (state.leader not in shutting_down or not can_lead):
        leader = state.leader
    elif can_lead:
        leader = can_lead[0]
    if leader != NO_LEADER:
        isr = tuple(replica for replica in in_sync if replica == leader or replica not in shutting_down)
        elr, last_known_elr = _eligible(state, isr, lost, rules, replicas)
        if is_led and leader == state.leader and state.leader_epoch >= floor and (isr, elr) == (state.isr, state.elr):
            return None
    else:
        leader, isr, elr, last_known_elr = _without_in_sync(state, replicas, candidates, rules, lost, in_sync)
        if leader == NO_LEADER == state.leader and (isr, elr) == (state.isr, state.elr):
            return None
    epoch = max(state.leader_epoch, floor) + 1
    mirrored = state.is_mirror, state.cut
    return PartitionState(leader, epoch, isr, controller_epoch, live.get(leader, 0), elr, last_known_elr, (), *mirrored)


_Elected = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _without_in_sync(
    state: PartitionState,
    replicas: Sequence[int],
    candidates: Candidates,
    rules: TopicRules,
    lost: Collection[int],
    in_sync: Sequence[int],
) -> _Elected:
    """Leader, in-sync set and eligible replicas where no trusted in-sync replica can lead."""

    def alone(leader: int) -> _Elected:
        return leader, (leader,), *_eligible(state, (leader,), lost, rules, replicas)

    able = [replica for replica in replicas if replica in candidates.live and replica not in candidates.shutting_down]
    if candidates.suspected:
        able.sort(key=lambda replica: replica in candidates.suspected)
    eligible = tuple(replica for replica in state.elr if replica not in lost and replica in replicas)
    for replica in able:
        if replica in eligible:
            return alone(replica)
    if all(replica in lost or replica not in replicas for replica in (*state.isr, *eligible)):
        for replica in (state.leader, *able):
            if replica in able and replica in state.isr:
                return alone(replica)
    if rules.unclean and not in_sync:
        for replica in (state.leader, *state.last_known_elr, *able):
            if replica in able:
                return replica, (replica,), (), ()
    isr = tuple(replica for replica in state.isr if replica not in lost) or eligible or state.isr
    elr = tuple(replica for replica in eligible if replica not in isr)
    known = dict.fromkeys((*state.last_known_elr, *state.isr, *state.elr))
    return NO_LEADER, isr, elr, tuple(each for each in known if each not in isr and each not in elr and each in replicas)


def _eligible(
    state: PartitionState, isr: Sequence[int], lost: Collection[int], rules: TopicRules, replicas: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Eligible and last known eligible replicas when the in-sync set becomes `isr`: none where that has its minimum."""
    if len(isr) >= effective_minimum(rules.min_isr, replicas):
        return (), ()
    there = dict.fromkeys((*state.elr, *state.isr))
    elr = tuple(each for each in there if each not in isr and each not in lost and each in replicas)
    known = dict.fromkeys((*state.last_known_elr, *there))
    return elr, tuple(each for each in known if each not in isr and each not in elr and each in replicas)
