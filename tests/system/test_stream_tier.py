"""A stream job is a tier of the audit: each event that it reads is counted once, whatever fails, and one that it misses is found."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from moldau.audit.follow import read_audit, take_back
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCounts
from moldau.audit.tree import TierTree
from moldau.audit.verdicts import Report, Verdict
from moldau.client import Producer
from moldau.client.cluster import Cluster
from moldau.streams import StreamJob, batches, table_output, tier, windows
from moldau.streams.errors import StreamError
from moldau.streams.points import reached
from moldau.testing.broker import Broker
from moldau.tracking.counts import Count
from moldau.tracking.producer import TrackerProducer
from support.spark import spark_session
from support.stream_jobs import AIRPORTS, in_table, in_topic

pytestmark = [pytest.mark.system, pytest.mark.spark]

NOON_MS, MINUTE_MS = 1_372_680_000_000, 60_000
EVENT = {
    "type": "record",
    "name": "Departure",
    "namespace": "test",
    "fields": [{"name": "number", "type": "int"}, {"name": "airport", "type": "string"}],
}


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@dataclass
class Departures:
    """A topic of tracked events, a minute apart, and the job that counts them by hour and airport."""

    broker: Broker
    spark: Any
    directory: Path
    topic: str = field(init=False)
    sent: int = 0

    def __post_init__(self) -> None:
        self.topic = self.broker.create_topic(self.broker.unique_topic("departures"), 2)
        self.hours = self.broker.create_topic(self.broker.unique_topic("hours"), 2)
        self.table = self.directory / "lake"
        self.tier = f"stream-{self.topic}"

    def send(self, count: int) -> None:
        """So many more events, by a producer instance that closes; and a record that is none."""
        with (
            TrackerProducer(
                service="tests",
                bootstrap_servers=self.broker.bootstrap_servers,
                registry=self.broker.registry_url,
                host="host-1",
                schemas={self.topic: EVENT},
                linger_ms=1,
            ) as tracker,
            Producer(self.broker.bootstrap_servers) as raw,
        ):
            for number in range(self.sent, self.sent + count):
                event = {"number": number, "airport": AIRPORTS[number % 3]}
                tracker.track(event, time=NOON_MS + number * MINUTE_MS, topic=self.topic, key=str(number))
            raw.send(self.topic, b"no event").result()
        self.sent += count

    def without_queries(self, directory: str = "job") -> StreamJob:
        """A job of this tier."""
        return StreamJob(
            self.topic,
            brokers=self.broker.bootstrap_servers,
            registry=self.broker.registry_url,
            directory=str(self.directory / directory),
            spark=self.spark,
            tier=self.tier,
        )

    def job(self, *, directory: str = "job", **given: Any) -> StreamJob:
        """The job; arguments are those of its input."""
        made = self.without_queries(directory)
        rows = made.topic(self.topic, format="tracked", undecodable="skip", **given)
        counts = windows.tumbling(rows, "1 hour", "airport")
        made.to_topic(counts, self.hours, key="airport", mode="update")
        made.to_table(counts, str(self.table), mode="update")
        return made

    def audit(self, *tiers: str) -> Report:
        """How producers and the job compare, when all windows are over."""
        tree = TierTree.chain(("producer", *(tiers or (self.tier,))))
        rules = Rules(now_ms=int(time.time() * 1000) + 10, grace_ms=0, tree=tree, topics={self.topic})
        return reconcile(self.found(), rules)

    def found(self) -> TierCounts:
        """What all tiers have published."""
        with Cluster(self.broker.bootstrap_servers) as cluster:
            return read_audit(cluster)

    def counted(self) -> tuple[set[Verdict], int]:
        """The verdicts of all windows, and how many events the job has counted."""
        report = self.audit()
        return {pair.verdict for pair in report.pairs}, sum(pair.lower.count for pair in report.pairs)


@pytest.fixture
def departures(broker: Broker, spark: Any, tmp_path: Path) -> Departures:
    return Departures(broker, spark, tmp_path)


class PowerCutError(RuntimeError):
    """The batch ends here."""


def cut(at: str, reached: Callable[[str], None]) -> Callable[[str], None]:
    """In the place of `reached`: fails the batch that comes to this point first."""
    left = [at]

    def fail(point: str) -> None:
        if point in left:
            left.remove(point)
            raise PowerCutError(point)
        reached(point)

    return fail


def test_events_are_counted_once_wherever_a_batch_fails(departures: Departures, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: between any two steps of a batch the job may end; the next run has the batch again, and counts it once.

    New events before each run. In the end each window has what the producers have sent, and that is vouched for: a mark says
    that everything is counted. Rows that went out are counted beside it, once, and so are records without a header.
    """
    for at in ("table committed", "counts left", "counts published"):
        departures.send(12)
        with monkeypatch.context() as patch:
            for module in (table_output, batches, tier):
                patch.setattr(module, "reached", cut(at, reached))
            with pytest.raises(StreamError, match=at):
                departures.job(records_max=20).run(once=True)
    departures.send(12)
    departures.job(records_max=20).run(once=True)
    assert departures.counted() == ({Verdict.COMPLETE}, 48)
    found = departures.found()
    assert found.vouches_until(departures.tier, departures.topic) > 0, "or a loss would not be one"
    assert found.untracked[departures.tier, departures.topic].count == 4
    rows = len(in_topic(departures.broker.bootstrap_servers, departures.hours))
    assert rows == len(in_table(departures.table)) > 0
    places = [f"topic {departures.hours}", f"table {departures.table}"]
    assert [found.untracked[departures.tier, each].count for each in places] == [rows, rows]
    assert not list(departures.directory.glob("job/*/counts")), "what tasks left is removed"
    assert sum(each.total for (name, _, _), each in found.latencies.items() if name == departures.tier) == departures.sent


