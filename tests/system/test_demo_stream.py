"""The stream job of the demonstration: hours of airports with the seats of their planes, in topic and table as a query over all events has
them without those that came late, which are put aside; what is not so is found. The job has counted all of them as a tier of the audit.
"""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from moldau.audit.follow import read_audit
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tree import TierTree
from moldau.audit.verdicts import Verdict
from moldau.client.cluster import Cluster
from moldau.demo.airport_hours import NAME, TIER, airport_hours
from moldau.demo.flights import AIRPORTS, FlightsInput
from moldau.demo.inputs import LINE_FIELD, InputEvent
from moldau.demo.stream_job import StreamFigures, compare, with_stream_tier
from moldau.streams.operator import StreamOperator
from moldau.testing.broker import Broker
from moldau.tracking.clock import now_ms
from moldau.tracking.producer import TrackerProducer
from moldau.tracking.schemas.event_schema import event_schema
from support.spark import spark_session

pytestmark = [pytest.mark.system, pytest.mark.spark]

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def publish(broker: Broker, topic: str, flights: list[InputEvent], source: FlightsInput) -> None:
    """As the hosts do."""
    schemas = [event_schema(each) for each in source.schemas()]
    with TrackerProducer(
        service="departures", bootstrap_servers=broker.bootstrap_servers, registry=broker.registry_url, datacenter="ewr", host="ewr-1"
    ) as tracker:
        for each in flights:
            message = tracker.prepare({LINE_FIELD: each.line, **each.fields}, each.time_ms, topic, each.key, schemas[source.version(each)])
            assert tracker.inner.offer(message)


def test_hours_of_airports_over_three_starts(broker: Broker, spark: Any, tmp_path: Path) -> None:
    source = FlightsInput()
    year = [each for each in source.events() if isinstance(each, InputEvent)]
    every = [each for airport in AIRPORTS for each in islice((each for each in year if each.fields["origin"] == airport), 150)]
    late = [each for each in every if source.late(each)]
    in_time = [each for each in every if not source.late(each)]
    last = year[-1]
    topic = broker.create_topic(broker.unique_topic("departures"), 2)
    broker.create_topic(NAME, 3)
    table = str(tmp_path / "table")
    for flights in (in_time[::2], [*in_time[1::2], last], late):
        publish(broker, topic, flights, source)
        airport_hours(
            topic,
            brokers=broker.bootstrap_servers,
            registry=broker.registry_url,
            directory=str(tmp_path / "job"),
            table=table,
            spark=spark,
        ).run(once=True)
    operator = StreamOperator(broker.bootstrap_servers)
    (status,) = operator.status(NAME)["queries"]
    operator.close()
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "format": "avro", "registry": broker.registry_url}
    departures = spark.read.format("moldau").options(**options).load().cache()
    provoked = [each.line for each in late]

    def compared(table_rows: Any, lines: list[int]) -> StreamFigures:
        return compare(spark, table_rows, table, broker.bootstrap_servers, status, (0, 0), lines)

    figures = compared(departures, provoked)
    hours = Counter((each.time_ms // HOUR_MS, each.fields["origin"]) for each in [*in_time, last] if each.time_ms is not None)
    assert (figures.holds, figures.rows_in, figures.windows) == (True, len(every) + 1, len(hours))
    assert (figures.late_events, figures.provoked_late, figures.doubled, figures.different) == (len(late), len(late), 0, 0)
    assert figures.topic_rows == figures.table_rows > len(hours), "a window that two starts have changed has two rows"

    short = compared(departures.filter(f"{LINE_FIELD} <> {in_time[0].line}"), provoked)
    assert (short.holds, short.different) == (False, 1), "the windows have an event that the table lacks"
    more = compared(departures.unionAll(departures.filter(f"{LINE_FIELD} = {last.line}")), provoked)
    assert (more.holds, more.different) == (False, 1), "an event that no window has, and that was not late"
    missed = compared(departures, [*provoked, last.line])
    assert (missed.holds, missed.provoked, missed.provoked_late) == (False, len(late) + 1, len(late)), "one that was late, and in a window"

    with Cluster(broker.bootstrap_servers) as cluster:
        found = read_audit(cluster)
    tree = with_stream_tier(TierTree.chain(("producer",)), "producer")
    pairs = reconcile(found, Rules(now_ms() + 1, grace_ms=0, tree=tree, topics={topic})).pairs
    assert {pair.verdict for pair in pairs} == {Verdict.COMPLETE}
    assert sum(pair.lower.count for pair in pairs if pair.lower_tier == TIER) == len(every) + 1, "late ones have come in too"
