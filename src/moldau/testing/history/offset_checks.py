"""Groups' offsets and looked-up offsets: A11, A13."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import accumulate
from math import inf

from moldau.testing.history.evidence import SEEN_COMMITTED, Evidence
from moldau.testing.history.history import NONE, EndSeen, OffsetCommit, OffsetSeen, Outcome
from moldau.testing.history.kinds import Anomaly, Kind

_Reach = tuple[float, int, int, bool]
"""From a time on, a partition is known to hold an offset; or, if True, a power cut left it nothing after the offset."""
LEARNS_S = 2.0
"""After brokers reach one another again, a deposed leader may answer for so long."""


@dataclass(slots=True)
class _Effect:
    """A commit with what is proved of it: it took effect between `begun` and `ended` (inf: some time, or never)."""

    commit: OffsetCommit
    outcome: Outcome
    ended: float


@dataclass(slots=True)
class _Register:
    """All commits of one group and partition."""

    by_offset: dict[int, list[_Effect]] = field(default_factory=dict)
    acknowledged: list[tuple[float, float, int]] = field(default_factory=list)
    """(ended, begun, offset) of those that took effect for certain."""
    youngest_begin: list[float] = field(default_factory=list)
    """At the same place: the latest begin of any up to there."""

    def acknowledged_before(self, at: float) -> tuple[float, int]:
        """Of those that ended before `at`: the latest begin, and the offset of the last to end; (-inf, NONE) if there is none."""
        place = bisect_left(self.acknowledged, (at,))
        return (self.youngest_begin[place - 1], self.acknowledged[place - 1][2]) if place else (-inf, NONE)


def check_group_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    """A11: a group's offset is that of a commit which no other one, begun after its end, had replaced before the look.

    So a commit that was acknowledged is seen by everyone who looks afterwards, until another one is made; moving backward is legal only
    by a commit of a lower offset, or by a power cut that lost offsets of the group after the commit began.
    """
    registers = _registers(evidence)
    for sight in evidence.history.offsets_seen:
        register = registers.get((sight.group, sight.partition), _Register())
        replaced, latest = register.acknowledged_before(sight.begun)
        if replaced <= evidence.losses.group_since(sight.group, sight.ended):
            replaced, latest = -inf, NONE
        where = f"group {sight.group}, {evidence.name(sight.partition)}, looked up {sight.begun:.3f}-{sight.ended:.3f} s"
        if sight.offset == NONE:
            if latest != NONE:
                yield Anomaly(Kind.OFFSET_VANISHED, f"{where}: none, after {latest} was committed")
            continue
        effects = register.by_offset.get(sight.offset, [])
        possible = [each for each in effects if each.outcome != Outcome.FAILED and each.commit.begun <= sight.ended]
        if not possible:
            yield _nowhere(sight, where, latest, effects)
        elif all(each.ended < replaced for each in possible):
            yield Anomaly(Kind.OFFSET_WENT_BACK, f"{where}: {sight.offset}, after {latest} was committed")


def check_stale_commits(evidence: Evidence) -> Iterator[Anomaly]:
    """A11: in a group that goes only forward no member gets OK for an older offset than one that was acknowledged before."""
    for (group, partition), register in _registers(evidence).items():
        if group not in evidence.history.forward_groups:
            continue
        passed = sorted((ended, started, offset) for ended, started, offset in register.acknowledged)
        furthest = list(accumulate((offset for _, _, offset in passed), max))
        for ended, begun, offset in register.acknowledged:
            place = bisect_left(passed, (begun,))
            if place and furthest[place - 1] > offset and not _was_lost(evidence, group, passed[:place], offset, ended):
                where = f"group {group}, {evidence.name(partition)}, {begun:.3f}-{ended:.3f} s"
                yield Anomaly(Kind.STALE_COMMIT, f"{where}: {offset} was taken after {furthest[place - 1]} had been")


def _was_lost(evidence: Evidence, group: str, passed: list[tuple[float, float, int]], offset: int, at: float) -> bool:
    """Whether a power cut up to a time may have lost all commits after `offset` among these."""
    since = evidence.losses.group_since(group, at)
    return all(started <= since for _, started, other in passed if other > offset)


def _nowhere(sight: OffsetSeen, where: str, latest: int, effects: list[_Effect]) -> Anomaly:
    if effects:
        failed = effects[-1].commit
        how = (
            f"transaction {failed.transaction}, which did not commit"
            if failed.transaction != NONE
            else "a commit that failed or came later"
        )
        return Anomaly(Kind.OFFSET_FROM_NOWHERE, f"{where}: {sight.offset} is of {how}; {latest} was committed")
    kind = Kind.SPURIOUS_OFFSET if sight.offset <= 0 else Kind.OFFSET_FROM_NOWHERE
    return Anomaly(kind, f"{where}: {sight.offset}, which no member committed; {latest} was")


def _registers(evidence: Evidence) -> dict[tuple[str, int], _Register]:
    registers: dict[tuple[str, int], _Register] = {}
    for commit in evidence.history.offset_commits:
        register = registers.setdefault((commit.group, commit.partition), _Register())
        effect = _Effect(commit, commit.reported, commit.ended if commit.reported == Outcome.OK else inf)
        if commit.transaction != NONE:
            effect.outcome = evidence.transaction_outcome[commit.transaction]
            effect.ended = evidence.transaction_known_at[commit.transaction]
        register.by_offset.setdefault(commit.offset, []).append(effect)
        if effect.outcome == Outcome.OK and effect.ended != inf:
            insort(register.acknowledged, (effect.ended, commit.begun, commit.offset))
    for register in registers.values():
        youngest = -inf
        for _, begun, _ in register.acknowledged:
            youngest = max(youngest, begun)
            register.youngest_begin.append(youngest)
    return registers


def check_ends(evidence: Evidence) -> Iterator[Anomaly]:
    """A13: the end of a partition is after everything that was acknowledged (committed: polled by read_committed) before the look-up.

    And was not lost in a power cut before the look-up's end. While brokers are cut off from one another, and until a deposed leader has
    learnt of it, its answer counts: it has the end of when that began, or a later one.
    """
    history = evidence.history
    cuts = sorted((outage.begun, outage.ended + LEARNS_S) for outage in history.outages if outage.cut)

    def as_of(sight: EndSeen) -> EndSeen:
        begun = min((start for start, end in cuts if start <= sight.ended and sight.begun <= end), default=sight.begun)
        return replace(sight, begun=min(begun, sight.begun))

    for committed in (False, True):
        sights = sorted((as_of(sight) for sight in history.ends_seen if sight.committed == committed), key=lambda sight: sight.begun)
        if sights:
            yield from _check_ends(evidence, sights, _polled(evidence) if committed else _acknowledged(evidence))


def _check_ends(evidence: Evidence, sights: list[EndSeen], known: Iterable[_Reach]) -> Iterator[Anomaly]:
    """`sights` and `known` in the order of time."""
    reached: dict[int, int] = {}
    losses = sorted(evidence.history.losses, key=lambda loss: loss.at)
    cuts = [(loss.at, loss.partition, loss.from_offset - 1, True) for loss in losses]
    ahead = merge(cuts, known, key=lambda reach: reach[0])
    entry = next(ahead, None)
    for sight in sights:
        while entry is not None and entry[0] < sight.begun:
            _, partition, offset, is_cut = entry
            before = reached.get(partition, NONE)
            reached[partition] = min(offset, before) if is_cut else max(offset, before)
            entry = next(ahead, None)
        during = (loss.from_offset for loss in evidence.losses.of(sight.partition) if sight.begun <= loss.at <= sight.ended)
        least = min([reached.get(sight.partition, NONE) + 1, *during])
        if sight.offset < least:
            which = "committed end" if sight.committed else "end"
            where = f"{which} of {evidence.name(sight.partition)}, looked up until {sight.ended:.3f} s"
            yield Anomaly(Kind.SPURIOUS_OFFSET, f"{where}: {sight.offset}, but offset {least - 1} was known at {sight.begun:.3f} s")


def _acknowledged(evidence: Evidence) -> Iterator[_Reach]:
    sends, producers = evidence.history.sends, evidence.history.producers
    values = [value for value, outcome in enumerate(sends.outcome) if outcome == Outcome.OK and producers[sends.producer[value]].durable]
    values.sort(key=sends.ended.__getitem__)
    for value in values:
        partition, offset, ended = sends.partition[value], sends.offset[value], sends.ended[value]
        place = evidence.losses.removal(partition, offset, sends.begun[value])
        if offset < evidence.offsets_limit and (place == NONE or ended <= evidence.losses.of(partition)[place].at):
            yield ended, partition, offset, False


def _polled(evidence: Evidence) -> list[_Reach]:
    """Only the first sight of each value: nothing later raises what is known."""
    found = []
    unseen = bytearray(flags & SEEN_COMMITTED for flags in evidence.seen)
    for reader in evidence.history.readers:
        columns = (reader.partition, reader.offset, reader.value, reader.epoch, reader.poll)
        for partition, offset, value, epoch, poll in zip(*columns, strict=True) if reader.committed else ():
            if poll == NONE or not 0 <= value < len(unseen) or not unseen[value] or offset >= evidence.offsets_limit:
                continue
            unseen[value] = 0
            place = evidence.losses.removal(partition, offset, evidence.history.sends.begun[value], epoch)
            if place == NONE or reader.poll_ended[poll] <= evidence.losses.of(partition)[place].at:
                found.append((reader.poll_ended[poll], partition, offset, False))
    found.sort()
    return found
