"""Whatever happens to a partition, each append is answered once, not before its level is reached, and with the right error.

The machine of the partition (`replicas/partition.py`) and its gate (`replicas/commit_gate.py`) run against plain lists: the records that
each of three replicas really has, the offsets at which followers have fetched in this epoch, and the appends that wait. This broker is
number 1; it leads, follows, loses its directory, is deleted. Each turn appends at every level, with writes that fail in the middle; syncs
end or fail; followers copy, fetch, are cut where they differ; in-sync sets shrink and grow; configurations change; time passes. After
every step:

* exactly the appends are resolved that the lists say, each with the result that they say: none early, none late, none twice;
* offsets are in order, and those of commits and readers never go back while the log is open and not cut;
* what is committed is in the log of every in-sync replica, and what was visible once is what is there now;
* a permission to append without asking is ended before the answer to the question changes.
"""

from math import inf
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.broker.replicas.commit_gate import CommitGate
from moldau.broker.replicas.partition import Partition
from moldau.broker.replicas.partition_events import (
    BecomeFollower,
    BecomeLeader,
    DirectoryFailed,
    EndPermits,
    FailAppends,
    LeadEpoch,
    LeaderHighWatermark,
    Level,
    LogTruncated,
    OpenedLogOffsets,
    PartitionEvent,
    ReplicaRole,
    ReplicaStopped,
    RulesChanged,
    ShowUpTo,
    StaleEpochError,
)
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.model.identity import TopicPartition
from support.sizes import sized

EXAMPLES = sized(50, 5000)
T0 = TopicPartition("t", 0)
REPLICAS = (1, 2, 3)
OTHERS = st.sampled_from((2, 3))
FEW = st.integers(0, 4)
MINIMA = st.sampled_from((1, 1, 1, 2, 2, 2, 3, 4))
SOME = st.integers(0, 9)
RARELY = st.sampled_from((False, False, False, True))
OPEN = ErrorCode.NONE


class Write(NamedTuple):
    """What a producer asks for: records in each batch, acknowledgement, whether `flush.messages` is reached."""

    batches: tuple[int, ...]
    acks: int
    flushes: bool
    timeout_s: int


WRITE = st.builds(
    Write,
    st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple),
    st.sampled_from((0, 1, -1, -1, -1)),
    st.booleans(),
    st.integers(2, 6),
)
WRITES = st.lists(WRITE, min_size=1, max_size=3)


class Append:
    """As the gate sees it."""

    def __init__(self, deadline_s: float, batches: int) -> None:
        self.deadline_s = deadline_s
        self.is_abandoned = False
        self.results: list[ErrorCode | None] = [None] * batches

    def resolve(self, place: int, error: PeerError | StorageError | None) -> None:
        assert self.results[place] is None, "resolved twice"
        self.results[place] = OPEN if error is None else error.code if isinstance(error, PeerError) else ErrorCode.KAFKA_STORAGE_ERROR


class Waiting(NamedTuple):
    """As the lists see it."""

    append: Append
    place: int
    last_offset: int
    level: Level


