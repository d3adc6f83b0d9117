"""Rows that go through a topic of the job come out as they went in, divided by Kafka's hash of their key, each once."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from moldau.client.partitioning import partition_of
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.streams import StreamJob, windows
from moldau.streams.errors import StreamError
from moldau.streams.exact_json import packed, packed_schema, unpacked
from moldau.streams.json_values import json_event
from moldau.streams.outputs import TopicOutput
from moldau.testing.broker import Broker
from support.spark import spark_session
from support.stream_jobs import SCHEMA, counted, counts_of, event, events, in_table, in_topic, send, switched_to

pytestmark = [pytest.mark.system, pytest.mark.spark]

TYPES = """flag boolean, b tinyint, s smallint, i int, l bigint, f float, d double, `odd ``name` string, raw binary,
    money decimal(38, 18), day date, at timestamp, local timestamp_ntz, parts struct<at: timestamp, raw: binary, none: int>,
    list array<struct<at: timestamp, f: float>>, lists array<array<date>>, counts map<int, timestamp>, words map<string, array<binary>>"""
MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
LOCAL = datetime.fromisoformat("9999-12-31T23:59:59.999999"), datetime.fromisoformat("0001-01-01T00:00:00")
ROWS: list[tuple[Any, ...]] = [
    (True, -128, 32767, -(2**31), 2**63 - 1, 0.1, 1e-308, '"\\ \u20ac\U0001f600\x00', bytes(range(256)),
     Decimal("-12345678901234567890.000000000000000001"), date(1, 1, 1), MOMENT, LOCAL[0], (MOMENT, b"", None),
     [(MOMENT, 1.5), None], [[date(2013, 1, 1)], [], None], {1: MOMENT, -1: None}, {"": [b"\xff", None], "x": None}),
    (False, 127, -1, 1, -(2**63), math.inf, -math.inf, "", b"", Decimal("0E-18"), date(9999, 12, 31), datetime(1, 1, 2, tzinfo=UTC),
     LOCAL[1], (None, None, None), [], [], {}, {}),
    (None,) * 18,
]  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


def test_every_type_comes_out_as_it_went_in(spark: Any) -> None:
    """Microseconds, all digits, bytes that are no text, keys of maps, nulls at each level, numbers that JSON does not have."""
    rows = spark.createDataFrame(ROWS, TYPES)
    text = rows.select(packed(rows.schema).alias("text"))
    again = text.select(json_event(text.text, packed_schema(rows.schema, "rows")).alias("event"))
    again = again.select(*unpacked(again.event, rows.schema))
    assert [(each.name, each.dataType) for each in again.schema] == [(each.name, each.dataType) for each in rows.schema]
    assert again.toArrow().to_pylist() == rows.toArrow().to_pylist()
    (not_a_number,) = spark.createDataFrame([(math.nan,)], "f float").select(packed(rows.select("f").schema).alias("text")).collect()
    assert not_a_number.text == '{"f":"NaN"}'
    intervals = spark.sql("SELECT INTERVAL 1 DAY AS length")
    with pytest.raises(StreamError, match="rows: column length is interval day, which cannot be brought through a topic"):
        packed_schema(intervals.schema, "rows")


def test_keys_and_values_of_columns_with_odd_names(spark: Any) -> None:
    """A dot in a column's name is not a field of a struct, nor is a backtick its end."""
    rows = spark.createDataFrame([("k", 1, "v")], "`a.b` string, `c``d` int, `v.w` string")

    def record(key: tuple[str, ...], value: str | None) -> tuple[Any, ...]:
        (row,) = TopicOutput("out", "", key, value)._records(rows).collect()
        return tuple(row)

    assert record(("a.b",), "v.w") == ("k", "v")
    assert record(("c`d",), None) == ("1", '{"a.b":"k","c`d":1,"v.w":"v"}')
    assert record(("a.b", "c`d"), "v.w") == ('{"a.b":"k","c`d":1}', "v")


