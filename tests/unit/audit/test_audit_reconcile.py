"""What comparing two tiers says, story by story. Times are in ms of a clock that the test moves."""

import json
from dataclasses import replace
from typing import Any

import pytest

from moldau.audit.events import count_each
from moldau.audit.forgetting import forget
from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCounts
from moldau.audit.verdicts import Verdict, summaries
from moldau.model.identity import TopicPartition
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord
from moldau.tracking.clock import moment
from moldau.tracking.counts import CountKey
from support.audit_events import MINUTE, NOON, Host
from support.audit_ledger import LATER, START, Ledger, events

EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")
JFK = Host("jfk-1", "jfk", instance=b"inst-jfk")
SECOND = 1000
GRACE = Rules(0).grace_ms


def sent(host: Host, count: int = 100) -> tuple[Ledger, list[bytes]]:
    """A producer has sent, counted and closed."""
    values = events(host, count)
    return Ledger().opens(host).counts("producer", values).closes(host), values


def test_a_healthy_run_has_no_alarm_at_any_time() -> None:
    """Whenever one looks, from the first event on, nothing is said to be missing or doubled; in the end all is complete."""
    ledger = Ledger().opens(EWR)
    seen = set()
    for step in range(40):
        chunk = events(EWR, 10, start_ms=ledger.now, first=10 * step)
        ledger.wait(5 * SECOND).counts("producer", chunk)
        seen |= set(ledger.verdicts(tiers=("producer", "local")))
        ledger.wait(7 * SECOND).counts("local", chunk).marks("local")
        seen |= set(ledger.verdicts(tiers=("producer", "local")))
    ledger.closes(EWR)
    assert seen <= {Verdict.NOT_DUE, Verdict.NOT_COUNTED, Verdict.COMPLETE}
    assert set(ledger.wait(10 * MINUTE).verdicts()) == {Verdict.COMPLETE}
    assert ledger.report().complete


def test_a_closed_producer_and_equal_counts_are_complete_at_once() -> None:
    """Nobody has to wait for the grace where nothing more can come; the window has to be over."""
    ledger, values = sent(EWR)
    ledger.counts("local", values)
    assert ledger.verdict() is Verdict.NOT_DUE
    ledger.wait(9 * MINUTE)
    assert ledger.report().complete


@pytest.mark.parametrize(
    ("counted", "verdict", "note"),
    [
        (lambda v: v[:-1], Verdict.LOSS, "1 of 100 missing"),
        (lambda v: [*v, v[5]], Verdict.DUPLICATION, "1 more than 100"),
        (lambda v: [*v[:-1], v[0]], Verdict.HIDDEN_LOSS, "as many, but not the same 100"),
        (lambda v: [*v[:-1], EWR.event(999, START)], Verdict.HIDDEN_LOSS, "as many, but not the same 100"),
        (lambda v: v, Verdict.COMPLETE, ""),
    ],
)
def test_loss_duplication_and_what_hides_them(counted, verdict: Verdict, note: str) -> None:  # type: ignore[no-untyped-def]
    """Lower counts are loss, higher ones duplication, equal ones with another checksum both; and the host is named."""
    ledger, values = sent(EWR)
    ledger.counts("local", counted(values)).marks("local")
    report = ledger.wait(60 * MINUTE).report()
    (pair,) = report.pairs
    (line,) = pair.sources
    assert (pair.verdict, line.verdict, line.note) == (verdict, verdict, note)
    assert (line.datacenter, line.service, line.host, line.instance) == ("ewr", "departures", "ewr-1", b"inst-ewr".hex())
    assert report.alarming == (verdict is not Verdict.COMPLETE)


def test_one_hosts_loss_is_not_made_good_by_anothers_duplication() -> None:
    """The window's totals agree, yet both hosts are named for what they are."""
    a, b = events(EWR, 50), events(JFK, 50)
    ledger = Ledger().opens(EWR).opens(JFK).counts("producer", a + b).closes(EWR).closes(JFK)
    ledger.counts("local", a[1:] + b + b[:1])
    (pair,) = ledger.wait(60 * MINUTE).report().pairs
    assert (pair.upper.count, pair.lower.count, pair.verdict) == (100, 100, Verdict.HIDDEN_LOSS)
    assert {line.host: line.verdict for line in pair.noteworthy} == {"ewr-1": Verdict.LOSS, "jfk-1": Verdict.DUPLICATION}


