"""A process keeps to what was ordered, about the partitions of the order alone, and reports how each of its partitions stands.

The clusters are in memory; the engine, a merge or a copy in the product, only notes what it has.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from moldau.client.partition_requests import LATEST
from moldau.mirror.control import FORGET_MS, Control, Hooks, share_of
from moldau.mirror.fetched import Fetched
from moldau.mirror.inventory import Inventory, Problem
from moldau.mirror.measures import Measures
from moldau.mirror.naming import SourceTopic
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.patterns import parse_pattern
from moldau.mirror.retries import Retries, Retry
from moldau.mirror.selection import Action, Change
from moldau.mirror.source import SourceReader
from moldau.mirror.state.board import Board, process_key
from moldau.mirror.state.orders import Accepted, Pause, Scope, accepted_record, change_record, pause_record
from moldau.mirror.state.reports import WHOLE_TOPIC, OsProcess, Process, Row, State, chunks_of, process_value
from moldau.mirror.state.topic import KeyValue
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from support.mirror_clusters import MirrorClusters, run

ID = b"i" * 16
O0, O1 = (SourcePartition("east", ID, "orders", number) for number in (0, 1))
C0 = SourcePartition("east", ID, "clicks", 0)
PAUSE = Pause("ann", 77)


class Engine:
    """What stands in for a merge or a copy."""

    def __init__(self, clusters: MirrorClusters) -> None:
        self.retries = Retries(clusters.clock)
        self.has: dict[SourcePartition, Position] = {}
        self.given: list[list[SourcePartition]] = []
        self.failing: dict[SourcePartition, Retry] = {}

    async def give(self, partitions: Sequence[SourcePartition]) -> None:
        self.given.append(list(partitions))
        self.has |= dict.fromkeys(partitions, Position(0))

    async def take_away(self, partitions: Iterable[SourcePartition]) -> None:
        for each in partitions:
            self.has.pop(each, None)

    def written(self) -> dict[SourcePartition, Position]:
        return dict(self.has)

    def retry(self, partition: SourcePartition) -> Retry | None:
        return self.failing.get(partition)

    def take(self, partition: SourcePartition, fetched: Fetched) -> bool:
        return True

    def halt(self, partition: SourcePartition, why: Halt, reason: str) -> None:
        pass


class Subject:
    """A control, and what is around it."""

    def __init__(self, clusters: MirrorClusters, instance: str = "1") -> None:
        self.clusters = clusters
        plan = clusters.merge()
        self.engine = Engine(clusters)
        self.target = clusters.target.connect()
        self.inventory = Inventory(plan, self.target, {"east": clusters.source.brokers}, clusters.clock)
        self.measures = Measures(self.engine, clusters.clock, committed=True)
        self.may_fetch = asyncio.Event()
        self.may_fetch.set()
        source, clock = clusters.source.connect(), clusters.clock
        self.reader = SourceReader("east", source, clock, self.measures, self.may_fetch, committed=True, verifies=True)
        self.looks = 0
        hooks = Hooks(self.engine.give, self.look, lambda: 7, lambda: 42, lambda: "", lambda: None)
        readers = {"east": self.reader}
        self.control = Control(
            plan, instance, self.target, self.inventory, readers, self.engine, self.measures, clock, hooks, OsProcess("here", 4711)
        )

    def look(self) -> None:
        self.looks += 1

    def states(self) -> dict[str, State]:
        return {row.name: row.state for row in self.control.rows()}

    async def order(self, *records: KeyValue) -> None:
        """Write orders, and wait until they have been read."""
        await self.clusters.target.state(*records)
        await asyncio.sleep(2.0)

    async def reported(self) -> Board:
        """What the topic has."""
        async with self.clusters.operator(self.clusters.merge()) as operator:
            return await operator.board()


def story(tell: Callable[[Subject], Any]) -> None:
    """With a control that runs, and has three partitions."""

    async def told(clusters: MirrorClusters) -> None:
        subject = Subject(clusters)
        await subject.control.prepare()
        running = asyncio.ensure_future(subject.control.run())
        await subject.control.assign([O0, O1, C0])
        await tell(subject)
        assert not running.done()
        running.cancel()
        await subject.reader.close()

    run(told)


def test_a_pause_takes_its_partitions_away_and_its_end_gives_them_back() -> None:
    """Claim: the others stay with the engine as they are, whether a partition, a topic or the mirror is paused."""

    async def tell(subject: Subject) -> None:
        given = subject.engine.given
        assert given == [[O0, O1, C0]]
        for scope, left in ((Scope("orders", 1), [O0, C0]), (Scope("orders"), [C0]), (Scope(), [])):
            await subject.order(pause_record("m", scope, PAUSE))
            assert list(subject.engine.has) == left
        assert set(subject.states().values()) == {State.PAUSED}
        (row,) = [row for row in subject.control.rows() if row.name == "orders-1"]
        assert (row.reason, row.since_ms) == ("the mirror is paused by ann", 77), "the widest pause, and when it began"
        assert len(given) == 1
        await subject.order(pause_record("m", Scope(), None))
        assert given[1:] == [[C0]]
        await subject.order(pause_record("m", Scope("orders"), None), pause_record("m", Scope("orders", 1), None))
        assert given[2:] == [[O0, O1]]

    story(tell)


def test_topics_are_removed_and_added_at_run_time() -> None:
    """Claim: what is removed is taken away and is in no report; the process looks at the topics of the clusters at once."""

    async def tell(subject: Subject) -> None:
        remove = Change(Action.REMOVE, parse_pattern("click."))
        await subject.order(change_record("m", remove, "ann", 1))
        assert (list(subject.engine.has), subject.looks) == ([O0, O1], 1)
        assert set(subject.states()) == {"orders-0", "orders-1"}
        assert not subject.inventory.selection.selects("clicks")
        await subject.order(change_record("m", remove, "ann", 2))
        assert subject.looks == 1, "nothing else is selected"
        await subject.order(change_record("m", Change(Action.ADD, parse_pattern("clicks")), "ann", 3))
        assert (subject.engine.given[1:], subject.looks) == ([[C0]], 2)

    story(tell)


def test_a_partition_that_has_halted_is_given_again_when_it_is_resumed() -> None:
    """Claim: until then the engine keeps what it has of it; no other partition is touched."""

    async def tell(subject: Subject) -> None:
        subject.control.halt(O0, Halt.TRUNCATED, "the log ends at 3")
        await subject.order(pause_record("m", Scope("clicks"), None))
        assert (subject.engine.given, list(subject.engine.has)) == ([[O0, O1, C0]], [O0, O1, C0])
        assert subject.states() == {"orders-0": State.TRUNCATED, "orders-1": State.STARTING, "clicks-0": State.STARTING}
        await subject.order(pause_record("m", Scope("orders"), None))
        assert subject.engine.given[1:] == [[O0]]

    story(tell)


def test_what_was_resumed_is_reported_as_halted_until_its_source_has_answered() -> None:
    """Claim: an operator who resumes and then accepts what it was halted for can do so while it is tried again."""

    async def tell(subject: Subject) -> None:
        def row() -> Row:
            (found,) = [row for row in subject.control.rows() if row.name == "orders-0"]
            return found

        nothing = Fetched([], memoryview(b""), (), Position(0), 9, 9, 0)
        subject.reader.follow(O0, Position(0))
        subject.measures.take(O0, nothing)
        subject.control.halt(O0, Halt.RECREATED, "another id")
        halted = row()
        await subject.order(pause_record("m", Scope("orders"), None))
        assert O0 not in subject.control.halted
        assert (row().state, row().reason, row().since_ms) == (State.RECREATED, "another id", halted.since_ms)
        subject.measures.take(O0, nothing)
        assert not row().state.is_halted

        # the same is found again, and accepted
        subject.control.halt(O0, Halt.RECREATED, "another id")
        await subject.order(pause_record("m", Scope("orders"), None))
        await subject.order(accepted(O0))
        assert not row().state.is_halted

    story(tell)


def accepted(partition: SourcePartition, *, number: int | None = None, topic_id: bytes = ID, offset: int = 5) -> KeyValue:
    where = partition.number if number is None else number
    return accepted_record("m", Accepted(partition.source, partition.topic, where, topic_id, offset, "ann", 1))


def test_what_is_accepted_continues_with_the_topic_id_of_the_decision() -> None:
    """Claim: a gap is accepted in the same topic; a topic that was made again is another partition from then on."""

    async def tell(subject: Subject) -> None:
        control, other = subject.control, O1._replace(topic_id=b"o" * 16)
        for each, why in ((O0, Halt.OUT_OF_RETENTION), (O1, Halt.RECREATED)):
            control.halt(each, why, "")
        assert control.accepted_offset(O0) == 0
        await subject.order(accepted(O0))
        assert (subject.engine.given[1:], control.accepted_offset(O0)) == ([[O0]], 5)
        assert list(control.halted) == [O1]
        await subject.order(accepted(O1, topic_id=other.topic_id, offset=0))
        assert (subject.engine.given[2:], control.halted) == ([[other]], {})
        assert O1 not in subject.engine.has
        assert control.partitions[share_of(O1)] == other
        assert [subject.measures.of(each) is None for each in (O1, other)] == [True, False]
        assert control.accepted_offset(O1) == 0, "it was accepted for another topic"

    story(tell)


def test_an_accepted_deletion_is_forgotten_and_other_decisions_change_nothing_here() -> None:
    async def tell(subject: Subject) -> None:
        gone = SourceTopic("east", "gone")
        subject.inventory.remember(gone, ID)
        subject.inventory.problems[gone] = Problem(Halt.DELETED, "topic id does not exist any more", ID)
        assert subject.states()["gone"] is State.DELETED
        elsewhere = SourcePartition("east", ID, "gone", 9)
        await subject.order(accepted(elsewhere), accepted(elsewhere, number=WHOLE_TOPIC, topic_id=b"x" * 16))
        assert "gone" in subject.states(), "that decision was about another topic of the name"
        await subject.order(accepted(elsewhere, number=WHOLE_TOPIC))
        assert "gone" not in subject.states()
        assert subject.engine.given == [[O0, O1, C0]]

    story(tell)


def test_orders_of_before_the_start_are_in_force_and_those_that_are_over_are_not() -> None:
    """Claim: pauses and changes last; a resume, a record that cannot be read and another mirror's order do nothing."""

    async def told(clusters: MirrorClusters) -> None:
        await clusters.target.state(
            pause_record("m", Scope("orders", 0), PAUSE),
            pause_record("m", Scope("clicks"), PAUSE),
            pause_record("m", Scope("clicks"), None),
            (b"neither JSON nor ours", b"?"),
            (b'{"mirror":"m","pause":["orders"]}', b"[]"),
            pause_record("other", Scope(), PAUSE),
            change_record("m", Change(Action.ADD, parse_pattern("web")), "ann", 1),
            accepted(O1),
        )
        subject = Subject(clusters)
        await subject.control.prepare()
        assert subject.inventory.selection.selects("web")
        await subject.control.assign([O0, O1, C0])
        assert subject.engine.given == [[O1, C0]]
        assert subject.control.accepted_offset(O1) == 5
        await subject.reader.close()

    run(told)