def partitions_of(broker: Broker, topic: str, count: int) -> dict[bytes, set[int]]:
    """By key, in which partitions it is."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "r", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
    found: dict[bytes, set[int]] = {}
    ended = 0
    while ended < count:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            found.setdefault(message.key() or b"", set()).add(message.partition() or 0)
        else:
            ended += 1
    consumer.close()
    return found


def test_a_job_in_two_steps(broker: Broker, spark: Any, tmp_path: Path) -> None:
    """One run to the end writes the topic and reads it; keys are where every Kafka client looks for them, as many partitions as another
    topic has; the watermark holds; and a job that begins again counts nothing twice."""
    source, planes = (broker.create_topic(broker.unique_topic(name), count) for name, count in (("in", 2), ("planes", 5)))
    through, bootstrap, hours = broker.unique_topic("through"), broker.bootstrap_servers, tmp_path / "lake" / "hours"

    def run(**given: Any) -> None:
        job = StreamJob(source, brokers=bootstrap, directory=str(tmp_path / "job"), spark=spark)
        flights = job.topic(source, format="json", schema=SCHEMA, time="at")
        divided = job.through(flights, through, key="airport", partitions=planes)
        assert divided.schema.simpleString() == flights.schema.simpleString()
        job.to_table(windows.tumbling(divided, "1 hour", "airport"), str(hours))
        job.run(once=True, **given)

    sent = [*events(0, 120), event(240, "EWR", 120)]
    send(bootstrap, source, sent)
    run()
    assert counts_of(in_table(hours)) == counted(sent[:120])
    keys = partitions_of(broker, through, 5)
    assert keys == {key: {partition_of(key, 5)} for key in (b"EWR", b"JFK", b"LGA")}
    assert {each["number"] for each in in_topic(bootstrap, through, 5)} == set(range(121))
    run(fresh=True)
    rows = in_table(hours)
    assert (len(rows), {row["count"] for row in rows}) == (12, {20}), "the table has each window twice, and none has a row counted twice"


def test_a_job_whose_generation_is_a_later_one(broker: Broker, spark: Any, tmp_path: Path) -> None:
    """It may have rows through a topic, and does not read what a former generation has left there; it is not reprocessed beside itself,
    and neither is one that reads what it writes without `through`."""
    source, through = (broker.create_topic(broker.unique_topic(name), 2) for name in ("in", "through"))
    bootstrap, hours = broker.bootstrap_servers, tmp_path / "hours"

    def job() -> StreamJob:
        made = StreamJob(source, brokers=bootstrap, directory=str(tmp_path / "job"), spark=spark)
        flights = made.topic(source, format="json", schema=SCHEMA, time="at")
        divided = made.through(flights, through, key="airport")
        made.to_table(windows.tumbling(divided, "1 hour", "airport"), str(hours))
        return made

    sent = [*events(0, 120), event(240, "EWR", 120)]
    send(bootstrap, source, sent)
    job().run(once=True)
    with pytest.raises(StreamError, match=f"topic {through}: a job with rows through a topic cannot be reprocessed beside itself"):
        job().reprocess(once=True)
    switched_to(bootstrap, source, 2)
    job().run(once=True)
    assert counts_of(in_table(f"{hours}.v2")) == counted(sent[:120])
    send(bootstrap, source, [event(400, "EWR", 121)])
    job().run(once=True)
    assert counts_of(in_table(f"{hours}.v2")) == counted(sent), "what it has left there itself"
    copy, other = (broker.create_topic(broker.unique_topic(name), 1) for name in ("copy", "other"))
    made = job()
    made.to_topic(made.topic(source), copy)
    made.to_topic(made.topic(copy), other)
    with pytest.raises(StreamError, match=rf"job {source}, query {other}: reads topic {copy}, which the job writes: each generation"):
        made.run(once=True)


def test_a_topic_that_does_not_fit_is_refused(broker: Broker, spark: Any, tmp_path: Path) -> None:
    """With both numbers, before anything is written."""
    source, through = (broker.create_topic(broker.unique_topic(name), count) for name, count in (("in", 2), ("through", 3)))
    send(broker.bootstrap_servers, source, events(0, 3))

    def run(topic: str, partitions: int | str | None, key: str = "airport") -> None:
        job = StreamJob(source, brokers=broker.bootstrap_servers, directory=str(tmp_path / "job"), spark=spark)
        flights = job.topic(source, format="json", schema=SCHEMA)
        job.to_table(job.through(flights, topic, key=key, partitions=partitions), str(tmp_path / "table"))
        job.run(once=True)

    with pytest.raises(StreamError, match=f"topic {through} has 3 partitions, and the rows are to be divided into 4: the same keys"):
        run(through, 4)
    with pytest.raises(StreamError, match=f"topic {through} has 3 partitions, and .* into 2, as many as topic {source}"):
        run(through, source)
    missing = broker.unique_topic("missing")
    with pytest.raises(StreamError, match=f"there is no topic {missing} at .*: name with partitions= how many it is to have"):
        run(missing, None)
    with pytest.raises(StreamError, match="there is no column nothing; there are"):
        run(through, 3, "nothing")
    with ClusterLog(broker.bootstrap_servers, "test") as source_log:
        assert source_log.topics([missing]) == {}
    assert not (tmp_path / "job").exists()
    assert in_topic(broker.bootstrap_servers, through, 3) == []
