"""What a watch of months keeps and what it does not; and when it has to read everything again to be certain."""

from typing import Any

import pytest

from moldau.audit import forgetting
from moldau.audit.forgetting import SETTLED_MS, Watch, forget
from moldau.audit.rules import Rules
from moldau.audit.tiers import SettledWindows, TierCounts
from moldau.audit.tree import TierTree
from moldau.audit.verdicts import Verdict
from moldau.model.identity import Offset, TopicPartition
from moldau.tracking.audit_record import AUDIT_RETENTION_MS, AUDIT_TOPIC, AuditRecord, Gap
from moldau.tracking.counts import NOTHING, Count, CountKey
from support.audit_events import MINUTE, NOON, Host
from support.audit_ledger import START, Ledger, events

EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")
HOUR = 60 * MINUTE


def settled(ledger: Ledger, count: int = 100) -> list[bytes]:
    """A window that two tiers agree about, a day later, forgotten."""
    values = events(EWR, count)
    ledger.opens(EWR).counts("producer", values).counts("local", values).marks("local").wait(SETTLED_MS + HOUR)
    forget(ledger.found, Rules(now_ms=ledger.now))
    return values


def test_a_window_that_all_agree_about_leaves_the_counts_after_a_day() -> None:
    """The report goes on to have its sums, its number, and the watermark that it gave."""
    ledger = Ledger()
    values = events(EWR, 100)
    ledger.opens(EWR).counts("producer", values).counts("local", values).wait(SETTLED_MS - HOUR)
    forget(ledger.found, Rules(now_ms=ledger.now))
    assert ledger.found.counts["local"]
    before = ledger.wait(2 * HOUR).report()
    forget(ledger.found, Rules(now_ms=ledger.now))
    assert not any(ledger.found.counts.values())
    report = ledger.report()
    assert (report.pairs, report.complete, report.watermarks) == ((), True, before.watermarks)
    (pair,) = report.settled
    assert (pair.upper_tier, pair.lower_tier, pair.count.count, pair.windows) == ("producer", "local", 100, 1)
    assert ledger.report(topics={"departures"}).unheard == ()
    assert ledger.report(topics={"other"}).settled == ()


def test_late_events_of_a_forgotten_window_are_compared_by_themselves() -> None:
    """What is lost of them is lost; and once all have them the window is what it was."""
    ledger = Ledger()
    settled(ledger)
    late = events(EWR, 3, first=500)
    ledger.counts("producer", late).counts("local", late[1:]).marks("local").wait(HOUR)
    (pair,) = ledger.report().pairs
    assert (pair.verdict, pair.sources[0].note) == (Verdict.LOSS, "1 of 3 missing")
    assert ledger.report().watermarks == {("departures", "local"): None}
    ledger.counts("local", late[:1]).wait(SETTLED_MS + HOUR)
    forget(ledger.found, Rules(now_ms=ledger.now))
    report = ledger.report()
    (sums,) = report.settled
    assert (report.pairs, sums.count.count, sums.windows) == ((), 103, 1)
    assert not ledger.found.stale


def test_an_event_that_is_doubled_late_is_a_duplication() -> None:
    ledger = Ledger()
    values = settled(ledger)
    ledger.counts("local", values[:1]).wait(5 * MINUTE).opens(EWR).wait(HOUR)
    assert ledger.verdict() is Verdict.DUPLICATION


def test_what_is_not_agreed_about_stays_for_a_month() -> None:
    """The tail of a killed instance, counted from the log, may still be told by it; a loss stays one until the audit topic forgets it."""
    values = events(EWR, 100)
    for below in (values[1:], [*values, EWR.event(900, START)]):
        ledger = Ledger().opens(EWR).counts("producer", values).counts("local", below).wait(SETTLED_MS + HOUR)
        forget(ledger.found, Rules(now_ms=ledger.now))
        assert len(ledger.found.counts["local"]) == 1
        ledger.wait(AUDIT_RETENTION_MS)
        forget(ledger.found, Rules(now_ms=ledger.now))
        assert (ledger.found.counts, ledger.found.instances) == ({"producer": {}, "local": {}}, {})


