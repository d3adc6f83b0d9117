"""The stream job of the demonstration: hours of airports with the seats of their planes, in topic and table as a query over all events has
them; what is not so is found.
"""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from moldau.demo.airport_hours import NAME, airport_hours
from moldau.demo.flights import FlightsInput
from moldau.demo.inputs import LINE_FIELD, InputEvent
from moldau.demo.stream_job import compare
from moldau.streams.operator import StreamOperator
from moldau.testing.broker import Broker
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


def test_hours_of_airports_over_two_starts(broker: Broker, spark: Any, tmp_path: Path) -> None:
    source = FlightsInput()
    every = [each for host in range(3) for each in islice(source.events(host), 150) if isinstance(each, InputEvent)]
    topic = broker.create_topic(broker.unique_topic("departures"), 2)
    broker.create_topic(NAME, 3)
    table = str(tmp_path / "table")
    for flights in (every[::2], every[1::2]):
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
    departures = spark.read.format("moldau").options(**options).load()

    figures = compare(spark, departures, table, broker.bootstrap_servers, status, (0, 0))
    hours = Counter((each.time_ms // HOUR_MS, each.fields["origin"]) for each in every if each.time_ms is not None)
    assert (figures.holds, figures.rows_in, figures.windows) == (True, len(every), len(hours))
    assert (figures.late_rows, figures.late_events, figures.doubled, figures.different) == (0, 0, 0, 0)
    assert figures.topic_rows == figures.table_rows > len(hours), "a window that both starts have changed has two rows"

    short = compare(spark, departures.filter(f"{LINE_FIELD} <> {every[0].line}"), table, broker.bootstrap_servers, status, (0, 0))
    assert (short.holds, short.different) == (False, 1), "the windows have an event that the table lacks"
    more = compare(spark, departures.unionAll(departures.limit(1)), table, broker.bootstrap_servers, status, (0, 0))
    assert (more.holds, more.late_events) == (False, 1), "an event that no window has, and none was late"