def shared(one: list[int], other: list[int]) -> int:
    """Length of the common prefix."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Gated(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0
        self.records = 0

    @initialize(minimum=MINIMA, shows_flushed=st.booleans(), isr=st.sampled_from(({2}, {3}, {2, 3})))
    def create_and_lead(self, minimum: int, shows_flushed: bool, isr: set[int]) -> None:
        self.create(minimum, shows_flushed)
        self.open_and_lead(1.0, True, isr)

    def create(self, minimum: int, shows_flushed: bool) -> None:
        self.partition = Partition(T0, 1, minimum, shows_flushed=shows_flushed)
        self.gate = CommitGate(T0)
        self.minimum, self.shows_flushed = minimum, shows_flushed
        self.log: list[int] = []
        self.others: dict[int, list[int]] = {2: [], 3: []}
        self.flushed = self.committed = self.visible = 0
        self.epoch = self.version = 0
        self.isr: tuple[int, ...] = ()
        self.fetched: dict[int, int] = {}
        """Offsets of fetches in this leader epoch."""
        self.waiting: list[Waiting] = []
        self.expected: list[tuple[Append, int, ErrorCode]] = []
        self.seen: list[int] = []
        self.true_committed = 0
        """Of all terms, whoever led."""
        self.permitted: tuple[bool, bool] | None = None
        self.leads = self.follows = False
        self.leader_id: int | None = None
        """The other broker that led last, until this one does."""

    # What a broker does around the machine.

    def step(self, event: PartitionEvent) -> list[str]:
        effects = self.partition.step(event)
        for effect in effects:
            match effect:
                case ShowUpTo(high_watermark):
                    assert high_watermark == self.partition.high_watermark
                    self.gate.open(self.partition)
                case FailAppends(error, level):
                    self.gate.fail(error, level)
                case LeadEpoch(epoch):
                    assert epoch == self.epoch
                case EndPermits():
                    self.permitted = None
                case _:
                    pass
        return [type(effect).__name__ for effect in effects]

    def moved(self, moved: bool) -> None:
        if moved:
            self.gate.open(self.partition)

    # What the lists say.

    @property
    def effective_minimum(self) -> int:
        return min(self.minimum, len(REPLICAS))

    def reached(self, level: Level) -> int:
        ends = [len(self.log)]
        if Level.FLUSHED in level:
            ends.append(self.flushed)
        if Level.REPLICATED in level:
            ends.append(self.committed)
        return min(ends)

    def advance(self) -> None:
        """Commit what the in-sync replicas have, and expect what waited for it."""
        ends = [len(self.log) if each == 1 else self.fetched.get(each, -1) for each in self.isr]
        if self.leads and len(self.isr) >= self.effective_minimum:
            self.committed = max(self.committed, min(ends))
        self.true_committed = max(self.true_committed, self.committed)
        self.expect(OPEN, [each for each in self.waiting if each.last_offset < self.reached(each.level)])

    def expect(self, code: ErrorCode, resolved: list[Waiting]) -> None:
        self.waiting = [each for each in self.waiting if each not in resolved]
        self.expected += [(each.append, each.place, code) for each in resolved]

    def expect_enough(self) -> None:
        if len(self.isr) < self.effective_minimum:
            self.expect(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, [each for each in self.waiting if Level.REPLICATED in each.level])

    def lead(self, epoch: int, isr: tuple[int, ...], opened: OpenedLogOffsets | None = None) -> list[str]:
        led = self.leads
        if epoch > self.epoch or not led:
            self.fetched.clear()
        else:
            for left in set(self.isr) - set(isr):
                self.fetched.pop(left, None)
        self.epoch, self.version, self.isr = epoch, self.version + 1, isr
        self.leads, self.follows, self.leader_id = True, False, None
        said = self.step(BecomeLeader(epoch, self.version, REPLICAS, isr, opened))
        self.advance()
        if led:
            self.expect_enough()
        return said

    def end(self, code: ErrorCode) -> None:
        self.expect(code, list(self.waiting))
        self.leads = self.follows = False
        self.isr = ()
        self.fetched.clear()

    # Roles.

    def opened(self, checkpointed: float) -> OpenedLogOffsets:
        """The log is whole, but its high watermark is that of the last checkpoint."""
        self.committed = self.visible = int(self.committed * checkpointed)
        return OpenedLogOffsets(len(self.log), self.flushed, self.committed)

    def has_committed(self) -> bool:
        """Whether this broker may be elected."""
        return self.leader_id is None or shared(self.log, self.others[self.leader_id]) >= self.true_committed

    def electable(self, others: set[int]) -> tuple[int, ...]:
        """This broker and those of `others` that have what is committed."""
        return (1, *sorted(each for each in others if shared(self.others[each], self.log) >= self.true_committed))

    @precondition(lambda self: not (self.leads or self.follows) and self.has_committed())
    @rule(checkpointed=st.floats(0, 1), later=st.booleans(), isr=st.sets(OTHERS))
    def open_and_lead(self, checkpointed: float, later: bool, isr: set[int]) -> None:
        epoch = self.epoch + (later or self.epoch == 0 or self.leader_id is not None)
        self.lead(epoch, self.electable(isr), self.opened(checkpointed))

    @precondition(lambda self: not (self.leads or self.follows))
    @rule(checkpointed=st.floats(0, 1), data=st.data())
    def open_and_follow(self, checkpointed: float, data: st.DataObject) -> None:
        if self.leader_id is None:
            others = self.electable({2, 3})[1:]
            if not others:
                return
            self.leader_id = data.draw(st.sampled_from(others))
            self.epoch, self.version = self.epoch + 1, self.version + 1
        self.follows = True
        assert self.step(BecomeFollower(self.epoch, self.version, REPLICAS, self.leader_id, self.opened(checkpointed))) == []

    @precondition(lambda self: self.leads)
    @rule(sure=RARELY)
    def lead_another_term(self, sure: bool) -> None:
        if sure:
            assert "LeadEpoch" in self.lead(self.epoch + 1, self.isr)

    @precondition(lambda self: self.leads and len(self.isr) > 1)
    @rule(data=st.data(), sure=st.booleans())
    def shrink(self, data: st.DataObject, sure: bool) -> None:
        if not sure:
            return
        left = data.draw(st.sampled_from(self.isr[1:]))
        self.lead(self.epoch, tuple(each for each in self.isr if each != left))

    @precondition(lambda self: self.leads)
    @rule(broker_id=OTHERS)
    def expand(self, broker_id: int) -> None:
        """As the leader proposes it: on a fetch in this epoch that has reached what is committed."""
        self.copy(broker_id, max(0, self.committed - shared(self.others[broker_id], self.log)))
        if broker_id not in self.isr and len(self.others[broker_id]) >= self.true_committed:
            self.fetch(broker_id)
            self.lead(self.epoch, (*self.isr, broker_id))

    @precondition(lambda self: self.leads)
    @rule(broker_id=OTHERS, noticed=st.booleans())
    def replace(self, broker_id: int, noticed: bool) -> None:
        """A replica out of sync is removed and added again, empty."""
        if broker_id in self.isr:
            return
        self.others[broker_id] = []
        if noticed:
            self.version += 1
            self.step(BecomeLeader(self.epoch, self.version, tuple(each for each in REPLICAS if each != broker_id), self.isr))
            self.fetched.pop(broker_id, None)
            if len(self.isr) >= min(self.minimum, 2):
                self.committed = max(self.committed, min(len(self.log) if each == 1 else self.fetched.get(each, -1) for each in self.isr))
            self.advance()
            self.expect_enough()
        self.lead(self.epoch, self.isr)

    @precondition(lambda self: self.leads and len(self.isr) > 1)
    @rule(data=st.data(), appended=FEW, copied=FEW, sure=RARELY)
    def another_leads(self, data: st.DataObject, appended: int, copied: int, sure: bool) -> None:
        if not sure:
            return
        leader_id = data.draw(st.sampled_from(self.isr[1:]))
        self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.follows = True
        self.epoch, self.version, self.leader_id = self.epoch + 1, self.version + 1, leader_id
        assert self.step(BecomeFollower(self.epoch, self.version, REPLICAS, leader_id)) == ["FailAppends", "WakeFetches", "EndPermits"]
        self.follow(appended, copied, True, 0)

    @precondition(lambda self: self.follows)
    @rule(appended=FEW, copied=FEW, in_sync=st.booleans(), late=FEW)
    def follow(self, appended: int, copied: int, in_sync: bool, late: int) -> None:
        """The leader appends; this broker is cut where they differ, copies, and receives what is committed."""
        assert self.leader_id is not None
        leader = self.others[self.leader_id]
        leader += self.numbered(appended)
        common = shared(self.log, leader)
        if common < len(self.log):
            assert self.committed <= common, "a committed record is cut"
            del self.log[common:]
            self.flushed = min(self.flushed, common)
            assert self.step(LogTruncated(common, 0)) == ["WakeFetches"]
        self.log += leader[common : common + copied]
        assert not self.partition.grew(len(self.log))
        self.true_committed = max(self.true_committed, min(len(self.log), len(leader)) if in_sync else len(leader))
        high_watermark = max(0, self.true_committed - late)
        self.committed = max(self.committed, min(high_watermark, len(self.log)))
        self.step(LeaderHighWatermark(high_watermark))

    @precondition(lambda self: self.follows and self.has_committed())
    @rule(isr=st.sets(OTHERS))
    def elected(self, isr: set[int]) -> None:
        said = self.lead(self.epoch + 1, self.electable(isr))
        assert (said[0], said[-2:]) == ("LeadEpoch", ["WakeFetches", "EndPermits"])

    @precondition(lambda self: self.leads or self.follows)
    @rule(sure=RARELY)
    def directory_fails(self, sure: bool) -> None:
        if not sure:
            return
        self.end(ErrorCode.KAFKA_STORAGE_ERROR)
        self.step(DirectoryFailed(StorageError("input/output error", path="/data/t-0")))

    @rule(minimum=MINIMA, shows_flushed=st.booleans(), sure=RARELY)
    def delete_and_create(self, minimum: int, shows_flushed: bool, sure: bool) -> None:
        if not sure:
            return
        self.end(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.step(ReplicaStopped(PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-0 is deleted")))
        self.results_are_as_expected()
        assert len(self.gate) == 0
        self.create(minimum, shows_flushed)

    @rule(minimum=MINIMA, shows_flushed=st.booleans())
    def configure(self, minimum: int, shows_flushed: bool) -> None:
        self.minimum, self.shows_flushed = minimum, shows_flushed
        self.step(RulesChanged(minimum, shows_flushed))
        self.advance()
        if self.leads:
            self.expect_enough()

    @precondition(lambda self: self.leads or self.follows)
    @rule(back=st.integers(0, 2), older=st.integers(0, 3), leader=st.booleans())
    def stale_state(self, back: int, older: int, leader: bool) -> None:
        other_role = leader == self.follows
        epoch, version = self.epoch - back, self.version + older if back or other_role else self.version - older
        with pytest.raises(StaleEpochError):
            self.step(BecomeLeader(epoch, version, REPLICAS, (1,)) if leader else BecomeFollower(epoch, version, REPLICAS, 3))

    # Appends.

    def numbered(self, count: int) -> list[int]:
        self.records += count
        return list(range(self.records - count, self.records))

    @rule(writes=WRITES)
    def produce(self, writes: list[Write]) -> None:
        self.turn(writes, None)

    @rule(writes=WRITES, counts=st.tuples(SOME, SOME))
    def produce_and_replicate(self, writes: list[Write], counts: tuple[int, int]) -> None:
        self.turn(writes, None)
        if self.leads:
            self.replicate(counts)

    @rule(writes=WRITES, written=FEW)
    def produce_to_a_failing_disk(self, writes: list[Write], written: int) -> None:
        self.turn(writes, written)

    def turn(self, writes: list[Write], fails_after: int | None) -> None:
        """Append, write once, and let wait what is not open: a write that fails leaves `fails_after` batches in the log."""
        staged: list[Waiting] = []
        end = len(self.log)
        for write in writes:
            refusal = self.refusal(write.acks)
            assert self.code_of(write.acks) is refusal
            if refusal is not None:
                continue
            append = Append(self.now_s + write.timeout_s if write.acks == -1 else inf, len(write.batches))
            level = Level.REPLICATED if write.acks == -1 and not self.partition.is_sole else Level.WRITTEN
            if write.flushes and write.acks != 0:
                level |= Level.FLUSHED
            for place, count in enumerate(write.batches):
                end += count
                staged.append(Waiting(append, place, end - 1, level))
        if not staged:
            return
        written = staged if fails_after is None else staged[:fails_after]
        if written:
            self.log += self.numbered(written[-1].last_offset + 1 - len(self.log))
        self.moved(self.partition.grew(len(self.log)))
        self.advance()
        for each in staged:
            if each not in written:
                each.append.resolve(each.place, StorageError("no space left", path="/data/t-0", no_space=True))
                self.expected.append((each.append, each.place, ErrorCode.KAFKA_STORAGE_ERROR))
            else:
                self.wait(each)

    def refusal(self, acks: int) -> ErrorCode | None:
        if not self.leads:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NOT_ENOUGH_REPLICAS if acks == -1 and len(self.isr) < self.effective_minimum else None

    def code_of(self, acks: int) -> ErrorCode | None:
        try:
            self.partition.check_acks(acks)
        except PeerError as error:
            return error.code
        return None

    def wait(self, waiting: Waiting) -> None:
        self.waiting.append(waiting)
        self.advance()
        if waiting.last_offset < self.partition.open_offset(waiting.level):
            waiting.append.resolve(waiting.place, None)
        else:
            self.gate.wait(waiting.level, waiting.last_offset, waiting.append, waiting.place)

    @precondition(lambda self: self.leads and self.log)
    @rule(data=st.data(), level=st.sampled_from((Level.FLUSHED, Level.REPLICATED, Level.FLUSHED | Level.REPLICATED)))
    def repeat(self, data: st.DataObject, level: Level) -> None:
        """An idempotent producer sends a batch again, which waits for where it is."""
        offset = data.draw(st.integers(max(0, len(self.log) - 6), len(self.log) - 1))
        self.wait(Waiting(Append(self.now_s + 3, 1), 0, offset, level))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        """A client goes; what it waited for may leave the gate at any time, or still be resolved."""
        append = data.draw(st.sampled_from(self.waiting)).append
        append.is_abandoned = True
        for _ in append.results:
            self.gate.abandoned()

    @rule(seconds=st.integers(1, 2))
    def time_passes(self, seconds: int) -> None:
        self.now_s += seconds
        self.expect(
            ErrorCode.REQUEST_TIMED_OUT,
            [each for each in self.waiting if Level.REPLICATED in each.level and each.append.deadline_s <= self.now_s],
        )
        if self.gate.deadline_s <= self.now_s:
            self.gate.expire(self.now_s)

    # The disk and the followers.

    @precondition(lambda self: (self.leads or self.follows) and self.flushed < len(self.log))
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.flushed = data.draw(st.integers(self.flushed + 1, len(self.log)))
        self.partition.flushed(self.flushed)
        self.gate.open(self.partition)
        self.advance()

    @precondition(lambda self: self.leads)
    @rule()
    def sync_fails(self) -> None:
        self.expect(ErrorCode.KAFKA_STORAGE_ERROR, [each for each in self.waiting if Level.FLUSHED in each.level])
        fail = [append for append, _, code in self.expected if code is ErrorCode.KAFKA_STORAGE_ERROR]
        assert any(not append.is_abandoned for append in fail) <= self.gate.waits_for_disk(0) <= bool(fail)
        self.gate.fail(StorageError("input/output error", path="/data/t-0"), Level.FLUSHED)

    @precondition(lambda self: self.leads)
    @rule(broker_id=OTHERS, count=FEW)
    def copy(self, broker_id: int, count: int) -> None:
        """A follower is cut where it differs and appends what it has fetched; its leader learns of it at the next fetch."""
        other = self.others[broker_id]
        common = shared(other, self.log)
        del other[common:]
        other += self.log[common : common + count]

    @precondition(lambda self: self.leads)
    @rule(broker_id=OTHERS, late=FEW)
    def fetch(self, broker_id: int, late: int = 0) -> None:
        """A fetch of records that differ is answered with the diverging epoch and does not reach the machine. One that arrives `late` asks
        for records that the follower has by now.
        """
        other = self.others[broker_id]
        if shared(other, self.log) == len(other):
            offset = max(0, len(other) - late)
            self.moved(self.partition.follower_fetched(broker_id, offset, self.epoch, self.now_s))
            self.fetched[broker_id] = offset
            self.advance()

    @precondition(lambda self: self.leads and self.waiting)
    @rule(counts=st.tuples(SOME, SOME))
    def replicate(self, counts: tuple[int, int]) -> None:
        """What lets appends pass one by one."""
        for broker_id, count in zip((2, 3), counts, strict=True):
            self.copy(broker_id, count)
            self.fetch(broker_id)

    @rule(broker_id=st.integers(1, 4), epoch=st.integers(-1, 1), beyond=st.integers(-1, 1))
    def wrong_fetch(self, broker_id: int, epoch: int, beyond: int) -> None:
        offset = len(self.log) + beyond
        if not self.leads or broker_id in (1, 4):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif epoch != 0:
            code = ErrorCode.FENCED_LEADER_EPOCH if epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
        elif not 0 <= offset <= len(self.log):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            return
        with pytest.raises(PeerError) as raised:
            self.partition.follower_fetched(broker_id, offset, self.epoch + epoch, self.now_s)
        assert raised.value.code is code

    @precondition(lambda self: self.leads)
    @rule()
    def permit(self) -> None:
        self.permitted = self.partition.is_sole, self.code_of(-1) is None

    # After every step.

    @invariant()
    def results_are_as_expected(self) -> None:
        for append, place, code in self.expected:
            assert append.results[place] is code or (append.is_abandoned and append.results[place] is None)
        self.expected.clear()
        for each in self.waiting:
            assert each.append.results[each.place] is None, "resolved early, or with an error that nothing explains"
        assert sum(not each.append.is_abandoned for each in self.waiting) <= len(self.gate) <= len(self.waiting)

    @invariant()
    def offsets_are_in_order_and_do_not_go_back(self) -> None:
        partition = self.partition
        assert partition.log_end_offset == len(self.log) or not (self.leads or self.follows)
        assert 0 <= partition.high_watermark <= partition.committed_offset <= partition.log_end_offset
        assert partition.flushed_offset <= partition.log_end_offset
        assert self.visible <= partition.high_watermark
        if self.leads or self.follows:
            assert (partition.committed_offset, partition.flushed_offset) == (self.committed, self.flushed)
            if self.leads:
                shown = min(self.committed, self.flushed) if self.shows_flushed else self.committed
                assert partition.high_watermark == max(self.visible, shown)
            self.visible = partition.high_watermark

    @invariant()
    def what_is_committed_is_on_every_replica_in_sync(self) -> None:
        for broker_id in self.isr:
            if broker_id != 1:
                assert shared(self.log, self.others[broker_id]) >= self.partition.committed_offset

    @invariant()
    def what_was_visible_is_what_is_there(self) -> None:
        visible = self.log[: self.partition.high_watermark]
        assert shared(self.seen, visible) == min(len(self.seen), len(visible))
        if len(visible) > len(self.seen):
            self.seen = visible

    @invariant()
    def a_permission_holds_as_long_as_it_is_not_ended(self) -> None:
        assert self.permitted in (None, (self.partition.is_sole, self.code_of(-1) is None))

    @invariant()
    def only_a_leader_has_progress_and_appends_that_wait(self) -> None:
        assert self.leads == (self.partition.role is ReplicaRole.LEADER)
        assert {each: progress.log_end_offset for each, progress in self.partition.followers.items()} == self.fetched
        assert self.leads or not self.waiting


TestGateAgainstList = Gated.TestCase
TestGateAgainstList.settings = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None)