def test_a_failure_in_the_middle_of_reading_the_orders_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: what was read before the failure is read again when the process prepares again."""

    async def told(clusters: MirrorClusters) -> None:
        await clusters.target.state(pause_record("m", Scope("orders"), PAUSE))
        subject = Subject(clusters)
        tail = subject.control._tail
        read, calls = tail.read, list[float]()

        async def fails_once(wait_s: float) -> Any:
            calls.append(wait_s)
            if len(calls) == 2:
                raise PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere")
            found = await read(wait_s)
            if len(calls) == 1:  # there is more than one response has
                await clusters.target.state(pause_record("m", Scope("clicks"), PAUSE))
            return found

        async def later_end(_brokers: object, _partition: object, time: int) -> int:
            return 2 if time == LATEST else 0

        monkeypatch.setattr(tail, "read", fails_once)
        monkeypatch.setattr("moldau.mirror.state.topic.list_offset", later_end)
        with pytest.raises(PeerError, match="elsewhere"):
            await subject.control.prepare()
        monkeypatch.undo()
        await subject.control.prepare()
        await subject.control.assign([O0, C0])
        assert subject.engine.given == []
        await subject.reader.close()

    run(told)


def test_each_state_has_its_reason_and_lasts_since_it_began() -> None:
    """Claim: a halt is shown before a pause, a pause before a retry; the engine's retry before the reader's."""

    async def tell(subject: Subject) -> None:
        control, engine, clock = subject.control, subject.engine, subject.clusters.clock

        def row() -> Row:
            (found,) = [row for row in control.rows() if row.name == "orders-0"]
            return found

        first = row()
        assert (first.state, first.reason, first.since_ms) == (State.STARTING, "", clock.time_ms())
        await asyncio.sleep(1.0)
        assert row().since_ms == first.since_ms
        subject.reader.follow(O0, Position(0))
        mirroring = row()
        assert (mirroring.state, mirroring.since_ms) == (State.MIRRORING, clock.time_ms())
        subject.reader.retries.failed(O0.topic_partition, "no leader")
        assert (row().state, row().reason) == (State.RETRYING, "no leader")
        subject.measures.take(O0, Fetched([], memoryview(b""), (), Position(0), 9, 9, 0))
        subject.measures.sample({O0: Position(0)})
        assert (row().position, row().lag_records, row().lag_bytes) == (0, None, None), "where the source ends now is not known"
        engine.failing[O0] = Retry("fenced", 5)
        assert (row().state, row().reason, row().since_ms) == (State.RETRYING, "fenced", 5)
        await subject.order(pause_record("m", Scope("orders", 0), PAUSE))
        assert (row().state, row().reason) == (State.PAUSED, "partition orders-0 is paused by ann")
        for why in Halt:
            control.halt(O0, why, f"{why.value}!")
            assert (row().state, row().reason, row().state.is_halted) == (State.of(why), f"{why.value}!", True)

    story(tell)


def test_a_partition_that_was_revoked_is_as_new_when_it_comes_back() -> None:
    """Claim: nothing of it is with the engine when `revoke` returns, and neither its halt nor its numbers stay."""

    async def tell(subject: Subject) -> None:
        control = subject.control
        control.halt(O0, Halt.POISONED, "?")
        await control.revoke([share_of(O0), share_of(C0), share_of(O0._replace(number=9))])
        assert (list(subject.engine.has), list(control.partitions.values())) == ([O1], [O1])
        assert [subject.measures.of(each) is None for each in (O0, O1, C0)] == [True, False, True]
        await control.assign([O0])
        assert (subject.engine.given[1:], control.halted) == ([[O0]], {})

    story(tell)


def report_of(instance: str, at_ms: int, *rows: Row, ended: bool = False) -> list[KeyValue]:
    """What a process has written."""
    chunks = chunks_of(rows)
    process = Process(instance, at_ms, 0, "host", 1, len(chunks), 1, 0, 0, "", ended)
    records: list[KeyValue] = [(process_key("m", instance, number), chunk) for number, chunk in enumerate(chunks)]
    return [*records, (process_key("m", instance), process_value(process))]


def test_a_partition_begins_with_what_was_reported_of_it_last() -> None:
    async def told(clusters: MirrorClusters) -> None:
        now_ms = clusters.clock.time_ms()
        row = Row("east", "orders", ID, 0, State.MIRRORING, position=10, end=30, newest_ms=99)
        await clusters.target.state(
            *report_of("a", now_ms - 10, row),
            *report_of("b", now_ms - 20, row._replace(position=5), Row("east", "orders", ID, 1, State.STARTING)),
            *report_of("c", now_ms, row._replace(topic_id=b"o" * 16, position=1)),
        )
        subject = Subject(clusters)
        await subject.control.prepare()
        await subject.control.assign([O0, O1])
        rows = {row.name: row for row in subject.control.rows()}
        assert (rows["orders-0"].position, rows["orders-0"].lag_records, rows["orders-0"].newest_ms) == (10, None, 99), "not looked at yet"
        subject.measures.take(O0, Fetched([], memoryview(b""), (), Position(10), 30, 30, 0))
        assert [row.lag_records for row in subject.control.rows() if row.name == "orders-0"] == [20]
        assert rows["orders-1"].position is None
        await subject.reader.close()

    run(told)


def test_topics_that_any_process_has_mirrored_are_remembered_as_the_newest_report_has_them() -> None:
    """Claim: a topic that disappears while no process runs is noticed; one whose deletion was accepted only if it came back since."""

    async def told(clusters: MirrorClusters) -> None:
        now_ms, new = clusters.clock.time_ms(), b"n" * 16
        old_row, gone = Row("east", "orders", ID, 0, State.MIRRORING), Row("east", "clicks", ID, 0, State.MIRRORING)
        denied, promoted = (Row("east", f"orders.{state.value}", ID, WHOLE_TOPIC, state) for state in (State.DENIED, State.PROMOTED))
        await clusters.target.state(
            *report_of("old", now_ms - 50, old_row, gone),
            *report_of("new", now_ms - 10, old_row._replace(topic_id=new), denied, promoted),
            accepted(O0, number=WHOLE_TOPIC),
            accepted(C0, number=WHOLE_TOPIC),
        )
        subject = Subject(clusters)
        await subject.control.prepare()
        assert subject.inventory._mirrored == {SourceTopic("east", "orders"): new, SourceTopic("east", "orders.promoted"): ID}
        await subject.reader.close()

    run(told)


def test_reports_have_all_rows_and_the_last_one_leaves_them() -> None:
    """Claim: a report follows every few seconds; the last one says that the process has ended."""

    async def tell(subject: Subject) -> None:
        control = subject.control
        await asyncio.sleep(1.0)
        first = (await subject.reported()).processes["1"]
        assert (first.generation, first.transactions, first.started_ms > 0, first.ended) == (7, 42, True, False)
        await asyncio.sleep(4.0)
        board = await subject.reported()
        assert board.processes["1"].at_ms - first.at_ms == pytest.approx(3_000, abs=1_000)
        assert {row.name for row in board.rows("1")} == {"orders-0", "orders-1", "clicks-0"}
        await control.revoke([share_of(each) for each in (O0, O1, C0)])
        await control.close()
        board = await subject.reported()
        assert board.processes["1"].ended
        assert {row.name for row in board.rows("1")} == {"orders-0", "orders-1", "clicks-0"}, "what was known before it ended"

    story(tell)


def many_halted(control: Control) -> list[SourcePartition]:
    """Partitions whose rows need several records."""
    many = [O0._replace(number=number) for number in range(3_000)]
    for each in many:
        control.halt(each, Halt.REFUSED, "x" * 100)
    return many


def test_a_report_with_fewer_rows_removes_the_records_that_it_needs_no_more() -> None:
    async def told(clusters: MirrorClusters) -> None:
        subject = Subject(clusters)
        control, many = subject.control, many_halted(subject.control)
        await control.prepare()
        await control.assign(many)
        await control._publish()
        board = await subject.reported()
        chunks = board.processes["1"].chunks
        assert chunks > 2
        assert (board.chunks("1"), len(board.rows("1"))) == ([*range(chunks)], 3_000)
        successor = Subject(clusters)
        await successor.control.prepare()
        await successor.control.assign(many[:1])
        await successor.control._publish()
        board = await subject.reported()
        assert (board.processes["1"].chunks, board.chunks("1"), len(board.rows("1"))) == (1, [0], 1), "also after a restart"
        for each in (subject, successor):
            await each.reader.close()

    run(told)


def test_a_report_that_failed_leaves_no_record_that_is_never_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: where a report failed the next one removes what it would have removed; the last one has the rows of the one that succeeded."""

    async def told(clusters: MirrorClusters) -> None:
        subject = Subject(clusters)
        control, many = subject.control, many_halted(subject.control)
        await control.prepare()
        await control.assign(many)
        await control._publish()
        before = (await subject.reported()).processes["1"].chunks
        assert before > 2
        await control.revoke([share_of(each) for each in many[1:]])

        async def fails(*_: object) -> None:
            raise PeerError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")

        with monkeypatch.context() as patch:
            patch.setattr("moldau.mirror.state.reporter.append", fails)
            with pytest.raises(PeerError):
                await control._publish()
        await control.close()
        board = await subject.reported()
        assert (board.processes["1"].chunks, len(board.rows("1"))) == (before, 3_000)
        await control._publish()
        assert (await subject.reported()).chunks("1") == [0]
        await subject.reader.close()

    run(told)