def test_until_the_grace_is_over_nothing_is_lost() -> None:
    """A tier may take its time; how long is a rule of the tier."""
    ledger, values = sent(EWR)
    ledger.counts("local", values[:-1]).wait(9 * MINUTE)
    assert ledger.verdict() is Verdict.NOT_DUE
    ledger.wait(GRACE)
    assert ledger.verdict() is Verdict.LOSS
    assert ledger.verdict(graces_ms={"local": 60 * MINUTE}) is Verdict.NOT_DUE
    ledger.counts("local", values[-1:])
    assert ledger.report().complete


def test_a_tier_that_never_published_has_no_counts_yet() -> None:
    """It has lost nothing as long as it is silent, and the note says that it is."""
    ledger, _ = sent(EWR)
    tiers = ("producer", "local")
    assert ledger.verdict(tiers=tiers) is Verdict.NOT_COUNTED
    (pair,) = ledger.wait(60 * MINUTE).report(tiers=tiers).pairs
    assert (pair.verdict, pair.sources[0].note) == (Verdict.NOT_COUNTED, "100 of 100 not counted; tier local has published nothing yet")
    assert ledger.report(tiers=tiers, only={"local": "other".__eq__}).pairs == ()


def test_a_tier_is_judged_on_the_topics_that_it_is_meant_to_count() -> None:
    """An auditor says by what pattern; a load by what it has ever loaded; what others know better goes before."""
    ledger, values = sent(EWR)
    auditor = CountKey("", 0, "", "arrivals", "", "local")
    ledger.say("open", "local", auditor)
    ledger.counts("lake", values).wait(60 * MINUTE)
    report = ledger.report(tiers=("producer", "local", "lake"))
    assert [(pair.upper_tier, pair.lower_tier, pair.verdict) for pair in report.pairs] == [("producer", "lake", Verdict.COMPLETE)]
    assert report.uncovered == {"local": ("departures",)}
    assert ledger.report(tiers=("producer", "local"), only={"local": "departures".__eq__}).alarming
    ledger.say("open", "local", auditor._replace(service=""))
    report = ledger.report(tiers=("producer", "local"))
    assert (report.alarming, report.uncovered) == (True, {})
    ledger.topic = "arrivals"
    ledger.counts("producer", events(EWR, 1)).wait(60 * MINUTE)
    assert ledger.report(tiers=("producer", "lake")).uncovered == {"lake": ("arrivals",)}


def test_auditors_come_before_loads() -> None:
    """An auditor that was begun after a load still counts what the load has loaded from; its own first counts do not say."""
    ledger, values = sent(EWR)
    ledger.counts("lake", values).wait(SECOND).counts("local", values).marks("local").wait(60 * MINUTE)
    assert ledger.found.tiers == ("producer", "local", "lake")
    assert ledger.report().complete


def test_which_topic_an_auditor_counts_is_no_mark() -> None:
    """It says the topic's id, the last one counts, and it vouches for nothing."""
    ledger, _ = sent(EWR)
    for topic_id in ("aa", "bb"):
        ledger.say("open", "local", CountKey("departures", 0, "", "", "", topic_id))
    assert ledger.found.topic_ids == {("local", "departures"): "bb"}
    assert (ledger.found.vouches_until("local", "departures"), ledger.found.auditors) == (0, {"local"})


def test_a_time_has_a_year_of_four_digits() -> None:
    """Also in the first century; a time that no calendar has is a number."""
    assert moment(-62_135_596_800_000) == "0001-01-01T00:00:00Z"
    assert (moment(999), moment(10**18)) == ("1970-01-01T00:00:00Z", f"@{10**18}")


def test_the_same_record_twice_counts_once() -> None:
    """Totals are the sum over distinct guids."""
    ledger, values = sent(EWR)
    ((key, told),) = Ledger().counts("x", values).found.counts["x"].items()
    record = ledger.say("counts", "local", key, told.count)
    assert not ledger.found.take(record)
    assert ledger.wait(60 * MINUTE).verdict() is Verdict.COMPLETE