def test_rows_without_state_that_change_tasks_are_counted(departures: Departures) -> None:
    """Claim: of a query that only moves rows the tasks read with the batch's order too; adaptive plans would read before there is one."""
    departures.send(12)
    job = departures.without_queries()
    rows = job.topic(departures.topic, format="tracked", undecodable="skip")
    job.to_topic(rows.select("number", "airport").repartition(2, "airport"), departures.hours, key="airport")
    job.run(once=True)
    assert departures.counted() == ({Verdict.COMPLETE}, 12)


def test_events_that_are_also_read_without_their_values_are_counted(departures: Departures) -> None:
    """Tasks read the values of an audited topic in any case: by them the audit counts."""
    departures.send(30)
    job = departures.without_queries()
    events = job.topic(departures.topic, format="tracked", undecodable="skip").selectExpr("event_time AS at", "_offset AS place")
    records = job.topic(departures.topic).selectExpr("event_time AS at", "offset AS place")
    job.to_table(events.unionByName(records), str(departures.table), time="at")
    job.run(once=True)
    assert len(in_table(departures.table)) == 30 + 31
    assert departures.counted() == ({Verdict.COMPLETE}, 30)


def test_an_event_that_the_job_misses_is_found(departures: Departures) -> None:
    """Claim: of a job that begins after the first record of a partition, the window and the host of the events before are named, as lost.

    Here it is one event that it does not read; it has all others.
    """
    departures.send(20)
    start = json.dumps({departures.topic: {"0": 1, "1": 0}})
    departures.job(start=start).run(once=True)
    report = departures.audit()
    (lost,) = [pair for pair in report.pairs if pair.verdict is not Verdict.COMPLETE]
    (line,) = lost.sources
    assert (lost.verdict, line.host, line.upper.count - line.lower.count) == (Verdict.LOSS, "host-1", 1)
    assert sum((pair.lower.count for pair in report.pairs), 0) == 19


def test_another_checkpoint_counts_only_when_the_counts_are_taken_back(departures: Departures) -> None:
    """Claim: `--fresh` reads again what is counted, and so is refused while the tier has its counts; nothing is set aside or written."""
    departures.send(20)
    departures.job().run(once=True)
    rows = in_topic(departures.broker.bootstrap_servers, departures.hours)
    refusal = rf"tier {departures.tier} counts topic .* for stream job .*audit forget --tier"
    with pytest.raises(StreamError, match=refusal):
        departures.job().run(once=True, fresh=True)
    with pytest.raises(StreamError, match=refusal):
        departures.job(directory="other").check()
    assert in_topic(departures.broker.bootstrap_servers, departures.hours) == rows
    departures.job().run(once=True)

    take_back(departures.broker.bootstrap_servers, departures.tier, [departures.topic])
    assert departures.counted() == (set(), 0)
    departures.job().run(once=True, fresh=True)
    assert departures.counted() == ({Verdict.COMPLETE}, 20)


def test_a_generation_counts_by_itself(departures: Departures) -> None:
    """Claim: what a job reads again beside itself is counted under a tier of its own, `TIER.v2`, and both are complete."""
    departures.send(20)
    departures.job().run(once=True)
    departures.job().reprocess(once=True)
    departures.send(20)
    departures.job().run(once=True)
    of_first, of_second = (departures.audit(each).pairs for each in (departures.tier, f"{departures.tier}.v2"))
    assert {pair.verdict for pair in of_second} == {Verdict.COMPLETE}
    assert [sum((pair.lower for pair in pairs), Count()).count for pairs in (of_first, of_second)] == [20, 40]


def test_a_tier_without_tracked_events_is_refused(departures: Departures) -> None:
    """Claim: what cannot be counted is refused before the job starts."""
    job = StreamJob("plain", brokers=departures.broker.bootstrap_servers, directory="/none", spark=departures.spark, tier="stream-plain")
    job.to_topic(job.topic(departures.topic), departures.hours, value="value")
    with pytest.raises(StreamError, match="tier stream-plain has nothing to count: no input has format='tracked'"):
        job.check()
    for name in ("producer", "a b"):
        with pytest.raises(ValueError, match="a tier's name has"):
            StreamJob("plain", directory="/none", tier=name)