def test_what_is_settled_says_nothing_of_a_tier_that_comes_later() -> None:
    """It never had these windows: they are no part of its sums, and its watermark does not reach over them, nor does it a day later."""
    ledger = Ledger()
    settled(ledger)
    late = events(EWR, 3, start_ms=ledger.now, first=500)
    for tier in ("producer", "local", "lake"):
        ledger.counts(tier, late)
    ledger.marks("local").wait(HOUR)
    for _ in range(2):
        report = ledger.report()
        assert [(pair.upper_tier, pair.lower_tier) for pair in report.settled] == [("producer", "local")]
        assert report.watermarks["departures", "local"] is not None
        assert report.watermarks.get(("departures", "lake")) is None
        ledger.wait(SETTLED_MS)
        forget(ledger.found, Rules(now_ms=ledger.now))


def test_a_tier_that_stays_away_for_a_while_is_not_taken_to_have_been_there() -> None:
    """What was settled meanwhile, it has not counted; what was settled before, nobody can tell from that any more."""
    ledger = Ledger()
    tiers = ("producer", "local", "lake")
    for number, counting in enumerate((tiers, tiers[:2], tiers)):
        values = events(EWR, 5, start_ms=ledger.now, first=10 * number)
        for tier in counting:
            ledger.counts(tier, values)
        ledger.wait(SETTLED_MS + HOUR)
        forget(ledger.found, Rules(now_ms=ledger.now, tree=TierTree.chain(counting)))
    assert ledger.found.settled["departures"].tiers == ("producer", "local")
    assert ledger.report().watermarks.get(("departures", "lake")) is None