class TestAProducerThatDies:
    """Its last events are in the log, and in no count of its own."""

    def killed(self, counted: int, in_log: int) -> Ledger:
        values = events(EWR, 100)
        ledger = Ledger().opens(EWR).counts("producer", values[:counted]).wait(10 * SECOND)
        return ledger.counts("local", values[:in_log]).marks("local")

    def test_its_tail_is_no_duplication_and_comes_from_the_log_in_the_end(self) -> None:
        """First nothing is due, then its counts are incomplete and it is named, then the log stands for them."""
        ledger = self.killed(90, 100)
        patient = {"producer_timeout_ms": 30 * MINUTE}
        assert ledger.verdict(**patient) is Verdict.NOT_DUE
        ledger.wait(8 * MINUTE + GRACE)
        (pair,) = ledger.report(**patient).pairs
        assert pair.verdict is Verdict.PRODUCER_INCOMPLETE
        (line,) = pair.noteworthy
        assert (line.host, line.note.split(";")[0]) == ("ewr-1", "10 more than 90")
        assert "silent since 2013-01-01T12:02:00Z" in line.note
        assert not ledger.report(**patient).alarming
        report = ledger.wait(30 * MINUTE).report(**patient)
        assert report.pairs[0].verdict is Verdict.COMPLETE
        assert report.pairs[0].noteworthy[0].note.startswith("counted from the log, 10 more than 90")
        assert report.complete

    def test_a_log_with_less_than_it_published_is_a_loss(self) -> None:
        """Death excuses nothing that was counted."""
        assert self.killed(90, 89).wait(60 * MINUTE).verdict() is Verdict.LOSS

    def test_one_that_never_published_a_count(self) -> None:
        """It opened, sent, and died."""
        ledger = self.killed(0, 5).wait(12 * MINUTE)
        assert ledger.verdict(producer_timeout_ms=30 * MINUTE) is Verdict.PRODUCER_INCOMPLETE
        assert ledger.verdict() is Verdict.COMPLETE

    def test_a_later_incarnation_counts_the_tail(self) -> None:
        """Who publishes the rest, and closes the instance, makes it complete, and what is more then is doubled."""
        ledger = self.killed(90, 100).counts("producer", events(EWR, 100)[90:]).closes(EWR).wait(60 * MINUTE)
        assert ledger.verdict() is Verdict.COMPLETE
        assert ledger.counts("local", events(EWR, 1)).wait(60 * MINUTE).verdict() is Verdict.DUPLICATION

    def test_an_instance_that_nobody_heard_of(self) -> None:
        """Events of an instance that never opened, or did so before the audit topic's memory: incomplete, then from the log."""
        ledger = Ledger().counts("producer", events(JFK, 1)).counts("local", events(JFK, 1) + events(EWR, 3)).wait(9 * MINUTE + GRACE)
        (pair,) = ledger.report(producer_timeout_ms=30 * MINUTE).pairs
        assert (pair.verdict, pair.noteworthy[0].host) == (Verdict.PRODUCER_INCOMPLETE, "ewr-1")
        assert "never said that it opened" in pair.noteworthy[0].note
        assert ledger.wait(60 * MINUTE).verdict() is Verdict.COMPLETE


def test_a_producer_that_lives_on_vouches_for_what_it_counted() -> None:
    """An open instance is heard of long after: what the log has more is doubled, without waiting for its end."""
    ledger = Ledger().opens(EWR).counts("producer", events(EWR, 100)).wait(10 * SECOND)
    ledger.counts("local", [*events(EWR, 100), *events(EWR, 1)]).wait(20 * MINUTE)
    assert ledger.verdict(producer_timeout_ms=60 * MINUTE) is Verdict.PRODUCER_INCOMPLETE
    ledger.counts("producer", events(EWR, 1, start_ms=START + 20 * MINUTE, first=100))
    assert ledger.verdicts(producer_timeout_ms=60 * MINUTE)[0] is Verdict.DUPLICATION