def test_what_a_process_has_not_reported_for_a_week_is_removed_by_another_one_that_starts() -> None:
    async def told(clusters: MirrorClusters) -> None:
        now_ms, row = clusters.clock.time_ms(), Row("east", "orders", ID, 0, State.MIRRORING)
        await clusters.target.state(
            *report_of("1", now_ms - FORGET_MS - 1, row),
            *report_of("old", now_ms - FORGET_MS - 1, row),
            *report_of("younger", now_ms - FORGET_MS + 60_000, row),
        )
        subject = Subject(clusters)
        await subject.control.prepare()
        board = await subject.reported()
        assert list(board.processes) == ["1", "younger"], "its own is overwritten soon"
        assert board.chunks("old") == []
        await subject.reader.close()

    run(told)


def test_while_the_target_is_away_orders_and_reports_are_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Claim: both are counted as retries and said once a minute with their reason; afterwards orders are followed as before."""

    async def tell(subject: Subject) -> None:
        caplog.set_level(logging.WARNING)
        control, target = subject.control, subject.clusters.target
        before = control.retry_count
        target.kill()
        await asyncio.sleep(50.0)
        assert control.retry_count > before + 2
        assert control.retries.of("orders") is not None
        lines = [each.getMessage() for each in caplog.records if "not exchanged" in each.getMessage()]
        assert any(line.startswith("orders not exchanged with the target, trying again: mirror=m reason=") for line in lines)
        assert len(lines) < 6
        await target.begin()
        await subject.order(pause_record("m", Scope("orders"), PAUSE))
        await subject.clusters.until(lambda: list(subject.engine.has) == [C0])
        await subject.clusters.until(lambda: control.retries.of("orders", "reports") is None)

    story(tell)


def test_the_lag_of_what_is_not_fetched_grows_with_its_source() -> None:
    """Claim: ends of partitions that are paused, have halted or cannot be stored are asked for, and not known while there is no answer."""

    async def tell(subject: Subject) -> None:
        source = subject.clusters.source
        await source.create("orders", 2)
        subject.control.halt(O0, Halt.REFUSED, "no")
        await subject.order(pause_record("m", Scope("orders", 1), PAUSE), pause_record("m", Scope("clicks"), PAUSE))
        await source.write(TopicPartition("orders", 0), "a", "b")
        await source.write(TopicPartition("orders", 1), "c")
        await asyncio.sleep(12.0)
        assert {row.name: row.end for row in subject.control.rows()} == {"orders-0": 2, "orders-1": 1, "clicks-0": None}
        await subject.order(pause_record("m", Scope("orders", 1), None))
        subject.engine.failing[O1] = Retry("fenced", 5)
        await source.write(TopicPartition("orders", 1), "d")
        await asyncio.sleep(12.0)
        assert {row.name: row.end for row in subject.control.rows()} == {"orders-0": 2, "orders-1": 2, "clicks-0": None}
        source.kill()
        await asyncio.sleep(30.0)
        assert {row.name: row.end for row in subject.control.rows()} == {"orders-0": None, "orders-1": None, "clicks-0": None}

    story(tell)


def test_positions_count_once_they_are_known() -> None:
    """Claim: what the engine has as a start before the target was asked is no position; what it keeps of a halted partition is one."""

    async def tell(subject: Subject) -> None:
        subject.engine.has |= {O0: Position(8), O1: Position(0), C0: Position(3)}
        subject.reader.follow(O0, Position(8))
        subject.control.halt(C0, Halt.POISONED, "?")
        await asyncio.sleep(1.5)
        assert {row.name: row.position for row in subject.control.rows()} == {"orders-0": 8, "orders-1": None, "clicks-0": 3}

    story(tell)


def test_a_bug_in_following_or_reporting_ends_neither(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def tell(subject: Subject) -> None:
        def breaks(*_: object) -> Any:
            raise ValueError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(subject.engine, "written", breaks)
            patch.setattr(subject.control._board, "take", breaks)
            await subject.order(pause_record("m", Scope("orders"), PAUSE))
        bugs = {each.getMessage() for each in caplog.records if each.levelno == logging.ERROR}
        assert bugs == {"orders not followed because of a bug: mirror=m", "nothing reported because of a bug: mirror=m"}
        await subject.order(pause_record("m", Scope("clicks"), PAUSE))
        await subject.clusters.until(lambda: C0 not in subject.engine.has)
        begun_ms = subject.clusters.clock.time_ms()
        await subject.clusters.eventually(lambda: _reported_since(subject, begun_ms))

    story(tell)


async def _reported_since(subject: Subject, at_ms: int) -> bool:
    process = (await subject.reported()).processes.get("1")
    return process is not None and process.at_ms > at_ms