def test_a_tier_that_joins_has_everything_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that is set up today: all that it should have is held against it, as the report would; one that nobody asked for is not."""
    watch, ledger = Watch(), Ledger()
    cluster: Any = None
    ledger.found = watch.found
    settled(ledger)
    ledger.counts("lake", events(EWR, 1, start_ms=ledger.now))
    reads = []

    def read(_: object, found: TierCounts) -> TierCounts:
        reads.append(found.stale)
        found.stale = False
        return found

    monkeypatch.setattr(forgetting, "read_audits", read)
    watch.look(cluster, Rules(now_ms=ledger.now, tree=TierTree.chain(("producer", "local"))))
    assert reads == [False]
    watch.look(cluster, Rules(now_ms=ledger.now))
    assert reads == [False, False, True]


def test_a_record_that_is_published_again_when_its_guid_is_forgotten_has_everything_read_again() -> None:
    """A load that was away for days publishes what it is not certain to have published; a producer, what was not acknowledged."""
    key = CountKey("departures", NOON, "ewr", "departures", "ewr-1", "ab" * 8)
    for tier in ("lake", "producer"):
        found, day = TierCounts(), SETTLED_MS
        first = AuditRecord.of_counts(tier, key, Count(1, 1, 1, NOON, NOON), time_ms=START)
        found.take(first, START)
        found.forget_guids()
        assert not found.take(first, START + day)
        found.forget_guids()
        found.take(AuditRecord.of_counts(tier, key, Count(1, 1, 1, NOON, NOON), time_ms=START + 2 * day), START + 2 * day)
        assert not found.stale
        assert found.take(first, START + 2 * day)
        assert found.stale


def test_without_a_brokers_time_the_newest_record_heard_of_says_what_is_late() -> None:
    """An audit topic of an earlier version has only the times that records say of themselves. Producers, whose clocks may be wrong, are not
    gone by."""
    key = CountKey("departures", NOON, "ewr", "departures", "ewr-1", "ab" * 8)
    first = AuditRecord.of_counts("lake", key, Count(1, 1, 1, NOON, NOON), time_ms=START)
    for whole, is_late in ((CountKey("", 0, "", "", "", "local"), True), (CountKey("", 0, "ewr", "departures", "ewr-1", "ab" * 8), False)):
        found = TierCounts()
        found.take(first)
        found.forget_guids()
        found.forget_guids()
        found.take(AuditRecord("open", "12" * 16, START + 2 * SETTLED_MS, "local" if is_late else "producer", whole))
        assert found.take(first)
        assert found.stale == is_late


def test_what_cannot_be_read_is_told_for_as_long_as_it_is_there() -> None:
    """A watch of months would keep a line for each record that is none, though the audit topic has let go of it long ago."""
    found = TierCounts()
    for partition in (0, 1):
        for offset in range(3):
            found.take_value(partition, offset, b"junk", START)
    found.begin_at(TopicPartition(AUDIT_TOPIC, 1), Offset(2))
    assert [(each.partition, each.offset) for each in found.unreadable] == [(0, 0), (0, 1), (0, 2), (1, 2)]


def test_a_clock_that_is_wrong_has_nothing_read_again() -> None:
    """Each record of a host that is days behind was made long ago; that is no reason to think that it was there before."""
    ledger = Ledger(by_broker=True)
    ledger.wrong_ms = -10 * SETTLED_MS
    ledger.opens(EWR).counts("producer", events(EWR, 3))
    ledger.found.forget_guids()
    ledger.found.forget_guids()
    ledger.wait(MINUTE).counts("producer", events(EWR, 3, first=10))
    assert not ledger.found.stale


def test_a_watch_forgets_every_hour() -> None:
    watch, ledger = Watch(), Ledger()
    ledger.found = watch.found
    for hour in range(80):
        values = events(EWR, 5, start_ms=ledger.now, first=5 * hour)
        ledger.opens(EWR).counts("producer", values).counts("local", values).marks("local").wait(HOUR)
        report = watch.compare(Rules(now_ms=ledger.now))
        assert report.settled or hour < 26
    assert (report.complete, len(watch.found.counts["local"]) < 30) == (True, True)
    assert sum(pair.windows for pair in report.settled) + len(report.pairs) == 80
    assert len(watch.found._guids) + len(watch.found._guids_before or ()) < 4 * 50


def test_topics_that_nobody_asked_for_are_not_kept() -> None:
    ledger = Ledger()
    ledger.opens(EWR).counts("producer", events(EWR, 3))
    forget(ledger.found, Rules(now_ms=ledger.now, topics={"arrivals"}))
    assert ledger.found.counts == {"producer": {}}


def test_spans_of_windows_are_joined() -> None:
    known, window = SettledWindows(), 10 * MINUTE
    for start in (0, 2 * window, window, 6 * window, 0):
        known.add(start, {"local": NOTHING}, shown=True, skewed=False)
    known.add(9 * window, {"local": NOTHING}, shown=True, skewed=True)
    known.add(12 * window, {"local": NOTHING}, shown=False, skewed=False)
    assert (known.spans, known.share("local").windows) == ([(0, 3 * window), (6 * window, 7 * window), (12 * window, 13 * window)], 5)
    assert [known.newest_before(limit) for limit in (0, 2 * window, 5 * window, None)] == [None, 2 * window, 3 * window, 13 * window]


def test_a_gap_is_told_for_a_month() -> None:
    ledger = Ledger()
    gap, key = Gap(1, 100, 150, "gone"), CountKey("departures", 0, "", "", "", "local")
    values = settled(ledger)
    record = AuditRecord("gap", "ab" * 16, ledger.now, "local", key, gap=gap)
    assert AuditRecord.from_bytes(record.to_bytes()) == record
    ledger.found.take(record)
    ledger.found.take(record)
    (told,) = ledger.report().gaps
    assert (told.tier, told.topic, told.gap) == ("local", "departures", gap)
    assert ledger.report(topics={"other"}).gaps == ()
    assert ledger.report(tiers=("producer", "lake")).gaps == ()
    ledger.counts("producer", values[:1]).wait(AUDIT_RETENTION_MS + 1)
    forget(ledger.found, Rules(now_ms=ledger.now))
    assert ledger.report().gaps == ()