def test_a_close_that_counts_more_than_was_published_closes_nothing() -> None:
    """Counts that are lost from the audit topic itself are no duplication in the log."""
    ledger = Ledger().opens(EWR).counts("producer", events(EWR, 100)).closes(EWR)
    told = next(iter(ledger.found.counts["producer"].values()))
    ledger.found.instances[EWR.instance.hex()].published = told.count = (
        Ledger().counts("x", events(EWR, 60)).found.counts["x"].popitem()[1].count
    )
    ledger.counts("local", events(EWR, 100)).wait(9 * MINUTE + GRACE)
    assert ledger.verdict(producer_timeout_ms=60 * MINUTE) is Verdict.PRODUCER_INCOMPLETE


def test_late_events_of_yesterday_belong_to_yesterday_and_reopen_it() -> None:
    """While they are on their way yesterday's window is open again, and the watermark before it; then both are back."""
    yesterday = START - 1440 * MINUTE
    ledger = Ledger().opens(EWR)
    for start in (yesterday, yesterday + 20 * MINUTE):
        ledger.now = start
        values = events(EWR, 20, start_ms=start, first=start // 1000)
        ledger.counts("producer", values).counts("local", values)
    ledger.now = START
    ends = {"local": yesterday + 28 * MINUTE}
    assert ledger.report().watermarks == {("departures", "local"): ends["local"]}
    late = events(EWR, 5, start_ms=yesterday + 21 * MINUTE, first=7_000_000)
    ledger.counts("producer", late)
    assert ledger.verdicts() == [Verdict.COMPLETE, Verdict.NOT_DUE]
    assert ledger.report().watermarks == {("departures", "local"): yesterday + 8 * MINUTE}
    ledger.wait(20 * SECOND).counts("local", late)
    assert ledger.verdicts() == [Verdict.COMPLETE, Verdict.COMPLETE]
    ledger.wait(GRACE)
    assert ledger.report().watermarks == {("departures", "local"): ends["local"]}


class TestSkewedClocks:
    """A wrong clock is named; the other hosts' windows are as if it were not there."""

    @pytest.mark.parametrize(("off", "ahead"), [(30 * 1440 * MINUTE, True), (-3650 * 1440 * MINUTE, False)])
    def test_far_off(self, off: int, ahead: bool) -> None:
        ledger = Ledger().opens(EWR).opens(JFK)
        good, wrong = events(EWR, 50), events(JFK, 50, start_ms=START + off)
        ledger.counts("producer", good + wrong).closes(EWR).wait(SECOND).counts("local", good + wrong).marks("local").wait(20 * MINUTE)
        report = ledger.report()
        (host,) = report.skewed
        assert (host.host, host.ahead_ms > 0) == ("jfk-1", ahead)
        assert not report.alarming
        assert {pair.verdict for pair in report.pairs} == {Verdict.COMPLETE}
        assert report.watermarks == {("departures", "local"): NOON + 10 * MINUTE}

    def test_a_loss_at_a_wrong_clock_is_a_loss_and_holds_up_no_watermark(self) -> None:
        ledger = Ledger().opens(EWR).opens(JFK)
        good, wrong = events(EWR, 50), events(JFK, 50, start_ms=START - 3650 * 1440 * MINUTE)
        ledger.counts("producer", good + wrong).wait(SECOND).counts("local", good + wrong[1:]).marks("local").wait(20 * MINUTE)
        report = ledger.report()
        assert [pair.verdict for pair in report.pairs] == [Verdict.LOSS, Verdict.COMPLETE]
        assert report.watermarks == {("departures", "local"): NOON + 10 * MINUTE}

    def test_a_replay_of_old_events_is_no_skew(self) -> None:
        """All hosts are equally old then."""
        ledger = Ledger()
        values = [*events(EWR, 9), *events(JFK, 9, start_ms=START + 40 * MINUTE)]
        ledger.now = LATER + 365 * 1440 * MINUTE
        ledger.counts("producer", values).counts("local", values)
        assert ledger.report().skewed == ()


class TestThreeTiers:
    """Each tier is compared with the one above it."""

    def lost_in_the_lake(self) -> Ledger:
        ledger, values = sent(EWR)
        return ledger.wait(SECOND).counts("local", values).marks("local").wait(SECOND).counts("lake", values[2:]).wait(60 * MINUTE)

    def test_the_tier_that_lost_is_the_one_named(self) -> None:
        report = self.lost_in_the_lake().report()
        assert report.tiers == ("producer", "local", "lake")
        assert [(p.upper_tier, p.lower_tier, p.verdict) for p in report.pairs] == [
            ("producer", "local", Verdict.COMPLETE),
            ("local", "lake", Verdict.LOSS),
        ]
        assert report.watermarks == {("departures", "local"): NOON + 10 * MINUTE, ("departures", "lake"): None}

    def test_an_auditor_that_is_behind_makes_no_duplication_below_it(self) -> None:
        """The lake has more than a tier that has not counted so far; when it says that it has, the same is a duplication."""
        ledger, values = sent(EWR)
        ledger.counts("local", values[:50]).marks("local").wait(SECOND).counts("lake", values).wait(60 * MINUTE)
        assert ledger.report().pairs[1].verdict is Verdict.NOT_COUNTED
        ledger.marks("local")
        assert ledger.report().pairs[1].verdict is Verdict.DUPLICATION

    def test_only_some_topics_since_some_time(self) -> None:
        ledger = self.lost_in_the_lake()
        assert ledger.report(topics={"other"}).pairs == ()
        assert ledger.report(since_ms=NOON + 10 * MINUTE).pairs == ()
        assert len(ledger.report(since_ms=NOON + 10 * MINUTE - 1).pairs) == 2


def test_other_bytes_of_the_same_events_are_noted() -> None:
    """The guids agree, so it is complete; but what lies there is not what was sent."""
    ledger, _ = sent(EWR, 1)
    ledger.counts("local", [EWR.event(0, START, body=b"altered")]).wait(60 * MINUTE)
    (pair,) = ledger.report().pairs
    assert (pair.verdict, pair.noteworthy[0].note) == (Verdict.COMPLETE, "but 55 bytes, not 69")


class TestAfterAMonth:
    """Retention takes the oldest records of the audit topic, and so the counts of one tier before those of the next."""

    def trimmed(self) -> Ledger:
        """The producer's counts are gone, and of the cluster's the first half: what is left looks like loss and duplication."""
        ledger, values = Ledger(), events(EWR, 100)
        here = TopicPartition(AUDIT_TOPIC, 2)
        ledger.found.begin_at(here, 17)
        for tier, half in (("local", values[50:]), ("lake", values)):
            ((key, count),) = count_each(ledger.topic, half).counts().items()
            record = AuditRecord.of_counts(tier, key, count, time_ms=ledger.wait(SECOND).now)
            ledger.found.take_value(here.partition, 17, record.to_bytes())
        return ledger.marks("local").marks("lake").wait(60 * MINUTE)

    def test_what_is_left_of_a_window_is_not_compared(self) -> None:
        ledger = self.trimmed()
        report = ledger.report(tiers=("producer", "local", "lake"))
        assert report.pairs == ()
        assert not report.alarming
        assert report.watermarks == {}

    def test_later_windows_are(self) -> None:
        """Also old events, of an instance that has opened since."""
        ledger = self.trimmed()
        values = events(JFK, 10, start_ms=ledger.now)
        late = events(JFK, 10, first=10)
        ledger.opens(JFK).counts("producer", values + late).closes(JFK).counts("local", values + late).counts("lake", values + late[1:])
        found = ledger.marks("lake").wait(60 * MINUTE).report(tiers=("producer", "local", "lake")).pairs
        assert [(pair.lower_tier, pair.verdict) for pair in found] == [
            ("local", Verdict.COMPLETE),
            ("lake", Verdict.LOSS),
            ("local", Verdict.COMPLETE),
            ("lake", Verdict.COMPLETE),
        ]


@pytest.mark.parametrize("wrong_ms", [30 * 24 * 60 * MINUTE, -10 * 365 * 24 * 60 * MINUTE], ids=["a month ahead", "ten years behind"])
def test_a_host_that_believes_in_another_time_is_named_and_judged_as_any_other(wrong_ms: int) -> None:
    """Not only its events have that time, but all that it publishes, too: what counts is when the broker heard of it. By the host's own
    clock it would never be found, and a loss of a host ahead not before its time has come."""
    ledger = Ledger(by_broker=True).opens(JFK).counts("producer", events(JFK, 50))
    wrong = events(EWR, 50, start_ms=START + wrong_ms)
    ledger.wrong_ms = wrong_ms
    ledger.opens(EWR).counts("producer", wrong).wait(MINUTE)
    ledger.wrong_ms = 0
    ledger.counts("local", events(JFK, 50) + wrong[1:]).marks("local").wait(60 * MINUTE)
    report = ledger.report()
    assert {(line.host, line.verdict) for pair in report.pairs for line in pair.sources} == {
        ("ewr-1", Verdict.LOSS),
        ("jfk-1", Verdict.COMPLETE),
    }
    (skewed,) = report.skewed
    assert (skewed.host, abs(skewed.ahead_ms - wrong_ms) < 5 * MINUTE) == ("ewr-1", True)
    assert report.watermarks == {("departures", "local"): NOON + 10 * MINUTE}
    ledger.counts("local", wrong[:1]).wait(60 * MINUTE)
    assert ledger.report().complete


def test_a_mark_of_an_auditor_whose_clock_is_ahead_vouches_for_nothing_to_come() -> None:
    values = events(EWR, 10)
    ledger = Ledger(by_broker=True).opens(EWR).counts("producer", values).counts("local", values[1:])
    ledger.wrong_ms = 365 * 24 * 60 * MINUTE
    ledger.marks("local").wait(MINUTE)
    ledger.wrong_ms = 0
    ledger.counts("lake", values).wait(60 * MINUTE)
    pair = next(pair for pair in ledger.report().pairs if pair.lower_tier == "lake")
    assert (pair.verdict, pair.sources[0].note[:35]) == (Verdict.NOT_COUNTED, "1 more than 9; tier local has count")


class TestATierThatIsBehind:
    """It has lost nothing: it has not counted yet, until it says that it has counted everything since."""

    TIERS = ("producer", "local", "lake")

    def behind(self) -> tuple[Ledger, list[bytes]]:
        """A load took the first half of an hour ago, and said so; nobody has run it since."""
        ledger, values = sent(EWR)
        ledger.counts("local", values).marks("local").counts("lake", values[:50]).has_counted_all("lake")
        more = events(EWR, 40, first=1_000)
        ledger.wait(10 * MINUTE).counts("producer", more).wait(SECOND).counts("local", more).marks("local").wait(60 * MINUTE)
        return ledger, [*values[50:], *more]

    def test_is_not_counted_yet_however_long_that_takes(self) -> None:
        ledger, _ = self.behind()
        above, below = ledger.report(tiers=self.TIERS).pairs
        assert (above.verdict, below.verdict) == (Verdict.COMPLETE, Verdict.NOT_COUNTED)
        assert below.sources[0].note == "90 of 140 not counted; tier lake has counted everything only up to 2013-01-01T12:02:00Z"
        assert not ledger.report(tiers=self.TIERS).alarming

    def test_catches_up(self) -> None:
        ledger, rest = self.behind()
        ledger.counts("lake", rest).has_counted_all("lake").wait(60 * MINUTE)
        assert ledger.report(tiers=self.TIERS).complete

    def test_has_lost_what_it_did_not_count_by_then(self) -> None:
        ledger, rest = self.behind()
        ledger.counts("lake", rest[1:])
        ledger.has_counted_all("lake").wait(60 * MINUTE)
        below = ledger.report(tiers=self.TIERS).pairs[1]
        assert (below.verdict, below.sources[0].note) == (Verdict.LOSS, "1 of 140 missing")

    def test_a_mark_of_another_topic_says_nothing(self) -> None:
        ledger, _ = self.behind()
        ledger.topic = "arrivals"
        ledger.has_counted_all("lake").wait(60 * MINUTE)
        assert Verdict.LOSS not in ledger.verdicts(tiers=self.TIERS)

    def test_as_many_others_are_no_loss_either(self) -> None:
        """Two halves that are not the same: neither tier has counted everything."""
        ledger, values = sent(EWR)
        ledger.counts("local", values[:50]).has_counted_all("local")
        ledger.wait(SECOND).counts("lake", values[50:]).wait(60 * MINUTE)
        assert ledger.report(tiers=self.TIERS).pairs[1].verdict is Verdict.NOT_COUNTED


class TestCountsThatAreTakenBack:
    """`moldau audit forget`: what a tier had counted of a topic counts no more, for who reads on and for who reads anew."""

    def doubled(self) -> tuple[Ledger, list[bytes]]:
        ledger, values = sent(EWR)
        ledger.also.append(TierCounts())
        ledger.counts("local", values).marks("local")
        return ledger.counts("local", values).marks("local").wait(60 * MINUTE), values

    def test_the_next_counts_are_all_there_is(self) -> None:
        ledger, values = self.doubled()
        assert ledger.verdict() is Verdict.DUPLICATION
        ledger.has_counted_all("local", forgets=True)
        assert ledger.report(tiers=("producer", "local")).pairs[0].lower.count == 0
        ledger.counts("local", values).marks("local").wait(60 * MINUTE)
        assert ledger.report().complete

    def test_nobody_owns_the_topic_any_more(self) -> None:
        ledger, _ = self.doubled()
        ledger.has_counted_all("lake", "one").has_counted_all("lake", "two")
        assert ledger.found.owners == {("lake", "departures"): "one"}, "who came first"
        ledger.has_counted_all("lake", forgets=True).has_counted_all("lake", "two")
        assert ledger.found.owners == {("lake", "departures"): "two"}

    def test_twice_is_once_and_other_topics_stay(self) -> None:
        ledger, values = self.doubled()
        back = AuditRecord.of_tier("local", "departures", time_ms=ledger.now, forgets=True)
        ledger.found.take(back)
        ledger.counts("local", values)
        ledger.found.take(back)
        assert ledger.report().pairs[0].lower.count == len(values)
        ledger.topic = "arrivals"
        ledger.has_counted_all("local", forgets=True)
        assert ledger.report().pairs[0].lower.count == len(values)

    def test_settled_windows_are_read_again(self) -> None:
        """Who has watched for months has them as one number: all of the topic is read anew."""
        ledger, values = sent(EWR)
        ledger.counts("local", values).marks("local").wait(3 * 1440 * MINUTE)
        forget(ledger.found, Rules(now_ms=ledger.now))
        assert ledger.found.settled["departures"].share("local").count.count == len(values)
        ledger.has_counted_all("local", forgets=True)
        assert ledger.found.stale


@pytest.mark.parametrize("only", [{}, {"lake": lambda _: True}], ids=["as the tier says", "as somebody says"])
def test_a_load_that_failed_before_it_loaded_anything_is_behind(only: dict[str, Any]) -> None:
    """A full disk, Ctrl-C: it has said that the topic is its own, and counted nothing."""
    ledger, values = sent(EWR)
    ledger.counts("local", values).marks("local").wait(MINUTE).claims("lake", "job").wait(60 * MINUTE)
    assert ledger.verdicts(tiers=("local", "lake"), only=only) == [Verdict.NOT_COUNTED]
    ledger.counts("lake", values[:3]).has_counted_all("lake", "job").wait(60 * MINUTE)
    assert ledger.verdicts(tiers=("local", "lake"), only=only) == [Verdict.LOSS], "now it has said that this is all"


def test_dead_letters_have_arrived_and_are_told_apart() -> None:
    """The tier is complete, and says how many of its events nobody can read."""
    ledger, values = sent(EWR)
    for key, count in count_each("departures", values).counts().items():
        record = AuditRecord.of_counts("lake", key, count, time_ms=ledger.now)
        ledger.found.take(replace(record, dead_letters=7))
    report = ledger.wait(60 * MINUTE).report()
    (line,) = summaries(report)
    assert (line.verdict_text, line.dead_letters, report.complete) == ("complete, 7 in dead letters", 7, True)
    assert AuditRecord.from_bytes(replace(record, dead_letters=7).to_bytes()).dead_letters == 7


def test_who_does_not_know_claims_and_marks_reads_counts_of_nothing() -> None:
    """Releases from before them: the record is one of counts, without events or a source."""
    told = json.loads(AuditRecord.of_tier("lake", "departures", time_ms=1, owner="job", counted_ms=1).to_bytes())
    assert (told["kind"], told["count"], told["instance"], told["topic"]) == ("counts", 0, "", "departures")
